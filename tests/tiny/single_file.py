"""Listings of full-size single files, as they are published: names and shapes, no numbers."""

from __future__ import annotations

from ortist.checkpoints.shipped import shipped_models, text_map, unet_map, vae_map
from tests.tiny.weights import Shapes

_CLIP_SD = "cond_stage_model.transformer."
_OPEN_CLIP_SD = "cond_stage_model.model."
_CLIP_XL = "conditioner.embedders.0.transformer."
UNET = "model.diffusion_model."
VAE = "first_stage_model."


def prefixed(shapes: Shapes, prefix: str) -> Shapes:
    return {prefix + name: shape for name, shape in shapes.items()}


def text_shapes(model: str, *, bare: bool = False) -> Shapes:
    """The text encoders of a shipped model, with what their files hold besides."""
    encoders = shipped_models()[model].text_encoders
    shapes: Shapes = {}
    first, second = encoders.get("text_encoder"), encoders.get("text_encoder_2")
    if first == "clip-l":
        prefix = _CLIP_XL if second else _CLIP_SD
        keys = text_map(first, open_clip=False, bare=bare)
        shapes |= prefixed(keys.single_shapes(), prefix)
        shapes[f"{prefix}{'' if bare else 'text_model.'}embeddings.position_ids"] = (1, 77)
    elif first == "openclip-h":
        inner = text_map(first, open_clip=True).single_shapes()
        last = "transformer.resblocks.22."
        for name in [name for name in inner if name.startswith(last)]:
            inner[name.replace(".22.", ".23.")] = inner[name]
        inner |= {"text_projection": (1024, 1024), "logit_scale": ()}
        shapes |= prefixed(inner, _OPEN_CLIP_SD)
    if second is not None:
        inner = text_map(second, open_clip=True).single_shapes() | {"logit_scale": ()}
        shapes |= prefixed(inner, f"conditioner.embedders.{1 if first else 0}.model.")
    return shapes


def single_file_shapes(model: str, *, bare: bool = False) -> Shapes:
    """The whole file of a shipped model."""
    spec = shipped_models()[model]
    shapes = prefixed(unet_map(spec.unet).single_shapes(), UNET)
    shapes |= prefixed(vae_map(spec.vae).single_shapes(), VAE)
    return shapes | text_shapes(model, bare=bare)
