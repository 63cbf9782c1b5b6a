from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ortist.checkpoints.detect import detect
from ortist.checkpoints.detected import Detected
from ortist.checkpoints.layouts_vae import vae_key_map
from ortist.checkpoints.shipped import (
    shipped_config,
    shipped_models,
    text_map,
    tiny_maps,
    unet_map,
    vae_map,
)
from ortist.errors import BadCheckpoint
from ortist.graphs.vae_config import VaeConfig
from tests.tiny.single_file import UNET, VAE, prefixed, single_file_shapes, text_shapes
from tests.tiny.vae import vae_config
from tests.tiny.weights import Shapes

MODELS = shipped_models()
SD2_TWINS = {"sd2": ("sd2", "sd2-base"), "sd2-base": ("sd2", "sd2-base")}


def layouts(found: Detected) -> dict[str, str]:
    return {part.component: part.layout for part in found.components}


@pytest.mark.parametrize("name", MODELS)
def test_whole_files(name: str) -> None:
    shapes = single_file_shapes(name)
    found = detect(shapes)
    model = MODELS[name]
    assert found.kind == "checkpoint"
    assert found.models == SD2_TWINS.get(name, (name,))
    assert found.family == model.family
    assert found.in_channels == shipped_config("unet", model.unet)["in_channels"]
    assert found.context_width == shipped_config("unet", model.unet)["cross_attention_dim"]
    assert {part.component for part in found.components} == {"unet", "vae", *model.text_encoders}
    for part in found.components:
        if part.component == "vae":
            assert part.configs == (model.vae,)
        elif part.component != "unet":
            assert part.configs == (model.text_encoders[part.component],)
        moves = part.moves()
        assert moves is not None
        assert {part.prefix + key for move in moves.values() for key in move.sources} <= set(shapes)
    used = sum(len(part.key_map().ties) for part in found.components)
    assert used + sum(left.count for left in found.left) == len(shapes)
    assert not any("part of no component" in left.why for left in found.left)
    assert not any("has no" in note for note in found.notes)


def test_stable_diffusion_1_in_words() -> None:
    found = detect(single_file_shapes("sd1"))
    assert layouts(found) == {"unet": "single", "vae": "single", "text_encoder": "clip"}
    assert (found.prediction_type, found.prediction_told) == ("epsilon", False)
    assert [(left.count, left.example) for left in found.left] == [
        (1, "cond_stage_model.transformer.text_model.embeddings.position_ids")
    ]
    assert "Nothing in it states the prediction type; epsilon is usual." in found.notes
    assert any("Turbo, Lightning, Hyper" in note for note in found.notes)


def test_early_merges_leave_text_model_out_of_their_names() -> None:
    found = detect(single_file_shapes("sd1", bare=True))
    assert layouts(found)["text_encoder"] == "clip-bare"
    part = next(part for part in found.components if part.component == "text_encoder")
    moves = part.moves() or {}
    move = moves["text_model.encoder.layers.0.mlp.fc1.bias"]
    assert move.sources == ("encoder.layers.0.mlp.fc1.bias",)


def test_stable_diffusion_2_does_not_tell_what_it_predicts() -> None:
    found = detect(single_file_shapes("sd2"))
    assert layouts(found)["text_encoder"] == "open-clip"
    assert (found.prediction_type, found.prediction_told) == (None, False)
    assert any("--prediction-type" in note for note in found.notes)
    with pytest.raises(BadCheckpoint, match=r"may be Stable Diffusion 2\.x at 768 or") as caught:
        found.model()
    assert caught.value.code == "prediction-unknown"
    assert found.model("v_prediction").name == "sd2"
    assert found.model("epsilon").name == "sd2-base"
    assert found.scheduler_config("epsilon")["prediction_type"] == "epsilon"
    assert sum(left.count for left in found.left) == 12 + 2
    assert any("last layer" in left.why and left.count == 12 for left in found.left)


