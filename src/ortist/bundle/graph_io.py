"""What an ONNX file declares, read from its bytes: no onnx, no weights, no copy.

Importing onnx takes longer than all the rest of opening a bundle, and parsing a file with
weights inside it reads all of them. The few fields wanted here are found by walking the
protocol buffer's wire format (protobuf.dev/programming-guides/encoding); the field numbers are
those of onnx.proto.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ortist.errors import BadBundle

_ELEMENT_TYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
}

# Field numbers of onnx.proto, by message.
_MODEL_IR_VERSION, _MODEL_GRAPH, _MODEL_OPSET = 1, 7, 8
_OPSET_DOMAIN, _OPSET_VERSION = 1, 2
_GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT = 5, 11, 12
_TENSOR_NAME, _TENSOR_EXTERNAL = 8, 13
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
_VALUE_NAME, _VALUE_TYPE = 1, 2
_TYPE_TENSOR = 1
_TENSOR_TYPE_ELEMENT, _TENSOR_TYPE_SHAPE = 1, 2
_SHAPE_DIM = 1
_DIM_VALUE, _DIM_PARAM = 1, 2

_HINT = "the file is damaged: convert the checkpoint again, or fetch the bundle again"

Buffer: TypeAlias = "mmap.mmap | bytes"
Dimension: TypeAlias = "int | str | None"


@dataclass(frozen=True)
class Signature:
    """One input or output: name, numpy dtype name, shape (a name or None where it is free)."""

    name: str
    dtype: str
    shape: tuple[Dimension, ...]


@dataclass(frozen=True)
class ExternalTensor:
    """An initialiser stored in another file: its place there; None length means "to the end"."""

    name: str
    location: str
    offset: int
    length: int | None


@dataclass(frozen=True)
class GraphFacts:
    """What a graph declares.

    Attributes:
        inputs, outputs: by name, in order; initialisers that are also listed as inputs (IR 3
            and older files) are not counted as inputs.
        opset: version of the default operator set.
        domains: other operator sets it uses.
        ir_version: of the file.
        external: the initialisers in other files.
    """

    inputs: dict[str, Signature]
    outputs: dict[str, Signature]
    opset: int
    domains: tuple[str, ...]
    ir_version: int
    external: tuple[ExternalTensor, ...]


def read_graph_facts(path: Path) -> GraphFacts:
    """Read what the ONNX file `path` declares.

    Raises:
        BadBundle: missing, unreadable, or no ONNX model.
    """
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) == 0:
                raise BadBundle(f"{path} is empty", hint=_HINT, code="bad-onnx")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
                return parse_graph_facts(buffer, len(buffer), path)
    except FileNotFoundError:
        raise BadBundle(f"{path} is missing", hint=_HINT, code="file-missing") from None
    except OSError as cause:
        raise BadBundle(
            f"{path} cannot be read: {cause.strerror or cause}",
            hint="check that you may read it",
            code="file-unreadable",
        ) from cause


def parse_graph_facts(buffer: Buffer, size: int, path: Path) -> GraphFacts:
    """The facts of the model in the first `size` bytes of `buffer`; `path` is for messages.

    Raises:
        BadBundle: it is no ONNX model.
    """
    try:
        return _model(buffer, size, path)
    except (_DamagedError, UnicodeDecodeError) as cause:
        raise BadBundle(
            f"{path} is not a valid ONNX file: {cause}", hint=_HINT, code="bad-onnx"
        ) from cause


class _DamagedError(Exception):
    """The bytes are no protocol buffer message of the kind expected."""


Field: TypeAlias = "tuple[int, int, int]"
"""(number, start, end) of a length-delimited field; (number, -1, value) of a varint one."""


def _fields(buffer: Buffer, start: int, end: int) -> Iterator[Field]:
    position = start
    while position < end:
        tag, position = _varint(buffer, position, end)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise _DamagedError(f"a field without a number at byte {position}")
        if kind == 0:
            value, position = _varint(buffer, position, end)
            yield number, -1, value
            continue
        if kind == 2:
            length, position = _varint(buffer, position, end)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise _DamagedError(f"a field of unknown kind {kind} at byte {position}")
        if length > end - position:
            raise _DamagedError(f"a field of {length} bytes at byte {position} runs past its end")
        if kind == 2:
            yield number, position, position + length
        position += length


def _varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise _DamagedError(f"it breaks off at byte {position}")


def _text(buffer: Buffer, start: int, end: int) -> str:
    if start < 0:
        raise _DamagedError("a number where a text belongs")
    return bytes(buffer[start:end]).decode()


def _inner(buffer: Buffer, field: Field) -> Iterator[Field]:
    _, start, end = field
    if start < 0:
        raise _DamagedError("a number where a message belongs")
    return _fields(buffer, start, end)


def _number(field: Field) -> int:
    _, start, value = field
    if start >= 0:
        raise _DamagedError("bytes where a number belongs")
    return value - (1 << 64) if value >> 63 else value


def _model(buffer: Buffer, size: int, path: Path) -> GraphFacts:
    ir_version = 0
    graph: Field | None = None
    opsets: dict[str, int] = {}
    for field in _fields(buffer, 0, size):
        if field[0] == _MODEL_IR_VERSION:
            ir_version = _number(field)
        elif field[0] == _MODEL_GRAPH:
            graph = field
        elif field[0] == _MODEL_OPSET:
            domain, version = _opset(buffer, field)
            opsets["" if domain == "ai.onnx" else domain] = version
    if graph is None or ir_version <= 0:
        raise _DamagedError("it has no graph" if graph is None else "it has no IR version")
    inputs, outputs, external = _graph(buffer, graph, path)
    return GraphFacts(
        inputs=inputs,
        outputs=outputs,
        opset=opsets.get("", 0),
        domains=tuple(domain for domain in opsets if domain),
        ir_version=ir_version,
        external=external,
    )


def _opset(buffer: Buffer, field: Field) -> tuple[str, int]:
    domain, version = "", 0
    for inner in _inner(buffer, field):
        if inner[0] == _OPSET_DOMAIN:
            domain = _text(buffer, *inner[1:])
        elif inner[0] == _OPSET_VERSION:
            version = _number(inner)
    return domain, version


def _graph(
    buffer: Buffer, graph: Field, path: Path
) -> tuple[dict[str, Signature], dict[str, Signature], tuple[ExternalTensor, ...]]:
    inputs: dict[str, Signature] = {}
    outputs: dict[str, Signature] = {}
    names: set[str] = set()
    external: list[ExternalTensor] = []
    for field in _inner(buffer, graph):
        if field[0] == _GRAPH_INPUT:
            signature = _signature(buffer, field)
            inputs[signature.name] = signature
        elif field[0] == _GRAPH_OUTPUT:
            signature = _signature(buffer, field)
            outputs[signature.name] = signature
        elif field[0] == _GRAPH_INITIALIZER:
            name, place = _initializer(buffer, field, path)
            names.add(name)
            if place is not None:
                external.append(place)
    if not outputs:
        raise _DamagedError("its graph has no outputs")
    free = {name: value for name, value in inputs.items() if name not in names}
    return free, outputs, tuple(external)


def _initializer(buffer: Buffer, field: Field, path: Path) -> tuple[str, ExternalTensor | None]:
    name = ""
    entries: dict[str, str] = {}
    for inner in _inner(buffer, field):
        if inner[0] == _TENSOR_NAME:
            name = _text(buffer, *inner[1:])
        elif inner[0] == _TENSOR_EXTERNAL:
            key = value = ""
            for part in _inner(buffer, inner):
                if part[0] == _ENTRY_KEY:
                    key = _text(buffer, *part[1:])
                elif part[0] == _ENTRY_VALUE:
                    value = _text(buffer, *part[1:])
            entries[key] = value
    if not entries:
        return name, None
    offset, length = entries.get("offset", "0"), entries.get("length")
    if not offset.isdecimal() or not (length is None or length.isdecimal()):
        raise BadBundle(
            f"{path}: the place of {name!r} is given as offset {offset!r}, length {length!r}",
            hint=_HINT,
            code="external-data",
        )
    return name, ExternalTensor(
        name=name,
        location=entries.get("location", ""),
        offset=int(offset),
        length=None if length is None else int(length),
    )


def _signature(buffer: Buffer, field: Field) -> Signature:
    name, dtype = "", "unknown"
    dims: list[Dimension] = []
    for inner in _inner(buffer, field):
        if inner[0] == _VALUE_NAME:
            name = _text(buffer, *inner[1:])
        elif inner[0] == _VALUE_TYPE:
            for kind in _inner(buffer, inner):
                if kind[0] == _TYPE_TENSOR:
                    dtype, dims = _tensor_type(buffer, kind)
    return Signature(name, dtype, tuple(dims))


def _tensor_type(buffer: Buffer, field: Field) -> tuple[str, list[Dimension]]:
    dtype = "unknown"
    dims: list[Dimension] = []
    for part in _inner(buffer, field):
        if part[0] == _TENSOR_TYPE_ELEMENT:
            dtype = _ELEMENT_TYPES.get(_number(part), "unknown")
        elif part[0] == _TENSOR_TYPE_SHAPE:
            dims = [_dim(buffer, dim) for dim in _inner(buffer, part) if dim[0] == _SHAPE_DIM]
    return dtype, dims


def _dim(buffer: Buffer, field: Field) -> Dimension:
    dim: Dimension = None
    for part in _inner(buffer, field):
        if part[0] == _DIM_VALUE:
            dim = _number(part)
        elif part[0] == _DIM_PARAM:
            dim = _text(buffer, *part[1:]) or None
    return dim
