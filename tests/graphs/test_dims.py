"""Symbolic shapes agree with numpy wherever numbers are known."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortist.graphs import dims
from ortist.graphs.dims import Dims

SIDES = st.integers(1, 3)
SHAPES = st.lists(SIDES, min_size=0, max_size=4).map(tuple)


@given(SHAPES, SHAPES)
def test_broadcast_follows_numpy(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    try:
        expected = np.broadcast_shapes(left, right)
    except ValueError:
        with pytest.raises(ValueError, match="cannot broadcast"):
            dims.broadcast(left, right)
    else:
        assert dims.broadcast(left, right) == expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (("batch", 4), (1, 4), ("batch", 4)),
        ((1,), ("batch", "length"), ("batch", "length")),
        (("batch",), ("batch",), ("batch",)),
        (("batch",), (8,), (8,)),
        (("batch",), ("length",), (None,)),
        ((None,), (1,), (None,)),
    ],
)
def test_broadcast_of_names(left: Dims, right: Dims, expected: Dims) -> None:
    assert dims.broadcast(left, right) == expected
    assert dims.broadcast(right, left) == expected


@given(st.lists(SIDES, min_size=1, max_size=4), st.data())
def test_reshape_follows_numpy(given_shape: list[int], data: st.DataObject) -> None:
    copied = data.draw(st.integers(0, len(given_shape) - 1))
    shape = (*[0] * copied, -1)
    zeros = np.zeros(given_shape)
    assert dims.reshape(tuple(given_shape), shape) == zeros.reshape(*given_shape[:copied], -1).shape


@pytest.mark.parametrize(
    ("given_dims", "shape", "expected"),
    [
        (("n", 8, "h", "w"), (0, 4, -1), ("n", 4, None)),
        (("n", "length", 12), (0, 0, 3, 4), ("n", "length", 3, 4)),
        (("n", "length", 3, 4), (0, 0, 12), ("n", "length", 12)),
        (("n", 6, 8), (0, 48), ("n", 48)),
        (("n", 6, 8), (0, -1), ("n", 48)),
        (("n", 6), (-1,), (None,)),
    ],
)
def test_reshape_of_names(given_dims: Dims, shape: tuple[int, ...], expected: Dims) -> None:
    assert dims.reshape(given_dims, shape) == expected


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot reshape"):
        dims.reshape((2, 3), (4, -1))
    with pytest.raises(ValueError, match="inner sizes"):
        dims.matmul(("n", 3), (4, 5))
    with pytest.raises(ValueError, match="conv: 3 is not 4"):
        dims.require_equal(3, 4, "conv")


def test_matmul_concat_and_scale() -> None:
    assert dims.matmul(("n", 8, "m", 4), (1, 8, 4, "k")) == ("n", 8, "m", "k")
    assert dims.concat([("n", 2, None), ("n", 3, "w")], axis=1) == ("n", 5, None)
    assert dims.concat([("n", "c"), (2, 3)], axis=1) == (2, None)
    assert (dims.scale(3, 2), dims.scale("h", 2), dims.scale(None, 2)) == (6, None, None)


def test_rank_is_checked() -> None:
    value = ir.Value(name="x", shape=ir.Shape(("n", 4, None)))
    assert dims.dims_of(value) == ("n", 4, None)
    with pytest.raises(ValueError, match="expected 4 dimensions"):
        dims.dims_of(value, rank=4)
    with pytest.raises(ValueError, match="no known shape"):
        dims.dims_of(ir.Value(name="y"))
