"""PyTorch files in both formats, made without torch: by hand, so that they can be wrong."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

MAGIC = 0x1950A86A20F9469CFC6C
SYSTEM = {
    "protocol_version": 1001,
    "little_endian": True,
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}
STORAGES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
}


@dataclass(frozen=True)
class Name:
    """A global: it is written as a name, whatever it is."""

    module: str
    name: str


@dataclass(frozen=True)
class Call:
    """A call of a global."""

    function: object
    arguments: tuple[object, ...]


@dataclass(frozen=True)
class Stored:
    """A persistent id."""

    identifier: object


@dataclass
class Parts:
    """The storages a pickle speaks of, by key."""

    storages: dict[str, bytes] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def tensor(
        self,
        values: np.ndarray,
        shape: tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
        count: int | None = None,
    ) -> Call:
        """A tensor over the values; the rest can be claimed freely."""
        key = str(len(self.storages))
        self.storages[key] = np.ascontiguousarray(values).tobytes()
        self.counts[key] = values.size
        kind = Name("torch", STORAGES[values.dtype.name])
        stored = Stored(("storage", kind, key, "cpu", values.size if count is None else count))
        shape = values.shape if shape is None else shape
        if strides is None:
            strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
        arguments = (stored, offset, shape, strides, False, Call(ORDERED, ()))
        return Call(Name("torch._utils", "_rebuild_tensor_v2"), arguments)


ORDERED = Name("collections", "OrderedDict")


def dumps(value: object) -> bytes:
    """Protocol 2, as torch writes it."""
    return b"\x80\x02" + _code(value) + b"."


def _code(value: object) -> bytes:
    if isinstance(value, Name):
        return f"c{value.module}\n{value.name}\n".encode()
    if isinstance(value, Call):
        return _code(value.function) + _code(value.arguments) + b"R"
    if isinstance(value, Stored):
        return _code(value.identifier) + b"Q"
    if isinstance(value, tuple):
        return b"(" + b"".join(_code(item) for item in value) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(_code(item) for item in value) + b"e"
    if isinstance(value, dict):
        start = _code(Call(ORDERED, ())) if isinstance(value, OrderedDict) else b"}"
        return start + b"(" + b"".join(_code(k) + _code(v) for k, v in value.items()) + b"u"
    return pickle.dumps(value, 2)[2:-1]


def write_zip(
    path: Path, value: object, parts: Parts, more: Mapping[str, bytes] | None = None
) -> Path:
    """The zip format. `value` may be the bytes of a pickle; `more` adds members."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", value if isinstance(value, bytes) else dumps(value))
        for name, data in (more or {"archive/byteorder": b"little"}).items():
            archive.writestr(name, data)
        for key, data in parts.storages.items():
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", b"3\n")
    return path


def write_older(path: Path, value: object, parts: Parts) -> Path:
    """The format before torch 1.6."""
    out = io.BytesIO()
    for item in (MAGIC, 1001, SYSTEM):
        out.write(dumps(item))
    out.write(value if isinstance(value, bytes) else dumps(value))
    out.write(dumps(list(parts.storages)))
    for key, data in parts.storages.items():
        out.write(struct.pack("<q", parts.counts[key]) + data)
    path.write_bytes(out.getvalue())
    return path
