"""Typed events: how a run reports its progress to one `on_event` callback.

The library never prints. A front (CLI, server, batch) passes a callback and draws what it
likes. A callback stops the run by raising `ortist.Cancelled`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Stage = Literal["convert", "load", "encode", "denoise", "decode"]


@dataclass(frozen=True)
class StageStarted:
    """A stage begins; `total` is its number of units (bytes to write, steps, pictures)."""

    stage: Stage
    total: int


@dataclass(frozen=True)
class StageAdvanced:
    """`done` of the stage's `total` units are finished; `detail` says what is being done."""

    stage: Stage
    done: int
    total: int
    detail: str = ""


@dataclass(frozen=True)
class StepDone:
    """One model evaluation of the denoising loop is finished.

    `x0` is the sampler's present estimate of the finished latents, float32 (n, c, h, w), in
    the model's own scale: decode it for a preview. It is a view; copy it to keep it.
    """

    step: int
    total: int
    timestep: float
    x0: NDArray[np.float32]


@dataclass(frozen=True)
class StageDone:
    """A stage is finished after `seconds` of wall time."""

    stage: Stage
    seconds: float


Event = StageStarted | StageAdvanced | StepDone | StageDone
OnEvent = Callable[[Event], None]


def ignore_event(_event: Event) -> None:
    """The callback used where nobody listens."""
