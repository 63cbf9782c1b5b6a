"""FamilySpec: what separates one Stable Diffusion family from another at run time, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Source = Literal[
    "sample",  # the latents, scaled for the model
    "timestep",  # the row's time step
    "context",  # hidden states of every text encoder, side by side
    "pooled",  # pooled text embedding of the last encoder that has one
    "time_ids",  # original size, crop corner, target size
    "guidance",  # sinusoidal embedding of the guidance scale (distilled guidance)
]


@dataclass(frozen=True)
class EncoderSpec:
    """One text encoder of a family.

    Attributes:
        component: the bundle's folder of the encoder.
        tokenizer: the bundle's folder of its tokenizer.
        hidden: which hidden states condition the denoiser: the last ones after the final layer
            norm, or those before the last layer.
        pooled: the graph output that is the pooled text embedding; None where it is not used.
    """

    component: str
    tokenizer: str
    hidden: Literal["last", "penultimate"]
    pooled: str | None = None


@dataclass(frozen=True)
class ModelFacts:
    """What a bundle says of its model, in the terms that families and the plan need.

    Attributes:
        components: the bundle's component folders that hold a graph.
        denoiser_inputs: names of the denoiser graph's inputs.
        in_channels: channels of the denoiser's input; more than `latent_channels` for models
            that also take a picture.
        latent_channels: channels of the latents.
        scale: pixels per latent along width and height.
        sample_size: (height, width) in latents that the model was trained at, or None.
        scaling_factor, shift_factor: latents = (vae_latents - shift_factor) * scaling_factor.
        context_widths: hidden size of each text encoder, by component.
        encoder_layers: number of layers of each text encoder, by component.
        guidance_width: width of the guidance embedding, None for models without one.
        zero_negative: an absent negative prompt means zeroed embeddings (SDXL).
        time_ids_width: numbers in `time_ids`, None for models without.
        defaults: what the model's author recommends: any of the fields of `Request`.
    """

    components: frozenset[str]
    denoiser_inputs: frozenset[str]
    in_channels: int
    latent_channels: int
    scale: int
    sample_size: tuple[int, int] | None
    scaling_factor: float
    shift_factor: float
    context_widths: Mapping[str, int]
    encoder_layers: Mapping[str, int]
    guidance_width: int | None
    zero_negative: bool
    time_ids_width: int | None
    defaults: Mapping[str, int | float | str]


@dataclass(frozen=True)
class FamilySpec:
    """One model family.

    Attributes:
        name: short name ("sd", "sdxl").
        title: name for people.
        encoders: the text encoders, in the order of their places in the context.
        bindings: which source feeds which input of the denoiser.
        optional: bindings that hold only where the graph has that input.
        steps, guidance_scale: defaults where the bundle recommends nothing.
        size: default (width, height) in pixels where the bundle does not say.
        mends_scheduler: scheduler settings are read as diffusers' pipeline of the family mends
            them (`SchedulerConfig.as_stable_diffusion`).
        decline: why a model is not of this family, or None if it is.
    """

    name: str
    title: str
    encoders: tuple[EncoderSpec, ...]
    bindings: Mapping[str, Source]
    optional: Mapping[str, Source]
    steps: int
    guidance_scale: float
    size: tuple[int, int]
    mends_scheduler: bool
    decline: Callable[[ModelFacts], str | None]
