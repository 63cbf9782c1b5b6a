from __future__ import annotations

import pytest

from ortist.checkpoints.layouts import KeyMap, Move, Tie
from ortist.checkpoints.layouts_text import clip_key_map, open_clip_key_map
from ortist.checkpoints.layouts_unet import unet_key_map
from ortist.checkpoints.layouts_vae import tiny_decoder_key_map, tiny_encoder_key_map, vae_key_map
from ortist.checkpoints.renamed import canonical_text_name
from ortist.checkpoints.shipped import shipped_config, shipped_models
from ortist.graphs.clip import build_clip_text_encoder
from ortist.graphs.clip_config import ClipTextConfig
from ortist.graphs.tiny_vae import build_tiny_vae_decoder, build_tiny_vae_encoder
from ortist.graphs.tiny_vae_config import TinyVaeConfig
from ortist.graphs.unet import build_unet
from ortist.graphs.unet_config import UNetConfig
from ortist.graphs.vae import build_vae_decoder, build_vae_encoder
from ortist.graphs.vae_config import VaeConfig
from tests.tiny.clip import clip_config
from tests.tiny.tiny_vae import tiny_vae_config
from tests.tiny.unet import CONFIGS
from tests.tiny.vae import vae_config
from tests.tiny.wanted import wanted_shapes
from tests.tiny.weights import Shapes

FULL_UNETS = sorted({model.unet for model in shipped_models().values()})
FULL_TEXTS = ["clip-l", "openclip-h", "openclip-bigg"]


def check_one_to_one(keys: KeyMap, wanted: Shapes) -> None:
    """Every tensor the graph wants has one tie, every tie a tensor, whichever way one reads."""
    targets = [name for tie in keys.ties for name in tie.diffusers]
    singles = [tie.single for tie in keys.ties]
    assert len(set(targets)) == len(targets)
    assert len(set(singles)) == len(singles)
    assert keys.diffusers_shapes() == wanted

    forth, back = keys.to_diffusers(), keys.to_single()
    assert set(forth) == set(wanted)
    assert set(back) == set(singles)
    assert {name for move in forth.values() for name in move.sources} == set(singles)
    used = [name for move in back.values() for name in move.sources]
    assert sorted(used) == sorted(wanted)
    assert {key: move.shape for key, move in forth.items()} == wanted
    assert {key: move.shape for key, move in back.items()} == keys.single_shapes()


def unet_shapes(config: UNetConfig) -> Shapes:
    return wanted_shapes(lambda weights: build_unet(config, weights, dtype="fp32"))


@pytest.mark.parametrize("name", CONFIGS)
def test_tiny_unets_are_mapped_one_to_one(name: str) -> None:
    config = UNetConfig.from_json(CONFIGS[name])
    check_one_to_one(unet_key_map(config), unet_shapes(config))


@pytest.mark.parametrize("name", FULL_UNETS)
def test_full_unets_are_mapped_one_to_one(name: str) -> None:
    config = UNetConfig.from_json(shipped_config("unet", name))
    check_one_to_one(unet_key_map(config), unet_shapes(config))


def vae_wanted(config: VaeConfig) -> Shapes:
    shapes = wanted_shapes(lambda weights: build_vae_encoder(config, weights))
    return shapes | wanted_shapes(lambda weights: build_vae_decoder(config, weights))


@pytest.mark.parametrize(
    "config",
    [
        vae_config([8, 16, 16, 16]),
        vae_config([8, 16], layers_per_block=2, mid_block_add_attention=False),
        vae_config([8], use_quant_conv=False, use_post_quant_conv=False),
        shipped_config("vae", "sd"),
        shipped_config("vae", "sdxl"),
    ],
    ids=["four levels", "no attention", "no quant", "sd", "sdxl"],
)
def test_autoencoders_are_mapped_one_to_one(config: dict[str, object]) -> None:
    read = VaeConfig.from_json(config)
    check_one_to_one(vae_key_map(read), vae_wanted(read))


@pytest.mark.parametrize(
    "config",
    [tiny_vae_config([1, 2, 1], [2, 0, 1]), shipped_config("vae", "taesd")],
    ids=["odd", "taesd"],
)
def test_tiny_autoencoders_are_mapped_one_to_one(config: dict[str, object]) -> None:
    read = TinyVaeConfig.from_json(config)
    encoder = wanted_shapes(lambda weights: build_tiny_vae_encoder(read, weights))
    decoder = wanted_shapes(lambda weights: build_tiny_vae_decoder(read, weights))
    check_one_to_one(tiny_encoder_key_map(read), encoder)
    check_one_to_one(tiny_decoder_key_map(read), decoder)


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("spelling", ["clip", "bare", "open_clip"])
@pytest.mark.parametrize("name", ["tiny", *FULL_TEXTS])
def test_text_encoders_are_mapped_one_to_one(name: str, spelling: str, projected: bool) -> None:
    class_name = "CLIPTextModelWithProjection" if projected else "CLIPTextModel"
    json = clip_config() if name == "tiny" else shipped_config("text", name)
    config = ClipTextConfig.from_json(json, class_name=class_name)
    # The builder follows the spelling that it finds, and here it finds none.
    wanted = wanted_shapes(lambda weights: build_clip_text_encoder(config, weights))
    shapes = {canonical_text_name(key): shape for key, shape in wanted.items()}
    if spelling == "open_clip":
        keys = open_clip_key_map(config)
    else:
        keys = clip_key_map(config, bare=spelling == "bare")
    check_one_to_one(keys, shapes)


