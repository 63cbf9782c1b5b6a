"""Locks between processes that die with the process that holds them.

The kernel holds the lock on an open file, so a killed process leaves a file behind but no lock.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ortist.errors import OutputFailed

_POLL_SECONDS = 0.05


class FileLock:
    """An exclusive lock on `path`, which is created where it is missing.

    Raises:
        OutputFailed: the lock file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as cause:
            raise OutputFailed(
                f"{path.parent} cannot be written to: {cause.strerror or cause}",
                hint="choose a folder that you may write to",
                code="not-writable",
            ) from cause
        self._is_held = False

    def try_acquire(self) -> bool:
        """Take the lock if nobody else has it; says whether it is now held.

        Raises:
            OutputFailed: the file system has no locks.
        """
        if not self._is_held:
            try:
                taken = _try_lock(self._descriptor)
            except OSError as cause:
                self.remove()
                raise OutputFailed(
                    f"{self.path.parent} lies on a file system without locks: "
                    f"{cause.strerror or cause}",
                    hint="choose a folder on a local disk; for the cache, set ORTIST_CACHE",
                    code="no-locks",
                ) from cause
            self._is_held = taken and self._is_current()
        return self._is_held

    def close(self) -> None:
        """Give the lock back; the file stays."""
        os.close(self._descriptor)
        self._is_held = False

    def remove(self) -> None:
        """Give the lock back and remove its file."""
        if os.name == "nt":  # an open file cannot be removed there
            self.close()
            self.path.unlink(missing_ok=True)
        else:
            self.path.unlink(missing_ok=True)
            self.close()

    def _is_current(self) -> bool:
        """Whether `path` is still the file that is locked, not a removed one of that name."""
        try:
            there, ours = self.path.stat(), os.fstat(self._descriptor)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the lock on `path`, waiting for it; the file stays.

    Raises:
        OutputFailed: the lock file cannot be created.
    """
    lock = FileLock(path)
    while not lock.try_acquire():
        lock.close()
        time.sleep(_POLL_SECONDS)
        lock = FileLock(path)  # anew, because somebody may have removed the file
    try:
        yield
    finally:
        lock.close()


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as cause:
            if cause.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                raise
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