# (model, marker tensors, metadata) -> (model, prediction, told, zero terminal SNR)
TOLD = [
    ("sd2", ["v_pred"], {}, ("sd2", "v_prediction", True, False)),
    ("sd1", ["v_pred"], {}, ("sd1", "v_prediction", True, False)),
    ("sd1", ["v_pred", "ztsnr"], {}, ("sd1", "v_prediction", True, True)),
    ("sdxl", ["v_pred", "ztsnr"], {}, ("sdxl", "v_prediction", True, True)),
    ("sdxl", ["ztsnr"], {}, ("sdxl", "epsilon", False, False)),
    ("sd2", [], {"modelspec.prediction_type": "v"}, ("sd2", "v_prediction", True, False)),
    ("sd2", [], {"modelspec.prediction_type": "epsilon"}, ("sd2-base", "epsilon", True, False)),
    ("sd2", ["v_pred"], {"modelspec.prediction_type": "epsilon"}, ("sd2", "v_prediction", 1, 0)),
    ("sdxl", ["ztsnr"], {"modelspec.prediction_type": "v"}, ("sdxl", "v_prediction", 1, 1)),
    ("sd1", [], {"modelspec.prediction_type": "magic"}, ("sd1", "epsilon", False, False)),
]


@pytest.mark.parametrize(("name", "markers", "metadata", "expected"), TOLD)
def test_what_the_file_tells_of_its_prediction(
    name: str, markers: list[str], metadata: dict[str, str], expected: tuple[str, str, bool, bool]
) -> None:
    shapes = single_file_shapes(name) | dict.fromkeys(markers, ())
    found = detect(shapes, metadata=metadata)
    model, prediction, told, zero_snr = expected
    assert found.model().name == model
    assert (found.prediction_type, found.prediction_told) == (prediction, told)
    assert found.zero_terminal_snr == zero_snr
    assert not any(left.example in markers for left in found.left)
    assert all(any(marker in note for note in found.notes) for marker in markers)
    assert all(any(repr(value) in note for note in found.notes) for value in metadata.values())
    config = found.scheduler_config()
    assert config["prediction_type"] == prediction
    assert config.get("rescale_betas_zero_snr", False) == zero_snr
    assert (config["timestep_spacing"] == "trailing") == zero_snr
    assert not (zero_snr and config["_class_name"] == "PNDMScheduler")


def test_the_caller_outranks_the_file() -> None:
    found = detect(single_file_shapes("sdxl") | {"v_pred": (), "ztsnr": ()})
    config = found.scheduler_config("epsilon")
    assert config["prediction_type"] == "epsilon"
    assert "rescale_betas_zero_snr" not in config


def tiny_shapes(side: int) -> Shapes:
    return tiny_maps()[side].single_shapes()


def old_vae() -> Shapes:
    """diffusers before 0.17."""
    shapes = vae_map("sd").diffusers_shapes()
    names = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    for new, old in names.items():
        shapes = {
            name.replace(f".attentions.0.{new}.", f".attentions.0.{old}."): shape
            for name, shape in shapes.items()
        }
    return shapes


SD1_CONTROL = {
    "input_hint_block.0.weight": (16, 3, 3, 3),
    "input_blocks.0.0.weight": (320, 4, 3, 3),
    "input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight": (320, 768),
    "zero_convs.0.0.weight": (320, 320, 1, 1),
}
LONE: list[tuple[str, Shapes, str, tuple[str, ...], dict[str, str]]] = [
    (
        "UNet in the file's layout",
        prefixed(unet_map("sd1").single_shapes(), UNET),
        "unet",
        ("sd1",),
        {"unet": "single"},
    ),
    (
        "UNet without prefix",
        unet_map("sdxl").single_shapes(),
        "unet",
        ("sdxl",),
        {"unet": "single"},
    ),
    (
        "UNet of diffusers",
        unet_map("sdxl-refiner").diffusers_shapes(),
        "unet",
        ("sdxl-refiner",),
        {"unet": "diffusers"},
    ),
    ("VAE without prefix", vae_map("sd").single_shapes(), "vae", (), {"vae": "single"}),
    (
        "VAE with a loss",
        vae_map("sd").single_shapes() | {"loss.logvar": (), "model_ema.num_updates": ()},
        "vae",
        (),
        {"vae": "single"},
    ),
    (
        "VAE with prefix",
        prefixed(vae_map("sd").single_shapes(), VAE),
        "vae",
        (),
        {"vae": "single"},
    ),
    ("VAE of diffusers", vae_map("sd").diffusers_shapes(), "vae", (), {"vae": "diffusers"}),
    ("VAE of old diffusers", old_vae(), "vae", (), {"vae": "diffusers"}),
    ("TAESD encoder", tiny_shapes(0), "tiny_vae", (), {"tiny_vae_encoder": "single"}),
    ("TAESD decoder", tiny_shapes(1), "tiny_vae", (), {"tiny_vae_decoder": "single"}),
    (
        "TAESD of diffusers",
        tiny_maps()[0].diffusers_shapes() | tiny_maps()[1].diffusers_shapes(),
        "tiny_vae",
        (),
        {"tiny_vae_encoder": "diffusers", "tiny_vae_decoder": "diffusers"},
    ),
    (
        "ControlNet",
        prefixed(SD1_CONTROL, "control_model."),
        "controlnet",
        (),
        {"controlnet": "single"},
    ),
    ("ControlNet without prefix", SD1_CONTROL, "controlnet", (), {"controlnet": "single"}),
    (
        "ControlNet of diffusers",
        {
            "controlnet_cond_embedding.conv_in.weight": (16, 3, 3, 3),
            "conv_in.weight": (320, 4, 3, 3),
            "down_blocks.0.resnets.0.time_emb_proj.weight": (320, 1280),
            "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.weight": (320, 768),
        },
        "controlnet",
        (),
        {"controlnet": "diffusers"},
    ),
]


