"""make_schedule: sampler, checkpoint settings and number of steps -> the rows of the run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, cast, get_args

from ortist.errors import BadCheckpoint, BadRequest
from ortist.sampling.config import Prediction, SchedulerConfig, Spacing
from ortist.sampling.names import SamplerChoice
from ortist.sampling.samplers import SAMPLERS, Sampler
from ortist.sampling.schedule import TrainingSchedule, training_schedule
from ortist.sampling.setup import LevelsName, Setup, with_history
from ortist.sampling.step import StepRow


@dataclass(frozen=True)
class Schedule:
    """The sampling of one run, every number decided.

    Attributes:
        sampler: the sampler's label ("DPM++ 2M").
        levels: the rule for the noise levels: "uniform", "karras" or "exponential".
        spacing: how time steps are picked: "leading", "trailing" or "linspace".
        prediction: what the model puts out: "epsilon", "v_prediction" or "sample".
        steps: number of steps asked for.
        eta: share of the ancestral noise; None for samplers without.
        rows: the evaluations of the denoiser, in order.
        init_noise_sigma: standard deviation of the starting latents (of standard normal noise
            times this); for image-to-image use the first row's alpha and sigma instead.
        notes: what the user should know, a sentence each.
    """

    sampler: str
    levels: LevelsName
    spacing: Spacing
    prediction: Prediction
    steps: int
    eta: float | None
    rows: tuple[StepRow, ...]
    init_noise_sigma: float
    notes: tuple[str, ...]


def make_schedule(
    choice: SamplerChoice,
    config: SchedulerConfig,
    steps: int,
    *,
    spacing: str | None = None,
    eta: float | None = None,
    start: int = 0,
) -> Schedule:
    """Plan the rows.

    Args:
        choice: the sampler, from `resolve_sampler` or `default_sampler`.
        config: the checkpoint's scheduler settings; what they leave open comes from the sampler.
        steps: number of steps, 1 up to the number of training steps.
        spacing: "leading", "trailing" or "linspace"; None takes the checkpoint's or the sampler's.
        eta: share of the ancestral noise, 0 to 1; None takes the sampler's.
        start: steps to skip at the noisy end (image-to-image).

    Raises:
        BadRequest: a value is out of range, or would have no effect.
        BadCheckpoint: the settings ask the sampler for something that is not implemented.
    """
    sampler = choice.sampler
    notes: list[str] = []
    levels = _levels(choice, config, notes)
    _check_neutral(sampler, config, levels_asked=choice.levels is not None)
    training = _training(sampler, config)
    _check_steps(steps, start, len(training.sigmas))
    if spacing is not None and levels != "uniform" and not sampler.spacing_with_levels:
        raise BadRequest(
            f"spacing {spacing!r} would have no effect: {sampler.label} with "
            f"{levels.capitalize()} levels uses the whole range",
            hint="leave the spacing out",
            code="no-effect",
        )
    chosen_spacing = _spacing(spacing) or config.timestep_spacing or sampler.spacing
    _note_settings(sampler, config, notes)
    heeds = sampler.heeds
    setup = Setup(
        steps=steps,
        start=start,
        training=training,
        prediction=config.prediction_type or "epsilon",
        spacing=chosen_spacing,
        levels=levels,
        eta=_eta(sampler, eta),
        steps_offset=config.steps_offset or 0,
        set_alpha_to_one=config.set_alpha_to_one is not False,
        clip_sample=config.clip_sample is not False,
        clip_sample_range=1.0 if config.clip_sample_range is None else config.clip_sample_range,
        sigma_min=config.sigma_min if "sigma_min" in heeds else None,
        sigma_max=config.sigma_max if "sigma_max" in heeds else None,
        final_sigmas_type=(config.final_sigmas_type if "final_sigmas_type" in heeds else None)
        or "zero",
        timestep_type=(config.timestep_type if "timestep_type" in heeds else None) or "discrete",
        solver_type=_solver_type(sampler, config),
        lower_order_final=config.lower_order_final is not False,
        euler_at_final=config.euler_at_final is True,
        lambda_min_clipped=-math.inf
        if config.lambda_min_clipped is None
        else config.lambda_min_clipped,
        whole_karras_timesteps=config.beta_schedule != "squaredcos_cap_v2",
    )
    table = sampler.plan(setup)
    return Schedule(
        sampler=sampler.label,
        levels=levels,
        spacing=chosen_spacing,
        prediction=setup.prediction,
        steps=steps,
        eta=None if sampler.eta is None else setup.eta,
        rows=with_history(table.rows),
        init_noise_sigma=table.init_noise_sigma,
        notes=tuple(notes),
    )


def _levels(choice: SamplerChoice, config: SchedulerConfig, notes: list[str]) -> LevelsName:
    sampler = choice.sampler
    if choice.levels is not None:
        if choice.levels != "uniform" and not sampler.has_levels:
            raise BadRequest(
                f"{sampler.label} does not take {choice.levels.capitalize()} levels",
                hint="use one of " + ", ".join(s.label for s in SAMPLERS if s.has_levels),
                code="levels-do-not-fit",
            )
        return choice.levels
    said: LevelsName = "uniform"
    if config.use_karras_sigmas:
        said = "karras"
    elif config.use_exponential_sigmas:
        said = "exponential"
    if said != "uniform" and "use_karras_sigmas" not in sampler.heeds:
        word = said.capitalize()
        only = f'takes them by name, as "{sampler.label} {word}"'
        notes.append(
            f"the checkpoint's {word} levels are left out: {sampler.label} "
            + (only if sampler.has_levels else "has none")
        )
        return "uniform"
    return said


def _check_neutral(sampler: Sampler, config: SchedulerConfig, *, levels_asked: bool) -> None:
    for key, allowed in sampler.neutral.items():
        value = config.other(key)
        if value not in allowed and not (levels_asked and key == "use_beta_sigmas"):
            raise BadCheckpoint(
                f"scheduler_config.json: {key} is {value!r}, which {sampler.label} does not "
                "implement",
                hint="use another sampler",
                code="scheduler-config",
            )


def _training(sampler: Sampler, config: SchedulerConfig) -> TrainingSchedule:
    # The defaults are those of diffusers' classes of all the samplers here.
    return training_schedule(
        count=config.num_train_timesteps or 1000,
        beta_start=0.0001 if config.beta_start is None else config.beta_start,
        beta_end=0.02 if config.beta_end is None else config.beta_end,
        beta_schedule=config.beta_schedule or "linear",
        trained_betas=config.trained_betas,
        zero_terminal_snr=config.rescale_betas_zero_snr is True,
        keep_last_finite=sampler.in_sigmas,
    )


def _check_steps(steps: int, start: int, train_steps: int) -> None:
    if not 1 <= steps <= train_steps:
        raise BadRequest(
            f"{steps} steps are out of range",
            hint=f"use 1 to {train_steps} steps (the model was trained on {train_steps})",
            code="bad-steps",
        )
    if not 0 <= start < steps:
        raise BadRequest(
            f"{start} of {steps} steps to skip leaves none",
            hint="use a higher strength or more steps",
            code="bad-steps",
        )


def _spacing(asked: str | None) -> Spacing | None:
    if asked is None:
        return None
    known = get_args(Spacing)
    if asked not in known:
        raise BadRequest(
            f"unknown timestep spacing {asked!r}",
            hint=f"use {', '.join(known[:-1])} or {known[-1]}",
            code="bad-spacing",
        )
    return cast("Spacing", asked)


def _eta(sampler: Sampler, asked: float | None) -> float:
    if asked is None:
        return 0.0 if sampler.eta is None else sampler.eta
    if sampler.eta is None:
        raise BadRequest(
            f"eta would have no effect: {sampler.label} draws no noise",
            hint="leave eta out, or use one of "
            + ", ".join(s.label for s in SAMPLERS if s.eta is not None),
            code="no-effect",
        )
    if not 0 <= asked <= 1:
        raise BadRequest(f"eta is {asked}", hint="use 0 (no noise) to 1", code="bad-eta")
    return float(asked)


def _solver_type(sampler: Sampler, config: SchedulerConfig) -> Literal["midpoint", "heun"]:
    said = config.solver_type if "solver_type" in sampler.heeds else None
    if said == "heun":
        return "heun"
    # The other names are solver types of DEIS and UniPC, for which DPM-Solver takes its own.
    if said in (None, "midpoint", "logrho", "bh1", "bh2"):
        return "midpoint"
    raise BadCheckpoint(
        f"scheduler_config.json: solver_type is {said!r}, which {sampler.label} does not implement",
        hint='only "midpoint" and "heun" are known',
        code="scheduler-config",
    )


def _note_settings(sampler: Sampler, config: SchedulerConfig, notes: list[str]) -> None:
    if sampler.name != "dpmpp-2m" or config.class_name != "DPMSolverMultistepScheduler":
        return
    for key, value, own in (
        ("algorithm_type", config.algorithm_type, "dpmsolver++"),
        ("solver_order", config.solver_order, 2),
    ):
        if value not in (None, own):
            notes.append(f"{key} is {own}, as {sampler.label} means (the checkpoint says {value})")
