"""The builder itself: names, constants, dtypes of weights, and the model it stamps."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from ortist.errors import BadCheckpoint
from ortist.graphs.builder import FLOAT, INT64, GraphBuilder, Precision, Value, dims_of
from tests.tiny.graphs import run
from tests.tiny.weights import ArraySource


def builder(arrays: dict[str, np.ndarray] | None = None, dtype: Precision = "fp32") -> GraphBuilder:
    return GraphBuilder("thing", ArraySource(arrays or {}), dtype=dtype)


def stored(value: Value) -> np.ndarray:
    assert value.const_value is not None
    return value.const_value.numpy()


@pytest.mark.parametrize(
    "dtype",
    [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn],
)
def test_every_stored_float_type_becomes_the_graphs(dtype: type) -> None:
    numbers = np.asarray([[0.5, -1.5, 3.0], [0.0, 240.0, -0.25]], dtype=dtype)
    targets: dict[Precision, type] = {"fp32": np.float32, "fp16": np.float16}
    for precision, target in targets.items():
        value = builder({"w": numbers}, precision).weight("w", (2, 3))
        assert stored(value).dtype == target
        np.testing.assert_array_equal(stored(value), numbers.astype(target))


def test_transforms_change_layout_only() -> None:
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = builder({"w": matrix, "v": matrix[0].copy()})
    transposed = b.weight("w", (2, 3), "transpose")
    assert dims_of(transposed) == (3, 2)
    np.testing.assert_array_equal(stored(transposed), matrix.T)
    assert stored(transposed).flags.c_contiguous
    column = b.weight("v", (3,), "channels")
    assert stored(column).shape == (3, 1, 1)


def test_one_tensor_has_one_layout() -> None:
    b = builder({"w": np.zeros((2, 2), np.float32)})
    assert b.weight("w", (2, 2)) is b.weight("w", (2, 2))
    with pytest.raises(ValueError, match="used both as"):
        b.weight("w", (2, 2), "transpose")


def test_scopes_name_weights_and_nodes() -> None:
    b = builder({"a.b.w": np.ones(2, np.float32)})
    x = b.input("x", ("n", 2))
    with b.scope("a"), b.scope("b"):
        y = b.mul(b.add(x, b.weight("w", (2,))), b.weight("w", (2,)))
        y = b.add(y, 1.0)
    b.output("y", b.relu(y), ("n", 2))
    model = b.finish()
    assert [node.name for node in model.graph] == ["a.b/Add", "a.b/Mul", "a.b/Add_1", "Relu"]
    assert "a.b.w" in model.graph.initializers
    out = run(model, {"x": np.asarray([[1, -3]], np.float32)})["y"]
    np.testing.assert_array_equal(out, [[3, 0]])


def test_equal_constants_are_one_and_names_do_not_change_between_runs() -> None:
    b = builder()
    assert b.ints(0, -1) is b.ints(0, -1)
    assert b.ints(1) is not b.scalar(1, INT64)  # [1] and a number
    assert b.scalar(1.0) is not b.scalar(1.0, ir.DataType.FLOAT16)
    long = b.constant(np.arange(100, dtype=np.float32))
    assert long.name == "const/float32[100]#2b17c258"


def test_shape_of_a_value_is_asked_once() -> None:
    b = builder()
    x = b.input("x", ("n", 3, "h", "w"))
    assert b.shape(x) is b.shape(x)
    assert dims_of(b.shape(x, 2, 4)) == (2,)
    b.output("s", b.shape(x, 2), (2,))
    out = run(b.finish(), {"x": np.zeros((1, 3, 5, 7), np.float32)})["s"]
    np.testing.assert_array_equal(out, [5, 7])


def test_an_input_or_a_second_name_as_output() -> None:
    b = builder()
    x = b.input("x", ("n",))
    y = b.sigmoid(x)
    b.output("first", y, ("n",))
    b.output("second", y, ("n",))
    b.output("same", x, ("n",))
    out = run(b.finish(), {"x": np.zeros(2, np.float32)})
    assert {name: array.tolist() for name, array in out.items()} == {
        "first": [0.5, 0.5],
        "second": [0.5, 0.5],
        "same": [0.0, 0.0],
    }


def test_cast_emits_no_node_for_the_same_dtype() -> None:
    b = builder()
    x = b.input("x", ("n",))
    assert b.cast(x, FLOAT) is x
    assert b.cast(x, ir.DataType.FLOAT16).dtype == ir.DataType.FLOAT16


def test_split_slice_gather_concat_and_upsample_compute_what_they_say() -> None:
    b = builder()
    x = b.input("x", ("n", 4, "h", "w"))
    first, second = b.split(x, (1, 3), axis=1)
    assert (dims_of(first)[1], dims_of(second)[1]) == (1, 3)
    joined = b.concat([second, first], axis=1)
    assert dims_of(joined) == ("n", 4, "h", "w")
    b.output("joined", joined, ("n", 4, "h", "w"))
    b.output("cut", b.slice(x, b.ints(1), b.ints(3), (2,)), ("n", 4, 2, "w"))
    b.output("picked", b.gather(x, b.ints(2, 0), axis=1), ("n", 2, "h", "w"))
    b.output("large", b.upsample_nearest(x), ("n", 4, "H", "W"))
    array = np.random.default_rng(0).standard_normal((2, 4, 3, 5), dtype=np.float32)
    out = run(b.finish(), {"x": array})
    np.testing.assert_array_equal(out["joined"], array[:, [1, 2, 3, 0]])
    np.testing.assert_array_equal(out["cut"], array[:, :, 1:3])
    np.testing.assert_array_equal(out["picked"], array[:, [2, 0]])
    np.testing.assert_array_equal(out["large"], array.repeat(2, 2).repeat(2, 3))


def test_stored_keys_without_a_use_are_an_error_unless_known() -> None:
    b = builder({"used": np.ones(1, np.float32), "position_ids": np.zeros(1, np.int64)})
    x = b.input("x", (1,))
    b.output("y", b.add(x, b.weight("used", (1,))), (1,))
    assert b.unused_keys() == ["position_ids"]
    with pytest.raises(BadCheckpoint, match="position_ids") as caught:
        b.finish()
    assert caught.value.code == "weights-unused"
    assert b.finish(lambda key: key == "position_ids").graph.name == "thing"


def test_a_convolution_of_the_wrong_width_is_a_mistake_of_the_caller() -> None:
    b = builder({"w": np.zeros((2, 3, 1, 1), np.float32)})
    x = b.input("x", ("n", 4, "h", "w"))
    with pytest.raises(ValueError, match="conv input channels: 4 is not 3"):
        b.conv(x, b.weight("w", (2, 3, 1, 1)))
