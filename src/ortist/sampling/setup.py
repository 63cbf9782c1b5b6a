"""Setup: the settings of one run of a sampler, nothing left open, and the rows' common parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ortist.errors import BadRequest
from ortist.sampling.config import FinalSigma, Prediction, Spacing, TimestepType
from ortist.sampling.schedule import Float64, TrainingSchedule
from ortist.sampling.step import StepRow

LevelsName = Literal["uniform", "karras", "exponential"]


@dataclass(frozen=True)
class Setup:
    """Everything a sampler's planner reads.

    Attributes:
        steps: number of steps asked for.
        start: first step to run; the ones before are skipped (image-to-image).
        training: the levels the model was trained on.
        prediction: what the model puts out.
        spacing: how time steps are picked.
        levels: the rule for the sigmas.
        eta: share of the ancestral noise (DDIM, Euler ancestral).
        whole_karras_timesteps: DPM-Solver rounds the time steps of Karras levels.
        The others are the keys of `SchedulerConfig` by the same names.
    """

    steps: int
    start: int
    training: TrainingSchedule
    prediction: Prediction
    spacing: Spacing
    levels: LevelsName
    eta: float
    steps_offset: int
    set_alpha_to_one: bool
    clip_sample: bool
    clip_sample_range: float
    sigma_min: float | None
    sigma_max: float | None
    final_sigmas_type: FinalSigma
    timestep_type: TimestepType
    solver_type: Literal["midpoint", "heun"]
    lower_order_final: bool
    euler_at_final: bool
    lambda_min_clipped: float
    whole_karras_timesteps: bool

    @property
    def train_steps(self) -> int:
        """Number of levels the model was trained on."""
        return len(self.training.sigmas)

    @property
    def final_sigma(self) -> float:
        """The level after the last step."""
        return 0.0 if self.final_sigmas_type == "zero" else float(self.training.sigmas[0])


def x0_coefficients(prediction: Prediction, alpha: float, sigma: float) -> tuple[float, float]:
    """(c_skip, c_out) with x0 = c_skip * x + c_out * output, for x = alpha * x0 + sigma * noise.

    Holds for any scale of x; velocity is (alpha * noise - sigma * x0) / sqrt(alpha**2 + sigma**2)
    ("Progressive Distillation for Fast Sampling of Diffusion Models", Salimans and Ho 2022).
    """
    if prediction == "epsilon":
        return 1 / alpha, -sigma / alpha
    if prediction == "v_prediction":
        length = math.hypot(alpha, sigma)
        return alpha / length**2, -sigma / length
    return 0.0, 1.0


def check_levels(setup: Setup, timesteps: Float64, decreasing: Float64) -> None:
    """Refuse levels that no step can be made between.

    Args:
        timesteps: noisiest first.
        decreasing: what has to go down at each step, time steps or sigmas.

    Raises:
        BadRequest: a time step beyond the training range, or two steps at one level.
    """
    if timesteps[0] > setup.train_steps - 1 or np.any(np.diff(decreasing) >= 0):
        raise BadRequest(
            f"{setup.steps} steps do not fit {setup.spacing} spacing over "
            f"{setup.train_steps} training steps",
            hint="use fewer steps or another spacing",
            code="bad-steps",
        )


def with_history(rows: Sequence[StepRow]) -> tuple[StepRow, ...]:
    """Set how much history each row has to leave for the rows after it."""
    kept: list[StepRow] = []
    x, x0, noise = 1, 1, 0
    for row in reversed(rows):
        kept.append(replace(row, keep_x=x, keep_x0=x0, keep_noise=noise))
        x = max(1, len(row.x_mix), x - 1)
        x0 = max(1, len(row.x0_mix) - 1, x0 - 1)
        noise = max(0, len(row.noise) - 1, noise - 1)
    return tuple(reversed(kept))
