"""Which graphs a checkpoint becomes, and what builds each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import onnx_ir as ir

from ortist.checkpoints.directory import MODEL_INDEX, Component, DiffusersDirectory
from ortist.errors import BadCheckpoint
from ortist.files import JsonObject, JsonValue
from ortist.graphs.builder import Precision, WeightSource
from ortist.graphs.clip import build_clip_text_encoder
from ortist.graphs.clip_config import ClipTextConfig
from ortist.graphs.tiny_vae import build_tiny_vae_decoder, build_tiny_vae_encoder
from ortist.graphs.tiny_vae_config import TinyVaeConfig
from ortist.graphs.unet import build_unet
from ortist.graphs.unet_config import UNetConfig
from ortist.graphs.vae import build_vae_decoder, build_vae_encoder
from ortist.graphs.vae_config import VaeConfig

Build: TypeAlias = Callable[[WeightSource, Precision], ir.Model]


@dataclass(frozen=True)
class Recipe:
    """One graph to write.

    Attributes:
        role: its folder in the bundle ("vae_decoder").
        component: the component of the checkpoint whose weights it takes ("vae").
        config: the config.json to lie beside it: the component's own, with those values spelled
            out that readers of bundles look for and that a file may leave to their defaults.
        build: makes the graph from the weights.
    """

    role: str
    component: str
    config: JsonObject
    build: Build


def recipes(checkpoint: DiffusersDirectory) -> tuple[Recipe, ...]:
    """The graphs of `checkpoint`: text encoders, UNet, VAE encoder and decoder.

    Raises:
        BadCheckpoint: a component is of a class, or has a setting, that is not implemented.
    """
    found: list[Recipe] = []
    for component in checkpoint.components.values():
        make = _MAKERS.get(component.class_name)
        if make is None:
            raise BadCheckpoint(
                f"{checkpoint.path / MODEL_INDEX}: {component.name} is a {component.class_name}, "
                "which is not implemented",
                hint=f"implemented: {', '.join(_MAKERS)}",
                code="unsupported-component",
            )
        found += make(component, checkpoint)
    return tuple(found)


def _text_encoder(component: Component, _checkpoint: DiffusersDirectory) -> list[Recipe]:
    config = ClipTextConfig.from_json(
        component.config, class_name=component.class_name, source=_source(component)
    )
    spelled_out: JsonObject = {
        "architectures": [component.class_name],
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "max_position_embeddings": config.max_position_embeddings,
        "eos_token_id": config.eos_token_id,
    }

    def build(weights: WeightSource, dtype: Precision) -> ir.Model:
        return build_clip_text_encoder(config, weights, dtype=dtype, name=component.name)

    return [Recipe(component.name, component.name, component.config | spelled_out, build)]


def _unet(component: Component, checkpoint: DiffusersDirectory) -> list[Recipe]:
    aesthetic = checkpoint.index.get("requires_aesthetics_score")
    num_time_ids = None if aesthetic is None else 5 if aesthetic else 6
    config = UNetConfig.from_json(
        component.config, source=_source(component), num_time_ids=num_time_ids
    )
    spelled_out: JsonObject = {
        "in_channels": config.in_channels,
        "cross_attention_dim": config.cross_attention_dim,
        "time_cond_proj_dim": config.time_cond_proj_dim,
    }

    def build(weights: WeightSource, dtype: Precision) -> ir.Model:
        return build_unet(config, weights, dtype=dtype)

    return [Recipe(component.name, component.name, spelled_out | component.config, build)]


def _vae(component: Component, _checkpoint: DiffusersDirectory) -> list[Recipe]:
    config = VaeConfig.from_json(component.config, source=_source(component))
    channels: list[JsonValue] = [*config.block_out_channels]
    spelled_out: JsonObject = {
        "latent_channels": config.latent_channels,
        "block_out_channels": channels,
        "scaling_factor": config.scaling_factor,
        "force_upcast": config.force_upcast,
    }
    return _encoder_and_decoder(
        component,
        spelled_out,
        lambda weights, dtype: build_vae_encoder(config, weights, dtype=dtype),
        lambda weights, dtype: build_vae_decoder(config, weights, dtype=dtype),
    )


def _tiny_vae(component: Component, _checkpoint: DiffusersDirectory) -> list[Recipe]:
    config = TinyVaeConfig.from_json(component.config, source=_source(component))
    # As many entries as stages: that is how others count the pixels per latent.
    channels: list[JsonValue] = [config.decoder_channels for _ in config.num_decoder_blocks]
    spelled_out: JsonObject = {
        "latent_channels": config.latent_channels,
        "block_out_channels": channels,
        "scaling_factor": config.scaling_factor,
        "force_upcast": config.force_upcast,
    }
    return _encoder_and_decoder(
        component,
        spelled_out,
        lambda weights, dtype: build_tiny_vae_encoder(config, weights, dtype=dtype),
        lambda weights, dtype: build_tiny_vae_decoder(config, weights, dtype=dtype),
    )


def _encoder_and_decoder(
    component: Component, spelled_out: JsonObject, encoder: Build, decoder: Build
) -> list[Recipe]:
    config = spelled_out | component.config
    make = partial(Recipe, component=component.name, config=config)
    return [make("vae_encoder", build=encoder), make("vae_decoder", build=decoder)]


def _source(component: Component) -> str:
    return f"{component.name}/config.json"


_MAKERS: Mapping[str, Callable[[Component, DiffusersDirectory], list[Recipe]]] = {
    "CLIPTextModel": _text_encoder,
    "CLIPTextModelWithProjection": _text_encoder,
    "UNet2DConditionModel": _unet,
    "AutoencoderKL": _vae,
    "AutoencoderTiny": _tiny_vae,
}
