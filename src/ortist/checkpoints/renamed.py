"""Older and newer spellings of tensor names, brought to the one spelling that graphs use.

Initialisers carry these names, and LoRAs and other overrides look for them, so a bundle has to
name its tensors alike whichever version of diffusers or transformers saved the checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import numpy as np

from ortist.errors import BadCheckpoint


class Weights(Protocol):
    """The tensors of one component, as a `WeightSource`, with files that can be closed."""

    def keys(self) -> Iterable[str]:
        """Every tensor's name."""
        ...

    def shape(self, key: str) -> tuple[int, ...]:
        """Shape as stored."""
        ...

    def dtype(self, key: str) -> np.dtype[np.generic]:
        """Dtype as stored."""
        ...

    def load(self, key: str) -> np.ndarray:
        """The tensor in its stored dtype."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


class RenamedWeights:
    """`source` with every name passed through `rename`; a `WeightSource`.

    Args:
        source: the tensors as stored.
        rename: stored name -> name to give it.
        path: where they come from, for the message.

    Raises:
        BadCheckpoint: two tensors would get the same name.
    """

    def __init__(self, source: Weights, rename: Callable[[str], str], path: Path) -> None:
        self._source = source
        self._stored: dict[str, str] = {}
        for stored in source.keys():  # noqa: SIM118 (no dict)
            name = rename(stored)
            if name in self._stored:
                raise BadCheckpoint(
                    f"{path} holds the same tensor under two names: {self._stored[name]!r} and "
                    f"{stored!r}",
                    hint="keep one of the two",
                    code="name-twice",
                )
            self._stored[name] = stored

    def keys(self) -> tuple[str, ...]:
        """Every tensor's name."""
        return tuple(self._stored)

    def shape(self, key: str) -> tuple[int, ...]:
        """Shape as stored."""
        return self._source.shape(self._stored[key])

    def dtype(self, key: str) -> np.dtype[np.generic]:
        """Dtype as stored."""
        return self._source.dtype(self._stored[key])

    def load(self, key: str) -> np.ndarray:
        """The tensor in its stored dtype."""
        return self._source.load(self._stored[key])

    def close(self) -> None:
        """Close the files."""
        self._source.close()


_OLD_ATTENTION = re.compile(r"(.*\.attentions\.\d+)\.(query|key|value|proj_attn)\.(weight|bias)")
_NEW_ATTENTION = {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}


def canonical_vae_name(stored: str) -> str:
    """The autoencoder's attention had other names before diffusers 0.17 (all SD 1.x files)."""
    match = _OLD_ATTENTION.fullmatch(stored)
    if match is None:
        return stored
    attention, part, kind = match.groups()
    return f"{attention}.{_NEW_ATTENTION[part]}.{kind}"


_BARE_TEXT_MODEL = ("embeddings.", "encoder.", "final_layer_norm.")


def canonical_text_name(stored: str) -> str:
    """transformers 5 leaves the `text_model.` out where the encoder has no projection."""
    return f"text_model.{stored}" if stored.startswith(_BARE_TEXT_MODEL) else stored
