"""The same runs by diffusers' schedulers and PyTorch's noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.sampling.runs import CLASSES, Case, Float, fake_model


def scheduler_of(case: Case, diffusers: Any) -> Any:
    """diffusers' scheduler for a case, its time steps set."""
    settings = dict(case.settings)
    if case.levels is not None and case.sampler != "euler-a":
        settings[f"use_{case.levels}_sigmas"] = True
    scheduler = getattr(diffusers, CLASSES[case.sampler]).from_config(settings)
    scheduler.set_timesteps(case.steps)
    if case.levels is not None and case.sampler == "euler-a":
        # diffusers has these levels for Euler only; the ancestral step runs on any.
        settings[f"use_{case.levels}_sigmas"] = True
        plain = diffusers.EulerDiscreteScheduler.from_config(settings)
        plain.set_timesteps(case.steps)
        scheduler.sigmas, scheduler.timesteps = plain.sigmas, plain.timesteps
    return scheduler


def reference(case: Case, torch: Any, diffusers: Any) -> Float:
    """Final latents of a case."""
    scheduler = scheduler_of(case, diffusers)
    generator = torch.Generator().manual_seed(case.seed)
    x = torch.randn(case.shape, generator=generator) * scheduler.init_noise_sigma
    arguments: dict[str, Any] = {"return_dict": False}
    if case.sampler == "euler-a" or case.eta:
        arguments["generator"] = generator
    if case.sampler == "ddim" and case.eta is not None:
        arguments["eta"] = case.eta
    for timestep in scheduler.timesteps:
        scaled = scheduler.scale_model_input(x, timestep)
        output = torch.from_numpy(fake_model(scaled.numpy(), float(timestep)))
        (x, *_) = scheduler.step(output, timestep, x, **arguments)
    return np.asarray(x.numpy(), dtype=np.float32)
