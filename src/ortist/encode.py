"""Encoding: Plan -> Conditioning, the arrays that steer the denoiser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ortist.errors import BadBundle
from ortist.families.spec import EncoderSpec
from ortist.plan import Note, Plan
from ortist.prompt.tokens import ClipTokenizer
from ortist.runtime.engine import Engine

Float = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Conditioning:
    """What the denoiser is given besides latents and time step.

    Attributes:
        positive: one array per denoiser input, batch 1, by input name.
        negative: the same for the unconditional pass; None where there is none.
        notes: words of the prompts that did not fit.
    """

    positive: Mapping[str, Float]
    negative: Mapping[str, Float] | None
    notes: tuple[Note, ...]


@dataclass(frozen=True, eq=False)
class _Text:
    context: Float  # (1, tokens, width)
    pooled: Float | None  # (1, width)


def encode(plan: Plan, tokenizers: Mapping[str, ClipTokenizer], engine: Engine) -> Conditioning:
    """Run the text encoders and gather every input of the denoiser that stays the same.

    Raises:
        BadBundle: a text encoder lacks an output that the family needs.
    """
    notes: list[Note] = []
    positive = _text("prompt", plan.prompt, plan, tokenizers, engine, notes)
    negative: _Text | None = None
    if plan.uses_negative:
        if plan.negative_prompt is None:
            negative = _zeros_like(positive)
        else:
            text = plan.negative_prompt
            negative = _text("negative_prompt", text, plan, tokenizers, engine, notes)
    return Conditioning(
        positive=_bind(plan, positive),
        negative=None if negative is None else _bind(plan, negative),
        notes=tuple(notes),
    )


def _text(
    field: str,
    prompt: str,
    plan: Plan,
    tokenizers: Mapping[str, ClipTokenizer],
    engine: Engine,
    notes: list[Note],
) -> _Text:
    contexts: list[Float] = []
    pooled: Float | None = None
    for encoder in plan.family.encoders:
        tokens = tokenizers[encoder.tokenizer].ids(prompt)
        if tokens.dropped:
            limit = len(tokens.ids) - 2  # without the marks of begin and end
            text = f"only {limit} tokens fit {encoder.component}; left out: {tokens.dropped!r}"
            notes.append(Note(field, text, is_warning=True))
        graph = engine.graph(encoder.component)
        wanted = _outputs(plan, encoder)
        missing = [name for name in wanted if name not in graph.outputs]
        if missing:
            raise BadBundle(
                f"{encoder.component} has no output {missing[0]!r} "
                f"(it has {', '.join(graph.outputs)})",
                hint="convert the checkpoint again with ortist",
                code="graph-outputs",
            )
        results = graph.run({"input_ids": tokens.ids[np.newaxis]}, wanted)
        contexts.append(np.asarray(results[0], dtype=np.float32))
        if encoder.pooled is not None:
            pooled = np.asarray(results[1], dtype=np.float32)
    return _Text(np.concatenate(contexts, axis=-1), pooled)


def _outputs(plan: Plan, encoder: EncoderSpec) -> tuple[str, ...]:
    layers = plan.facts.encoder_layers[encoder.component]
    hidden = "last_hidden_state" if encoder.hidden == "last" else f"hidden_states.{layers - 1}"
    return (hidden,) if encoder.pooled is None else (hidden, encoder.pooled)


def _zeros_like(text: _Text) -> _Text:
    pooled = None if text.pooled is None else np.zeros_like(text.pooled)
    return _Text(np.zeros_like(text.context), pooled)


def _bind(plan: Plan, text: _Text) -> dict[str, Float]:
    bound: dict[str, Float] = {}
    for name, source in plan.bindings.items():
        match source:
            case "sample" | "timestep":
                continue  # fed by the loop
            case "context":
                bound[name] = text.context
            case "pooled":
                if text.pooled is None:
                    raise BadBundle(
                        f"the denoiser wants {name!r} but no text encoder gives it",
                        hint="convert the checkpoint again with ortist",
                        code="graph-outputs",
                    )
                bound[name] = text.pooled
            case "time_ids":
                bound[name] = np.asarray([plan.time_ids], dtype=np.float32)
            case "guidance":
                bound[name] = guidance_embedding(
                    plan.guidance_scale, plan.facts.guidance_width or 0
                )
    return bound


def guidance_embedding(guidance_scale: float, width: int) -> Float:
    """Sinusoidal embedding of a guidance scale, float32 (1, width).

    The input of models whose guidance is distilled (Meng et al. 2023, "On Distillation of
    Guided Diffusion Models"; LCM, Luo et al. 2023): w = (guidance - 1) * 1000, sines first,
    frequencies 10000 ** (-i / (width / 2 - 1)).
    """
    half = width // 2
    frequencies = np.exp(np.arange(half) * -(np.log(10000.0) / max(half - 1, 1)))
    angles = (guidance_scale - 1.0) * 1000.0 * frequencies
    embedding = np.concatenate([np.sin(angles), np.cos(angles), np.zeros(width % 2)])
    return embedding.astype(np.float32)[np.newaxis]
