"""Stable Diffusion 1.x and 2.x, and what has their shape (LCM, BK-SDM, the embedded model).

One family, not two: at run time 1.x and 2.x differ only in what their bundle's own files say
(context width, tokenizer padding, prediction type).
"""

from __future__ import annotations

from ortist.families.spec import EncoderSpec, FamilySpec, ModelFacts


def _decline(facts: ModelFacts) -> str | None:
    if "text_encoder_2" in facts.components:
        return "it has a second text encoder"
    if "text_encoder" not in facts.components:
        return "it has no text_encoder"
    extra = facts.denoiser_inputs & {"text_embeds", "time_ids"}
    if extra:
        return f"its denoiser wants {sorted(extra)}"
    return None


FAMILY = FamilySpec(
    name="sd",
    title="Stable Diffusion 1.x / 2.x",
    encoders=(EncoderSpec("text_encoder", "tokenizer", hidden="last"),),
    bindings={
        "sample": "sample",
        "timestep": "timestep",
        "encoder_hidden_states": "context",
    },
    optional={"timestep_cond": "guidance"},
    steps=20,
    guidance_scale=7.5,
    size=(512, 512),
    mends_scheduler=True,
    decline=_decline,
)
