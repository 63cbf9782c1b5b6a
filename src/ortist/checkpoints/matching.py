"""Compares the tensors of a component with those of every shipped configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ortist.checkpoints.layouts import KeyMap, Shape
from ortist.checkpoints.renamed import canonical_vae_name
from ortist.checkpoints.shipped import (
    TINY_VAE,
    shipped_models,
    text_map,
    tiny_maps,
    unet_map,
    vae_map,
)
from ortist.checkpoints.signs import ComponentName, Layout, Place, left_inside
from ortist.errors import BadCheckpoint


@dataclass(frozen=True)
class Candidate:
    """A shipped configuration and its key map."""

    config: str
    keys: KeyMap


@dataclass(frozen=True)
class _Difference:
    """How a component differs from a candidate: names that are absent, of another shape, extra."""

    config: str
    missing: tuple[str, ...]
    wrong: tuple[str, ...]
    extra: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.missing) + len(self.wrong) + len(self.extra)


def candidates(component: ComponentName, layout: Layout) -> list[Candidate]:
    """The shipped configurations that a component in that layout may have."""
    found: dict[str, KeyMap] = {}
    match component:
        case "unet":
            found = {model.unet: unet_map(model.unet) for model in shipped_models().values()}
        case "vae":
            found = {name: vae_map(name) for name in ("sd", "sdxl")}
        case "tiny_vae_encoder":
            found = {TINY_VAE: tiny_maps()[0]}
        case "tiny_vae_decoder":
            found = {TINY_VAE: tiny_maps()[1]}
        case "text_encoder" | "text_encoder_2" if layout == "open-clip":
            names = ("openclip-h", "openclip-bigg")
            found = {name: text_map(name, open_clip=True) for name in names}
        case "text_encoder" | "text_encoder_2":
            bare = layout == "clip-bare"
            found = {"clip-l": text_map("clip-l", open_clip=False, bare=bare)}
        case "controlnet":
            pass
    return [Candidate(name, keys) for name, keys in found.items()]


def match_component(
    place: Place, tensors: Mapping[str, Shape], source: str
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The configurations that `tensors` fit, and which of them are not used and why.

    Args:
        place: where they come from.
        tensors: name (without the place's prefix) and shape of each.
        source: name of the file, for the message.

    Raises:
        BadCheckpoint: they fit none; the message says how the nearest one differs.
    """
    rename: Callable[[str], str] = str
    if place.component == "vae" and place.layout == "diffusers":
        rename = canonical_vae_name
    stored = {rename(name): shape for name, shape in tensors.items()}
    unused = {name: why for name in stored if (why := left_inside(name)) is not None}
    differences = [
        _compare(stored, candidate, diffusers=place.layout == "diffusers")
        for candidate in candidates(place.component, place.layout)
    ]
    fitting = [found for found in differences if found.size == 0]
    if not fitting:
        raise _near_miss(place, min(differences, key=lambda found: found.size), stored, source)
    keys = next(
        candidate.keys
        for candidate in candidates(place.component, place.layout)
        if candidate.config == fitting[0].config
    )
    used = _expected(keys, diffusers=place.layout == "diffusers")
    left = {name: why for name, why in unused.items() if name not in used}
    return tuple(found.config for found in fitting), left


def _expected(keys: KeyMap, *, diffusers: bool) -> dict[str, Shape]:
    return keys.diffusers_shapes() if diffusers else keys.single_shapes()


def _compare(stored: Mapping[str, Shape], candidate: Candidate, *, diffusers: bool) -> _Difference:
    expected = _expected(candidate.keys, diffusers=diffusers)
    # Of these both layouts, and tools between them, store [out, in], [out, in, 1], [out, in, 1, 1].
    matrices = {
        name
        for tie in candidate.keys.ties
        if tie.form == "pointwise"
        for name in (tie.single, *tie.diffusers)
    }

    def fits(name: str) -> bool:
        found, wanted = stored[name], expected[name]
        if name in matrices:
            return found[:2] == wanted[:2] and all(edge == 1 for edge in found[2:])
        return found == wanted

    return _Difference(
        config=candidate.config,
        missing=tuple(name for name in expected if name not in stored),
        wrong=tuple(name for name in expected if name in stored and not fits(name)),
        extra=tuple(name for name in stored if name not in expected and left_inside(name) is None),
    )


def _near_miss(
    place: Place, nearest: _Difference, stored: Mapping[str, Shape], source: str
) -> BadCheckpoint:
    def told(names: tuple[str, ...], what: str) -> list[str]:
        if not names:
            return []
        first = place.prefix + names[0]
        shape = stored.get(names[0])
        of = f" {list(shape)}" if shape is not None else ""
        return [f"{len(names)} {what} ({first}{of}{', ...' if len(names) > 1 else ''})"]

    parts = [
        *told(nearest.missing, "missing"),
        *told(nearest.wrong, "of another shape"),
        *told(nearest.extra, "more"),
    ]
    return BadCheckpoint(
        f"{source}: its {place.component} ({len(stored)} tensors) fits no known model; from the "
        f"nearest, {nearest.config}, it differs in: {', '.join(parts)}",
        hint="the file is incomplete, or of a model that ortist does not know",
        code="unknown-component",
    )
