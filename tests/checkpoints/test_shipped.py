from __future__ import annotations

from math import prod

import pytest

from ortist.checkpoints.layouts import KeyMap
from ortist.checkpoints.shipped import (
    shipped_config,
    shipped_models,
    text_map,
    tiny_maps,
    unet_map,
    vae_map,
)
from ortist.graphs.clip_config import ClipTextConfig
from ortist.graphs.unet_config import UNetConfig
from ortist.graphs.vae_config import VaeConfig
from ortist.sampling.config import SchedulerConfig

MODELS = shipped_models()

# Millions of parameters of the UNet, as published.
UNETS = {
    "sd1": 859.52,
    "sd2": 865.91,
    "sd2-base": 865.91,
    "sdxl": 2567.46,
    "sdxl-refiner": 2259.53,
    "bk-sdm-base": 579.38,
    "bk-sdm-small": 482.35,
    "bk-sdm-tiny": 323.38,
    "ssd-1b": 1331.33,
    "segmind-vega": 745.23,
    "koala-700m": 782.82,
    "koala-1b": 1161.18,
}


def millions(keys: KeyMap) -> float:
    return round(sum(prod(shape) for shape in keys.diffusers_shapes().values()) / 1e6, 2)


@pytest.mark.parametrize(("name", "count"), UNETS.items())
def test_unets_have_the_published_numbers_of_parameters(name: str, count: float) -> None:
    assert millions(unet_map(name)) == count


def test_the_other_components_have_the_published_numbers_of_parameters() -> None:
    assert millions(vae_map("sd")) == millions(vae_map("sdxl")) == 83.65
    assert [millions(keys) for keys in tiny_maps()] == [1.22, 1.22]
    assert millions(text_map("clip-l", open_clip=False)) == 123.06
    assert millions(text_map("openclip-h", open_clip=True)) == 340.39
    assert millions(text_map("openclip-bigg", open_clip=True)) == 694.66


@pytest.mark.parametrize("name", MODELS)
def test_the_components_of_a_model_fit_together(name: str) -> None:
    model = MODELS[name]
    index = shipped_config("model_index", model.model_index)
    aesthetics = index.get("requires_aesthetics_score", False)
    unet = UNetConfig.from_json(
        shipped_config("unet", model.unet), num_time_ids=5 if aesthetics else 6
    )
    # Read without help, the refiner is still told apart.
    assert UNetConfig.from_json(shipped_config("unet", model.unet)) == unet
    vae = VaeConfig.from_json(shipped_config("vae", model.vae))
    scheduler_json = shipped_config("scheduler", model.scheduler)
    scheduler = SchedulerConfig.from_json(scheduler_json)

    widths, pooled = 0, None
    for component, config_name in model.text_encoders.items():
        named = index[component]
        assert isinstance(named, list) and isinstance(named[1], str)
        config = ClipTextConfig.from_json(shipped_config("text", config_name))
        checked = ClipTextConfig.from_json(shipped_config("text", config_name), class_name=named[1])
        assert config == checked
        widths += config.hidden_size
        pooled = config.projection_dim or pooled
        assert index[component.replace("text_encoder", "tokenizer")] != [None, None]
    named_encoders = {
        key for key in index if key.startswith("text_encoder") and index[key] != [None, None]
    }
    assert named_encoders == set(model.text_encoders)
    assert unet.cross_attention_dim == widths
    assert (unet.text_time.text_width if unet.text_time else None) == pooled
    assert index["scheduler"] == ["diffusers", scheduler_json["_class_name"]]
    assert scheduler.prediction_type == ("v_prediction" if name == "sd2" else "epsilon")
    assert vae.spatial_scale == 8
    assert vae.latent_channels == unet.out_channels
    if model.family == "sd1":
        assert {b.heads for b in (*unet.down, *unet.up) if b.has_attention} == {8}
    else:
        assert {b.head_dim for b in (*unet.down, *unet.up) if b.has_attention} == {64}


@pytest.mark.parametrize(
    ("config", "widths"),
    [("clip-l", (768, 12)), ("openclip-h", (1024, 16)), ("openclip-bigg", (1280, 20))],
)
def test_text_encoders_have_heads_of_64(config: str, widths: tuple[int, int]) -> None:
    read = ClipTextConfig.from_json(shipped_config("text", config))
    assert (read.hidden_size, read.num_attention_heads) == widths
    assert read.hidden_act == ("quick_gelu" if config == "clip-l" else "gelu")


def test_a_config_is_a_fresh_copy() -> None:
    shipped_config("unet", "sd1")["in_channels"] = 5
    assert shipped_config("unet", "sd1")["in_channels"] == 4
