"""Sampling: noise levels, samplers as tables of rows, and the noise they start from.

    choice = resolve_sampler("DPM++ 2M Karras")
    schedule = make_schedule(choice, SchedulerConfig.from_json(settings), 20)
    state = begin(noise.normal(shape) * np.float32(schedule.init_noise_sigma))
    for row in schedule.rows:
        output = denoiser(state.x * np.float32(row.scale_in), row.timestep)
        state = step(row, state, output, noise.normal(shape) if row.noise else None)

numpy only; nothing here knows of models or graphs.
"""

from __future__ import annotations

from ortist.sampling.config import SchedulerConfig
from ortist.sampling.make import Schedule, make_schedule
from ortist.sampling.names import SamplerChoice, default_sampler, resolve_sampler
from ortist.sampling.noise import NoiseSource, PerImageNoise, TorchCpuGenerator
from ortist.sampling.samplers import SAMPLERS, Sampler
from ortist.sampling.step import State, StepRow, begin, step

__all__ = [
    "SAMPLERS",
    "NoiseSource",
    "PerImageNoise",
    "Sampler",
    "SamplerChoice",
    "Schedule",
    "SchedulerConfig",
    "State",
    "StepRow",
    "TorchCpuGenerator",
    "begin",
    "default_sampler",
    "make_schedule",
    "resolve_sampler",
    "step",
]