# (single-file name, diffusers name or names), read off the published files' listings.
KNOWN = {
    "sd1": [
        ("input_blocks.0.0.weight", "conv_in.weight"),
        ("input_blocks.2.1.proj_in.weight", "down_blocks.0.attentions.1.proj_in.weight"),
        ("input_blocks.3.0.op.bias", "down_blocks.0.downsamplers.0.conv.bias"),
        ("input_blocks.4.0.skip_connection.weight", "down_blocks.1.resnets.0.conv_shortcut.weight"),
        ("input_blocks.11.0.emb_layers.1.bias", "down_blocks.3.resnets.1.time_emb_proj.bias"),
        ("middle_block.2.out_layers.3.weight", "mid_block.resnets.1.conv2.weight"),
        ("output_blocks.2.1.conv.weight", "up_blocks.0.upsamplers.0.conv.weight"),
        ("output_blocks.5.2.conv.weight", "up_blocks.1.upsamplers.0.conv.weight"),
        (
            "output_blocks.11.1.transformer_blocks.0.attn2.to_k.weight",
            "up_blocks.3.attentions.2.transformer_blocks.0.attn2.to_k.weight",
        ),
        ("out.2.bias", "conv_out.bias"),
    ],
    "sdxl": [
        ("label_emb.0.2.weight", "add_embedding.linear_2.weight"),
        ("input_blocks.8.1.proj_out.bias", "down_blocks.2.attentions.1.proj_out.bias"),
        (
            "middle_block.1.transformer_blocks.9.ff.net.0.proj.weight",
            "mid_block.attentions.0.transformer_blocks.9.ff.net.0.proj.weight",
        ),
        ("output_blocks.2.2.conv.bias", "up_blocks.0.upsamplers.0.conv.bias"),
        ("output_blocks.8.0.in_layers.2.weight", "up_blocks.2.resnets.2.conv1.weight"),
    ],
}


@pytest.mark.parametrize(("name", "single", "target"), [(n, *p) for n in KNOWN for p in KNOWN[n]])
def test_known_names(name: str, single: str, target: str) -> None:
    keys = unet_key_map(UNetConfig.from_json(shipped_config("unet", name)))
    assert keys.to_diffusers()[target].sources == (single,)
    assert keys.to_single()[single].sources == (target,)


def test_the_decoder_of_the_full_autoencoder_runs_backwards() -> None:
    moves = vae_key_map(VaeConfig.from_json(shipped_config("vae", "sd"))).to_diffusers()
    up = moves["decoder.up_blocks.0.resnets.2.conv1.weight"]
    assert up.sources == ("decoder.up.3.block.2.conv1.weight",)
    query = moves["encoder.mid_block.attentions.0.to_q.weight"]
    assert query == Move(query.target, ("encoder.mid.attn_1.q.weight",), "flatten", (512, 512))


def test_the_tiny_decoder_counts_one_module_more() -> None:
    config = TinyVaeConfig.from_json(shipped_config("vae", "taesd"))
    assert "decoder.layers.0.weight" in tiny_decoder_key_map(config).to_diffusers()
    assert tiny_decoder_key_map(config).ties[0].single == "1.weight"
    assert tiny_encoder_key_map(config).ties[0].single == "0.weight"


def test_openclip_keeps_query_key_and_value_in_one_tensor() -> None:
    config = ClipTextConfig.from_json(shipped_config("text", "openclip-bigg"))
    keys = open_clip_key_map(config)
    layer = "text_model.encoder.layers.31.self_attn"
    fused = "transformer.resblocks.31.attn.in_proj_weight"
    assert keys.single_shapes()[fused] == (3840, 1280)
    moves = keys.to_diffusers()
    assert [moves[f"{layer}.{p}_proj.weight"].change for p in "qkv"] == ["first", "second", "third"]
    assert keys.to_single()[fused].sources == tuple(f"{layer}.{p}_proj.weight" for p in "qkv")
    assert moves["text_projection.weight"].change == "transpose"


def test_sd2_leaves_the_last_layer_of_its_text_encoder_out() -> None:
    keys = open_clip_key_map(ClipTextConfig.from_json(shipped_config("text", "openclip-h")))
    singles = keys.single_shapes()
    assert "transformer.resblocks.22.ln_1.weight" in singles
    assert not any(".23." in name or name == "text_projection" for name in singles)


def test_shapes_of_a_tie() -> None:
    assert Tie("a", ("b",), (2, 5), "transposed").single_shape == (5, 2)
    assert Tie("a", ("b",), (2, 5), "pointwise").single_shape == (2, 5, 1, 1)
    assert Tie("a", ("q", "k", "v"), (2, 5), "stacked").single_shape == (6, 5)
    assert Tie("a", ("b",), (2, 5)).single_shape == (2, 5)
