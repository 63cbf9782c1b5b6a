"""The noise of a seed against torch.randn, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ortist.sampling import PerImageNoise, TorchCpuGenerator
from tests.parity.conftest import Oracle
from tests.sampling.draws import SEEDS, SHAPES

pytestmark = pytest.mark.parity


def same(ours: np.ndarray, theirs: Any) -> bool:
    return np.array_equal(ours.view(np.int32), theirs.numpy().view(np.int32))


@pytest.fixture
def vector_torch(oracle: Oracle) -> Any:
    """torch, where its normal numbers come from its AVX2 code."""
    capability = oracle.torch.backends.cpu.get_cpu_capability()
    if capability not in ("AVX2", "AVX512"):
        pytest.skip(f"torch works as {capability} here, and then takes the C library's functions")
    return oracle.torch


@pytest.mark.parametrize("seed", [*SEEDS, 2**32 + 7, 2**64 - 1])
def test_sequences_of_draws(vector_torch: Any, seed: int) -> None:
    theirs = vector_torch.Generator().manual_seed(seed)
    ours = TorchCpuGenerator(seed)
    for shape in (*SHAPES, *reversed(SHAPES)):
        drawn = vector_torch.randn(shape, generator=theirs)
        assert same(ours.normal(shape), drawn), shape


def test_every_length_up_to_200_and_what_follows_it(vector_torch: Any) -> None:
    for length in range(200):
        theirs = vector_torch.Generator().manual_seed(length)
        ours = TorchCpuGenerator(length)
        for size in (length, 2, length):
            drawn = vector_torch.randn((size,), generator=theirs)
            assert same(ours.normal((size,)), drawn), (length, size)


def test_a_million_numbers_of_each_of_ten_seeds(vector_torch: Any) -> None:
    for seed in range(100, 110):
        drawn = vector_torch.randn(
            (1_000_003,), generator=vector_torch.Generator().manual_seed(seed)
        )
        assert same(TorchCpuGenerator(seed).normal((1_000_003,)), drawn), seed


def test_batches_as_in_diffusers(vector_torch: Any, oracle: Oracle) -> None:
    randn_tensor = oracle.diffusers.utils.torch_utils.randn_tensor
    generator = vector_torch.Generator
    shape = (3, 4, 8, 8)
    one = randn_tensor(shape, generator=generator().manual_seed(5))
    assert same(TorchCpuGenerator(5).normal(shape), one)
    each = randn_tensor(shape, generator=[generator().manual_seed(5 + i) for i in range(3)])
    assert same(PerImageNoise([TorchCpuGenerator(5 + i) for i in range(3)]).normal(shape), each)


def test_torch_without_vector_code_is_within_3e_6(oracle: Oracle) -> None:
    # The same numbers by double-precision functions bound what any libm gives.
    size = 1 << 16
    words = np.random.RandomState(9).randint(0, 2**32, size=size, dtype=np.uint32) & 0xFFFFFF
    uniform = (words / 2.0**24).reshape(-1, 2, 8)
    radius = np.sqrt(-2 * np.log(1 - uniform[:, 0]))
    angle = 2 * np.pi * uniform[:, 1]
    exact = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)
    assert np.abs(TorchCpuGenerator(9).normal((size,)) - exact).max() <= 3e-6
    drawn = oracle.torch.randn((size,), generator=oracle.torch.Generator().manual_seed(9))
    assert np.abs(drawn.numpy() - exact).max() <= 3e-6


# PyTorch takes 24 bits of a word for the radius and 24 of another for the angle, so its
# functions can be tried on every input there is: by handing its generator chosen words.

STATE_WORDS = 624


def untemper(words: np.ndarray) -> np.ndarray:
    """The twister's state words whose output is `words`."""
    y = words.astype(np.uint32)
    y = y ^ (y >> np.uint32(18))
    y = y ^ ((y << np.uint32(15)) & np.uint32(0xEFC60000))
    state = y
    for _ in range(4):
        state = y ^ ((state << np.uint32(7)) & np.uint32(0x9D2C5680))
    y = state
    for _ in range(2):
        state = y ^ (state >> np.uint32(11))
    return state


class Chosen:
    """torch.randn over chosen words, by way of the generator's saved state."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._generator = torch.Generator().manual_seed(0)
        self._state = self._generator.get_state().numpy().copy()
        self._state[8:12].view(np.int32)[0] = STATE_WORDS  # words left before the next twist
        self._state[16:24].view(np.uint64)[0] = 0  # next word

    def normal(self, words: np.ndarray) -> np.ndarray:
        """Normal numbers of `words`, uint32 (blocks, 16); float32 of the same shape."""
        result = np.empty(words.shape, dtype=np.float32)
        raw = untemper(words)
        blocks = (STATE_WORDS - 1) // 16
        for start in range(0, len(words), blocks):
            part = raw[start : start + blocks].reshape(-1)
            self._state[24 : 24 + 8 * len(part)].view(np.uint64)[:] = part
            self._generator.set_state(self._torch.from_numpy(self._state))
            drawn = self._torch.randn(len(part), generator=self._generator).numpy()
            result[start : start + blocks] = drawn.reshape(-1, 16)
        return result


def ours_of(words: np.ndarray) -> np.ndarray:
    from ortist.sampling.noise import _box_muller

    result = np.empty(words.shape, dtype=np.float32)
    _box_muller(words, result)
    return result


def check_every(torch: Any, inputs: np.ndarray) -> None:
    chosen = Chosen(torch)
    # Radii for every input at angle 0, where cosine is 1; sines and cosines of every input at
    # three radii, so that a difference in the last bit cannot hide in the product's rounding.
    pairs = [(inputs, np.zeros_like(inputs))]
    pairs += [(np.full_like(inputs, k), inputs) for k in (2**24 - 1, 2**24 - 1_234_567, 0x5A5A5A)]
    for radius, angle in pairs:
        words = np.concatenate([radius.reshape(-1, 8), angle.reshape(-1, 8)], axis=1)
        ours, theirs = ours_of(words), chosen.normal(words)
        wrong = np.flatnonzero(ours.view(np.int32) != theirs.view(np.int32))
        assert not len(wrong), words.reshape(-1)[wrong[:8]]


def test_functions_on_a_fair_sample_of_inputs(vector_torch: Any) -> None:
    edges = np.concatenate([np.arange(4096), 2**24 - 1 - np.arange(4096), 2**23 + np.arange(4096)])
    spread = np.arange(0, 2**24, 1021)
    inputs = np.concatenate([edges, spread])
    check_every(vector_torch, inputs[: len(inputs) // 8 * 8].astype(np.uint32))


@pytest.mark.slow
def test_functions_on_every_input_there_is(vector_torch: Any) -> None:
    for part in np.split(np.arange(2**24, dtype=np.uint32), 32):
        check_every(vector_torch, part)
