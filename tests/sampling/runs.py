"""A model that needs no weights, and a run of a schedule over it: shared by the sampler tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ortist.sampling import (
    Schedule,
    SchedulerConfig,
    TorchCpuGenerator,
    begin,
    make_schedule,
    resolve_sampler,
    step,
)

Float = NDArray[np.float32]

CLASSES = {
    "ddim": "DDIMScheduler",
    "euler": "EulerDiscreteScheduler",
    "euler-a": "EulerAncestralDiscreteScheduler",
    "dpmpp-2m": "DPMSolverMultistepScheduler",
}
SD15: dict[str, object] = {
    "num_train_timesteps": 1000,
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "steps_offset": 1,
    "clip_sample": False,
    "set_alpha_to_one": False,
}


@dataclass(frozen=True)
class Case:
    """One run: a sampler and how it is set up."""

    sampler: str
    steps: int
    spacing: str | None = "leading"
    prediction: str | None = "epsilon"
    levels: str | None = None
    eta: float | None = None
    seed: int = 0
    shape: tuple[int, ...] = (1, 2, 4, 4)
    extra: Mapping[str, object] = field(default_factory=dict[str, object])
    base: Mapping[str, object] = field(default_factory=lambda: SD15)

    @property
    def settings(self) -> dict[str, object]:
        stated = {"timestep_spacing": self.spacing, "prediction_type": self.prediction}
        return {
            **self.base,
            **{key: value for key, value in stated.items() if value is not None},
            **self.extra,
        }

    @property
    def name(self) -> str:
        parts = [self.sampler, self.levels, self.spacing, self.prediction, self.steps]
        parts += [f"eta{self.eta}" if self.eta is not None else None, self.extra or None]
        return " ".join(str(part) for part in parts if part is not None)


def golden_cases() -> list[Case]:
    """The runs whose results are kept in golden/samplers.npz."""
    cases = [
        Case(sampler, steps, spacing, prediction, levels)
        for sampler in CLASSES
        for spacing in ("leading", "trailing", "linspace")
        for levels in ((None,) if sampler == "ddim" else (None, "karras"))
        for prediction in ("epsilon", "v_prediction")
        for steps in (1, 4, 20)
    ]
    cases += [Case("ddim", 8, eta=eta) for eta in (0.5, 1.0)]
    cases += [Case("ddim", 8, prediction="sample"), Case("euler", 8, prediction="sample")]
    for sampler in CLASSES:
        extras: tuple[dict[str, object], ...] = (
            {"clip_sample": True, "clip_sample_range": 0.5},
            {"set_alpha_to_one": True},
            {"final_sigmas_type": "sigma_min"},
            {"use_exponential_sigmas": True},
            {"beta_schedule": "linear"},
            {"solver_type": "heun"},
            {"lower_order_final": False},
            {"steps_offset": 0},
        )
        cases += [
            Case(sampler, 20, extra=extra)
            for extra in extras
            if not (sampler == "euler-a" and "use_exponential_sigmas" in extra)
        ]
    return cases


def fake_model(x: Float, timestep: float) -> Float:
    """A smooth, nonlinear function of x and time, so that every coefficient shows."""
    wide = x.astype(np.float64)
    mixed = np.tanh(0.9 * wide + 0.3 * np.roll(wide, 1, -1) + 0.001 * float(timestep))
    return (0.8 * mixed + 0.1 * np.sin(3 * wide)).astype(np.float32)


def schedule_of(case: Case) -> Schedule:
    name = case.sampler if case.levels is None else f"{case.sampler} {case.levels}"
    config = SchedulerConfig.from_json(case.settings)
    return make_schedule(resolve_sampler(name), config, case.steps, eta=case.eta)


def run(schedule: Schedule, *, seed: int, shape: tuple[int, ...]) -> Float:
    """Final latents of a run over the fake model."""
    noise = TorchCpuGenerator(seed)
    state = begin(noise.normal(shape) * np.float32(schedule.init_noise_sigma))
    for row in schedule.rows:
        output = fake_model(state.x * np.float32(row.scale_in), row.timestep)
        state = step(row, state, output, noise.normal(shape) if row.noise else None)
    return state.x


def ours(case: Case) -> Float:
    return run(schedule_of(case), seed=case.seed, shape=case.shape)


def relative_error(ours: Float, reference: Float) -> float:
    return float(np.abs(ours - reference).max() / np.abs(reference).max())
