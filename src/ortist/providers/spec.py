"""Provider: what ortist knows of one execution provider, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Provider:
    """One execution provider.

    Attributes:
        name: ortist's name of it ("cpu").
        ort_name: ONNX Runtime's name ("CPUExecutionProvider").
        extra: the extra of ortist that installs a wheel with it.
        rank: `auto` takes the available provider of the highest rank.
        options: provider options, ONNX Runtime's names and spellings.
    """

    name: str
    ort_name: str
    extra: str
    rank: int
    options: Mapping[str, str] = field(default_factory=dict[str, str])
