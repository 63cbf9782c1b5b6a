"""A file read in pieces: every failure is a `BadCheckpoint`, and no claim makes it allocate."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import numpy as np

from ortist.errors import BadCheckpoint


class RawFile:
    """A file open for reading at given places; safe to use from several threads.

    Args:
        path: the file.

    Attributes:
        path: the file.
        size: its length in bytes when it was opened.

    Raises:
        BadCheckpoint: missing or unreadable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            self._file = io.FileIO(path, "r")
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
        self.size = os.fstat(self._file.fileno()).st_size

    def read_at(self, start: int, length: int) -> np.ndarray:
        """The bytes [start, start + length) as uint8, in memory of their own.

        Fewer come back where the file ends early; the caller names what is missing.
        """
        buffer = np.empty(max(0, min(length, self.size - start)), dtype=np.uint8)
        view = buffer.data
        done = 0
        try:
            with self._lock:
                self._file.seek(start)
                while done < len(view) and (count := self._file.readinto(view[done:])):
                    done += count
        except OSError as cause:
            raise BadCheckpoint(
                f"{self.path} cannot be read: {cause.strerror or cause}",
                hint="check the disk or the connection it lies behind",
                code="file-unreadable",
            ) from cause
        return buffer[:done]

    def close(self) -> None:
        """Close the file; further reads fail."""
        self._file.close()


class Window:
    """Reads a stretch of a `RawFile` from front to back, within a budget of bytes.

    Args:
        file: the file.
        start: first byte.
        end: past-the-last byte.
    """

    _BLOCK = 1 << 16

    def __init__(self, file: RawFile, start: int, end: int) -> None:
        self._file = file
        self.position = start
        self._end = end
        self._block = b""
        self._block_start = start

    def read(self, length: int) -> bytes:
        """The next `length` bytes; EOFError where the stretch ends before."""
        if not 0 <= length <= self._end - self.position:
            raise EOFError
        offset = self.position - self._block_start
        if offset + length > len(self._block):
            wanted = min(max(length, self._BLOCK), self._end - self.position)
            self._block = self._file.read_at(self.position, wanted).tobytes()
            self._block_start = self.position
            offset = 0
            if len(self._block) < length:
                raise EOFError
        self.position += length
        return self._block[offset : offset + length]

    def line(self, limit: int) -> bytes:
        """The bytes up to the next newline, without it; EOFError after `limit` bytes."""
        text = bytearray()
        while (byte := self.read(1)) != b"\n":
            text += byte
            if len(text) > limit:
                raise EOFError
        return bytes(text)
