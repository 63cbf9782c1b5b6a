"""Request: what was asked of a run, every choice optional. `plan.resolve` decides the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ortist.errors import BadRequest


@dataclass(frozen=True, eq=False)
class Request:
    """One generation as asked; `None` means "decide for me". Names follow diffusers.

    Attributes:
        prompt: what to draw; an empty text asks for an unconditional picture.
        negative_prompt: what to steer away from. `None` and `""` differ for models trained
            with zeroed negative embeddings (SDXL): `None` gives zeros, `""` is encoded.
        num_inference_steps: sampler steps, 1 or more.
        guidance_scale: classifier-free guidance scale; at 1 or below there is no negative pass.
        sampler: a name in any of the field's spellings, levels included ("DPM++ 2M Karras").
        timestep_spacing: "leading", "trailing" or "linspace".
        seed: seed of the first picture, 0 to 2**64 - 1; picture i uses seed + i.
        width, height: size in pixels.
        num_images_per_prompt: how many pictures.
        latents: starting noise, float32 (n, c, height / f, width / f), standard normal; it
            replaces the noise that the seed would give (samplers that draw noise at every step
            still use the seed).
    """

    prompt: str
    negative_prompt: str | None = None
    num_inference_steps: int | None = None
    guidance_scale: float | None = None
    sampler: str | None = None
    timestep_spacing: str | None = None
    seed: int | None = None
    width: int | None = None
    height: int | None = None
    num_images_per_prompt: int = 1
    latents: NDArray[np.float32] | None = None

    def to_json(self) -> dict[str, str | int | float | None]:
        """The request as plain JSON values. Latents are left out: they are not a setting."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "latents"}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Request:
        """The inverse of `to_json`.

        Raises:
            BadRequest: a field is unknown or has a value of the wrong type.
        """
        known = {f.name for f in fields(cls)} - {"latents"}
        for name, value in data.items():
            if name not in known:
                raise BadRequest(
                    f"a request has no field {name!r}", hint=f"known fields: {sorted(known)}"
                )
            if not _fits(name, value):
                raise BadRequest(
                    f"{name} is {value!r}", hint=f"expected {_KINDS[name][0]} for {name}"
                )
        if "prompt" not in data:
            raise BadRequest("the request has no prompt", hint="give one, if only an empty text")
        return cls(**data)  # pyright: ignore[reportArgumentType]  # checked by _fits above


_TEXT = ("a text", (str,))
_WHOLE = ("a whole number", (int,))
_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "prompt": _TEXT,
    "negative_prompt": _TEXT,
    "num_inference_steps": _WHOLE,
    "guidance_scale": ("a number", (int, float)),
    "sampler": _TEXT,
    "timestep_spacing": _TEXT,
    "seed": _WHOLE,
    "width": _WHOLE,
    "height": _WHOLE,
    "num_images_per_prompt": _WHOLE,
}
_REQUIRED = {"prompt", "num_images_per_prompt"}


def _fits(name: str, value: object) -> bool:
    if value is None:
        return name not in _REQUIRED
    return isinstance(value, _KINDS[name][1]) and not isinstance(value, bool)