@pytest.mark.parametrize(
    ("shapes", "kind", "models", "expected"), [c[1:] for c in LONE], ids=[c[0] for c in LONE]
)
def test_lone_components(
    shapes: Shapes, kind: str, models: tuple[str, ...], expected: dict[str, str]
) -> None:
    found = detect(shapes)
    assert (found.kind, found.models, layouts(found)) == (kind, models, expected)
    if kind == "controlnet":
        assert (found.in_channels, found.context_width) == (4, 768)
        with pytest.raises(BadCheckpoint, match="no key map of a controlnet yet"):
            found.components[0].key_map()
        return
    for part in found.components:
        assert part.configs
        assert (part.moves() is None) == (part.layout == "diffusers")
    if not models:
        assert found.prediction_type is None
        assert any("cannot be told" in note or "cannot tell" in note for note in found.notes)
        with pytest.raises(BadCheckpoint, match="no UNet"):
            found.model()
    takes_pictures = {"vae", "tiny_vae_encoder"} & set(expected)
    assert found.in_channels == (3 if takes_pictures else 4)


def test_missing_components_are_named() -> None:
    shapes = single_file_shapes("sdxl")
    found = detect({name: s for name, s in shapes.items() if not name.startswith(VAE)})
    assert any(note.startswith("It has no vae:") for note in found.notes)


def test_what_is_left_over_is_counted_with_its_reason() -> None:
    extra: Shapes = {
        "model_ema.diffusion_modelinput_blocks00weight": (320, 4, 3, 3),
        "model_ema.decay": (),
        "alphas_cumprod": (1000,),
        "optimizer_states.0": (3,),
        "lora_unet_x.lora_down.weight": (4, 320),
        "something.else": (1,),
        f"{UNET}input_blocks.1.1.lora_A.weight": (4, 320),
    }
    found = detect(single_file_shapes("sd1") | extra)
    reasons = {left.example: (left.count, left.why) for left in found.left}
    assert reasons["model_ema.diffusion_modelinput_blocks00weight"][0] == 2
    assert "moving averages" in reasons["model_ema.diffusion_modelinput_blocks00weight"][1]
    assert "noise schedule" in reasons["alphas_cumprod"][1]
    assert "training program" in reasons["optimizer_states.0"][1]
    assert "no component" in reasons["something.else"][1]
    assert reasons[f"{UNET}input_blocks.1.1.lora_A.weight"][0] == 2
    assert sum(left.count for left in found.left) == len(extra) + 1


def changed(name: str, change: Shapes, *drop: str) -> Shapes:
    return {k: v for k, v in (single_file_shapes(name) | change).items() if k not in drop}


