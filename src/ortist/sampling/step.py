"""A sampler is a table: one row for each evaluation of the denoiser, one loop for all of them.

A row turns the model's output into an estimate of the finished latents x0, then makes the next
latents as a linear combination of what the run has seen:

    x0     = c_skip * x + c_out * output                                  (optionally clipped)
    x_next = sum_j x_mix[j] * x_j + sum_j x0_mix[j] * x0_j + output_mix * output
             + sum_j noise[j] * noise_j

with j = 0 the newest of each: x_0 is the present x, x0_0 this row's estimate, noise_0 a fresh
draw. All numbers are computed in float64 before the first row runs.

Why this holds the samplers of the field exactly. Their derivative (x - x0) / sigma, noise
estimate and velocity are linear in x and x0 with coefficients known beforehand, so every explicit
method on a fixed grid is a row per evaluation:

- multistep (DPM++ 2M, 2M SDE, 3M SDE, LMS, DEIS, iPNDM, PLMS): older x_j and x0_j of the same
  row kind; Runge-Kutta-like (Heun, DPM2, DPM++ 2S and SDE, singlestep DPM, DPM fast, PRK): the
  first row leads to the inner point, the second starts again from x_1;
- predictor-corrector (UniPC, SA): the corrected latents are never evaluated, and the step before
  was x_0 = a * corrected + known terms, so the corrected ones are linear in x_0, the x0_j and (SA,
  where its tau changes) noise_1;
- noise (ancestral, SDE, DDIM with eta, LCM, TCD) is the `noise` column; Restart and churn raise
  the noise at the end of the row before.

Probing the schedulers of diffusers 0.42 with independent vectors for outputs and noise found every
step of each in the span of at most four past x, six past x0 and two draws (PNDM's Runge-Kutta
start: older x0).

What it cannot hold: a step size that depends on the latents (DPM adaptive), and dynamic
thresholding, which is not linear.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StepRow:
    """One evaluation of the denoiser and the update after it.

    Attributes:
        step: the user's step (0 is the first) that this evaluation belongs to.
        timestep: what the model is told; not always whole.
        alpha, sigma: the present x is alpha * picture + sigma * noise; also how a picture is
            brought to this level (image-to-image).
        scale_in: the model's input is x * scale_in.
        c_skip, c_out: x0 = c_skip * x + c_out * output.
        x_mix, x0_mix: coefficients over the history, newest first.
        output_mix: coefficient of this row's model output (where clipping makes the output more
            than x and x0 tell).
        noise: coefficients of the noise, newest first; empty where no noise is drawn. A draw whose
            coefficient is 0 still happens, as in the reference, so that a stream stays in step.
        x0_clip: x0 is clipped to -x0_clip .. x0_clip; None for no clipping.
        keep_x, keep_x0, keep_noise: how much history later rows need.
    """

    step: int
    timestep: float
    alpha: float
    sigma: float
    scale_in: float
    c_skip: float
    c_out: float
    x_mix: tuple[float, ...]
    x0_mix: tuple[float, ...]
    output_mix: float = 0.0
    noise: tuple[float, ...] = ()
    x0_clip: float | None = None
    keep_x: int = 1
    keep_x0: int = 1
    keep_noise: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Where a run stands between rows: its history, newest first.

    Attributes:
        xs: latents; `xs[0]` is the present one.
        x0s: estimates of the finished latents.
        noises: noise drawn.
    """

    xs: tuple[Float32, ...]
    x0s: tuple[Float32, ...] = ()
    noises: tuple[Float32, ...] = ()

    @property
    def x(self) -> Float32:
        """The present latents, float32, in the sampler's scale."""
        return self.xs[0]

    @property
    def x0(self) -> Float32:
        """The newest estimate of the finished latents, float32; only after the first row."""
        return self.x0s[0]


def begin(x: Float32) -> State:
    """The state before the first row, from the starting latents."""
    return State(xs=(x,))


def step(row: StepRow, state: State, output: Float32, noise: Float32 | None) -> State:
    """Apply one row. Nothing given is changed.

    Args:
        row: the row.
        state: the state before it.
        output: the denoiser's output (after guidance) at `state.x * row.scale_in` and
            `row.timestep`, float32, the shape of the latents.
        noise: a fresh draw of standard normal noise of the same shape if the row asks for one
            (`row.noise` is not empty), else None.

    Raises:
        ValueError: the row asks for noise and there is none, or the reverse.
    """
    if (noise is None) == bool(row.noise):
        raise ValueError(f"row of step {row.step} has noise {row.noise}, but was given {noise}")
    x0 = _combine((row.c_skip, row.c_out), (state.x, output))
    if row.x0_clip is not None:
        np.clip(x0, -row.x0_clip, row.x0_clip, out=x0)
    x0s = (x0, *state.x0s)
    noises = state.noises if noise is None else (noise, *state.noises)
    x = _combine(
        (*row.x_mix, *row.x0_mix, row.output_mix, *row.noise),
        (
            *state.xs[: len(row.x_mix)],
            *x0s[: len(row.x0_mix)],
            output,
            *noises[: len(row.noise)],
        ),
    )
    return State(
        xs=(x, *state.xs)[: row.keep_x],
        x0s=x0s[: row.keep_x0],
        noises=noises[: row.keep_noise],
    )


def _combine(coefficients: tuple[float, ...], arrays: tuple[Float32, ...]) -> Float32:
    """Sum of coefficient * array in float32, with one temporary."""
    total: Float32 | None = None
    part: Float32 | None = None
    for coefficient, array in zip(coefficients, arrays, strict=True):
        if coefficient == 0.0:
            continue
        if total is None:
            total = np.multiply(array, np.float32(coefficient), dtype=np.float32)
        else:
            part = np.multiply(array, np.float32(coefficient), out=part, dtype=np.float32)
            total += part
    return np.zeros_like(arrays[0]) if total is None else total
