"""Noise levels of one run: which time steps and sigmas the sampler visits.

Time steps are picked by spacing ("Common Diffusion Noise Schedules and Sample Steps are Flawed",
Lin et al. 2023, table 2); the Karras and exponential levels are functions from a number of steps
and two ends to sigmas, which then say the time steps. Time steps and sigmas are rounded to
float32, as diffusers holds them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ortist.sampling.schedule import Float64, TrainingSchedule


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels of a run of n steps.

    Attributes:
        timesteps: (n,) what the model is told at each step.
        sigmas: (n + 1,) noise relative to the picture at each step, and after the last.
    """

    timesteps: Float64
    sigmas: Float64

    @property
    def steps(self) -> int:
        """Number of steps n."""
        return len(self.timesteps)

    @staticmethod
    def of(timesteps: Float64, sigmas: Float64, final: float) -> Levels:
        """Join the steps' levels with the level after the last step, rounding to float32."""
        return Levels(
            timesteps.astype(np.float32).astype(np.float64),
            np.append(sigmas, final).astype(np.float32).astype(np.float64),
        )


def linspace(last: float, points: int) -> Float64:
    """`points` time steps from `last` down to 0, evenly spaced and not rounded."""
    rising: Float64 = np.linspace(0, last, points, dtype=np.float64)
    return rising[::-1]


def leading(total: int, points: int, offset: int) -> Float64:
    """`points` time steps, each at the quiet end of its share of `total`, downwards."""
    shares: Float64 = np.arange(points, dtype=np.float64)[::-1]
    return shares * (total // points) + offset


def trailing(last: int, stride: float, points: int) -> Float64:
    """Up to `points` time steps, each at the noisy end of its share, from `last` - 1 downwards.

    diffusers makes one step too many, at time -1, where the division does not come out exactly
    (61, 103, 121, ... steps of 1000); that step is left out here.
    """
    shares: Float64 = np.arange(last, 0, -stride, dtype=np.float64)[:points]
    return np.round(shares) - 1


def sigmas_at(training: TrainingSchedule, timesteps: Float64) -> Float64:
    """Sigmas at time steps, between training steps by linear interpolation."""
    return np.interp(timesteps, np.arange(len(training.sigmas)), training.sigmas)


def timesteps_at(training: TrainingSchedule, sigmas: Float64) -> Float64:
    """Time steps of sigmas, linear in the logarithm; outside the training range, its ends."""
    logs = np.log(np.maximum(sigmas, 1e-10))
    # Interpolated as the reference does, single-precision width included: some samplers cut the
    # fraction off, and there a last bit is a whole time step.
    table = training.log_sigmas
    low = np.clip(np.searchsorted(table, logs, side="right") - 1, 0, len(table) - 2)
    width = (table[low] - table[low + 1]).astype(np.float32).astype(np.float64)
    share = np.clip((table[low] - logs) / width, 0, 1)
    return (1 - share) * low + share * (low + 1)


def karras(sigma_min: float, sigma_max: float, steps: int, rho: float = 7.0) -> Float64:
    """Sigmas of "Elucidating the Design Space of Diffusion-Based Generative Models", equation 5."""
    ramp = np.linspace(0, 1, steps)
    low, high = sigma_min ** (1 / rho), sigma_max ** (1 / rho)
    return (high + ramp * (low - high)) ** rho


def exponential(sigma_min: float, sigma_max: float, steps: int) -> Float64:
    """Sigmas evenly spaced in the logarithm."""
    logs: Float64 = np.linspace(math.log(sigma_max), math.log(sigma_min), steps, dtype=np.float64)
    return np.exp(logs)
