"""What a checkpoint is, whatever it is called and wherever it lies: a hash of its contents."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from ortist.errors import BadCheckpoint
from ortist.files import sha256_of

FileHash = Callable[[Path], str]


def content_key(root: Path, files: Iterable[Path], file_hash: FileHash = sha256_of) -> str:
    """SHA-256, hexadecimal, over the paths relative to `root` and the bytes of `files`.

    Args:
        root: the checkpoint's directory.
        files: files below it.
        file_hash: gives a file's SHA-256; replaced where hashes of large files are remembered.

    Raises:
        BadCheckpoint: a file cannot be read.
    """
    names = sorted((path.relative_to(root).as_posix(), path) for path in files)
    digest = hashlib.sha256()
    for name, path in names:
        try:
            inner = file_hash(path)
        except OSError as cause:
            raise unreadable(path, cause) from cause
        digest.update(f"{inner} {name}\n".encode())
    return digest.hexdigest()


def unreadable(path: Path, cause: OSError) -> BadCheckpoint:
    """The error for a file of a checkpoint that the operating system does not give."""
    return BadCheckpoint(
        f"{path} cannot be read: {cause.strerror or cause}",
        hint="fetch the whole checkpoint, or check the path",
        code="file-missing" if isinstance(cause, FileNotFoundError) else "file-unreadable",
    )
