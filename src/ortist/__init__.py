"""ortist: Stable Diffusion on ONNX Runtime.

Public names load on first use: importing `ortist` imports neither onnx nor onnxruntime.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ortist.errors import (
        BadBundle,
        BadCheckpoint,
        BadRequest,
        Cancelled,
        NoProvider,
        OrtistError,
        OutputFailed,
    )
    from ortist.pipeline import Pipeline, Result
    from ortist.request import Request

__version__ = "0.1.0"

_HOMES = {
    "Pipeline": "ortist.pipeline",
    "Result": "ortist.pipeline",
    "Request": "ortist.request",
    "OrtistError": "ortist.errors",
    "BadRequest": "ortist.errors",
    "BadCheckpoint": "ortist.errors",
    "BadBundle": "ortist.errors",
    "NoProvider": "ortist.errors",
    "OutputFailed": "ortist.errors",
    "Cancelled": "ortist.errors",
}

__all__ = [
    "Pipeline",
    "Result",
    "Request",
    "OrtistError",
    "BadRequest",
    "BadCheckpoint",
    "BadBundle",
    "NoProvider",
    "OutputFailed",
    "Cancelled",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ortist' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
