"""The noise levels a model was trained on: betas -> alphas_cumprod -> sigmas.

Precision matters at the quiet end: there 1 - alphas_cumprod is about 1e-3, and one float32
rounding of alphas_cumprod moves the level by 1e-4 of itself. So the tables are made in float32
as diffusers makes them with PyTorch, and everything computed from them is float64. On x86 with
AVX2 alphas_cumprod is the same bit for bit; of 1000 sigmas about 6 differ in the last bit, because
PyTorch takes its square roots there from a library (MKL) that does not round correctly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ortist.errors import BadCheckpoint
from ortist.sampling.config import BetaSchedule

Float64 = NDArray[np.float64]
Float32 = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TrainingSchedule:
    """The levels by training time step, from almost clean (0) to almost pure noise.

    Attributes:
        alphas_cumprod: (T,) share of the picture's variance left at each step; float64 array of
            float32 values. A noisy picture is sqrt(a) * picture + sqrt(1 - a) * noise.
        sigmas: (T,) sqrt((1 - a) / a), the noise relative to the picture, likewise.
    """

    alphas_cumprod: Float64
    sigmas: Float64

    @property
    def log_sigmas(self) -> Float64:
        """(T,) logarithm of the sigmas; float64 array of float32 values."""
        return np.log(self.sigmas.astype(np.float32)).astype(np.float64)


def training_schedule(
    *,
    count: int,
    beta_start: float,
    beta_end: float,
    beta_schedule: BetaSchedule,
    trained_betas: tuple[float, ...] | None,
    zero_terminal_snr: bool,
    keep_last_finite: bool,
) -> TrainingSchedule:
    """Make the tables.

    Args:
        count: number of training steps T; ignored when `trained_betas` is given.
        zero_terminal_snr: rescale so that the last level is pure noise (Lin et al. 2023).
        keep_last_finite: with the former, make the last alphas_cumprod 2**-24 instead of 0, so
            that the last sigma is 4096 instead of infinite (the samplers that count in sigmas).

    Raises:
        BadCheckpoint: the betas do not add noise from the first step on and at every step.
    """
    if trained_betas is not None:
        betas = np.array(trained_betas, dtype=np.float32)
    elif beta_schedule == "linear":
        betas = _linspace(beta_start, beta_end, count)
    elif beta_schedule == "scaled_linear":
        roots = _linspace(math.sqrt(beta_start), math.sqrt(beta_end), count)
        betas = roots * roots
    else:
        betas = _cosine_betas(count)
    if zero_terminal_snr:
        betas = _rescale_to_zero_snr(betas)
    alphas_cumprod = _cumprod(np.float32(1) - betas)
    if zero_terminal_snr and keep_last_finite:
        alphas_cumprod[-1] = 2.0**-24
    falling = bool(np.all(np.diff(alphas_cumprod) <= 0))
    if not falling or alphas_cumprod[0] >= 1 or alphas_cumprod[-1] < 0:
        raise BadCheckpoint(
            f"scheduler_config.json: the betas (beta_schedule {beta_schedule!r}, beta_start "
            f"{beta_start:g}, beta_end {beta_end:g}) do not add noise at every step",
            hint="beta_start has to be above 0",
            code="scheduler-config",
        )
    with np.errstate(divide="ignore"):
        sigmas = np.sqrt((np.float32(1) - alphas_cumprod) / alphas_cumprod)
    return TrainingSchedule(alphas_cumprod.astype(np.float64), sigmas.astype(np.float64))


def _linspace(start: float, end: float, count: int) -> Float32:
    # torch.linspace in float32: counted from both ends, product and sum with one rounding.
    first, last = np.float32(start), np.float32(end)
    if count == 1:
        return np.array([first])
    step = float((last - first) / np.float32(count - 1))
    index = np.arange(count)
    rising = (float(first) + step * index).astype(np.float32)
    falling = (float(last) - step * (count - 1 - index)).astype(np.float32)
    return np.where(index < count // 2, rising, falling)


def _cosine_betas(count: int) -> Float32:
    # "Improved Denoising Diffusion Probabilistic Models" (Nichol and Dhariwal 2021), equation 17.
    def level(time: float) -> float:
        return math.cos((time + 0.008) / 1.008 * math.pi / 2) ** 2

    betas = [min(1 - level((i + 1) / count) / level(i / count), 0.999) for i in range(count)]
    return np.array(betas, dtype=np.float32)


def _cumprod(alphas: Float32) -> Float32:
    # torch.cumprod on the CPU multiplies up in double and rounds each product it hands out.
    return np.cumprod(alphas, dtype=np.float64).astype(np.float32)


def _rescale_to_zero_snr(betas: Float32) -> Float32:
    roots = np.sqrt(_cumprod(np.float32(1) - betas))
    first, last = roots[0], roots[-1]
    roots = (roots - last) * (first / (first - last))
    levels = roots * roots
    alphas = np.concatenate([levels[:1], levels[1:] / levels[:-1]])
    return np.float32(1) - alphas
