"""Decoding: latents -> pixels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ortist.errors import BadBundle
from ortist.plan import Plan
from ortist.runtime.engine import Engine


def decode(
    plan: Plan,
    latents: NDArray[np.float32],
    engine: Engine,
    *,
    on_picture: Callable[[int], None],
) -> list[NDArray[np.uint8]]:
    """Decode one picture at a time, so that memory does not grow with their number.

    Args:
        latents: float32 (n, c, h, w) in the denoiser's scale.
        on_picture: called with the number of pictures finished.

    Returns:
        n arrays, uint8 (height, width, 3), RGB.

    Raises:
        BadBundle: the decoder failed or gave NaN.
    """
    graph = engine.graph("vae_decoder")
    pictures: list[NDArray[np.uint8]] = []
    for index in range(len(latents)):
        scaled = latents[index : index + 1] / plan.facts.scaling_factor + plan.facts.shift_factor
        (pixels,) = graph.run({"latent_sample": scaled}, ("sample",))
        picture = np.asarray(pixels, dtype=np.float32)[0]
        if not np.all(np.isfinite(picture)):
            raise BadBundle(
                "the VAE decoder gave NaN or infinity instead of a picture",
                hint="the model's weights may be damaged: fetch it again; with fp16, try fp32",
                code="not-finite",
            )
        pictures.append(to_uint8(picture))
        on_picture(index + 1)
    return pictures


def to_uint8(pixels: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Float pixels (3, h, w) in -1..1 -> uint8 (h, w, 3); values outside are clipped."""
    unit = np.clip(pixels * 0.5 + 0.5, 0.0, 1.0)
    return np.round(unit * 255.0).astype(np.uint8).transpose(1, 2, 0)
