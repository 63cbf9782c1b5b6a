"""PyTorch files (`.ckpt`, `.pt`, `.pth`, `.bin`), read one tensor at a time, executing nothing.

`torch.save` writes a pickle, and unpickling runs whatever the file's author liked. Here the
pickle is walked by `pickle_machine`, which knows no functions, only names.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import TracebackType
from typing import cast

import numpy as np

from ortist.checkpoints.pickle_containers import open_contents
from ortist.checkpoints.pickle_records import Malformed, Placeholder, Refused, Tensor
from ortist.checkpoints.raw_file import RawFile
from ortist.checkpoints.texts import shortened
from ortist.errors import BadCheckpoint

_ROOTS = ("state_dict", "model", "module", "params_ema", "params", "model_state_dict")
_MAX_DEPTH = 16
_MAX_VALUES = 200_000
_MAX_NAME = 1024


@dataclass(frozen=True)
class LeftOut:
    """A value of the file that is none of its weights: where it lies and what it is."""

    name: str
    what: str


class PickleFile:
    """One PyTorch file, open for reading; a `WeightSource`.

    The weights are the tensors of the first of `state_dict`, `model`, `module`, `params_ema`,
    `params` and `model_state_dict` that holds any, or else of the whole object. Names are those of
    the file; dictionaries within are joined by dots. Everything is checked when the file is
    opened: after that every tensor is known to lie within its storage, and that within the file.
    Safe to use from several threads; a context manager that closes the file.

    Args:
        path: the file, in the zip format (torch >= 1.6) or the one before it.

    Attributes:
        path: the file.
        root: the entry the weights were found under; empty for the whole object.
        left_out: what the object holds besides those weights.

    Raises:
        BadCheckpoint: missing, unreadable, damaged (code `bad-pickle`), or it asks for something
            that weights do not need, which is named and was not done (code `pickle-refused`).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = RawFile(path)
        try:
            _check_start(self._file)
            contents = open_contents(self._file)
            self.root, self._tensors, self.left_out = _weights(contents.value)
            self._places = contents.places
            self._big_endian = contents.big_endian
        except Malformed as cause:
            self._file.close()
            raise _bad(path, str(cause)) from None
        except Refused as cause:
            self._file.close()
            raise BadCheckpoint(
                f"{path} asks for {cause}, which no weights need; nothing of it was run",
                hint="do not open the file with other tools; take the .safetensors instead",
                code="pickle-refused",
            ) from None
        except BaseException:
            self._file.close()
            raise

    def keys(self) -> tuple[str, ...]:
        """Every tensor's name, in the order of the file."""
        return tuple(self._tensors)

    def shape(self, key: str) -> tuple[int, ...]:
        """Shape as stored."""
        return self._tensors[key].shape

    def dtype(self, key: str) -> np.dtype[np.generic]:
        """Dtype as stored; bfloat16 and float8 are those of `ml_dtypes`."""
        return self._tensors[key].dtype

    def load(self, key: str) -> np.ndarray:
        """The tensor in its stored dtype, contiguous, in memory of its own.

        Raises:
            BadCheckpoint: the file can no longer be read, or was cut short since it was opened.
        """
        tensor = self._tensors[key]
        dtype = tensor.dtype
        start = self._places[tensor.storage.key][0] + tensor.offset * dtype.itemsize
        length = tensor.span * dtype.itemsize
        buffer = self._file.read_at(start, length)
        if len(buffer) < length:
            raise _bad(self.path, f"it was cut short while it was read, at {key!r}")
        if self._big_endian and dtype.itemsize > 1:
            unit = dtype.itemsize // (2 if dtype.kind == "c" else 1)
            buffer.view(f"u{unit}").byteswap(inplace=True)
        flat = buffer.view(dtype)
        if prod(tensor.shape) == tensor.span and _is_contiguous(tensor):
            return flat.reshape(tensor.shape)
        if not tensor.span:
            return np.empty(tensor.shape, dtype)
        # As raw bytes: numpy cannot stride over the types of `ml_dtypes`.
        raw = flat.view(f"V{dtype.itemsize}")
        steps = tuple(s * dtype.itemsize for s in tensor.strides)
        view = np.lib.stride_tricks.as_strided(raw, tensor.shape, steps, writeable=False)
        return view.copy(order="C").view(dtype)

    def close(self) -> None:
        """Close the file; further `load` calls fail."""
        self._file.close()

    def __enter__(self) -> PickleFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _bad(path: Path, what: str) -> BadCheckpoint:
    return BadCheckpoint(
        f"{path} is not a PyTorch file that can be read: {what}",
        hint="the file is damaged or was not fetched whole: fetch it again, or the .safetensors",
        code="bad-pickle",
    )


