"""Symbolic shapes: what is known of a value's shape before the graph runs.

A dimension is a number, a name ("batch_size"), or None when nothing is known. The functions
below give the shape of an operator's result and raise ValueError where known numbers clash,
which means that the caller built something impossible.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

import onnx_ir as ir

Dim: TypeAlias = int | str | None
Dims: TypeAlias = tuple[Dim, ...]


def dims_of(value: ir.Value, rank: int | None = None) -> Dims:
    """The known shape of a value.

    Raises:
        ValueError: the rank is not known, or is not `rank`.
    """
    if value.shape is None:
        raise ValueError(f"{value.name} has no known shape")
    dims = tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)
    if rank is not None and len(dims) != rank:
        raise ValueError(f"{value.name} has shape {dims}, expected {rank} dimensions")
    return dims


def require_equal(left: Dim, right: Dim, what: str) -> None:
    """Raise ValueError if both are numbers and differ."""
    if isinstance(left, int) and isinstance(right, int) and left != right:
        raise ValueError(f"{what}: {left} is not {right}")


def broadcast(left: Dims, right: Dims) -> Dims:
    """Shape of an elementwise result by numpy's rules."""
    rank = max(len(left), len(right))
    left = (1,) * (rank - len(left)) + left
    right = (1,) * (rank - len(right)) + right
    return tuple(_broadcast_dim(a, b) for a, b in zip(left, right, strict=True))


def _broadcast_dim(left: Dim, right: Dim) -> Dim:
    if right in (left, 1):
        return left
    if left == 1:
        return right
    if isinstance(left, int) and isinstance(right, int):
        raise ValueError(f"cannot broadcast {left} and {right}")
    # A number above 1 wins over a name: the name can only be that number or 1 when it runs.
    if isinstance(left, int):
        return left
    return right if isinstance(right, int) else None


def matmul(left: Dims, right: Dims) -> Dims:
    """Shape of a matrix product of two values with at least two axes."""
    require_equal(left[-1], right[-2], "inner sizes of a matrix product")
    return (*broadcast(left[:-2], right[:-2]), left[-2], right[-1])


def reshape(dims: Dims, shape: Sequence[int]) -> Dims:
    """Shape after an ONNX Reshape: 0 copies, -1 takes what is left."""
    out: list[Dim] = [dims[axis] if size == 0 else size for axis, size in enumerate(shape)]
    if -1 in shape:
        axis = list(shape).index(-1)
        # Copied dimensions cancel; what remains is known only if all of it is numbers.
        rest_in = [dim for i, dim in enumerate(dims) if i >= len(shape) or shape[i] != 0]
        rest_out = [size for size in shape if size > 0]
        known = [dim for dim in rest_in if isinstance(dim, int)]
        if len(known) == len(rest_in):
            size, left_over = divmod(prod(known), prod(rest_out))
            if left_over:
                raise ValueError(f"cannot reshape {dims} to {tuple(shape)}")
            out[axis] = size
        else:
            out[axis] = None
    return tuple(out)


def concat(shapes: Sequence[Dims], axis: int) -> Dims:
    """Shape of values joined along `axis`; elsewhere the most definite dimension is kept."""
    out: list[Dim] = []
    for index, column in enumerate(zip(*shapes, strict=True)):
        numbers = [dim for dim in column if isinstance(dim, int)]
        if index == axis:
            out.append(sum(numbers) if len(numbers) == len(column) else None)
        elif numbers:
            out.append(numbers[0])
        else:
            out.append(column[0] if len(set(column)) == 1 else None)
    return tuple(out)


def scale(dim: Dim, factor: int) -> Dim:
    """A dimension times a whole factor, where it is a number."""
    return dim * factor if isinstance(dim, int) else None
