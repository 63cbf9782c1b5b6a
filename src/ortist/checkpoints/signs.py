"""What names in a checkpoint give away: where a component lies, what is left over, what we lack."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Layout = Literal["single", "diffusers", "clip", "clip-bare", "open-clip"]
"""How a component's tensors are named: as in the original code; as in diffusers; a text encoder
as in transformers, with or without "text_model."; a text encoder as in OpenCLIP."""

ComponentName = Literal[
    "unet",
    "vae",
    "text_encoder",
    "text_encoder_2",
    "tiny_vae_encoder",
    "tiny_vae_decoder",
    "controlnet",
]


@dataclass(frozen=True)
class Place:
    """Where a component may lie.

    Attributes:
        component: what lies there.
        layout: how its tensors are named.
        prefix: what stands before every name.
        sign: a name (after the prefix) that only this component in this layout has.
        scope: what every name (after the prefix) starts with, where others share the prefix.
    """

    component: ComponentName
    layout: Layout
    prefix: str
    sign: str
    scope: str = ""


_UNET_SIGN = "input_blocks.0.0.weight"
_VAE_SIGN = "decoder.mid.block_1.norm1.weight"
_TOKENS = "token_embedding.weight"

PLACES = (
    Place("controlnet", "single", "control_model.", "input_hint_block.0.weight"),
    Place("controlnet", "single", "", "input_hint_block.0.weight"),
    Place("controlnet", "diffusers", "", "controlnet_cond_embedding.conv_in.weight"),
    Place("unet", "single", "model.diffusion_model.", _UNET_SIGN),
    Place("unet", "single", "", _UNET_SIGN),
    Place("unet", "diffusers", "", "down_blocks.0.resnets.0.time_emb_proj.weight"),
    Place("vae", "single", "first_stage_model.", _VAE_SIGN),
    Place("vae", "single", "", _VAE_SIGN),
    Place("vae", "diffusers", "", "decoder.mid_block.resnets.0.norm1.weight"),
    Place(
        "text_encoder",
        "clip",
        "cond_stage_model.transformer.",
        f"text_model.embeddings.{_TOKENS}",
    ),
    Place("text_encoder", "clip-bare", "cond_stage_model.transformer.", f"embeddings.{_TOKENS}"),
    Place("text_encoder", "open-clip", "cond_stage_model.model.", _TOKENS),
    Place(
        "text_encoder",
        "clip",
        "conditioner.embedders.0.transformer.",
        f"text_model.embeddings.{_TOKENS}",
    ),
    Place("text_encoder_2", "open-clip", "conditioner.embedders.0.model.", _TOKENS),
    Place("text_encoder_2", "open-clip", "conditioner.embedders.1.model.", _TOKENS),
    Place("tiny_vae_encoder", "single", "", "1.conv.0.weight"),
    Place("tiny_vae_decoder", "single", "", "10.conv.0.weight"),
    Place("tiny_vae_encoder", "diffusers", "", "encoder.layers.0.weight", "encoder."),
    Place("tiny_vae_decoder", "diffusers", "", "decoder.layers.0.weight", "decoder."),
)

FIRST_CONVOLUTIONS = (
    "input_blocks.0.0.weight",
    "conv_in.weight",
    "encoder.conv_in.weight",
    "encoder.layers.0.weight",
    "decoder.layers.0.weight",
    "0.weight",
    "1.weight",
)
"""The tensor whose shape tells how many channels a component takes, in each layout."""

MARKERS = frozenset({"v_pred", "ztsnr"})
"""Tensors whose presence alone says something (see `detect`)."""

_LEFT_INSIDE: Mapping[str, str] = {
    r"(^|\.)position_ids$": "the positions 0, 1, 2, ..., which the graph makes itself",
    r"^(logit_scale|attn_mask)$": "used only to train CLIP, or made by the graph itself",
    r"^transformer\.resblocks\.23\.": "the last layer, whose output SD 2.x does not use",
    r"^text_projection(\.weight)?$": "a projection that this model does not use",
    r"^(loss|discriminator)\.": "used only in training",
    r"^model_ema\.": "moving averages of the weights; the plain ones are used",
    r"(^|[._])lora[._]": "a LoRA laid beside the weights, not merged into them",
}
_LEFT_OUTSIDE: Mapping[str, str] = {
    **_LEFT_INSIDE,
    r"^(betas|alphas_cumprod|sqrt_|log_one_minus|posterior_|lvlb_weights|logvar$)": (
        "the noise schedule of training, which the scheduler computes"
    ),
    r"^(optimizer|lr_scheduler|loops|callbacks|global_step|epoch|hyper_parameters)": (
        "the state of the training program"
    ),
}
_NO_COMPONENT = "part of no component that ortist uses"


def left_inside(name: str) -> str | None:
    """Why a tensor of a component's own folder of names is not used; None if it has to be."""
    return next((why for sign, why in _LEFT_INSIDE.items() if re.search(sign, name)), None)


def left_outside(name: str) -> str:
    """Why a tensor outside of every component is not used."""
    found = (why for sign, why in _LEFT_OUTSIDE.items() if re.search(sign, name))
    return next(found, _NO_COMPONENT)


FOREIGN: Mapping[str, str] = {
    r"(^|\.)joint_blocks\.0\.": "a Stable Diffusion 3 model",
    r"(^|\.)double_blocks\.0\.": "a Flux model or one of its kind",
    r"^(model\.diffusion_model\.)?(double_stream|single_transformer|transformer)_blocks\.0\.": (
        "a diffusion transformer"
    ),
    r"\.motion_modules\.0\.": "an AnimateDiff motion model",
    r"^depth_model\.": "a Stable Diffusion 2 depth-guided model",
    r"^(embedder\.model\.visual|noise_augmentor)\.": "an unCLIP model",
    r"^edm_(mean|std)$": "an EDM model (Playground 2.5)",
    r"^edm_vpred\.": "an EDM model (CosXL)",
}
"""Names that only models of other kinds have, and what those are."""

LOOSE: Mapping[str, str] = {
    r"^lora_(unet|te\d?)_|\.lora_(A|B|down|up)\b|\.lora\.(down|up)\.": "a LoRA",
    r"^(string_to_param|emb_params|clip_[lg])(\.|$)": "a textual inversion embedding",
    r"(^|\.)to_[kv]_ip\.|^image_proj\.": "an IP-Adapter",
    r"(^|\.)(double_layers|caption_projection|patch_embed|x_embedder)\.": "a diffusion transformer",
    r"(^|\.)(resblocks|encoder\.layers)\.0\.": "a text or image encoder alone",
}
"""Names that say what a file without any component of ours may be."""

ODD_CHANNELS: Mapping[int, str] = {
    5: "the depth-guided model of Stable Diffusion 2",
    7: "the x4 upscaler of Stable Diffusion 2",
}
"""Input channels of UNets that are not implemented."""


def first_match(signs: Mapping[str, str], names: list[str]) -> tuple[str, str] | None:
    """(what it is, the name that shows it) of the first sign that any of the names bears."""
    for sign, what in signs.items():
        found = next((name for name in names if re.search(sign, name)), None)
        if found is not None:
            return what, found
    return None
