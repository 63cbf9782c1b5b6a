"""Autoencoder graphs and configurations, without torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from ortist.errors import BadCheckpoint
from ortist.graphs.vae import build_vae_decoder, build_vae_encoder
from ortist.graphs.vae_config import VaeConfig
from tests.tiny.graphs import checked, dims, op_counts, relative_error, run, session
from tests.tiny.vae import VAE_SD1, vae_config, vae_shapes
from tests.tiny.weights import ShapeSource, random_source

Build = Callable[..., ir.Model]
BUILDERS: list[Build] = [build_vae_encoder, build_vae_decoder]


# Configuration


def test_reads_sd1s_own_file_with_diffusers_defaults() -> None:
    config = VaeConfig.from_json(VAE_SD1)
    assert config.block_out_channels == (128, 256, 512, 512)
    assert config.scaling_factor == 0.18215
    assert config.force_upcast
    assert config.mid_block_add_attention
    assert config.use_quant_conv
    assert config.use_post_quant_conv
    assert config.sample_size == (512, 512)
    assert config.spatial_scale == 8


def test_swish_is_silu_and_a_size_may_be_a_pair() -> None:
    config = VaeConfig.from_json({**VAE_SD1, "act_fn": "swish", "sample_size": [512, 768]})
    assert config == replace(VaeConfig.from_json(VAE_SD1), sample_size=(512, 768))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"act_fn": "relu"}, "act_fn is 'relu'"),
        ({"down_block_types": ["AttnDownEncoderBlock2D"] * 4}, "down_block_types is ['Attn"),
        ({"up_block_types": ["UpDecoderBlock2D"] * 3}, "up_block_types is ['UpDecoderBlock2D', "),
        ({"norm_num_groups": 48}, "norm_num_groups is 48"),
        ({"shift_factor": 0.0609}, "shift_factor is 0.0609"),
        ({"latents_mean": [0.0]}, "latents_mean is [0.0]"),
        ({"latents_std": [1.0]}, "latents_std is [1.0]"),
        ({"scaling_factor": 0}, "scaling_factor is 0"),
        ({"mid_block_add_attention": 1}, "mid_block_add_attention is 1"),
        ({"layers_per_block": [1, 2]}, "layers_per_block is [1, 2]"),
        ({"sample_size": "512"}, "sample_size is '512'"),
        ({"_class_name": "AutoencoderTiny"}, "_class_name is 'AutoencoderTiny'"),
        ({"patch_size": 2}, "patch_size = 2"),
    ],
)
def test_refuses_by_key_and_value(change: dict[str, object], named: str) -> None:
    with pytest.raises(BadCheckpoint, match=re.escape(named)) as raised:
        VaeConfig.from_json({**VAE_SD1, **change})
    assert raised.value.message.startswith("vae/config.json: ")


# Graphs


@pytest.mark.parametrize("build", BUILDERS)
def test_full_size_counts(build: Build) -> None:
    counts = op_counts(build(VaeConfig.from_json(VAE_SD1), ShapeSource(vae_shapes(VAE_SD1))))
    encoder = build is build_vae_encoder
    assert counts["Softmax"] == 1
    assert counts["InstanceNormalization"] == (22 if encoder else 30)
    assert counts["Conv"] == (28 if encoder else 36)
    assert counts["Resize"] == (0 if encoder else 3)


def test_no_attention_where_the_config_has_none() -> None:
    json = vae_config([8, 8], mid_block_add_attention=False)
    for build in BUILDERS:
        model = build(VaeConfig.from_json(json), ShapeSource(vae_shapes(json)))
        assert op_counts(model)["Softmax"] == 0


def test_names_shapes_and_versions_are_optimums() -> None:
    json = vae_config([8, 8, 12, 16])
    config, source = VaeConfig.from_json(json), random_source(vae_shapes(json))
    encoder = checked(build_vae_encoder(config, source))
    decoder = checked(build_vae_decoder(config, source))
    for proto in (encoder, decoder):
        assert proto.ir_version == 8
        assert [(o.domain, o.version) for o in proto.opset_import] == [("", 17)]
    assert dims(encoder.graph.input) == {
        "sample": ["batch_size", 3, "sample_height", "sample_width"]
    }
    assert dims(encoder.graph.output) == {
        "latent_parameters": ["batch_size", 8, "sample_height / 8", "sample_width / 8"]
    }
    assert dims(decoder.graph.input) == {
        "latent_sample": ["batch_size", 4, "latent_height", "latent_width"]
    }
    assert dims(decoder.graph.output) == {
        "sample": ["batch_size", 3, "latent_height * 8", "latent_width * 8"]
    }


def test_every_tensor_belongs_to_exactly_one_half() -> None:
    json = vae_config([8, 12])
    config, source = VaeConfig.from_json(json), random_source(vae_shapes(json))
    halves = [
        {t.name for t in checked(build(config, source)).graph.initializer} & set(source.arrays)
        for build in BUILDERS
    ]
    assert halves[0] | halves[1] == set(source.arrays)
    assert not halves[0] & halves[1]


def test_downsampling_pads_at_the_bottom_and_right_only() -> None:
    json = vae_config([8, 8])
    model = build_vae_encoder(VaeConfig.from_json(json), ShapeSource(vae_shapes(json)))
    pads = [
        list(node.attributes["pads"].as_ints())
        for node in model.graph
        if node.op_type == "Conv" and list(node.attributes["strides"].as_ints()) == [2, 2]
    ]
    assert pads == [[0, 0, 1, 1]]


def test_half_precision_is_close() -> None:
    json = vae_config([8, 12, 16])
    config, source = VaeConfig.from_json(json), random_source(vae_shapes(json))
    rng = np.random.default_rng(5)
    cases = [
        (build_vae_encoder, "sample", (2, 3, 16, 24), "latent_parameters"),
        (build_vae_decoder, "latent_sample", (2, 4, 4, 6), "sample"),
    ]
    for build, given, shape, wanted in cases:
        x = rng.standard_normal(shape, dtype=np.float32)
        exact = run(build(config, source, dtype="fp32"), {given: x})[wanted]
        half = run(build(config, source, dtype="fp16"), {given: x.astype(np.float16)})[wanted]
        assert half.dtype == np.float16
        assert relative_error(half, exact) < 1e-2


def test_one_session_takes_any_size() -> None:
    json = vae_config([8, 8])
    graph = session(build_vae_decoder(VaeConfig.from_json(json), random_source(vae_shapes(json))))
    for height, width in ((2, 3), (5, 1)):
        x = np.zeros((1, 4, height, width), np.float32)
        assert graph.run_all({"latent_sample": x})["sample"].shape == (1, 3, 2 * height, 2 * width)


# Weights that do not fit


def test_old_projection_names_are_kept_as_they_are() -> None:
    json = vae_config([8, 8])
    shapes = vae_shapes(json)
    attention = "decoder.mid_block.attentions.0"
    renamed = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    for new, old in renamed.items():
        out, given = shapes.pop(f"{attention}.{new}.weight")
        shapes[f"{attention}.{old}.weight"] = (out, given, 1, 1)
        shapes[f"{attention}.{old}.bias"] = shapes.pop(f"{attention}.{new}.bias")
    source = random_source(shapes)
    proto = checked(build_vae_decoder(VaeConfig.from_json(json), source))
    stored = {tensor.name: list(tensor.dims) for tensor in proto.graph.initializer}
    assert stored[f"{attention}.query.weight"] == [8, 8]
    assert f"{attention}.to_q.weight" not in stored


def test_missing_attention_is_named() -> None:
    json = vae_config([8, 8])
    shapes = vae_shapes({**json, "mid_block_add_attention": False})
    with pytest.raises(BadCheckpoint) as raised:
        build_vae_encoder(VaeConfig.from_json(json), ShapeSource(shapes))
    assert "vae_encoder: 10 tensors do not fit" in raised.value.message
    name = "encoder.mid_block.attentions.0.group_norm.weight"
    assert f"{name}: expected [8], missing" in raised.value.message


def test_quant_conv_that_the_config_denies() -> None:
    json = vae_config([8, 8], use_quant_conv=False)
    shapes = vae_shapes({**json, "use_quant_conv": True})
    with pytest.raises(BadCheckpoint, match=r"no place.*quant_conv\.bias, quant_conv\.weight"):
        build_vae_encoder(VaeConfig.from_json(json), ShapeSource(shapes))
