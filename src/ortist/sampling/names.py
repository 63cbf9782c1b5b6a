"""Sampler names in every spelling of the field, folded to one.

AUTOMATIC1111's labels ("DPM++ 2M Karras"), diffusers' class names, k-diffusion's functions and
short names all lead to the same sampler. Letter case and separators do not matter, "++" is "pp",
and a word for the noise levels may follow.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from ortist.errors import BadRequest
from ortist.sampling.config import SchedulerConfig
from ortist.sampling.samplers import SAMPLERS, Sampler
from ortist.sampling.setup import LevelsName

_LEVELS: tuple[LevelsName, ...] = ("uniform", "karras", "exponential")
_SEPARATORS = re.compile(r"[\s_\-]+")


@dataclass(frozen=True)
class SamplerChoice:
    """A sampler, and the rule for its noise levels.

    Attributes:
        sampler: the sampler.
        levels: the rule asked for; None leaves it to the checkpoint's scheduler settings.
    """

    sampler: Sampler
    levels: LevelsName | None = None

    @property
    def name(self) -> str:
        """Short name of the sampler ("dpmpp-2m")."""
        return self.sampler.name

    @property
    def label(self) -> str:
        """Name for people ("DPM++ 2M Karras")."""
        suffix = "" if self.levels in (None, "uniform") else f" {self.levels.capitalize()}"
        return self.sampler.label + suffix


def fold(name: str) -> str:
    """The form in which spellings of one name are equal."""
    return _SEPARATORS.sub("", name.casefold()).replace("++", "pp")


_BY_NAME: dict[str, Sampler] = {
    fold(spelling): sampler
    for sampler in SAMPLERS
    for spelling in (sampler.name, sampler.label, *sampler.aliases)
}


def resolve_sampler(name: str) -> SamplerChoice:
    """Find a sampler by any of its names, with "Karras", "Exponential" or "Uniform" after it.

    Raises:
        BadRequest: no such sampler (the message has near matches and all names), or levels that
            the sampler does not take.
    """
    folded = fold(name)
    if folded in _BY_NAME:
        return SamplerChoice(_BY_NAME[folded])
    for levels in _LEVELS:
        sampler = _BY_NAME.get(folded.removesuffix(levels)) if folded.endswith(levels) else None
        if sampler is None:
            continue
        if levels != "uniform" and not sampler.has_levels:
            raise BadRequest(
                f"{sampler.label} does not take {levels.capitalize()} levels",
                hint=f"use {sampler.label} alone, or one of "
                + ", ".join(s.label for s in SAMPLERS if s.has_levels),
                code="levels-do-not-fit",
            )
        return SamplerChoice(sampler, levels)
    raise _unknown(name, folded)


@dataclass(frozen=True)
class DefaultSampler:
    """What to sample with where nobody asked for a sampler.

    Attributes:
        choice: the sampler.
        why: why it was chosen.
        is_substitute: the checkpoint asks for another, which ortist does not have.
    """

    choice: SamplerChoice
    why: str
    is_substitute: bool


def default_sampler(config: SchedulerConfig) -> DefaultSampler:
    """The sampler that a checkpoint's scheduler settings ask for.

    Where ortist does not have it, DPM++ 2M, which suits models of the same kind.
    """
    asked = config.class_name
    if asked is None:
        choice = SamplerChoice(_BY_NAME["dpmpp2m"])
        return DefaultSampler(choice, "the checkpoint names no sampler", is_substitute=False)
    sampler = _BY_NAME.get(fold(asked))
    variant = _variant(config) if sampler is not None and sampler.name == "dpmpp-2m" else ""
    if sampler is not None and not variant:
        return DefaultSampler(SamplerChoice(sampler), "the checkpoint's own", is_substitute=False)
    return DefaultSampler(
        SamplerChoice(_BY_NAME["dpmpp2m"]),
        f"the checkpoint's own ({asked}{variant}) is not implemented yet",
        is_substitute=True,
    )


def _variant(config: SchedulerConfig) -> str:
    # What makes a DPM-Solver file ask for something else than DPM++ 2M.
    parts = (
        ("algorithm_type", config.algorithm_type, "dpmsolver++"),
        ("solver_order", config.solver_order, 2),
    )
    return "".join(f", {key} {value}" for key, value, own in parts if value not in (None, own))


def _unknown(name: str, folded: str) -> BadRequest:
    stem = folded
    for levels in _LEVELS:
        stem = stem.removesuffix(levels)
    near = dict.fromkeys(
        _BY_NAME[match].label
        for match in difflib.get_close_matches(stem, _BY_NAME, n=3, cutoff=0.5)
    )
    known = ", ".join(f"{sampler.name} ({sampler.label})" for sampler in SAMPLERS)
    return BadRequest(
        f"unknown sampler {name!r}",
        hint=(f"did you mean {' or '.join(near)}? " if near else "") + f"known: {known}",
        code="unknown-sampler",
    )
