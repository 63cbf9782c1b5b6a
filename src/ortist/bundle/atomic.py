"""Directories that appear whole or not at all.

A new directory is filled under a temporary name beside its target and renamed when complete.
Each temporary directory has a locked file beside it; what the lock of a dead process no longer
protects is removed by the next writer in that folder.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ortist.bundle.locks import FileLock
from ortist.errors import OutputFailed
from ortist.files import force_to_disk

_PARTIAL = ".ortist-partial"
_OLD = ".ortist-old"
_LOCK = ".lock"


@contextmanager
def new_directory(target: Path, *, replace: bool = False) -> Generator[Path]:
    """Give a temporary directory that becomes `target` when the block ends without an error.

    Args:
        target: the directory to make; its parents are made as needed.
        replace: put it in the place of what is there.

    Raises:
        OutputFailed: something is there already (code "output-exists"; also when it appeared
            in the meantime), or the folder cannot be written to.
    """
    require_free(target, replace=replace)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent)
        lock, partial = _reserve(target, _PARTIAL)
    except OSError as cause:
        raise failed(target, cause) from cause
    try:
        partial.mkdir()
        yield partial
        _flush(partial)
        _put_in_place(partial, target, replace=replace)
    except OSError as cause:
        raise failed(target, cause) from cause
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        lock.remove()


def require_free(target: Path, *, replace: bool = False) -> None:
    """Raise if `target` is taken.

    Raises:
        OutputFailed: something other than an empty directory is there, and is not to be
            replaced.
    """
    try:
        is_empty = target.is_dir() and not any(target.iterdir())
        if not is_empty and os.path.lexists(target) and not (replace and target.is_dir()):
            raise _exists(target)
    except OSError as cause:
        raise failed(target, cause) from cause


def require_space(target: Path, needed: int) -> None:
    """Raise if the disk that `target` is to lie on has fewer than `needed` bytes free.

    Raises:
        OutputFailed: naming both figures.
    """
    place = target.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < needed:
        raise OutputFailed(
            f"{target} takes {needed / 1e6:,.0f} MB, but the disk has {free / 1e6:,.0f} MB free",
            hint="free some space, or choose another place",
            code="disk-full",
        )


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left in `folder`; directories still being written stay.

    A directory that was being replaced when its process died is put back.
    """
    ours = [f".*{kind}{end}" for kind in (_PARTIAL, _OLD) for end in ("", _LOCK)]
    found = [path for pattern in ours for path in folder.glob(pattern)]
    for path in {path.with_name(path.name.removesuffix(_LOCK)) for path in found}:
        lock = FileLock(_lock_path(path))
        if not lock.try_acquire():
            lock.close()
            continue
        target = path.with_name(path.name[1:].rsplit(".", 2)[0])
        if path.name.endswith(_OLD) and path.exists() and not os.path.lexists(target):
            path.rename(target)
        shutil.rmtree(path, ignore_errors=True)
        lock.remove()


def failed(target: Path, cause: OSError) -> OutputFailed:
    """The error for a write to `target` that the operating system refused."""
    return OutputFailed(
        f"{target} cannot be written: {cause.strerror or cause}",
        hint="check the free space and that you may write there, or choose another place",
        code="write-failed",
    )


def _exists(target: Path) -> OutputFailed:
    return OutputFailed(
        f"{target} exists already",
        hint="choose another name, or remove it first",
        code="output-exists",
    )


def _reserve(target: Path, kind: str) -> tuple[FileLock, Path]:
    """A free name beside `target`, locked before anything has it, so that no cleaner ever sees
    a directory in use unprotected."""
    while True:
        path = target.with_name(f".{target.name}.{secrets.token_hex(4)}{kind}")
        lock = FileLock(_lock_path(path))
        if lock.try_acquire():
            return lock, path
        lock.close()  # a cleaner came between


def _lock_path(partial: Path) -> Path:
    return partial.with_name(partial.name + _LOCK)


def _flush(folder: Path) -> None:
    folders = [folder]
    for path in folder.rglob("*"):
        if path.is_dir():
            folders.append(path)
        else:
            force_to_disk(path)
    for path in reversed(folders):
        force_to_disk(path)


def _put_in_place(partial: Path, target: Path, *, replace: bool) -> None:
    if replace and target.is_dir() and any(target.iterdir()):
        lock, old = _reserve(target, _OLD)
        try:
            target.rename(old)
            try:
                partial.rename(target)
            except OSError:
                old.rename(target)
                raise
            shutil.rmtree(old, ignore_errors=True)
        finally:
            lock.remove()
    else:
        if target.is_dir() and not any(target.iterdir()):
            target.rmdir()  # Windows does not rename onto an empty directory
        try:
            partial.rename(target)
        except OSError as cause:
            if os.path.lexists(target):
                raise _exists(target) from cause
            raise
    force_to_disk(target.parent)
