"""SchedulerConfig: what a checkpoint's `scheduler_config.json` says, and nothing it does not say.

In diffusers a change of scheduler class carries over the keys that the file states, while every
other value comes from the new class. So a value that the file leaves out stays None here and gets
its default from the sampler in use (`Sampler.defaults`). The class name in the file does no more
than choose the default sampler.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from ortist.errors import BadCheckpoint

BetaSchedule = Literal["linear", "scaled_linear", "squaredcos_cap_v2"]
Prediction = Literal["epsilon", "v_prediction", "sample"]
Spacing = Literal["leading", "trailing", "linspace"]
FinalSigma = Literal["zero", "sigma_min"]
TimestepType = Literal["discrete", "continuous"]

_FILE = "scheduler_config.json"

# Classes whose file describes a variance-preserving schedule over discrete time steps, which is
# what the samplers here work on. Flow matching and EDM describe other things by the same keys.
_CLASSES = frozenset(
    {
        "DDIMScheduler",
        "DDPMScheduler",
        "PNDMScheduler",
        "LMSDiscreteScheduler",
        "EulerDiscreteScheduler",
        "EulerAncestralDiscreteScheduler",
        "HeunDiscreteScheduler",
        "KDPM2DiscreteScheduler",
        "KDPM2AncestralDiscreteScheduler",
        "DPMSolverMultistepScheduler",
        "DPMSolverSinglestepScheduler",
        "DPMSolverSDEScheduler",
        "DEISMultistepScheduler",
        "UniPCMultistepScheduler",
        "SASolverScheduler",
        "LCMScheduler",
        "TCDScheduler",
        "DDIMInverseScheduler",
        "DPMSolverMultistepInverseScheduler",
    }
)

# Keys kept as they stand in `SchedulerConfig.others`: each sampler refuses those of them that it
# would have to heed and cannot.
_OTHERS = frozenset(
    {
        "thresholding",
        "use_beta_sigmas",
        "use_lu_lambdas",
        "use_flow_sigmas",
        "use_dynamic_shifting",
        "variance_type",
        "interpolation_type",
    }
)
# Keys that say nothing to the samplers here: settings of other samplers, settings that have a
# meaning only together with one of `_OTHERS`, and leftovers of old versions.
_IGNORED = frozenset(
    {
        "skip_prk_steps",
        "original_inference_steps",
        "timestep_scaling",
        "predictor_order",
        "corrector_order",
        "tau_func",
        "predict_x0",
        "disable_corrector",
        "solver_p",
        "noise_sampler_seed",
        "dynamic_thresholding_ratio",
        "sample_max_value",
        "flow_shift",
        "time_shift_type",
        "shift_terminal",
        "timestep_values",
        "tensor_format",
    }
)


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """The keys of a scheduler's file; None where the file is silent.

    Attributes:
        class_name: the diffusers class that wrote the file.
        num_train_timesteps: number of noise levels the model was trained on.
        beta_start, beta_end, beta_schedule: variance added by the first and last training step,
            and how it grows between.
        trained_betas: all variances, instead of those three.
        prediction_type: what the model puts out: noise, velocity or the picture.
        timestep_spacing, steps_offset: which time steps are used ("Common Diffusion Noise
            Schedules and Sample Steps are Flawed", Lin et al. 2023, table 2).
        rescale_betas_zero_snr: shift the variances so that the last level is pure noise (same
            paper, algorithm 1).
        set_alpha_to_one: DDIM ends at no noise instead of at the first training level.
        clip_sample, clip_sample_range: DDIM clips its estimate of the picture.
        use_karras_sigmas, use_exponential_sigmas: noise levels by those rules.
        sigma_min, sigma_max: ends of such levels, where they are not the schedule's own.
        final_sigmas_type: the level after the last step.
        timestep_type: "continuous": the model takes ln(sigma) / 4 for a time step.
        solver_order, solver_type, algorithm_type, lower_order_final, euler_at_final,
            lambda_min_clipped: settings of DPM-Solver.
        others: further known keys and their values, for the samplers that would heed them.
    """

    class_name: str | None = None
    num_train_timesteps: int | None = None
    beta_start: float | None = None
    beta_end: float | None = None
    beta_schedule: BetaSchedule | None = None
    trained_betas: tuple[float, ...] | None = None
    prediction_type: Prediction | None = None
    timestep_spacing: Spacing | None = None
    steps_offset: int | None = None
    rescale_betas_zero_snr: bool | None = None
    set_alpha_to_one: bool | None = None
    clip_sample: bool | None = None
    clip_sample_range: float | None = None
    use_karras_sigmas: bool | None = None
    use_exponential_sigmas: bool | None = None
    sigma_min: float | None = None
    sigma_max: float | None = None
    final_sigmas_type: FinalSigma | None = None
    timestep_type: TimestepType | None = None
    solver_order: int | None = None
    solver_type: str | None = None
    algorithm_type: str | None = None
    lower_order_final: bool | None = None
    euler_at_final: bool | None = None
    lambda_min_clipped: float | None = None
    others: tuple[tuple[str, object], ...] = ()

    @classmethod
    def from_json(cls, mapping: Mapping[str, object]) -> SchedulerConfig:
        """Read the parsed file strictly.

        Raises:
            BadCheckpoint: a key is unknown, or its value is of the wrong kind or not implemented;
                the message names both.
        """
        read = _Reader(mapping)
        class_name = read.text("_class_name")
        if class_name is not None and class_name not in _CLASSES:
            raise _refuse("_class_name", class_name, f"only {', '.join(sorted(_CLASSES))} is known")
        config = cls(
            class_name=class_name,
            num_train_timesteps=read.integer("num_train_timesteps", minimum=1),
            beta_start=read.number("beta_start", low=0.0, high=1.0),
            beta_end=read.number("beta_end", low=0.0, high=1.0),
            beta_schedule=cast(
                "BetaSchedule | None", read.choice("beta_schedule", get_args(BetaSchedule))
            ),
            trained_betas=read.numbers("trained_betas"),
            prediction_type=cast(
                "Prediction | None", read.choice("prediction_type", get_args(Prediction))
            ),
            timestep_spacing=cast(
                "Spacing | None", read.choice("timestep_spacing", get_args(Spacing))
            ),
            steps_offset=read.integer("steps_offset", minimum=0),
            rescale_betas_zero_snr=read.flag("rescale_betas_zero_snr"),
            set_alpha_to_one=read.flag("set_alpha_to_one"),
            clip_sample=read.flag("clip_sample"),
            clip_sample_range=read.number("clip_sample_range", low=0.0),
            use_karras_sigmas=read.flag("use_karras_sigmas"),
            use_exponential_sigmas=read.flag("use_exponential_sigmas"),
            sigma_min=read.number("sigma_min", low=0.0),
            sigma_max=read.number("sigma_max", low=0.0),
            final_sigmas_type=cast(
                "FinalSigma | None", read.choice("final_sigmas_type", get_args(FinalSigma))
            ),
            timestep_type=cast(
                "TimestepType | None", read.choice("timestep_type", get_args(TimestepType))
            ),
            solver_order=read.integer("solver_order", minimum=1),
            solver_type=read.text("solver_type"),
            algorithm_type=read.text("algorithm_type"),
            lower_order_final=read.flag("lower_order_final"),
            euler_at_final=read.flag("euler_at_final"),
            lambda_min_clipped=read.number("lambda_min_clipped", finite=False),
            others=tuple((key, mapping[key]) for key in sorted(_OTHERS & mapping.keys())),
        )
        config = _read_predict_epsilon(config, read.flag("predict_epsilon"))
        read.finish(_OTHERS | _IGNORED)
        config._check_whole()
        return config

    def other(self, key: str) -> object:
        """The value of a key in `others`, None where the file is silent."""
        return dict(self.others).get(key)

    def as_stable_diffusion(self) -> tuple[SchedulerConfig, tuple[str, ...]]:
        """The settings as diffusers' StableDiffusionPipeline mends them, and what was mended.

        That pipeline (not the SDXL one) takes every file for outdated that does not set
        `steps_offset` to 1, and never clips: latents are not confined to -1..1.
        """
        notes: list[str] = []
        mended = self
        if self.steps_offset != 1:
            said = "leaves it out" if self.steps_offset is None else f"says {self.steps_offset}"
            notes.append(f"steps_offset is 1, as for every Stable Diffusion (the file {said})")
            mended = replace(mended, steps_offset=1)
        if self.clip_sample is not False:
            if self.clip_sample:
                notes.append("clip_sample is off: latents are not confined to -1..1")
            mended = replace(mended, clip_sample=False)
        return mended, tuple(notes)

    def _check_whole(self) -> None:
        betas, count = self.trained_betas, self.num_train_timesteps
        if betas is not None and count is not None and len(betas) != count:
            raise _refuse("num_train_timesteps", count, f"trained_betas holds {len(betas)} numbers")
        kinds = [
            key
            for key, on in (
                ("use_karras_sigmas", self.use_karras_sigmas),
                ("use_exponential_sigmas", self.use_exponential_sigmas),
                ("use_beta_sigmas", self.other("use_beta_sigmas")),
            )
            if on
        ]
        if len(kinds) > 1:
            raise _refuse(kinds[1], True, f"{kinds[0]} is on as well")


def _read_predict_epsilon(config: SchedulerConfig, flag: bool | None) -> SchedulerConfig:
    # The key from before `prediction_type` (diffusers 0.9).
    if flag is None or config.prediction_type is not None:
        return config
    return replace(config, prediction_type="epsilon" if flag else "sample")


def _refuse(key: str, value: object, why: str) -> BadCheckpoint:
    return BadCheckpoint(
        f"{_FILE}: {key} is {value!r}, but {why}",
        hint="use the scheduler settings of a Stable Diffusion checkpoint, or report the model",
        code="scheduler-config",
    )


class _Reader:
    """Typed access to the file's keys; remembers which were asked for."""

    def __init__(self, mapping: Mapping[str, object]) -> None:
        self._mapping = mapping
        self._seen: set[str] = set()

    def _take(self, key: str) -> object:
        self._seen.add(key)
        return self._mapping.get(key)

    def text(self, key: str) -> str | None:
        value = self._take(key)
        if value is not None and not isinstance(value, str):
            raise _refuse(key, value, "it has to be a name")
        return value

    def choice(self, key: str, choices: Sequence[str]) -> str | None:
        value = self.text(key)
        if value is not None and value not in choices:
            raise _refuse(key, value, f"only {', '.join(choices)} is implemented")
        return value

    def flag(self, key: str) -> bool | None:
        value = self._take(key)
        if value is not None and not isinstance(value, bool):
            raise _refuse(key, value, "it has to be true or false")
        return value

    def integer(self, key: str, *, minimum: int) -> int | None:
        value = self._take(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise _refuse(key, value, f"it has to be a whole number of at least {minimum}")
        return value

    def number(
        self, key: str, *, low: float = -math.inf, high: float = math.inf, finite: bool = True
    ) -> float | None:
        value = self._take(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _refuse(key, value, "it has to be a number")
        number = float(value)
        if math.isnan(number) or not low <= number <= high or (finite and math.isinf(number)):
            raise _refuse(key, value, f"it has to lie in {low:g} .. {high:g}")
        return number

    def numbers(self, key: str) -> tuple[float, ...] | None:
        value = self._take(key)
        if value is None:
            return None
        items = cast("list[object]", value) if isinstance(value, list) else list[object]()
        numbers = tuple(
            float(item)
            for item in items
            if isinstance(item, int | float) and not isinstance(item, bool) and 0 <= item < 1
        )
        if not numbers or len(numbers) != len(items):
            raise _refuse(key, cast("object", value), "it has to be a list of numbers in 0 .. 1")
        return numbers

    def finish(self, also_known: frozenset[str]) -> None:
        for key, value in self._mapping.items():
            if key not in self._seen and key not in also_known and not key.startswith("_"):
                raise _refuse(key, value, "ortist does not know that key")
