"""State dicts without a checkpoint: random numbers, or shapes alone."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

Shapes: TypeAlias = dict[str, tuple[int, ...]]


class ArraySource:
    """A weight source over arrays in memory."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = dict(arrays)

    def keys(self) -> Iterable[str]:
        return self.arrays.keys()

    def shape(self, key: str) -> tuple[int, ...]:
        return self.arrays[key].shape

    def dtype(self, key: str) -> np.dtype:
        return self.arrays[key].dtype

    def load(self, key: str) -> np.ndarray:
        return self.arrays[key]


class ShapeSource:
    """A weight source that knows names and shapes, and fails the test when a tensor is read."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes

    def keys(self) -> Iterable[str]:
        return self.shapes.keys()

    def shape(self, key: str) -> tuple[int, ...]:
        return self.shapes[key]

    def dtype(self, key: str) -> np.dtype:
        return np.dtype(np.float16)

    def load(self, key: str) -> np.ndarray:
        raise AssertionError(f"{key} was read while the graph was built")


def random_weight(key: str, shape: Sequence[int]) -> np.ndarray:
    """Numbers that depend on the key alone, of a size that keeps activations near 1.

    No bias is zero and no normalisation is neutral, so that a forgotten one shows.
    """
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    values = rng.standard_normal(tuple(shape))
    if len(shape) == 1:
        values = 0.2 * values + (1.0 if key.endswith("weight") else 0.0)
    elif not key.endswith("embedding.weight"):
        values = values / np.sqrt(np.prod(shape[1:]))
    return values.astype(np.float32)


def random_source(shapes: Mapping[str, Sequence[int]]) -> ArraySource:
    """Random weights for every tensor of a state dict."""
    return ArraySource({key: random_weight(key, shape) for key, shape in shapes.items()})
