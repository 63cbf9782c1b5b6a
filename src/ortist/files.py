"""Small helpers for files: JSON read strictly, hashes, and writes that survive a power cut."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import TypeAlias, cast

from ortist.errors import OrtistError

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = "dict[str, JsonValue]"

_CHUNK = 1 << 20
_MAX_JSON = 64 << 20  # a config is a few kilobytes; a tokenizer's table a few megabytes


def read_json(path: Path, error: type[OrtistError], *, hint: str) -> JsonObject:
    """The JSON object in `path`.

    Args:
        path: a UTF-8 file.
        error: the class to raise: what the file belongs to.
        hint: what to do when it is missing or damaged.

    Raises:
        OrtistError: of class `error`: missing, unreadable, no JSON, or JSON but no object. Keys
            given twice are refused, because readers disagree on which one counts.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_JSON + 1)
    except FileNotFoundError:
        raise error(f"{path} is missing", hint=hint, code="file-missing") from None
    except OSError as cause:
        raise error(
            f"{path} cannot be read: {cause.strerror or cause}", hint=hint, code="file-unreadable"
        ) from cause
    if len(data) > _MAX_JSON:
        raise error(f"{path} is too large to be a JSON file of a model", hint=hint, code="bad-json")
    return parse_json(data, path, error, hint=hint)


def parse_json(data: bytes, path: Path, error: type[OrtistError], *, hint: str) -> JsonObject:
    """The JSON object in `data`; `path` is where it comes from, for the messages.

    Raises:
        OrtistError: of class `error`, as for `read_json`.
    """
    if not data.strip(b" \t\r\n\0"):
        # What a crash leaves of a file that was not yet written out: no bytes, or only zeros.
        raise error(f"{path} is empty", hint=hint, code="bad-json")
    try:
        value: object = json.loads(
            data, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite
        )
    except (ValueError, RecursionError) as cause:  # ValueError: JSON, UTF-8, and the hooks' own
        raise error(
            f"{path} is not valid JSON: {_first_line(cause)}", hint=hint, code="bad-json"
        ) from cause
    if not isinstance(value, dict):
        raise error(
            f"{path} holds a JSON {type(value).__name__}, expected an object",
            hint=hint,
            code="bad-json",
        )
    return cast(JsonObject, value)


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write `value` as indented JSON with a final newline; not yet forced to the disk."""
    path.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def sha256_of(path: Path) -> str:
    """SHA-256 of the file's bytes, hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(_CHUNK)
        view = memoryview(buffer)
        while count := file.readinto(buffer):
            digest.update(view[:count])
    return digest.hexdigest()


def force_to_disk(path: Path) -> None:
    """Wait until the file or folder is on the disk (`fsync`); folders only where they can be."""
    if os.name == "nt":
        if path.is_dir():
            return  # Windows cannot open a folder; its renames are journalled
        flags = os.O_RDWR  # and it flushes only what is open for writing
    else:
        flags = os.O_RDONLY
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is given twice")
    return result


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value


def _first_line(cause: Exception) -> str:
    if isinstance(cause, RecursionError):
        return "nested too deeply"
    return str(cause).splitlines()[0] if str(cause) else type(cause).__name__
