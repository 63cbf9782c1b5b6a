"""The UNet's graph: names, shapes, counts, and what it says when the weights do not fit."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from ortist.errors import BadCheckpoint
from ortist.graphs.builder import Precision, WeightSource
from ortist.graphs.unet import build_unet
from ortist.graphs.unet_config import UNetConfig
from tests.tiny.graphs import checked, dims, op_counts, session
from tests.tiny.unet import CONFIGS, FULL_CONFIGS, inputs
from tests.tiny.wanted import wanted_shapes
from tests.tiny.weights import ArraySource, Shapes, ShapeSource, random_source


def shapes_of(config: UNetConfig) -> Shapes:
    return wanted_shapes(lambda source: build_unet(config, source, dtype="fp32"))


def small(name: str) -> tuple[UNetConfig, Shapes]:
    config = UNetConfig.from_json(CONFIGS[name])
    return config, shapes_of(config)


def graph_of(name: str, dtype: Precision = "fp32") -> ir.Model:
    config, shapes = small(name)
    return build_unet(config, ShapeSource(shapes), dtype=dtype)


def refusal(config: UNetConfig, source: WeightSource) -> BadCheckpoint:
    with pytest.raises(BadCheckpoint) as caught:
        build_unet(config, source, dtype="fp32")
    return caught.value


def test_opset_ir_and_producer_are_stamped() -> None:
    model = graph_of("sd1")
    assert model.ir_version == 8
    assert dict(model.opset_imports) == {"": 17}
    assert model.producer_name == "ortist"
    assert {node.domain for node in model.graph} == {""}


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("sd1", {}),
        ("inpaint_9_channels", {}),
        ("lcm", {"timestep_cond": ["batch_size", 20]}),
        ("sdxl_base", {"text_embeds": ["batch_size", 20], "time_ids": ["batch_size", 6]}),
        ("sdxl_refiner", {"text_embeds": ["batch_size", 24], "time_ids": ["batch_size", 5]}),
    ],
)
def test_inputs_and_outputs_follow_optimum(name: str, extra: dict[str, list[int | str]]) -> None:
    config, shapes = small(name)
    proto = checked(build_unet(config, random_source(shapes), dtype="fp32"))
    found = dims(list(proto.graph.input))
    assert found == {
        "sample": ["batch_size", config.in_channels, "height", "width"],
        "timestep": [],
        "encoder_hidden_states": ["batch_size", "sequence_length", 24],
        **extra,
    }
    # Some tools feed by position.
    assert list(found) == ["sample", "timestep", "encoder_hidden_states", *extra]
    assert dims(list(proto.graph.output)) == {"out_sample": ["batch_size", 4, "height", "width"]}


def test_half_precision_keeps_a_float32_timestep() -> None:
    model = graph_of("lcm_sdxl", "fp16")
    types = {value.name: value.dtype for value in (*model.graph.inputs, *model.graph.outputs)}
    half = ir.DataType.FLOAT16
    assert types == {
        "sample": half,
        "timestep": ir.DataType.FLOAT,
        "encoder_hidden_states": half,
        "text_embeds": half,
        "time_ids": half,
        "timestep_cond": half,
        "out_sample": half,
    }


def test_initialisers_keep_their_state_dict_names() -> None:
    config, shapes = small("sd2")
    model = build_unet(config, ShapeSource(shapes), dtype="fp32")
    weights = {name for name in model.graph.initializers if not name.startswith("const/")}
    assert weights == set(shapes)
    for name in (
        "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.weight",
        "mid_block.resnets.1.time_emb_proj.bias",
        "up_blocks.0.upsamplers.0.conv.weight",
        "time_embedding.linear_1.weight",
    ):
        assert name in weights


def test_layout_changes_are_recorded_with_the_tensor() -> None:
    model = graph_of("sd1")

    def transform(name: str) -> str | None:
        tensor = model.graph.initializers[name].const_value
        assert tensor is not None
        return tensor.metadata_props.get("ortist.transform")

    layer = "down_blocks.0.attentions.0.transformer_blocks.0"
    assert transform(f"{layer}.attn2.to_k.weight") == "transpose"
    assert transform("conv_norm_out.weight") == "channels"
    assert transform("conv_in.weight") is None
    assert transform("time_embedding.linear_1.weight") is None  # Gemm takes it as stored
    assert tuple(model.graph.initializers[f"{layer}.attn2.to_k.weight"].shape or ()) == (24, 16)


def test_node_names_are_unique_paths() -> None:
    names = [node.name or "" for node in graph_of("sdxl_base").graph]
    assert len(set(names)) == len(names)
    assert "down_blocks.1.attentions.0.transformer_blocks.1.attn2/Softmax" in names
    assert "mid_block.resnets.0.norm1/InstanceNormalization" in names


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, "fp32") for name in CONFIGS] + [("sd2", "fp16"), ("lcm_sdxl", "fp16")],
)
def test_every_variant_passes_the_full_check_and_runs(name: str, dtype: Precision) -> None:
    config, shapes = small(name)
    graph = session(build_unet(config, random_source(shapes), dtype=dtype))
    feeds = inputs(config, batch=2, height=9, width=8, timestep=999.5)
    if config.downsample_padding == 0:
        feeds = inputs(config, batch=2, height=8, width=8, timestep=999.5)
    if dtype == "fp16":
        feeds = {k: v if k == "timestep" else v.astype(np.float16) for k, v in feeds.items()}
    out = graph.run_all(feeds)["out_sample"]
    assert out.shape == (2, config.out_channels, *feeds["sample"].shape[2:])
    assert np.isfinite(out).all()
    assert out.std() > 0.01


def test_samples_of_a_batch_do_not_mix() -> None:
    config, shapes = small("lcm_sdxl")
    graph = session(build_unet(config, random_source(shapes), dtype="fp32"))
    feeds = inputs(config, batch=3, height=8, width=8, timestep=10.0)
    together = graph.run_all(feeds)["out_sample"]
    for index in range(3):
        one = {k: v if v.ndim == 0 else v[index : index + 1] for k, v in feeds.items()}
        alone = graph.run_all(one)["out_sample"]
        np.testing.assert_allclose(together[index : index + 1], alone, rtol=1e-4, atol=1e-5)


def test_attention_in_float32_where_the_config_asks() -> None:
    plain, upcast = op_counts(graph_of("sd1", "fp16")), op_counts(graph_of("sd2", "fp16"))
    config, _ = small("sd2")
    without = shapes_of(replace(config, upcast_attention=False))
    model = build_unet(replace(config, upcast_attention=False), ShapeSource(without), dtype="fp16")
    # Query, key and the softmax's result of each attention.
    assert upcast["Cast"] - op_counts(model)["Cast"] == 3 * upcast["Softmax"]
    assert plain["Cast"] == 2 * plain["InstanceNormalization"] + 1  # and the time embedding
    assert op_counts(graph_of("sd2"))["Cast"] == 0


# The published models in full size, counted without any weights.


@pytest.mark.parametrize(
    ("name", "self_attention", "cross_attention", "parameters"),
    [
        ("sd1.5", 16, 16, 859_520_964),
        ("sd2.1", 16, 16, 865_910_724),
        ("sdxl_base", 70, 70, 2_567_463_684),
        ("sdxl_refiner", 44, 44, 2_259_526_660),
    ],
)
def test_counts_of_published_models(
    name: str, self_attention: int, cross_attention: int, parameters: int
) -> None:
    config = UNetConfig.from_json(FULL_CONFIGS[name])
    shapes = shapes_of(config)
    model = build_unet(config, ShapeSource(shapes), dtype="fp16")
    assert sum(math.prod(shape) for shape in shapes.values()) == parameters
    text = next(v for v in model.graph.inputs if v.name == "encoder_hidden_states")
    key_and_value = sum(node.op_type == "MatMul" for node in text.consumers())
    assert key_and_value == 2 * cross_attention
    assert op_counts(model)["Softmax"] == self_attention + cross_attention


def test_sd15_graph_is_lean() -> None:
    """An exporter writes 4,496 nodes for it."""
    config = UNetConfig.from_json(FULL_CONFIGS["sd1.5"])
    counts = op_counts(build_unet(config, ShapeSource(shapes_of(config)), dtype="fp32"))
    assert counts.total() <= 1_600
    expected = {"Conv": 98, "InstanceNormalization": 61, "LayerNormalization": 48, "Erf": 16}
    assert {op: counts[op] for op in expected} == expected


# Weights that do not fit


def test_missing_and_different_tensors_are_named() -> None:
    config, shapes = small("sd1")
    source = random_source(shapes)
    del source.arrays["conv_in.bias"]
    source.arrays["conv_in.weight"] = np.zeros((16, 9, 3, 3), np.float32)
    source.arrays["conv_norm_out.bias"] = np.zeros(8, np.float32)
    source.arrays["conv_out.bias"] = np.zeros(3, np.float32)
    source.arrays["conv_out.weight"] = np.zeros((4, 16, 3, 3), np.int8)
    error = refusal(config, source)
    assert error.code == "weights-mismatch"
    assert "unet: 5 tensors do not fit" in error.message
    assert "conv_in.weight: expected [16, 4, 3, 3], found [16, 9, 3, 3]" in error.message
    assert "conv_in.bias: expected [16], missing" in error.message
    assert "conv_norm_out.bias: expected [16], found [8]" in error.message
    assert "conv_out" not in error.message
    assert error.message.endswith("and 2 more")
    assert error.hint


def test_a_stored_type_that_holds_no_weights_is_named() -> None:
    config, shapes = small("sd1")
    source = random_source(shapes)
    source.arrays["conv_out.weight"] = np.zeros((4, 16, 3, 3), np.int8)
    error = refusal(config, source)
    assert "1 tensor does not fit" in error.message
    assert "conv_out.weight: expected [4, 16, 3, 3], stored as int8" in error.message


def test_tensors_without_a_place_are_named() -> None:
    config, shapes = small("sd1")
    source = random_source(shapes)
    source.arrays["mid_block.attentions.1.norm.weight"] = np.ones(32, np.float32)
    error = refusal(config, source)
    assert error.code == "weights-unused"
    assert "1 stored tensor has no place" in error.message
    assert "mid_block.attentions.1.norm.weight" in error.message


def test_weights_of_another_model_are_refused_before_anything_is_read() -> None:
    config, _ = small("sd1")
    other, shapes = small("sdxl_base")
    assert other != config
    error = refusal(config, ShapeSource(shapes))
    assert "stored tensors have no place" in error.message


def test_a_weight_beyond_float16_is_refused_when_it_is_written() -> None:
    config, shapes = small("sd1")
    source = random_source(shapes)
    source.arrays["conv_in.bias"][3] = 70_000
    model = build_unet(config, source, dtype="fp16")
    tensor = model.graph.initializers["conv_in.bias"].const_value
    assert tensor is not None
    with pytest.raises(BadCheckpoint, match=r"conv_in\.bias.*65504") as caught:
        tensor.numpy()
    assert caught.value.code == "weights-overflow"


def test_tensors_are_read_when_written_and_not_before(tmp_path: Path) -> None:
    config, shapes = small("sd1")
    reads: list[str] = []

    class Counting(ArraySource):
        def load(self, key: str) -> np.ndarray:
            reads.append(key)
            return super().load(key)

    model = build_unet(config, Counting(random_source(shapes).arrays), dtype="fp32")
    assert reads == []
    path = str(tmp_path / "model.onnx")
    ir.save(model, path, external_data="model.onnx_data", size_threshold_bytes=256)
    assert sorted(reads) == sorted(shapes)
    onnx.checker.check_model(path, full_check=True)
    stored = {tensor.name: tensor for tensor in onnx.load(path).graph.initializer}
    weight = onnx.numpy_helper.to_array(stored["mid_block.attentions.0.proj_in.weight"])
    np.testing.assert_array_equal(
        weight, random_source(shapes).arrays["mid_block.attentions.0.proj_in.weight"]
    )
