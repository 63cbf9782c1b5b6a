"""The user's cache: a checkpoint is converted once, and found again by its contents."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

from platformdirs import user_cache_path

from ortist.bundle.converter import converter_id
from ortist.bundle.locks import locked
from ortist.bundle.read import Bundle
from ortist.checkpoints.content import content_key
from ortist.checkpoints.directory import DiffusersDirectory
from ortist.errors import BadBundle, OutputFailed
from ortist.events import OnEvent, ignore_event
from ortist.files import sha256_of
from ortist.graphs.precision import Precision

CACHE_VARIABLE = "ORTIST_CACHE"
_LARGE = 64 << 20  # bytes from which on a file's hash is worth remembering
_CHOOSE = f"set {CACHE_VARIABLE} to a folder that you may write to"


def cache_folder() -> Path:
    """Where ortist keeps what it can make again.

    `ORTIST_CACHE` if it is set; else the platform's own place for caches (`~/.cache/ortist` on
    Linux).

    Raises:
        OutputFailed: there is no home folder.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    try:
        if chosen:
            return Path(chosen).expanduser().absolute()
        # Without a home, the "~" of the path is left as it is.
        place = user_cache_path("ortist", appauthor=False).expanduser()
        if place.is_absolute():
            return place
    except RuntimeError:
        pass
    raise OutputFailed("there is no home folder to keep the cache in", hint=_CHOOSE, code="no-home")


def cached_bundle(
    source: Path,
    *,
    dtype: Precision = "fp32",
    variant: str | None = None,
    on_event: OnEvent = ignore_event,
) -> Bundle:
    """The bundle of the checkpoint `source`, converted now unless it was before.

    A bundle is found again by the checkpoint's contents, the converting code and the precision;
    where the checkpoint lies does not matter. One that turns out damaged is made again, with a
    note in `Bundle.notes`. Two processes that want the same bundle convert it once.

    Args:
        source: a checkpoint in the diffusers layout.
        dtype: precision of weights and arithmetic.
        variant: which weights to take where there are several.
        on_event: told of the stage "convert" while there is one.

    Raises:
        BadCheckpoint: the checkpoint is incomplete, damaged, inconsistent or not implemented.
        OutputFailed: the cache cannot be written.
    """
    folder = cache_folder()
    checkpoint = DiffusersDirectory.open(source, variant=variant)
    hashes = HashMemory(folder / "hashes.json")
    content = content_key(checkpoint.path, checkpoint.files(), hashes.sha256)
    entry = folder / "bundles" / _entry_name(content, dtype)
    title = checkpoint.path.resolve().name  # the same contents may lie under several names
    found = _usable(entry, content)
    if isinstance(found, Bundle):
        with suppress(OSError):  # a read-only cache serves what it has, hashed anew each time
            hashes.save()
        return replace(found, title=title)
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        hashes.save()
    except OSError as cause:
        raise OutputFailed(
            f"the cache {folder} cannot be written: {cause.strerror or cause}",
            hint=_CHOOSE,
            code="cache-unwritable",
        ) from cause
    with locked(entry.with_name(f"{entry.name}.lock")):
        found = _usable(entry, content)  # another process may have been faster
        if isinstance(found, Bundle):
            return replace(found, title=title)
        from ortist.bundle.write import convert  # onnx is imported only where it is needed

        bundle = convert(
            source,
            entry,
            dtype=dtype,
            variant=variant,
            replace=True,
            content=content,
            on_event=on_event,
        )
    bundle = replace(bundle, title=title)
    if found is None:
        return bundle
    return bundle.with_note(f"the cached bundle was damaged and was made again: {found.message}")


def _entry_name(content: str, dtype: str) -> str:
    converter = converter_id().replace("+", "-")
    return f"{content[:16]}-{dtype}-{converter}"


def _usable(entry: Path, content: str) -> Bundle | BadBundle | None:
    """The cached bundle; or what is wrong with it; or None where there is none."""
    if not entry.exists():
        return None
    try:
        bundle = Bundle.open(entry)
        if bundle.manifest is None or bundle.manifest.content != content:
            raise BadBundle(f"{entry} is of another checkpoint", code="wrong-content")
    except BadBundle as fault:
        return fault
    return bundle


class HashMemory:
    """Remembers SHA-256 of large files, so that gigabytes are not read again at every start.

    A file counts as unchanged while path, size, inode, and both its times are the same.

    Args:
        path: where the memory is kept; one that cannot be read is empty.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hashes = _read_hashes(path)
        self._is_new = False

    def sha256(self, path: Path) -> str:
        """SHA-256 of the file, hexadecimal; `OSError` when it cannot be read."""
        status = path.stat()
        if status.st_size < _LARGE:
            return sha256_of(path)
        identity = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        key = f"{path.resolve()}|{status.st_size}|{'|'.join(map(str, identity))}"
        if key not in self._hashes:
            self._hashes[key] = sha256_of(path)
            self._is_new = True
        return self._hashes[key]

    def save(self) -> None:
        """Write what is new; `OSError` when that fails."""
        if not self._is_new:
            return
        merged = _read_hashes(self._path) | self._hashes
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(merged), encoding="utf-8")
        temporary.replace(self._path)
        self._is_new = False


def _read_hashes(path: Path) -> dict[str, str]:
    try:
        data: object = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(data, dict):
        return {}
    return {str(key): str(value) for key, value in cast("dict[str, object]", data).items()}