UPSCALER = changed("sd2", {f"{UNET}input_blocks.0.0.weight": (256, 7, 3, 3)})
DEPTH = changed("sd2", {f"{UNET}input_blocks.0.0.weight": (320, 5, 3, 3)})
REFUSED = [
    ({}, "holds no tensors", "unknown-checkpoint"),
    ({"a.b": (1,), "a.c": (2,), "d": ()}, r"holds 3 tensors: a \(2\), d \(1\)", None),
    ({"lora_unet_down.lora_down.weight": (4, 320)}, "looks like a LoRA", "unknown-checkpoint"),
    ({"lora_te1_x.alpha": ()}, "looks like a LoRA", "unknown-checkpoint"),
    ({"x.lora_A.weight": (4, 4)}, "looks like a LoRA", "unknown-checkpoint"),
    ({"emb_params": (1, 768)}, "looks like a textual inversion", "unknown-checkpoint"),
    ({"clip_g": (1, 1280), "clip_l": (1, 768)}, "looks like a textual inversion", None),
    (text_shapes("sd1"), r"a text or image encoder alone.*197 tensors", "unknown-checkpoint"),
    ({f"{UNET}joint_blocks.0.x": (1,)}, "is a Stable Diffusion 3 model", "unsupported-model"),
    ({"double_blocks.0.img_attn.proj.weight": (3,)}, "is a Flux model", "unsupported-model"),
    ({"transformer_blocks.0.attn1.to_q.weight": (3,)}, "is a diffusion transformer", None),
    (changed("sdxl", {"edm_mean": (4,)}), "is an EDM model", "unsupported-model"),
    (UPSCALER, "takes 7 channels: it is the x4 upscaler", "unsupported-model"),
    (DEPTH, "takes 5 channels: it is the depth-guided model", "unsupported-model"),
    (
        changed("sd1", {}, f"{UNET}out.2.bias"),
        r"its unet \(685 tensors\) fits no known model; .* nearest, sd1, .* "
        r"1 missing \(model.diffusion_model.out.2.bias\)",
        "unknown-component",
    ),
    (
        changed("sd1", {f"{UNET}input_blocks.0.0.weight": (320, 6, 3, 3)}),
        r"1 of another shape \(model.diffusion_model.input_blocks.0.0.weight \[320, 6, 3, 3\]\)",
        "unknown-component",
    ),
    (
        changed("ssd-1b", {f"{UNET}middle_block.1.norm.weight": (1280,)}),
        r"nearest, ssd-1b, .* 1 more \(model.diffusion_model.middle_block.1.norm.weight",
        "unknown-component",
    ),
    (
        prefixed(vae_key_map(VaeConfig.from_json(vae_config([8, 16]))).single_shapes(), VAE),
        "its vae .* fits no known model",
        "unknown-component",
    ),
    (
        single_file_shapes("sd1")
        | text_map("clip-l", open_clip=False).single_shapes()
        | prefixed(
            text_map("openclip-h", open_clip=True).single_shapes(), "cond_stage_model.model."
        ),
        "holds its text_encoder more than once: under cond_stage_model.transformer. and",
        "component-twice",
    ),
    (
        prefixed(unet_map("sd1").single_shapes(), UNET) | text_shapes("sd2"),
        "UNet is that of Stable Diffusion 1.x, whose text_encoder is clip-l, but .* openclip-h",
        "mixed-components",
    ),
    (
        prefixed(unet_map("sd1").single_shapes(), UNET) | text_shapes("sdxl"),
        "whose text_encoder_2 is absent, but the file's is openclip-bigg",
        "mixed-components",
    ),
]


@pytest.mark.parametrize(("shapes", "message", "code"), REFUSED)
def test_anything_else_is_refused_with_what_was_seen(
    shapes: Shapes, message: str, code: str | None
) -> None:
    with pytest.raises(BadCheckpoint, match=message) as caught:
        detect(shapes, source="x.safetensors")
    assert caught.value.message.startswith("x.safetensors")
    if code is not None:
        assert caught.value.code == code


@pytest.mark.parametrize("shape", [(512, 512), (512, 512, 1)])
def test_the_autoencoders_attention_may_be_stored_as_matrices(shape: tuple[int, ...]) -> None:
    shapes = vae_map("sd").single_shapes() | {"encoder.mid.attn_1.q.weight": shape}
    assert detect(shapes).kind == "vae"


SD1 = single_file_shapes("sd1")
NAMES = sorted(SD1)


@settings(max_examples=15)
@given(st.sampled_from(NAMES), st.lists(st.integers(0, 2000), max_size=5))
def test_no_tensor_may_have_another_shape(name: str, shape: list[int]) -> None:
    shapes = SD1
    if "attn_1" in name or name.endswith("position_ids") or shapes[name] == tuple(shape):
        return
    with pytest.raises(BadCheckpoint):
        detect(shapes | {name: tuple(shape)})


@given(st.dictionaries(st.text(max_size=30) | st.sampled_from(NAMES), st.just(()), max_size=20))
def test_any_list_of_names_is_answered_or_refused(shapes: Shapes) -> None:
    with pytest.raises(BadCheckpoint):
        detect(shapes)
