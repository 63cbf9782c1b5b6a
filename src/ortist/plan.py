"""Plan: a run with nothing left open. `resolve` decides every number and says why."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ortist.errors import BadRequest
from ortist.families.spec import FamilySpec, ModelFacts, Source
from ortist.request import Request
from ortist.sampling import (
    Schedule,
    SchedulerConfig,
    default_sampler,
    make_schedule,
    resolve_sampler,
)

_MAX_SEED = 2**64 - 1
_MAX_SIDE = 16384  # a picture side beyond this is a slip of the keyboard, not a request


@dataclass(frozen=True)
class Note:
    """Something decided for the user: which field, what and why.

    Attributes:
        field: the field of `Request` concerned, or "schedule", "model".
        text: one line.
        is_warning: the user should see it: the picture may not be what was asked for.
    """

    field: str
    text: str
    is_warning: bool = False


@dataclass(frozen=True, eq=False)
class Plan:
    """One run, every number decided. Encoding, denoising, decoding and recording only read it.

    Attributes:
        request: what was asked.
        family, facts: the model's family and what its bundle says.
        prompt, negative_prompt: texts to encode; a negative of None means zeroed embeddings.
        uses_negative: whether each step also runs the unconditional pass.
        guidance_scale: classifier-free or distilled guidance scale.
        seeds: one seed per picture.
        width, height: pixels.
        latent_shape: (channels, height, width) of one picture's latents.
        schedule: the sampler's rows.
        bindings: denoiser input -> source, only inputs that the graph has.
        time_ids: original height and width, crop top and left, target height and width.
        notes: each default taken, and why.
    """

    request: Request
    family: FamilySpec
    facts: ModelFacts
    prompt: str
    negative_prompt: str | None
    uses_negative: bool
    guidance_scale: float
    seeds: tuple[int, ...]
    width: int
    height: int
    latent_shape: tuple[int, int, int]
    schedule: Schedule
    bindings: Mapping[str, Source]
    time_ids: tuple[float, ...]
    notes: tuple[Note, ...]


def random_seed() -> int:
    """A seed nobody asked for: 32 bits, the range that every tool of the field accepts."""
    return secrets.randbelow(2**32)


def resolve(
    request: Request,
    family: FamilySpec,
    facts: ModelFacts,
    scheduler: SchedulerConfig,
    *,
    draw_seed: Callable[[], int] = random_seed,
) -> Plan:
    """Decide everything that `request` leaves open.

    Args:
        family, facts, scheduler: the model's family, facts and training schedule.
        draw_seed: gives the seed where none was asked for.

    Raises:
        BadRequest: a value cannot be carried out, or would have no effect.
    """
    notes: list[Note] = []
    width, height = _size(request, family, facts, notes)
    count = _count(request)
    seeds = _seeds(request, count, draw_seed, notes)
    steps = _steps(request, family, facts, notes)
    guidance = _guidance(request, family, facts, notes)
    # A distilled-guidance model takes the scale as an input and never runs a negative pass.
    uses_negative = guidance > 1.0 and facts.guidance_width is None
    if request.negative_prompt and not uses_negative:
        raise BadRequest(
            f"the negative prompt would have no effect at guidance {guidance:g}"
            if facts.guidance_width is None
            else "the negative prompt would have no effect: this model's guidance is distilled",
            hint="leave the negative prompt out, or use a guidance scale above 1"
            if facts.guidance_width is None
            else "leave the negative prompt out",
            code="no-effect",
        )
    schedule = _schedule(request, family, facts, scheduler, steps, notes)
    latent_shape = (facts.latent_channels, height // facts.scale, width // facts.scale)
    _check_latents(request, count, latent_shape)
    negative = request.negative_prompt
    if negative is None and uses_negative and not facts.zero_negative:
        negative = ""
    wanted: dict[str, Source] = {**family.bindings, **family.optional}
    return Plan(
        request=request,
        family=family,
        facts=facts,
        prompt=request.prompt,
        negative_prompt=negative,
        uses_negative=uses_negative,
        guidance_scale=guidance,
        seeds=seeds,
        width=width,
        height=height,
        latent_shape=latent_shape,
        schedule=schedule,
        bindings={name: source for name, source in wanted.items() if name in facts.denoiser_inputs},
        time_ids=(float(height), float(width), 0.0, 0.0, float(height), float(width)),
        notes=tuple(notes),
    )


def _size(
    request: Request, family: FamilySpec, facts: ModelFacts, notes: list[Note]
) -> tuple[int, int]:
    if facts.sample_size is not None:
        default = (facts.sample_size[1] * facts.scale, facts.sample_size[0] * facts.scale)
        why = "the size the model was trained at"
    else:
        default, why = family.size, f"usual for {family.title}"
    chosen: list[int] = []
    for name, asked, fallback in (
        ("width", request.width, default[0]),
        ("height", request.height, default[1]),
    ):
        if asked is None:
            notes.append(Note(name, f"{fallback}: {why}"))
            chosen.append(fallback)
            continue
        if asked <= 0 or asked > _MAX_SIDE or asked % facts.scale:
            near = max(facts.scale, round(asked / facts.scale) * facts.scale)
            raise BadRequest(
                f"{name} {asked} is not a multiple of {facts.scale}"
                if 0 < asked <= _MAX_SIDE
                else f"{name} {asked} is out of range",
                hint=f"use {min(near, _MAX_SIDE)}, or any multiple of {facts.scale} "
                f"up to {_MAX_SIDE}",
                code="bad-size",
            )
        chosen.append(asked)
    if facts.sample_size is not None and tuple(chosen) != default:
        text = f"the model was trained at {default[0]}x{default[1]}; at other sizes it may repeat "
        notes.append(Note("size", text + "or lose things", is_warning=True))
    return chosen[0], chosen[1]


def _count(request: Request) -> int:
    count = request.num_images_per_prompt
    if count < 1:
        raise BadRequest(
            f"num_images_per_prompt is {count}", hint="ask for 1 picture or more", code="bad-count"
        )
    return count


def _seeds(
    request: Request, count: int, draw_seed: Callable[[], int], notes: list[Note]
) -> tuple[int, ...]:
    if request.seed is None:
        seed = draw_seed()
        notes.append(Note("seed", f"{seed}: drawn at random"))
    else:
        seed = request.seed
    if not 0 <= seed <= _MAX_SEED - (count - 1):
        raise BadRequest(
            f"seed {seed} is out of range" + (f" for {count} pictures" if count > 1 else ""),
            hint="use a seed from 0 to 2**64 - 1 (picture i takes seed + i)",
            code="bad-seed",
        )
    return tuple(seed + index for index in range(count))


def _steps(request: Request, family: FamilySpec, facts: ModelFacts, notes: list[Note]) -> int:
    if request.num_inference_steps is not None:
        steps = request.num_inference_steps
    else:
        steps, why = _recommended(facts, "num_inference_steps", family.steps, family.title)
        steps = int(steps)
        notes.append(Note("num_inference_steps", f"{steps}: {why}"))
    if steps < 1:
        raise BadRequest(
            f"num_inference_steps is {steps}", hint="ask for 1 step or more", code="bad-steps"
        )
    return steps


def _guidance(request: Request, family: FamilySpec, facts: ModelFacts, notes: list[Note]) -> float:
    if request.guidance_scale is not None:
        guidance = request.guidance_scale
    else:
        guidance, why = _recommended(facts, "guidance_scale", family.guidance_scale, family.title)
        notes.append(Note("guidance_scale", f"{guidance:g}: {why}"))
    if not np.isfinite(guidance) or guidance < 0:
        raise BadRequest(
            f"guidance_scale is {guidance}",
            hint="use 0 or more; 1 turns guidance off, 3 to 10 is usual",
            code="bad-guidance",
        )
    return float(guidance)


def _recommended(facts: ModelFacts, name: str, fallback: float, title: str) -> tuple[float, str]:
    value = facts.defaults.get(name)
    if isinstance(value, int | float):
        return value, "recommended by the model"
    return fallback, f"usual for {title}"


def _schedule(
    request: Request,
    family: FamilySpec,
    facts: ModelFacts,
    scheduler: SchedulerConfig,
    steps: int,
    notes: list[Note],
) -> Schedule:
    if request.sampler is not None:
        choice = resolve_sampler(request.sampler)
    else:
        recommended = facts.defaults.get("sampler")
        if isinstance(recommended, str):
            choice = resolve_sampler(recommended)
            notes.append(Note("sampler", f"{choice.label}: recommended by the model"))
        else:
            default = default_sampler(scheduler)
            choice = default.choice
            text = f"{choice.label}: {default.why}"
            notes.append(Note("sampler", text, is_warning=default.is_substitute))
    mended: tuple[str, ...] = ()
    if family.mends_scheduler:
        scheduler, mended = scheduler.as_stable_diffusion()
    schedule = make_schedule(choice, scheduler, steps, spacing=request.timestep_spacing)
    notes.extend(Note("schedule", text) for text in mended)
    notes.extend(Note("schedule", text, is_warning=True) for text in schedule.notes)
    return schedule


def _check_latents(request: Request, count: int, latent_shape: tuple[int, int, int]) -> None:
    if request.latents is None:
        return
    wanted = (count, *latent_shape)
    if request.latents.shape != wanted:
        raise BadRequest(
            f"latents have the shape {tuple(request.latents.shape)}, not {wanted}",
            hint="(pictures, channels, height / f, width / f) for the size asked for",
            code="bad-latents",
        )
    if not np.all(np.isfinite(request.latents)):
        raise BadRequest(
            "latents hold NaN or infinity",
            hint="give standard normal noise",
            code="bad-latents",
        )
