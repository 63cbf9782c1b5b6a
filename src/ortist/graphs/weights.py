"""Where a graph's weights come from, and how they enter it: lazily, by name, checked.

A graph is built from names and shapes alone. The numbers are read when the model is written,
one tensor at a time, so a conversion never holds a second copy of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import onnx_ir as ir

from ortist.errors import BadCheckpoint

Transform = Literal["transpose", "channels"]
"""How a stored tensor is laid out in the graph: "transpose" swaps the two axes of a matrix (a
Linear weight [out, in] used as the right side of MatMul); "channels" turns a vector [c] into
[c, 1, 1], so that it broadcasts over an image [n, c, h, w]."""

TRANSFORM_METADATA = "ortist.transform"
"""Metadata key of an initialiser under which its transform is recorded."""

_STORED_DTYPES = frozenset(
    {"float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}
)
_HALF_OR_NARROWER = frozenset({"float16", "float8_e4m3fn", "float8_e5m2"})


class WeightSource(Protocol):
    """A state dict that is read one tensor at a time.

    Arrays are numpy; bfloat16 and float8 use the dtypes of `ml_dtypes`.
    """

    def keys(self) -> Iterable[str]:
        """Every tensor's name."""
        ...

    def shape(self, key: str) -> tuple[int, ...]:
        """Shape as stored, known without reading the tensor."""
        ...

    def dtype(self, key: str) -> np.dtype:
        """Dtype as stored, known without reading the tensor."""
        ...

    def load(self, key: str) -> np.ndarray:
        """The tensor in its stored dtype, without a copy where that is possible."""
        ...


@dataclass(frozen=True)
class Mismatch:
    """One tensor that the graph needs and the checkpoint does not have in that form."""

    key: str
    expected: tuple[int, ...]
    found: str

    def __str__(self) -> str:
        return f"{self.key}: expected {list(self.expected)}, {self.found}"


class WeightTable:
    """Hands out initialisers for the tensors of one checkpoint and keeps account of them.

    Args:
        component: name for messages, such as "unet".
        source: the checkpoint.
        dtype: dtype of every initialiser, FLOAT or FLOAT16.
    """

    def __init__(self, component: str, source: WeightSource, dtype: ir.DataType) -> None:
        self._component = component
        self._source = source
        self._dtype = dtype
        self._stored = frozenset(source.keys())
        self._mismatches: list[Mismatch] = []
        self._taken: dict[str, tuple[ir.Value, Transform | None]] = {}

    @property
    def values(self) -> tuple[ir.Value, ...]:
        """The initialisers handed out so far, in order of first use."""
        return tuple(value for value, _ in self._taken.values())

    def take(self, key: str, shape: tuple[int, ...], transform: Transform | None) -> ir.Value:
        """The initialiser named `key`, whose stored shape has to be `shape`.

        A missing or different tensor is noted, and raised by `check`, so that one run reports
        every mismatch.
        """
        if key in self._taken:
            value, earlier = self._taken[key]
            if earlier != transform:
                raise ValueError(f"{key} is used both as {earlier!r} and as {transform!r}")
            return value
        found = self._fault(key, shape)
        if found is not None:
            self._mismatches.append(Mismatch(key, shape, found))
        dims = ir.Shape(_transformed_shape(shape, transform))
        metadata = {TRANSFORM_METADATA: transform} if transform else {}
        tensor = ir.LazyTensor(
            self._loader(key, transform), self._dtype, dims, name=key, metadata_props=metadata
        )
        value = ir.Value(
            name=key,
            shape=dims,
            type=ir.TensorType(self._dtype),
            const_value=tensor,
        )
        self._taken[key] = (value, transform)
        return value

    def unused_keys(self) -> list[str]:
        """Names in the checkpoint that no part of the graph asked for, sorted."""
        return sorted(self._stored - self._taken.keys())

    def check(self, is_unneeded: Callable[[str], bool]) -> None:
        """Raise unless checkpoint and graph agree.

        Args:
            is_unneeded: says of a key that this component has no use for it and why should
                nobody worry (another component's tensor, a buffer that old files carry).

        Raises:
            BadCheckpoint: tensors are missing, of another shape or dtype, or without a place.
        """
        unused = [key for key in self.unused_keys() if not is_unneeded(key)]
        if self._mismatches:
            count = len(self._mismatches)
            tensors = "1 tensor does" if count == 1 else f"{count} tensors do"
            also = f" ({len(unused)} stored tensors have no place in it)" if unused else ""
            raise BadCheckpoint(
                f"{self._component}: {tensors} not fit its config{also}: "
                + _first_three([str(item) for item in self._mismatches], "; "),
                hint="config.json and the weights do not belong together; use both files of "
                "the same model",
                code="weights-mismatch",
            )
        if unused:
            tensors = "1 stored tensor has" if len(unused) == 1 else f"{len(unused)} stored have"
            raise BadCheckpoint(
                f"{self._component}: {tensors} no place in the model of its config: "
                + _first_three(unused, ", "),
                hint="config.json describes a smaller model than the weights; use both files of "
                "the same model",
                code="weights-unused",
            )

    def _fault(self, key: str, shape: tuple[int, ...]) -> str | None:
        if key not in self._stored:
            return "missing"
        stored_shape = self._source.shape(key)
        if stored_shape != shape:
            return f"found {list(stored_shape)}"
        stored_dtype = self._source.dtype(key)
        if stored_dtype.name not in _STORED_DTYPES:
            return f"stored as {stored_dtype.name}, which is no floating-point type we read"
        return None

    def _loader(self, key: str, transform: Transform | None) -> Callable[[], ir.TensorProtocol]:
        target = self._dtype.numpy()
        source = self._source

        def load() -> ir.TensorProtocol:
            stored = source.load(key)
            with np.errstate(over="ignore"):  # judged below, by name
                array = _transformed(stored, transform).astype(target, copy=False)
            if (
                target == np.float16
                and stored.dtype.name not in _HALF_OR_NARROWER
                and not np.isfinite(array).all()
            ):
                raise BadCheckpoint(
                    f"{key}: values beyond the float16 range (65504)",
                    hint="convert with dtype fp32",
                    code="weights-overflow",
                )
            return ir.tensor(np.ascontiguousarray(array))

        return load


def _first_three(items: list[str], separator: str) -> str:
    more = f" and {len(items) - 3} more" if len(items) > 3 else ""
    return separator.join(items[:3]) + more


def _transformed_shape(shape: tuple[int, ...], transform: Transform | None) -> tuple[int, ...]:
    match transform:
        case None:
            return shape
        case "transpose":
            rows, columns = shape
            return (columns, rows)
        case "channels":
            (channels,) = shape
            return (channels, 1, 1)


def _transformed(array: np.ndarray, transform: Transform | None) -> np.ndarray:
    match transform:
        case None:
            return array
        case "transpose":
            return array.T
        case "channels":
            return array.reshape(-1, 1, 1)
