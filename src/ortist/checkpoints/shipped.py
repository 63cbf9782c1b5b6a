"""The configurations of known models that come with ortist (see configs/README.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from ortist.checkpoints.layouts import KeyMap
from ortist.checkpoints.layouts_text import clip_key_map, open_clip_key_map
from ortist.checkpoints.layouts_unet import unet_key_map
from ortist.checkpoints.layouts_vae import tiny_decoder_key_map, tiny_encoder_key_map, vae_key_map
from ortist.errors import BadCheckpoint
from ortist.files import JsonObject, read_json
from ortist.graphs.clip_config import ClipTextConfig
from ortist.graphs.tiny_vae_config import TinyVaeConfig
from ortist.graphs.unet_config import UNetConfig
from ortist.graphs.vae_config import VaeConfig

TINY_VAE = "taesd"
_FOLDER = Path(__file__).parent / "configs"
_DAMAGED = "this installation of ortist is damaged: install it again"


@dataclass(frozen=True)
class ShippedModel:
    """One known model: the names of its configurations.

    Attributes:
        name: short name ("sd1-inpaint").
        family: what its shapes and its text have in common with others: "sd1", "sd2", "sdxl",
            "sdxl-refiner".
        title: name for people.
        model_index: name of its model_index.json.
        unet: name of its UNet's configuration.
        vae: name of its autoencoder's configuration.
        text_encoders: names of its text encoders' configurations, by component.
        scheduler: name of its scheduler's configuration.
    """

    name: str
    family: str
    title: str
    model_index: str
    unet: str
    vae: str
    text_encoders: Mapping[str, str]
    scheduler: str


@cache
def shipped_models() -> Mapping[str, ShippedModel]:
    """Every known model by name."""
    table = cast("dict[str, dict[str, str]]", _read("models"))
    return {
        name: ShippedModel(
            name=name,
            family=entry["family"],
            title=entry["title"],
            model_index=entry["model_index"],
            unet=entry["unet"],
            vae=entry["vae"],
            text_encoders=cast("dict[str, str]", entry["text_encoders"]),
            scheduler=entry["scheduler"],
        )
        for name, entry in table.items()
    }


def shipped_config(kind: str, name: str) -> JsonObject:
    """A fresh copy of one configuration.

    Args:
        kind: "unet", "vae", "text", "scheduler" or "model_index".
        name: as in `ShippedModel`, e.g. "sd1".
    """
    return _read(f"{kind}/{name}")


@cache
def unet_map(name: str) -> KeyMap:
    """Key map of a shipped UNet."""
    return unet_key_map(UNetConfig.from_json(shipped_config("unet", name)))


@cache
def vae_map(name: str) -> KeyMap:
    """Key map of a shipped autoencoder of the full kind."""
    return vae_key_map(VaeConfig.from_json(shipped_config("vae", name)))


@cache
def tiny_maps() -> tuple[KeyMap, KeyMap]:
    """Key maps of the tiny autoencoder's encoder and decoder."""
    config = TinyVaeConfig.from_json(shipped_config("vae", TINY_VAE))
    return tiny_encoder_key_map(config), tiny_decoder_key_map(config)


@cache
def text_map(name: str, *, open_clip: bool, bare: bool = False) -> KeyMap:
    """Key map of a shipped text encoder; `bare` as for `clip_key_map`."""
    config = ClipTextConfig.from_json(shipped_config("text", name))
    return open_clip_key_map(config) if open_clip else clip_key_map(config, bare=bare)


def _read(name: str) -> JsonObject:
    return read_json(_FOLDER / f"{name}.json", BadCheckpoint, hint=_DAMAGED)
