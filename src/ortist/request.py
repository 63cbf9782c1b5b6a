"""Request: what was asked of a run, every choice optional. `plan.resolve` decides the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

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

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            object.__setattr__(self, name, _plain(name, getattr(self, name), kind))
        if self.latents is not None and not isinstance(self.latents, np.ndarray):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadRequest(
                f"latents is a {type(self.latents).__name__}",
                hint="give a numpy array (pictures, channels, height / f, width / f)",
                code="bad-type",
            )

    def to_json(self) -> dict[str, str | int | float | None]:
        """The request as plain JSON values. Latents are left out: they are not a setting."""
        return {name: getattr(self, name) for name in _KINDS}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Request:
        """The inverse of `to_json`.

        Raises:
            BadRequest: a field is unknown or has a value of the wrong type.
        """
        unknown = [name for name in data if name not in _KINDS]
        if unknown:
            raise BadRequest(
                f"a request has no field {unknown[0]!r}",
                hint=f"known fields: {', '.join(_KINDS)}",
                code="bad-field",
            )
        if "prompt" not in data:
            raise BadRequest(
                "the request has no prompt", hint="give one, if only an empty text", code="bad-type"
            )
        return cls(**data)  # pyright: ignore[reportArgumentType]  # checked by __post_init__


@dataclass(frozen=True)
class _Kind:
    """What a field may hold: one of the types (numpy's own included), or None if `optional`."""

    words: str
    types: tuple[type, ...]
    optional: bool = True


_TEXT = _Kind("a text", (str,))
_WHOLE = _Kind("a whole number", (int, np.integer))
_KINDS: dict[str, _Kind] = {
    "prompt": _Kind("one text", (str,), optional=False),
    "negative_prompt": _TEXT,
    "num_inference_steps": _WHOLE,
    "guidance_scale": _Kind("a number", (int, float, np.integer, np.floating)),
    "sampler": _TEXT,
    "timestep_spacing": _TEXT,
    "seed": _WHOLE,
    "width": _WHOLE,
    "height": _WHOLE,
    "num_images_per_prompt": _Kind("a whole number", (int, np.integer), optional=False),
}


def _plain(name: str, value: object, kind: _Kind) -> object:
    """`value` as a value of Python's own.

    Raises:
        BadRequest: it is of another kind.
    """
    if value is None and kind.optional:
        return None
    if isinstance(value, bool) or not isinstance(value, kind.types):
        what = "None" if value is None else f"{value!r:.80} (a {type(value).__name__})"
        raise BadRequest(
            f"{name} is {what}",
            hint=f"expected {kind.words} for {name}"
            + ("; for several prompts, call once for each" if isinstance(value, list) else ""),
            code="bad-type",
        )
    return cast("np.generic", value).item() if isinstance(value, np.generic) else value
