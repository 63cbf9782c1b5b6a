"""`GraphBuilder`: writes an ONNX graph, one typed method per operator, over onnx-ir.

The builder knows each value's dtype and, where it is known, its symbolic shape. Modules nest as
in the checkpoint: inside `with builder.scope("down_blocks.0")` a weight called "conv.weight" is
the tensor "down_blocks.0.conv.weight", and nodes are named after the same path.

Everything emitted is standard ONNX of opset 17 in IR version 8, which ONNX Runtime loads
from 1.14 on.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ortist import __version__
from ortist.graphs import dims as sizes
from ortist.graphs.dims import Dim, Dims, dims_of
from ortist.graphs.precision import Precision
from ortist.graphs.weights import Transform, WeightSource, WeightTable

__all__ = ["Dim", "Dims", "GraphBuilder", "Precision", "Value", "WeightSource", "dims_of"]

OPSET = 17
IR_VERSION = 8
PRODUCER = "ortist"

Value: TypeAlias = ir.Value
Attribute: TypeAlias = int | float | str | Sequence[int] | Sequence[float]

FLOAT = ir.DataType.FLOAT
FLOAT16 = ir.DataType.FLOAT16
INT64 = ir.DataType.INT64
BOOL = ir.DataType.BOOL

_DTYPES: Mapping[Precision, ir.DataType] = {"fp32": FLOAT, "fp16": FLOAT16}


def _nothing(_key: str) -> bool:
    return False


class GraphBuilder:
    """Collects the nodes of one graph.

    Args:
        name: the component, such as "unet"; names the graph and appears in messages.
        weights: the checkpoint whose tensors become initialisers.
        dtype: dtype of the weights and of all arithmetic that needs no more than that.
    """

    def __init__(self, name: str, weights: WeightSource, *, dtype: Precision) -> None:
        self.name = name
        self.dtype = _DTYPES[dtype]
        self._weights = WeightTable(name, weights, self.dtype)
        self._scopes: list[str] = []
        self._inputs: list[Value] = []
        self._outputs: list[Value] = []
        self._nodes: list[ir.Node] = []
        self._node_names: dict[str, int] = {}
        self._constants: dict[str, Value] = {}
        self._shapes: dict[tuple[Value, int, int | None], Value] = {}

    # Names, inputs, outputs

    @contextmanager
    def scope(self, name: str) -> Generator[None]:
        """Nest a module: prefixes weight keys and node names with `name` and a dot."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def path(self, name: str) -> str:
        """The full state-dict key of `name` in the current scope."""
        return ".".join((*self._scopes, name))

    def input(self, name: str, dims: Dims, dtype: ir.DataType | None = None) -> Value:
        """Declare a graph input; `dtype` defaults to the graph's."""
        value = _value(name, dtype or self.dtype, dims)
        self._inputs.append(value)
        return value

    def output(self, name: str, value: Value, dims: Dims) -> None:
        """Declare a graph output called `name`; `dims` carry its public symbolic names."""
        if any(value is other for other in (*self._inputs, *self._outputs)):
            value = self.op("Identity", [value], dims=dims)
        value.name = name
        value.shape = ir.Shape(dims)
        self._outputs.append(value)

    # Weights and constants

    def weight(self, key: str, shape: Sequence[int], transform: Transform | None = None) -> Value:
        """The initialiser for the tensor `key` of the current scope.

        Args:
            key: name within the scope, such as "conv1.weight".
            shape: shape the config promises for the stored tensor.
            transform: layout change on the way into the graph; recorded in the metadata.
        """
        return self._weights.take(self.path(key), tuple(shape), transform)

    def unused_keys(self) -> list[str]:
        """Names in the checkpoint that the graph has not asked for, sorted."""
        return self._weights.unused_keys()

    def constant(self, array: np.ndarray) -> Value:
        """A constant initialiser; equal arrays share one."""
        kind = f"{array.dtype.name}{list(array.shape)}"
        if array.size <= 8:
            name = f"const/{kind}({','.join(str(item) for item in array.ravel().tolist())})"
        else:
            name = f"const/{kind}#{zlib.crc32(array.tobytes()):08x}"
        if name not in self._constants:
            tensor = ir.Tensor(array, name=name)
            value = _value(name, tensor.dtype, array.shape)
            value.const_value = tensor
            self._constants[name] = value
        return self._constants[name]

    def ints(self, *values: int) -> Value:
        """A constant 1-D int64 tensor, as shapes and axes need it."""
        return self.constant(np.asarray(values, dtype=np.int64))

    def scalar(self, value: float, dtype: ir.DataType | None = None) -> Value:
        """A constant 0-D tensor, by default of the graph's dtype."""
        return self.constant(np.asarray(value, dtype=(dtype or self.dtype).numpy()))

    # The operator itself

    def op(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        *,
        dims: Dims | None = None,
        dtype: ir.DataType | None = None,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> Value:
        """Add a node with one output.

        Args:
            op_type: operator of the default ONNX domain.
            inputs: None stands for an optional input left out.
            dims: shape of the output; None means nothing is known, not even the rank.
            dtype: dtype of the output; by default that of the first input.
            attributes: the node's attributes.
        """
        return self._node(op_type, inputs, [dims], dtype, attributes)[0]

    def _node(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[Dims | None],
        dtype: ir.DataType | None = None,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> list[Value]:
        if dtype is None:
            first = next(value for value in inputs if value is not None)
            dtype = _dtype_of(first)
        base = "/".join((".".join(self._scopes), op_type)) if self._scopes else op_type
        count = self._node_names.get(base, 0)
        self._node_names[base] = count + 1
        name = base if count == 0 else f"{base}_{count}"
        values = [_value(f"{name}:{index}", dtype, dims) for index, dims in enumerate(outputs)]
        node = ir.Node(
            "",
            op_type,
            inputs,
            ir.convenience.convert_attributes(dict(attributes or {})),
            outputs=values,
            name=name,
        )
        self._nodes.append(node)
        return values

    # Arithmetic

    def add(self, left: Value, right: Value | float) -> Value:
        """`left + right`, broadcast."""
        return self._binary("Add", left, right)

    def sub(self, left: Value, right: Value | float) -> Value:
        """`left - right`, broadcast."""
        return self._binary("Sub", left, right)

    def mul(self, left: Value, right: Value | float) -> Value:
        """`left * right`, broadcast."""
        return self._binary("Mul", left, right)

    def div(self, left: Value, right: Value | float) -> Value:
        """`left / right`, broadcast."""
        return self._binary("Div", left, right)

    def _binary(self, op_type: str, left: Value, right: Value | float) -> Value:
        if not isinstance(right, ir.Value):
            right = self.scalar(right, _dtype_of(left))
        return self.op(op_type, [left, right], dims=sizes.broadcast(dims_of(left), dims_of(right)))

    def sigmoid(self, x: Value) -> Value:
        """Logistic function."""
        return self._unary("Sigmoid", x)

    def tanh(self, x: Value) -> Value:
        """Hyperbolic tangent."""
        return self._unary("Tanh", x)

    def relu(self, x: Value) -> Value:
        """`max(x, 0)`."""
        return self._unary("Relu", x)

    def erf(self, x: Value) -> Value:
        """Gauss error function."""
        return self._unary("Erf", x)

    def sin(self, x: Value) -> Value:
        """Sine, x in radians."""
        return self._unary("Sin", x)

    def cos(self, x: Value) -> Value:
        """Cosine, x in radians."""
        return self._unary("Cos", x)

    def _unary(self, op_type: str, x: Value) -> Value:
        return self.op(op_type, [x], dims=dims_of(x))

    def softmax(self, x: Value) -> Value:
        """Softmax over the last axis."""
        return self.op("Softmax", [x], dims=dims_of(x), attributes={"axis": -1})

    def matmul(self, left: Value, right: Value) -> Value:
        """Matrix product of the last two axes, the others broadcast."""
        return self.op("MatMul", [left, right], dims=sizes.matmul(dims_of(left), dims_of(right)))

    def gemm(self, x: Value, weight: Value, bias: Value | None = None) -> Value:
        """`x @ weight.T + bias` for x [n, in] and a Linear weight in its stored form [out, in]."""
        (rows, _), (out_features, _) = dims_of(x, rank=2), dims_of(weight, rank=2)
        inputs = [x, weight] if bias is None else [x, weight, bias]
        return self.op("Gemm", inputs, dims=(rows, out_features), attributes={"transB": 1})

    def conv(
        self,
        x: Value,
        weight: Value,
        bias: Value | None = None,
        *,
        stride: int = 1,
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    ) -> Value:
        """2-D convolution of x [n, c, h, w] with weight [out, c, kh, kw].

        Args:
            x: images.
            weight: kernels.
            bias: one number per output channel, [out].
            stride: same in both directions.
            pads: zeros added at the top, left, bottom and right.
        """
        out, channels, kernel_height, kernel_width = dims_of(weight, rank=4)
        batch, x_channels, height, width = dims_of(x, rank=4)
        sizes.require_equal(x_channels, channels, self.path("conv input channels"))
        same = stride == 1 and pads[0] + pads[2] + 1 == kernel_height
        same = same and pads[1] + pads[3] + 1 == kernel_width
        spatial: Dims = (height, width) if same else (None, None)
        return self.op(
            "Conv",
            [x, weight] if bias is None else [x, weight, bias],
            dims=(batch, out, *spatial),
            attributes={
                "kernel_shape": _ints(kernel_height, kernel_width),
                "strides": [stride, stride],
                "pads": list(pads),
            },
        )

    def instance_norm(self, x: Value, scale: Value, bias: Value, epsilon: float) -> Value:
        """Normalise each [n, c] slice of x to mean 0 and variance 1, then scale and shift."""
        return self.op(
            "InstanceNormalization",
            [x, scale, bias],
            dims=dims_of(x),
            attributes={"epsilon": float(epsilon)},
        )

    def layer_norm(self, x: Value, scale: Value, bias: Value, epsilon: float) -> Value:
        """Layer normalisation over the last axis; statistics in float32 whatever x is."""
        return self.op(
            "LayerNormalization",
            [x, scale, bias],
            dims=dims_of(x),
            attributes={"axis": -1, "epsilon": float(epsilon), "stash_type": 1},
        )

    # Shape and layout

    def cast(self, x: Value, dtype: ir.DataType) -> Value:
        """x as `dtype`; no node when it has that dtype already."""
        if x.dtype == dtype:
            return x
        return self.op("Cast", [x], dims=dims_of(x), dtype=dtype, attributes={"to": int(dtype)})

    def shape(self, x: Value, start: int = 0, end: int | None = None) -> Value:
        """The run-time dimensions [start:end] of x, int64; asked twice, emitted once."""
        key = (x, start, end)
        if key not in self._shapes:
            rank = len(dims_of(x)[start:end])
            attributes = {"start": start} if end is None else {"start": start, "end": end}
            self._shapes[key] = self.op(
                "Shape", [x], dims=(rank,), dtype=INT64, attributes=attributes
            )
        return self._shapes[key]

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """Reshape; 0 copies a dimension, one -1 takes what is left."""
        return self.op("Reshape", [x, self.ints(*shape)], dims=sizes.reshape(dims_of(x), shape))

    def reshape_like(self, x: Value, other: Value) -> Value:
        """x with the run-time shape of `other`."""
        return self.op("Reshape", [x, self.shape(other)], dims=dims_of(other))

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """Permute the axes: output axis i is input axis order[i]."""
        given = dims_of(x, rank=len(order))
        return self.op(
            "Transpose",
            [x],
            dims=tuple(given[axis] for axis in order),
            attributes={"perm": list(order)},
        )

    def unsqueeze(self, x: Value, *axes: int) -> Value:
        """Insert dimensions of 1 at `axes` (non-negative, ascending) of the result."""
        out = list(dims_of(x))
        for axis in axes:
            out.insert(axis, 1)
        return self.op("Unsqueeze", [x, self.ints(*axes)], dims=tuple(out))

    def expand(self, x: Value, shape: Value, dims: Dims) -> Value:
        """Broadcast x to the run-time `shape`; `dims` states the result."""
        return self.op("Expand", [x, shape], dims=dims)

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """Join along `axis` (non-negative)."""
        dims = sizes.concat([dims_of(value) for value in values], axis)
        return self.op("Concat", values, dims=dims, attributes={"axis": axis})

    def split(self, x: Value, parts: Sequence[int], axis: int) -> list[Value]:
        """Cut x along `axis` (non-negative) into pieces of the given sizes."""
        given = dims_of(x)
        outputs = [(*given[:axis], part, *given[axis + 1 :]) for part in parts]
        return self._node("Split", [x, self.ints(*parts)], outputs, attributes={"axis": axis})

    def slice(self, x: Value, starts: Value, ends: Value, axes: Sequence[int]) -> Value:
        """x[starts:ends] along `axes` (non-negative); the bounds may be run-time values."""
        dims = tuple(None if axis in axes else dim for axis, dim in enumerate(dims_of(x)))
        return self.op("Slice", [x, starts, ends, self.ints(*axes)], dims=dims)

    def gather(self, x: Value, indices: Value, axis: int = 0) -> Value:
        """Pick slices of x along `axis` (non-negative); the shape of `indices` replaces it."""
        given = dims_of(x)
        dims = (*given[:axis], *dims_of(indices), *given[axis + 1 :])
        return self.op("Gather", [x, indices], dims=dims, attributes={"axis": axis})

    def upsample_nearest(self, x: Value, factor: int = 2) -> Value:
        """Enlarge x [n, c, h, w] by a whole factor, repeating pixels."""
        batch, channels, height, width = dims_of(x, rank=4)
        scales = self.constant(np.asarray([1, 1, factor, factor], dtype=np.float32))
        return self.op(
            "Resize",
            [x, None, scales],
            dims=(batch, channels, sizes.scale(height, factor), sizes.scale(width, factor)),
            attributes={
                "mode": "nearest",
                "nearest_mode": "floor",
                "coordinate_transformation_mode": "asymmetric",
            },
        )

    # The end

    def finish(self, is_unneeded: Callable[[str], bool] = _nothing) -> ir.Model:
        """The model, after checking that graph and checkpoint agree.

        Args:
            is_unneeded: says which stored keys this component may leave unused: another
                component's tensors in a shared file, or buffers such as "position_ids".

        Raises:
            BadCheckpoint: tensors are missing, of another shape or dtype, or without a place;
                the message names the first three.
        """
        self._weights.check(is_unneeded)
        graph = ir.Graph(
            self._inputs,
            self._outputs,
            nodes=self._nodes,
            initializers=[*self._weights.values, *self._constants.values()],
            opset_imports={"": OPSET},
            name=self.name,
        )
        return ir.Model(
            graph, ir_version=IR_VERSION, producer_name=PRODUCER, producer_version=__version__
        )


def _value(name: str, dtype: ir.DataType, dims: Dims | None) -> Value:
    shape = None if dims is None else ir.Shape(dims)
    return ir.Value(name=name, shape=shape, type=ir.TensorType(dtype))


def _dtype_of(value: Value) -> ir.DataType:
    if value.dtype is None:
        raise ValueError(f"{value.name} has no dtype")
    return value.dtype


def _ints(*dims: Dim) -> list[int]:
    known = [dim for dim in dims if isinstance(dim, int)]
    if len(known) != len(dims):
        raise ValueError(f"expected fixed sizes, got {dims}")
    return known
