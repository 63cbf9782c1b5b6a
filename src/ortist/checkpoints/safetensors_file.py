"""Safetensors files, read one tensor at a time.

The format (github.com/huggingface/safetensors): 8 bytes little-endian length, that many bytes
of JSON {name: {dtype, shape, data_offsets}}, then the tensors, which cover the rest of the file
without holes or overlaps.

Tensors are read into memory of their own, not mapped: a mapping counts every page touched as
resident, so a conversion's memory would grow with the checkpoint, and a file that is cut short
while it is mapped kills the process with SIGBUS where a read raises an error.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import cast

import numpy as np

from ortist.errors import BadCheckpoint
from ortist.files import parse_json

_MAX_HEADER = 100_000_000  # the limit of the format's own reader
_MAX_RANK = 32
_MAX_ELEMENTS = 1 << 48

_NUMPY_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
_ML_DTYPES_NAMES = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}

_HINT = "the file is damaged or was not fetched whole: fetch it again"


@dataclass(frozen=True)
class StoredTensor:
    """Where one tensor lies: dtype, shape, and its first and past-the-last byte in the file."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    start: int
    end: int


class SafetensorsFile:
    """One safetensors file, open for reading; a `WeightSource`.

    The header is checked in full when the file is opened: after that every tensor is known to
    lie within the file, apart from the others, with as many bytes as its shape and dtype take.
    Safe to use from several threads.

    Args:
        path: the file.

    Attributes:
        path: the file.
        metadata: the header's free text entries.

    Raises:
        BadCheckpoint: missing, unreadable, cut short, or not what the format asks.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._file = _open(path)
        try:
            self.metadata, self._tensors = _read_header(self._file, path)
        except BaseException:
            self._file.close()
            raise

    def keys(self) -> tuple[str, ...]:
        """Every tensor's name, in the order of the header."""
        return tuple(self._tensors)

    def shape(self, key: str) -> tuple[int, ...]:
        """Shape as stored."""
        return self._tensors[key].shape

    def dtype(self, key: str) -> np.dtype[np.generic]:
        """Dtype as stored; bfloat16 and float8 are those of `ml_dtypes`."""
        return self._tensors[key].dtype

    def load(self, key: str) -> np.ndarray:
        """The tensor in its stored dtype, in memory of its own.

        Raises:
            BadCheckpoint: the file can no longer be read, or was cut short since it was opened.
        """
        stored = self._tensors[key]
        buffer = np.empty(stored.end - stored.start, dtype=np.uint8)
        view = buffer.data
        try:
            with self._lock:
                self._file.seek(stored.start)
                done = 0
                while done < len(view) and (count := self._file.readinto(view[done:])):
                    done += count
        except OSError as cause:
            raise BadCheckpoint(
                f"{self.path} cannot be read: {cause.strerror or cause}",
                hint="check the disk or the connection it lies behind",
                code="file-unreadable",
            ) from cause
        if done < len(view):
            raise _bad(self.path, f"it was cut short while it was read, at {key!r}")
        return buffer.view(stored.dtype).reshape(stored.shape)

    def close(self) -> None:
        """Close the file; further `load` calls fail."""
        self._file.close()


def _open(path: Path) -> io.FileIO:
    try:
        return io.FileIO(path, "r")
    except FileNotFoundError:
        raise BadCheckpoint(
            f"{path} is missing", hint="fetch the whole checkpoint", code="file-missing"
        ) from None
    except OSError as cause:
        raise BadCheckpoint(
            f"{path} cannot be read: {cause.strerror or cause}",
            hint="check that it is a file and that you may read it",
            code="file-unreadable",
        ) from cause


def _bad(path: Path, what: str) -> BadCheckpoint:
    return BadCheckpoint(
        f"{path} is not a valid safetensors file: {what}", hint=_HINT, code="bad-safetensors"
    )


