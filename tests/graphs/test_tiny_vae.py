"""Tiny autoencoder graphs and configurations, without torch."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from ortist.errors import BadCheckpoint
from ortist.graphs.tiny_vae import build_tiny_vae_decoder, build_tiny_vae_encoder
from ortist.graphs.tiny_vae_config import TinyVaeConfig
from tests.tiny.graphs import checked, dims, op_counts, relative_error, run
from tests.tiny.tiny_vae import TAESD, tiny_vae_config, tiny_vae_shapes
from tests.tiny.weights import ShapeSource, random_source

Build = Callable[..., ir.Model]
BUILDERS: list[Build] = [build_tiny_vae_encoder, build_tiny_vae_decoder]


def test_reads_taesds_own_file() -> None:
    assert TinyVaeConfig.from_json(TAESD) == TinyVaeConfig(
        in_channels=3,
        out_channels=3,
        latent_channels=4,
        encoder_channels=64,
        decoder_channels=64,
        num_encoder_blocks=(1, 3, 3, 3),
        num_decoder_blocks=(3, 3, 3, 1),
        upsampling_scaling_factor=2,
        scaling_factor=1.0,
        latent_magnitude=3.0,
        latent_shift=0.5,
        force_upcast=False,
    )


def test_scales() -> None:
    config = TinyVaeConfig.from_json(
        tiny_vae_config([1, 1, 1], [0, 1], upsampling_scaling_factor=4)
    )
    assert (config.encoder_scale, config.decoder_scale) == (4, 4)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"act_fn": "silu"}, "act_fn is 'silu'"),
        ({"upsample_fn": "bilinear"}, "upsample_fn is 'bilinear'"),
        ({"shift_factor": 0.1}, "shift_factor is 0.1"),
        ({"num_encoder_blocks": [1, 3, 3]}, "num_encoder_blocks is [1, 3, 3]"),
        ({"encoder_block_out_channels": [64, 64, 32, 64]}, "encoder_block_out_channels is [64"),
        ({"block_out_channels": [32] * 4}, "block_out_channels is [32, 32, 32, 32]"),
        ({"upsampling_scaling_factor": 1.5}, "upsampling_scaling_factor is 1.5"),
        ({"latent_magnitude": 0}, "latent_magnitude is 0"),
        ({"_class_name": "AutoencoderKL"}, "_class_name is 'AutoencoderKL'"),
        ({"norm_num_groups": 32}, "norm_num_groups = 32"),
    ],
)
def test_refuses_by_key_and_value(change: dict[str, object], named: str) -> None:
    with pytest.raises(BadCheckpoint, match=re.escape(named)):
        TinyVaeConfig.from_json({**TAESD, **change})


@pytest.mark.parametrize("build", BUILDERS)
def test_full_size_has_convolutions_and_relu_only(build: Build) -> None:
    source = ShapeSource(tiny_vae_shapes(TAESD))
    counts = op_counts(build(TinyVaeConfig.from_json(TAESD), source, dtype="fp16"))
    assert counts["Softmax"] == counts["InstanceNormalization"] == 0
    assert counts["Conv"] == 3 * 10 + 5


def test_names_shapes_and_versions() -> None:
    json = tiny_vae_config([1, 1, 1, 1], [1, 1, 1, 1])
    config, source = TinyVaeConfig.from_json(json), random_source(tiny_vae_shapes(json))
    encoder = checked(build_tiny_vae_encoder(config, source))
    decoder = checked(build_tiny_vae_decoder(config, source))
    for proto in (encoder, decoder):
        assert proto.ir_version == 8
        assert [(o.domain, o.version) for o in proto.opset_import] == [("", 17)]
        names = {t.name for t in proto.graph.initializer if not t.name.startswith("const/")}
        assert names <= set(source.arrays)
    assert dims(encoder.graph.input) == {
        "sample": ["batch_size", 3, "sample_height", "sample_width"]
    }
    assert dims(encoder.graph.output) == {
        "latent_sample": ["batch_size", 4, "sample_height / 8", "sample_width / 8"]
    }
    assert dims(decoder.graph.input) == {
        "latent_sample": ["batch_size", 4, "latent_height", "latent_width"]
    }
    assert dims(decoder.graph.output) == {
        "sample": ["batch_size", 3, "latent_height * 8", "latent_width * 8"]
    }


def test_far_latents_are_bent_to_three() -> None:
    json = tiny_vae_config([1, 1], [1, 1])
    graph = build_tiny_vae_decoder(
        TinyVaeConfig.from_json(json), random_source(tiny_vae_shapes(json))
    )
    far = [run(graph, {"latent_sample": np.full((1, 4, 2, 2), v, np.float32)}) for v in (60, 9000)]
    np.testing.assert_array_equal(far[0]["sample"], far[1]["sample"])


def test_half_precision_is_close() -> None:
    json = tiny_vae_config([1, 2], [2, 1])
    config, source = TinyVaeConfig.from_json(json), random_source(tiny_vae_shapes(json))
    rng = np.random.default_rng(5)
    cases = [
        (build_tiny_vae_encoder, "sample", (2, 3, 8, 12), "latent_sample"),
        (build_tiny_vae_decoder, "latent_sample", (2, 4, 4, 6), "sample"),
    ]
    for build, given, shape, wanted in cases:
        x = rng.standard_normal(shape, dtype=np.float32)
        exact = run(build(config, source, dtype="fp32"), {given: x})[wanted]
        half = run(build(config, source, dtype="fp16"), {given: x.astype(np.float16)})[wanted]
        assert half.dtype == np.float16
        assert relative_error(half, exact) < 1e-2


def test_missing_tensor_is_named() -> None:
    json = tiny_vae_config([1, 1], [1, 1])
    shapes = tiny_vae_shapes(json)
    del shapes["decoder.layers.2.conv.4.bias"]
    with pytest.raises(BadCheckpoint) as raised:
        build_tiny_vae_decoder(TinyVaeConfig.from_json(json), ShapeSource(shapes))
    named = "vae_decoder: 1 tensor does not fit its config: decoder.layers.2.conv.4.bias: "
    assert raised.value.message.startswith(named + "expected [8], missing")