def _check_start(file: RawFile) -> None:
    if file.size == 0:
        raise Malformed("it is empty")
    if file.read_at(0, 8).tobytes().startswith(b"version "):
        raise BadCheckpoint(
            f"{file.path} is a Git LFS pointer, not the weights themselves",
            hint="run `git lfs pull` in the repository, or fetch the file by another way",
            code="lfs-pointer",
        )


def _is_contiguous(tensor: Tensor) -> bool:
    step = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _weights(value: object) -> tuple[str, dict[str, Tensor], tuple[LeftOut, ...]]:
    """The entry with the weights, its tensors by name, and what else there is."""
    if not isinstance(value, dict):
        raise Malformed(f"it holds {_described(value)}, not a dictionary of tensors")
    whole = cast("dict[object, object]", value)
    if not any(isinstance(item, Tensor) for item in whole.values()):
        for root in _ROOTS:
            inner = whole.get(root)
            if not isinstance(inner, dict):
                continue
            tensors, left_out = _flattened(cast("dict[object, object]", inner))
            if tensors:
                others = [
                    LeftOut(_name(key), _described(item))
                    for key, item in whole.items()
                    if key != root
                ]
                return root, tensors, (*others, *left_out)
    tensors, left_out = _flattened(whole)
    if not tensors:
        raise Malformed("it holds no tensors")
    return "", tensors, tuple(left_out)


def _flattened(root: dict[object, object]) -> tuple[dict[str, Tensor], list[LeftOut]]:
    tensors: dict[str, Tensor] = {}
    left_out: list[LeftOut] = []
    seen = 0
    # Iterators, innermost last: a file may nest as deep as it likes, or contain itself.
    open_dicts = [("", iter(root.items()))]
    while open_dicts:
        prefix, entries = open_dicts[-1]
        for key, value in entries:
            seen += 1
            if seen > _MAX_VALUES:
                raise Malformed(f"it holds more than {_MAX_VALUES} values")
            name = prefix + _name(key)
            if len(name) > _MAX_NAME:
                raise Malformed(f"it holds a name of {len(name)} characters")
            if not isinstance(key, str):
                left_out.append(LeftOut(name, "its name is no text"))
            elif isinstance(value, Tensor):
                if name in tensors:
                    raise Malformed(f"the name {shortened(name)} is given twice")
                if not _is_encodable(name):
                    raise Malformed(f"the name {shortened(name)} is no valid Unicode text")
                tensors[name] = value
            elif isinstance(value, dict) and len(open_dicts) < _MAX_DEPTH:
                inner = cast("dict[object, object]", value)
                open_dicts.append((f"{name}.", iter(inner.items())))
                break
            else:
                left_out.append(LeftOut(name, _described(cast("object", value))))
        else:
            open_dicts.pop()
    return tensors, left_out


def _name(key: object) -> str:
    return key if isinstance(key, str) else shortened(key)


def _described(value: object) -> str:
    if isinstance(value, Placeholder):
        return shortened(value.name).strip("'")
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    for kind in (dict, list, tuple):
        if isinstance(value, kind):
            return f"a {kind.__name__} of {len(cast('Sized', value))}"
    return shortened(value)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
