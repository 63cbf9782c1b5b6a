"""Noise: the numbers that a seed gives, so that a seed from elsewhere gives its picture here.

`TorchCpuGenerator` reproduces PyTorch's generator on the CPU, bit for bit with its x86 builds
(AVX2 and AVX-512, whose normal numbers are the same). PyTorch on a processor without AVX2, ARM
included, computes logarithm, sine and cosine with its C library and differs by up to 3e-6.

A source of noise is anything with `normal(shape)`. Two ways to give a batch its noise:

- `PerImageNoise([TorchCpuGenerator(seed + i) ...])`: each picture has its own stream, so neither
  the batch size nor the order changes a picture (diffusers with a list of generators, A1111).
- one `TorchCpuGenerator(seed)` asked for the whole batch: pictures are positions in one stream
  (diffusers with a single generator, ComfyUI).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ortist.errors import BadRequest
from ortist.sampling.float32_math import Float64, log_of_24_bits, sin_cos, single

Float32 = NDArray[np.float32]

_TWO_PI = single(2 * math.pi)
_MASK_24 = 0xFFFFFF
# PyTorch fills arrays below this length one number at a time, in double precision.
_VECTOR_LENGTH = 16
# Box-Muller blocks worked on at once: the temporaries stay in the processor's cache.
_BLOCKS_AT_ONCE = 512


class NoiseSource(Protocol):
    """Anything that gives standard normal numbers, each call further along its stream."""

    def normal(self, shape: tuple[int, ...]) -> Float32:
        """Draw float32 standard normal numbers of `shape`."""
        ...


class TorchCpuGenerator:
    """The stream of `torch.Generator().manual_seed(seed)`, drawn as by `torch.randn`.

    The generator is the Mersenne Twister MT19937 seeded with the low 32 bits of the seed (so
    seeds that differ by a multiple of 2**32 give the same numbers, in PyTorch as here), and the
    normal numbers come by the transform of Box and Muller.

    Args:
        seed: 0 to 2**64 - 1.

    Raises:
        BadRequest: the seed is out of range.
    """

    def __init__(self, seed: int) -> None:
        if not 0 <= seed < 2**64:
            raise BadRequest(
                f"seed {seed} is out of range",
                hint="use a seed from 0 to 2**64 - 1",
                code="bad-seed",
            )
        self._twister = np.random.RandomState(seed & 0xFFFFFFFF)
        self._spare: float | None = None  # second number of the last pair of the scalar path

    def normal(self, shape: tuple[int, ...]) -> Float32:
        """Standard normal numbers, as `torch.randn(shape, generator=g)` in float32.

        Args:
            shape: any; an empty one gives a single number without dimensions.

        Returns:
            float32 array of `shape`, contiguous.
        """
        size = math.prod(shape)
        if size < _VECTOR_LENGTH:
            values = np.array([self._scalar() for _ in range(size)], dtype=np.float32)
            return values.reshape(shape)
        values = np.empty(size, dtype=np.float32)
        whole = size - size % _VECTOR_LENGTH
        words = self._words(size)
        _box_muller(words[:whole].reshape(-1, 16), values[:whole].reshape(-1, 16))
        if whole < size:
            # PyTorch transforms whole blocks only, then draws the last 16 numbers afresh; the
            # words of the incomplete block are spent.
            _box_muller(self._words(16).reshape(1, 16), values[-16:].reshape(1, 16))
        return values.reshape(shape)

    def _words(self, count: int) -> NDArray[np.uint32]:
        # The full range of uint32 makes numpy hand out the twister's words as they come.
        return self._twister.randint(0, 2**32, size=count, dtype=np.uint32)

    def _scalar(self) -> float:
        if self._spare is not None:
            value, self._spare = self._spare, None
            return value
        words = [int(word) for word in self._words(4)]
        # Two words make a 64-bit number, high word first; its low 53 bits make a double.
        first, second = (
            ((high << 32 | low) & (2**53 - 1)) * 2.0**-53 for high, low in (words[:2], words[2:])
        )
        radius = math.sqrt(-2.0 * math.log1p(-second))
        angle = 2.0 * math.pi * first
        self._spare = radius * math.sin(angle)
        return radius * math.cos(angle)


class PerImageNoise:
    """Noise of a batch in which every picture has a stream of its own.

    Args:
        sources: one source per picture, in the batch's order.
    """

    def __init__(self, sources: Sequence[NoiseSource]) -> None:
        self._sources = tuple(sources)

    def normal(self, shape: tuple[int, ...]) -> Float32:
        """Draw `shape[1:]` from each picture's own source.

        Args:
            shape: the first number is the batch size, which must be the number of sources.

        Raises:
            ValueError: it is not.
        """
        if not shape or shape[0] != len(self._sources):
            raise ValueError(f"shape {shape} does not begin with {len(self._sources)} pictures")
        if not self._sources:
            return np.empty(shape, dtype=np.float32)
        return np.stack([source.normal(shape[1:]) for source in self._sources])


def _box_muller(words: NDArray[np.uint32], out: Float32) -> None:
    """Turn blocks of 16 random words into blocks of 16 normal numbers.

    In a block, word i gives the radius and word i + 8 the angle of the numbers i (cosine) and
    i + 8 (sine).

    Args:
        words: uint32 (blocks, 16).
        out: float32 (blocks, 16), written.
    """
    for start in range(0, len(words), _BLOCKS_AT_ONCE):
        part = (words[start : start + _BLOCKS_AT_ONCE] & _MASK_24).astype(np.int32)
        radius = log_of_24_bits(2**24 - part[:, :8])  # the uniform number counts down from 1
        radius *= -2.0
        np.sqrt(radius, out=radius)
        radius += 0.0  # minus zero, where the logarithm was zero, becomes zero
        uniform = part[:, 8:].astype(np.float64)
        uniform *= 2.0**-24 * _TWO_PI
        sine, cosine = sin_cos(_to_single(uniform))
        block = out[start : start + _BLOCKS_AT_ONCE]
        radius = _to_single(radius)
        # PyTorch's fused "times deviation plus mean" ends in + 0, which turns minus zero into zero.
        np.add(radius * cosine, 0.0, out=block[:, :8], casting="same_kind")
        np.add(radius * sine, 0.0, out=block[:, 8:], casting="same_kind")


def _to_single(x: Float64) -> Float64:
    return x.astype(np.float32).astype(np.float64)