def _read_header(file: io.FileIO, path: Path) -> tuple[dict[str, str], dict[str, StoredTensor]]:
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise _bad(path, "it is empty")
    start = file.read(8)
    if start is None or len(start) < 8:
        raise _bad(path, f"it has {size} bytes, fewer than the header's length takes")
    if start.startswith(b"version "):
        raise BadCheckpoint(
            f"{path} is a Git LFS pointer, not the weights themselves",
            hint="run `git lfs pull` in the repository, or fetch the file by another way",
            code="lfs-pointer",
        )
    length = int.from_bytes(start, "little")
    if length > _MAX_HEADER or length > size - 8:
        raise _bad(path, f"it claims a header of {length} bytes in a file of {size} bytes")
    text = _read_exactly(file, length, path)
    if not text.startswith(b"{"):
        raise _bad(path, "the header does not start with '{'")
    header: dict[str, object] = dict(parse_json(text, path, BadCheckpoint, hint=_HINT))
    metadata = _metadata(header.pop("__metadata__", {}), path)
    data_start = 8 + length
    tensors = {name: _tensor(name, entry, data_start, size, path) for name, entry in header.items()}
    _check_cover(tensors, data_start, size, path)
    return metadata, tensors


def _read_exactly(file: io.FileIO, length: int, path: Path) -> bytes:
    parts: list[bytes] = []
    while length:
        part = file.read(length)
        if not part:
            raise _bad(path, "it ends within its header")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _metadata(value: object, path: Path) -> dict[str, str]:
    if isinstance(value, dict):
        entries = cast("dict[str, object]", value)
        texts = {key: text for key, text in entries.items() if isinstance(text, str)}
        if len(texts) == len(entries):
            return texts
    raise _bad(path, "__metadata__ holds something other than texts")


def _tensor(name: str, entry: object, data_start: int, size: int, path: Path) -> StoredTensor:
    if not _is_encodable(name):
        raise _bad(path, f"the tensor name {name!r} is no valid Unicode text")
    if not isinstance(entry, dict):
        raise _bad(path, f"the entry of {name!r} is no object")
    fields = cast("dict[str, object]", entry)
    if fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise _bad(path, f"the entry of {name!r} has the fields {sorted(fields)}")
    dtype = _dtype(name, fields["dtype"], path)
    shape = _naturals(fields["shape"])
    if shape is None or len(shape) > _MAX_RANK or prod(d for d in shape if d) > _MAX_ELEMENTS:
        raise _bad(path, f"{name!r} has the shape {_short(fields['shape'])}")
    offsets = _naturals(fields["data_offsets"])
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _bad(path, f"{name!r} has the data_offsets {_short(fields['data_offsets'])}")
    start, end = offsets
    if end > size - data_start:
        raise _bad(
            path,
            f"{name!r} ends at byte {end} of {size - data_start} (the file is cut short)",
        )
    needed = prod(shape) * dtype.itemsize
    if end - start != needed:
        raise _bad(
            path,
            f"{name!r} of shape {list(shape)} and type {fields['dtype']} takes {needed} bytes "
            f"but has {end - start}",
        )
    return StoredTensor(dtype, shape, data_start + start, data_start + end)


def _dtype(name: str, value: object, path: Path) -> np.dtype[np.generic]:
    if isinstance(value, str):
        if value in _NUMPY_NAMES:
            return np.dtype(_NUMPY_NAMES[value]).newbyteorder("<")
        if value in _ML_DTYPES_NAMES:
            import ml_dtypes

            return np.dtype(getattr(ml_dtypes, _ML_DTYPES_NAMES[value]))
    known = ", ".join((*_NUMPY_NAMES, *_ML_DTYPES_NAMES))
    raise BadCheckpoint(
        f"{path}: {name!r} is stored as {_short(value)}",
        hint=f"stored types that can be read: {known}",
        code="stored-type",
    )


def _check_cover(
    tensors: Mapping[str, StoredTensor], data_start: int, size: int, path: Path
) -> None:
    """The tensors have to lie end to end from the header to the end of the file."""
    position = data_start
    # Empty tensors share their offset with a neighbour: they have to come before it.
    for name, stored in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)):
        if stored.start < position:
            raise _bad(path, f"{name!r} overlaps the tensor before it")
        if stored.start > position:
            raise _bad(path, f"{stored.start - position} bytes before {name!r} belong to no tensor")
        position = stored.end
    if position != size:
        raise _bad(path, f"the last {size - position} bytes belong to no tensor")


def _naturals(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    items = cast("list[object]", value)
    numbers = [
        item for item in items if isinstance(item, int) and not isinstance(item, bool) and item >= 0
    ]
    return tuple(numbers) if len(numbers) == len(items) else None


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
