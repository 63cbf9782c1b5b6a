"""The models that come with ortist: small checkpoints in the diffusers layout."""

from __future__ import annotations

from pathlib import Path

from ortist.errors import BadCheckpoint

_INDEX = "model_index.json"


def embedded_models() -> tuple[str, ...]:
    """Names of the embedded models, sorted."""
    return tuple(sorted(path.parent.name for path in _folder().glob(f"*/{_INDEX}")))


def embedded_path(name: str) -> Path:
    """The checkpoint directory of the embedded model `name`.

    Raises:
        BadCheckpoint: there is no such model.
    """
    names = embedded_models()
    if name not in names:
        raise BadCheckpoint(
            f"there is no embedded model {name!r}",
            hint=f"embedded models: {', '.join(names) or 'none in this installation'}",
            code="unknown-model",
        )
    return _folder() / name


def _folder() -> Path:
    return Path(__file__).parent
