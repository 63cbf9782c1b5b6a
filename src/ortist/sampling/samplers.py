"""The samplers: each a function from a setup to rows.

To add one: write its planner, add its `Sampler` to `SAMPLERS`, and it takes part in every test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ortist.errors import BadRequest
from ortist.sampling.config import Spacing
from ortist.sampling.levels import (
    Levels,
    exponential,
    karras,
    leading,
    linspace,
    sigmas_at,
    timesteps_at,
    trailing,
)
from ortist.sampling.setup import Setup, check_levels, x0_coefficients
from ortist.sampling.step import StepRow


@dataclass(frozen=True)
class Table:
    """A planned run: the rows, and the standard deviation of the starting noise."""

    rows: tuple[StepRow, ...]
    init_noise_sigma: float


@dataclass(frozen=True)
class Sampler:
    """One sampler.

    Attributes:
        name: short name, as typed.
        label: name for people and for infotext (AUTOMATIC1111's).
        aliases: other names it goes by, in any spelling `names.py` folds together.
        plan: makes the table.
        spacing: default spacing where the scheduler file states none (diffusers' own class).
        has_levels: takes Karras and exponential levels.
        spacing_with_levels: spacing still matters with such levels.
        eta: default share of ancestral noise, None where there is none.
        in_sigmas: counts noise in sigmas, so that the last level must stay finite.
        heeds: keys of `SchedulerConfig` that diffusers' class of this sampler has, next to those
            that all have (betas, prediction, spacing, offset, zero terminal SNR).
        neutral: further keys of that class, with the values under which they change nothing.
    """

    name: str
    label: str
    aliases: tuple[str, ...]
    plan: Callable[[Setup], Table]
    spacing: Spacing
    has_levels: bool
    spacing_with_levels: bool
    eta: float | None
    in_sigmas: bool
    heeds: frozenset[str]
    neutral: Mapping[str, tuple[object, ...]]


def plan_ddim(setup: Setup) -> Table:
    """DDIM: "Denoising Diffusion Implicit Models" (Song et al. 2020), equations 12 and 16.

    As in diffusers, a step goes T // n training steps down, whatever time step comes next; and
    where x0 is clipped, the noise estimate stays that of the unclipped output.
    """
    total, steps = setup.train_steps, setup.steps
    if setup.spacing == "linspace":
        timesteps = np.round(linspace(total - 1, steps))
    elif setup.spacing == "leading":
        timesteps = leading(total, steps, setup.steps_offset)
    else:
        timesteps = trailing(total, total / steps, steps)
    check_levels(setup, timesteps, timesteps)
    cumprod = setup.training.alphas_cumprod
    rows: list[StepRow] = []
    for index in range(setup.start, steps):
        timestep = int(timesteps[index])
        target = timestep - total // steps
        now = float(cumprod[timestep])
        if target >= 0:
            then = float(cumprod[target])
        else:
            then = 1.0 if setup.set_alpha_to_one else float(cumprod[0])
        alpha, sigma = math.sqrt(now), math.sqrt(1 - now)
        if alpha == 0.0 and setup.prediction == "epsilon":
            raise BadRequest(
                f"DDIM cannot start from pure noise (time step {timestep}) with a model that "
                "predicts noise",
                hint="use leading spacing, or another sampler",
                code="zero-snr",
            )
        c_skip, c_out = x0_coefficients(setup.prediction, alpha, sigma)
        deviation = setup.eta * math.sqrt((1 - then) / (1 - now) * (1 - now / then))
        keep = math.sqrt(then)
        # Rounding can take this a hair below zero where eta is 1.
        toward = math.sqrt(max(1 - then - deviation**2, 0.0))
        clip = setup.clip_sample_range if setup.clip_sample else None
        # x_next = keep * x0 + toward * (noise estimate), which is (x - alpha * x0) / sigma.
        slope = toward / sigma
        x_mix, x0_mix, output_mix = (slope,), (keep - slope * alpha,), 0.0
        if clip is not None:
            # x0 is clipped and the noise estimate is not: that takes the raw output.
            x0_mix = (keep,)
            if setup.prediction == "epsilon":
                x_mix, output_mix = (), toward
            elif setup.prediction == "v_prediction":
                x_mix, output_mix = (toward * sigma,), toward * alpha
            else:
                output_mix = -slope * alpha
        rows.append(
            StepRow(
                step=index,
                timestep=float(timestep),
                alpha=alpha,
                sigma=sigma,
                scale_in=1.0,
                c_skip=c_skip,
                c_out=c_out,
                x_mix=x_mix,
                x0_mix=x0_mix,
                output_mix=output_mix,
                noise=(deviation,) if setup.eta > 0 else (),
                x0_clip=clip,
            )
        )
    return Table(tuple(rows), 1.0)


def plan_euler(setup: Setup) -> Table:
    """Euler's method in sigmas: algorithm 2 of Karras et al. 2022 without churn."""
    return _euler(setup, ancestral=False)


def plan_euler_ancestral(setup: Setup) -> Table:
    """Euler steps that overshoot and add noise back (k-diffusion's ancestral sampler)."""
    return _euler(setup, ancestral=True)


def _euler(setup: Setup, *, ancestral: bool) -> Table:
    levels = _euler_levels(setup)
    check_levels(setup, levels.timesteps, levels.sigmas[:-1])
    rows: list[StepRow] = []
    for index in range(setup.start, levels.steps):
        sigma, target = float(levels.sigmas[index]), float(levels.sigmas[index + 1])
        down, up = target, 0.0
        if ancestral:
            spread = math.sqrt(target**2 * (sigma**2 - target**2) / sigma**2)
            up = min(target, setup.eta * spread)
            down = math.sqrt(max(target**2 - up**2, 0.0))
        c_skip, c_out = x0_coefficients(setup.prediction, 1.0, sigma)
        # x + (x - x0) / sigma * (down - sigma)
        share = down / sigma
        rows.append(
            StepRow(
                step=index,
                timestep=float(levels.timesteps[index]),
                alpha=1.0,
                sigma=sigma,
                scale_in=1 / math.hypot(1.0, sigma),
                c_skip=c_skip,
                c_out=c_out,
                x_mix=(share,),
                x0_mix=(1 - share,),
                noise=(up,) if ancestral and setup.eta > 0 else (),
            )
        )
    largest = float(levels.sigmas.max())
    # The reference starts from a whole picture's variance only under leading spacing.
    init = math.hypot(1.0, largest) if setup.spacing == "leading" else largest
    return Table(tuple(rows), init)


def _euler_levels(setup: Setup) -> Levels:
    total, steps, training = setup.train_steps, setup.steps, setup.training
    if setup.spacing == "linspace":
        timesteps = linspace(total - 1, steps)  # the model is given fractions of a time step
    elif setup.spacing == "leading":
        timesteps = leading(total, steps, setup.steps_offset)
    else:
        timesteps = trailing(total, total / steps, steps)
    timesteps = timesteps.astype(np.float32).astype(np.float64)
    sigmas = sigmas_at(training, timesteps)
    if setup.levels != "uniform":
        sigmas = _between(setup, float(sigmas[-1]), float(sigmas[0]))
        timesteps = timesteps_at(training, sigmas)
    levels = Levels.of(timesteps, sigmas, setup.final_sigma)
    if setup.timestep_type == "continuous" and setup.prediction == "v_prediction":
        return Levels.of(0.25 * np.log(levels.sigmas[:-1]), sigmas, setup.final_sigma)
    return levels


def _between(setup: Setup, sigma_min: float, sigma_max: float) -> np.ndarray:
    rule = karras if setup.levels == "karras" else exponential
    low = sigma_min if setup.sigma_min is None else setup.sigma_min
    high = sigma_max if setup.sigma_max is None else setup.sigma_max
    return rule(low, high, setup.steps)


def plan_dpmpp_2m(setup: Setup) -> Table:
    """DPM-Solver++(2M) (Lu et al. 2022, algorithm 2), in the variance-preserving scale of x."""
    levels = _dpm_levels(setup)
    check_levels(setup, levels.timesteps, levels.sigmas[:-1])
    alphas = 1 / np.sqrt(levels.sigmas**2 + 1)
    # log(alpha / noise) = -log(sigma); infinite after the last step when that ends at zero.
    with np.errstate(divide="ignore"):
        log_snr = -np.log(levels.sigmas)
    last = levels.steps - 1
    first_order_last = (
        setup.euler_at_final
        or (setup.lower_order_final and levels.steps < 15)
        or setup.final_sigmas_type == "zero"
    )
    rows: list[StepRow] = []
    for index in range(setup.start, levels.steps):
        alpha, noise = float(alphas[index]), float(alphas[index] * levels.sigmas[index])
        next_alpha = float(alphas[index + 1])
        next_noise = float(alphas[index + 1] * levels.sigmas[index + 1])
        width = float(log_snr[index + 1] - log_snr[index])
        gain = -next_alpha * math.expm1(-width)
        x0_mix: tuple[float, ...] = (gain,)
        if index > setup.start and not (index == last and first_order_last):
            before = float(log_snr[index] - log_snr[index - 1])
            if setup.solver_type == "midpoint":
                slope = 0.5 * gain * width / before
            else:
                slope = next_alpha * (math.expm1(-width) / width + 1) * width / before
            x0_mix = (gain + slope, -slope)
        c_skip, c_out = x0_coefficients(setup.prediction, alpha, noise)
        rows.append(
            StepRow(
                step=index,
                timestep=float(levels.timesteps[index]),
                alpha=alpha,
                sigma=noise,
                scale_in=1.0,
                c_skip=c_skip,
                c_out=c_out,
                x_mix=(next_noise / noise,),
                x0_mix=x0_mix,
            )
        )
    return Table(tuple(rows), 1.0)


def _dpm_levels(setup: Setup) -> Levels:
    total, steps, training = setup.train_steps, setup.steps, setup.training
    if setup.levels != "uniform":
        # The whole training range, whatever the spacing.
        sigmas = _between(setup, float(training.sigmas[0]), float(training.sigmas[-1]))
        timesteps = timesteps_at(training, sigmas)
        if setup.levels == "karras" and setup.whole_karras_timesteps:
            timesteps = np.round(timesteps)
        return Levels.of(np.trunc(timesteps), sigmas, setup.final_sigma)
    # Levels noisier than the clip are left out (cosine schedules end in almost nothing).
    log_snr = -training.log_sigmas
    last = int(np.count_nonzero(log_snr >= setup.lambda_min_clipped))
    # One point more than steps: the step to the last one is taken with the level after it.
    if setup.spacing == "linspace":
        timesteps = np.round(linspace(last - 1, steps + 1))[:-1]
    elif setup.spacing == "leading":
        timesteps = leading(last, steps + 1, setup.steps_offset)[:-1]
    else:
        timesteps = trailing(last, total / steps, steps)
    return Levels.of(timesteps, sigmas_at(training, timesteps), setup.final_sigma)


_LEVEL_KEYS = frozenset(
    {
        "use_karras_sigmas",
        "use_exponential_sigmas",
        "sigma_min",
        "sigma_max",
        "final_sigmas_type",
    }
)
_OFF: tuple[object, ...] = (False, None)

SAMPLERS: tuple[Sampler, ...] = (
    Sampler(
        name="ddim",
        label="DDIM",
        aliases=("DDIMScheduler",),
        plan=plan_ddim,
        spacing="leading",
        has_levels=False,
        spacing_with_levels=False,
        eta=0.0,
        in_sigmas=False,
        heeds=frozenset({"set_alpha_to_one", "clip_sample", "clip_sample_range"}),
        neutral={"thresholding": _OFF},
    ),
    Sampler(
        name="euler",
        label="Euler",
        aliases=("k_euler", "sample_euler", "EulerDiscreteScheduler"),
        plan=plan_euler,
        spacing="linspace",
        has_levels=True,
        spacing_with_levels=True,
        eta=None,
        in_sigmas=True,
        heeds=_LEVEL_KEYS | {"timestep_type"},
        neutral={"interpolation_type": ("linear", None), "use_beta_sigmas": _OFF},
    ),
    Sampler(
        name="euler-a",
        label="Euler a",
        aliases=(
            "k_euler_a",
            "euler_ancestral",
            "k_euler_ancestral",
            "sample_euler_ancestral",
            "EulerAncestralDiscreteScheduler",
        ),
        plan=plan_euler_ancestral,
        spacing="linspace",
        has_levels=True,
        spacing_with_levels=True,
        eta=1.0,
        in_sigmas=True,
        heeds=frozenset(),
        neutral={},
    ),
    Sampler(
        name="dpmpp-2m",
        label="DPM++ 2M",
        aliases=("k_dpmpp_2m", "sample_dpmpp_2m", "DPMSolverMultistepScheduler"),
        plan=plan_dpmpp_2m,
        spacing="linspace",
        has_levels=True,
        spacing_with_levels=False,
        eta=None,
        in_sigmas=True,
        heeds=_LEVEL_KEYS
        | {"solver_type", "lower_order_final", "euler_at_final", "lambda_min_clipped"},
        neutral={
            "thresholding": _OFF,
            "use_beta_sigmas": _OFF,
            "use_lu_lambdas": _OFF,
            "use_flow_sigmas": _OFF,
            "use_dynamic_shifting": _OFF,
            "variance_type": (
                None,
                "fixed_small",
                "fixed_small_log",
                "fixed_large",
                "fixed_large_log",
            ),
        },
    ),
)
