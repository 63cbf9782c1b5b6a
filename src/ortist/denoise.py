"""Denoising: Plan + Conditioning -> latents. The one loop that every sampler's rows run in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ortist.encode import Conditioning
from ortist.errors import BadBundle
from ortist.plan import Plan
from ortist.runtime.engine import Engine
from ortist.runtime.session import Array, Graph
from ortist.sampling import PerImageNoise, StepRow, TorchCpuGenerator, begin, step

Float = NDArray[np.float32]
OnStep = Callable[[int, StepRow, Float], None]


def denoise(plan: Plan, conditioning: Conditioning, engine: Engine, *, on_step: OnStep) -> Float:
    """Run the plan's rows.

    Args:
        on_step: called after each row with its index, the row and the estimate of the finished
            latents, float32 (n, c, h, w).

    Returns:
        Latents, float32 (n, c, h, w), in the denoiser's scale.

    Raises:
        BadBundle: the denoiser's graph does not give what the plan counts on, or NaN.
    """
    predict = _Denoiser(plan, conditioning, engine.graph("unet"))
    # One source per picture, so that neither the number of pictures nor their order changes any.
    noise = PerImageNoise([TorchCpuGenerator(seed) for seed in plan.seeds])
    shape = (len(plan.seeds), *plan.latent_shape)
    given = plan.request.latents
    start = noise.normal(shape) if given is None else np.asarray(given, dtype=np.float32)
    state = begin(start * np.float32(plan.schedule.init_noise_sigma))
    rows = plan.schedule.rows
    for index, row in enumerate(rows):
        output = predict(state.x, row)
        state = step(row, state, output, noise.normal(shape) if row.noise else None)
        if not np.all(np.isfinite(state.x)):
            raise BadBundle(
                f"NaN or infinity in the latents after evaluation {index + 1} of {len(rows)}",
                hint="the model's weights may be damaged: fetch it again; with fp16, try fp32",
                code="not-finite",
            )
        on_step(index, row, state.x0)
    return state.x


class _Denoiser:
    """The denoiser's output at a row: guidance and batching over one graph."""

    def __init__(self, plan: Plan, conditioning: Conditioning, graph: Graph) -> None:
        count = len(plan.seeds)
        negative = conditioning.negative
        self._graph = graph
        self._output = _output_name(graph)
        self._guidance = np.float32(plan.guidance_scale)
        self._guided = negative is not None
        self._sample = _input_of(plan, "sample")
        self._timestep = _input_of(plan, "timestep")
        self._constant: dict[str, Array] = {
            name: np.concatenate(
                [
                    np.repeat(part[name], count, axis=0)
                    for part in (negative, conditioning.positive)
                    if part is not None
                ]
            )
            for name in conditioning.positive
        }

    def __call__(self, x: Float, row: StepRow) -> Float:
        scaled = x if row.scale_in == 1.0 else x * np.float32(row.scale_in)
        feeds: dict[str, Array] = {
            **self._constant,
            self._sample: np.concatenate([scaled, scaled]) if self._guided else scaled,
            self._timestep: np.asarray(row.timestep, dtype=np.float32),
        }
        (raw,) = self._graph.run(feeds, (self._output,))
        output = np.asarray(raw, dtype=np.float32)
        if not self._guided:
            return output
        unconditional, conditional = np.split(output, 2)
        guided = conditional - unconditional
        guided *= self._guidance
        guided += unconditional
        return guided


def _input_of(plan: Plan, source: str) -> str:
    return next(name for name, bound in plan.bindings.items() if bound == source)


def _output_name(graph: Graph) -> str:
    # The names that the exporters of the field give the denoiser's only output.
    for name in ("out_sample", "noise_pred", "latent", "sample"):
        if name in graph.outputs:
            return name
    raise BadBundle(
        f"the denoiser has no output that ortist knows (it has {', '.join(graph.outputs)})",
        hint="convert the original checkpoint with ortist",
        code="graph-outputs",
    )
