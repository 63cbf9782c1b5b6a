"""CLIP text encoder graphs and configurations, without torch."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

from ortist.errors import BadCheckpoint
from ortist.graphs.clip import build_clip_text_encoder
from ortist.graphs.clip_config import ClipTextConfig
from tests.tiny.clip import CLIP_L, OPENCLIP_BIGG, OPENCLIP_H, clip_config, clip_shapes
from tests.tiny.graphs import checked, dims, op_counts, relative_error, run, session
from tests.tiny.weights import ArraySource, ShapeSource, random_source

PROJECTED = ["CLIPTextModelWithProjection"]


# Configuration


def test_reads_sd1s_own_file() -> None:
    assert ClipTextConfig.from_json(CLIP_L) == ClipTextConfig(
        vocab_size=49408,
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        max_position_embeddings=77,
        hidden_act="quick_gelu",
        layer_norm_eps=1e-5,
        eos_token_id=2,
        projection_dim=None,
    )


def test_projection_follows_the_architecture_and_model_index_outranks_it() -> None:
    assert ClipTextConfig.from_json(OPENCLIP_BIGG).projection_dim == 1280
    plain = ClipTextConfig.from_json(OPENCLIP_BIGG, class_name="CLIPTextModel")
    assert plain.projection_dim is None
    projected = ClipTextConfig.from_json(CLIP_L, class_name="CLIPTextModelWithProjection")
    assert projected.projection_dim == 768


def test_accepts_what_transformers_4_writes_for_every_model() -> None:
    full = {
        **CLIP_L,
        "return_dict": True,
        "output_hidden_states": False,
        "torchscript": False,
        "pruned_heads": {},
        "tie_word_embeddings": True,
        "is_decoder": False,
        "is_encoder_decoder": False,
        "add_cross_attention": False,
        "cross_attention_hidden_size": None,
        "max_length": 20,
        "top_p": 1.0,
        "id2label": {"0": "LABEL_0"},
        "bad_words_ids": None,
        "use_bfloat16": False,
    }
    assert ClipTextConfig.from_json(full) == ClipTextConfig.from_json(CLIP_L)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"model_type": "clip"}, "model_type is 'clip'"),
        ({"architectures": ["CLIPModel"]}, "architectures is ['CLIPModel']"),
        ({"num_attention_heads": 5}, "num_attention_heads is 5"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"eos_token_id": [1, 2]}, "eos_token_id is [1, 2]"),
        ({"eos_token_id": None}, "eos_token_id is None"),
        ({"layer_norm_eps": 0.0}, "layer_norm_eps is 0.0"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"add_cross_attention": True}, "add_cross_attention is True"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads is {'0': [1]}"),
        ({"quantization_config": {"bits": 4}}, "quantization_config = {'bits': 4}"),
        ({"architectures": PROJECTED, "projection_dim": None}, "projection_dim is None"),
    ],
)
def test_refuses_by_key_and_value(change: dict[str, object], named: str) -> None:
    with pytest.raises(BadCheckpoint, match=re.escape(named)) as raised:
        ClipTextConfig.from_json({**CLIP_L, **change}, source="text_encoder_2/config.json")
    assert raised.value.message.startswith("text_encoder_2/config.json: ")


# Graph


@pytest.mark.parametrize(("json", "layers"), [(CLIP_L, 12), (OPENCLIP_H, 23), (OPENCLIP_BIGG, 32)])
def test_full_size_attention_count(json: dict[str, object], layers: int) -> None:
    config = ClipTextConfig.from_json(json)
    model = build_clip_text_encoder(config, ShapeSource(clip_shapes(json)), dtype="fp16")
    counts = op_counts(model)
    assert counts["Softmax"] == layers
    assert counts["LayerNormalization"] == 2 * layers + 1


def test_names_shapes_and_versions_are_optimums() -> None:
    json = clip_config(architectures=PROJECTED)
    config = ClipTextConfig.from_json(json)
    proto = checked(build_clip_text_encoder(config, random_source(clip_shapes(json))))
    assert proto.ir_version == 8
    assert [(o.domain, o.version) for o in proto.opset_import] == [("", 17)]
    assert dims(proto.graph.input) == {"input_ids": ["batch_size", "sequence_length"]}
    assert proto.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.INT64
    states = ["batch_size", "sequence_length", 32]
    assert list(dims(proto.graph.output).items()) == [
        ("text_embeds", ["batch_size", 24]),
        ("last_hidden_state", states),
        ("hidden_states.0", states),
        ("hidden_states.1", states),
        ("hidden_states.2", states),
    ]


def test_plain_encoder_without_hidden_states() -> None:
    json = clip_config()
    config = ClipTextConfig.from_json(json)
    source = random_source(clip_shapes(json))
    proto = checked(build_clip_text_encoder(config, source, hidden_states=False))
    assert list(dims(proto.graph.output)) == ["last_hidden_state", "pooler_output"]


@pytest.mark.parametrize("prefix", ["text_model.", ""])
def test_initialisers_keep_the_keys_of_the_file(prefix: str) -> None:
    json = clip_config()
    source = random_source(clip_shapes(json, prefix))
    proto = checked(build_clip_text_encoder(ClipTextConfig.from_json(json), source))
    names = {tensor.name for tensor in proto.graph.initializer}
    assert set(source.arrays) <= names
    assert all(name.startswith("const/") for name in names - set(source.arrays))


def test_the_prefix_does_not_matter_to_the_numbers() -> None:
    json = clip_config()
    config = ClipTextConfig.from_json(json)
    old = random_source(clip_shapes(json))
    new = ArraySource({key.removeprefix("text_model."): a for key, a in old.arrays.items()})
    ids = np.asarray([[3, 9, 63, 63]])
    results = [run(build_clip_text_encoder(config, s), {"input_ids": ids}) for s in (old, new)]
    for name, values in results[0].items():
        np.testing.assert_array_equal(values, results[1][name])


@pytest.mark.parametrize(
    ("eos", "ids", "position"),
    [
        (2, [5, 61, 9, 61], 1),  # legacy: the first of the highest
        (2, [2, 5, 7, 60], 3),  # legacy: 2 itself means nothing
        (30, [62, 30, 5, 30], 1),  # the first of its kind, though others are higher
        (30, [62, 5, 5, 6], 0),  # none: the first position, as the reference has it
    ],
)
def test_pooling_takes_the_end_token(eos: int, ids: list[int], position: int) -> None:
    json = clip_config(eos_token_id=eos)
    config = ClipTextConfig.from_json(json)
    graph = build_clip_text_encoder(config, random_source(clip_shapes(json)))
    found = run(graph, {"input_ids": np.asarray([ids])})
    np.testing.assert_array_equal(
        found["pooler_output"][0], found["last_hidden_state"][0, position]
    )


def test_later_tokens_do_not_reach_earlier_ones() -> None:
    json = clip_config()
    config = ClipTextConfig.from_json(json)
    graph = session(build_clip_text_encoder(config, random_source(clip_shapes(json))))
    first = graph.run_all({"input_ids": np.asarray([[1, 2, 3, 63]])})["last_hidden_state"]
    other = graph.run_all({"input_ids": np.asarray([[1, 2, 9, 63]])})["last_hidden_state"]
    np.testing.assert_allclose(first[:, :2], other[:, :2], rtol=0, atol=1e-6)
    assert np.abs(first[:, 2:] - other[:, 2:]).min(axis=-1).max() > 0


@pytest.mark.parametrize("act", ["gelu", "quick_gelu"])
def test_half_precision_is_close(act: str) -> None:
    json = clip_config(hidden_act=act, architectures=PROJECTED)
    config, source = ClipTextConfig.from_json(json), random_source(clip_shapes(json))
    ids = np.random.default_rng(0).integers(0, 64, (2, 20))
    exact = run(build_clip_text_encoder(config, source, dtype="fp32"), {"input_ids": ids})
    half = run(build_clip_text_encoder(config, source, dtype="fp16"), {"input_ids": ids})
    for name, values in exact.items():
        assert half[name].dtype == np.float16
        assert relative_error(half[name], values) < 1e-2


# Weights that do not fit


def test_missing_and_wrong_tensors_are_named_with_shapes() -> None:
    json = clip_config()
    shapes = clip_shapes(json)
    shapes["text_model.final_layer_norm.bias"] = (31,)
    del shapes["text_model.encoder.layers.1.mlp.fc2.weight"]
    with pytest.raises(BadCheckpoint) as raised:
        build_clip_text_encoder(
            ClipTextConfig.from_json(json), ShapeSource(shapes), name="text_encoder_2"
        )
    assert raised.value.code == "weights-mismatch"
    message = raised.value.message
    assert message.startswith("text_encoder_2: 2 tensors do not fit")
    assert "text_model.encoder.layers.1.mlp.fc2.weight: expected [32, 48], missing" in message
    assert "text_model.final_layer_norm.bias: expected [32], found [31]" in message


def test_more_layers_than_the_config_says() -> None:
    shapes = clip_shapes(clip_config(num_hidden_layers=3))
    with pytest.raises(BadCheckpoint, match=r"encoder\.layers\.2") as raised:
        build_clip_text_encoder(ClipTextConfig.from_json(clip_config()), ShapeSource(shapes))
    assert raised.value.code == "weights-unused"


def test_position_buffer_and_unused_projection_are_no_fault() -> None:
    json = clip_config()
    source = random_source(clip_shapes(json))
    source.arrays["text_model.embeddings.position_ids"] = np.arange(20)[None]
    source.arrays["text_projection.weight"] = np.zeros((24, 32), np.float32)
    proto = checked(build_clip_text_encoder(ClipTextConfig.from_json(json), source))
    assert "text_projection.weight" not in {t.name for t in proto.graph.initializer}
