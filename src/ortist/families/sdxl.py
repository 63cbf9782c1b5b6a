"""Stable Diffusion XL base, and what has its shape (Turbo, LCM-SDXL, SSD-1B).

Two text encoders: both give their penultimate hidden states, the second also the pooled,
projected embedding (Podell et al. 2023, "SDXL", section 2).
"""

from __future__ import annotations

from ortist.families.spec import EncoderSpec, FamilySpec, ModelFacts


def _decline(facts: ModelFacts) -> str | None:
    missing = {"text_encoder", "text_encoder_2"} - facts.components
    if missing:
        return f"it has no {', '.join(sorted(missing))}"
    absent = {"text_embeds", "time_ids"} - facts.denoiser_inputs
    if absent:
        return f"its denoiser does not take {sorted(absent)}"
    if facts.time_ids_width not in (None, 6):
        return f"its denoiser takes {facts.time_ids_width} time ids, not 6"
    return None


FAMILY = FamilySpec(
    name="sdxl",
    title="Stable Diffusion XL",
    encoders=(
        EncoderSpec("text_encoder", "tokenizer", hidden="penultimate"),
        EncoderSpec("text_encoder_2", "tokenizer_2", hidden="penultimate", pooled="text_embeds"),
    ),
    bindings={
        "sample": "sample",
        "timestep": "timestep",
        "encoder_hidden_states": "context",
        "text_embeds": "pooled",
        "time_ids": "time_ids",
    },
    optional={"timestep_cond": "guidance"},
    steps=30,
    guidance_scale=5.0,
    size=(1024, 1024),
    mends_scheduler=False,
    decline=_decline,
)
