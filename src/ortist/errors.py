"""The errors ortist raises on purpose.

Policy: whatever a user can cause or mend is an `OrtistError` with a stable code, one clear
message and a hint that says what to do; anything else that escapes is a bug. Each class has
one process exit code (the table is in docs/errors.md), so that scripts can tell them apart.
"""

from __future__ import annotations

from typing import ClassVar


class OrtistError(Exception):
    """Base of every error ortist raises on purpose.

    Args:
        message: one line: what is wrong, with the names and values concerned.
        hint: one line: what to do about it.
        code: a stable, kebab-case name of the exact fault, for programs and for searching.
    """

    exit_code: ClassVar[int] = 1
    default_code: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.default_code


class BadRequest(OrtistError):
    """The request cannot be carried out as asked (size, steps, sampler name, ...)."""

    exit_code = 2
    default_code = "bad-request"


class BadCheckpoint(OrtistError):
    """Weights or configuration of a checkpoint are missing, damaged, or not implemented."""

    exit_code = 3
    default_code = "bad-checkpoint"


class BadBundle(OrtistError):
    """An ONNX bundle is incomplete, damaged, or does not fit what was asked of it."""

    exit_code = 4
    default_code = "bad-bundle"


class NoProvider(OrtistError):
    """ONNX Runtime is not installed, or the execution provider asked for cannot run here."""

    exit_code = 5
    default_code = "no-provider"


class OutputFailed(OrtistError):
    """A file or folder could not be written (exists, not writable, disk full)."""

    exit_code = 6
    default_code = "output-failed"


class Cancelled(OrtistError):
    """The run was cancelled by its caller."""

    exit_code = 130
    default_code = "cancelled"

    def __init__(
        self, message: str = "cancelled", *, hint: str = "", code: str | None = None
    ) -> None:
        super().__init__(message, hint=hint, code=code)
