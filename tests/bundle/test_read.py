from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from ortist.bundle.read import Bundle, looks_like_bundle
from ortist.bundle.write import convert
from ortist.errors import BadBundle
from ortist.families.registry import find_family
from tests.tiny.checkpoint import read_json, write_checkpoint, write_json


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    return convert(write_checkpoint(folder / "model"), folder / "bundle").path


@pytest.fixture
def bundle(saved: Path, tmp_path: Path) -> Path:
    """A bundle to damage."""
    return Path(shutil.copytree(saved, tmp_path / "bundle"))


@pytest.fixture
def foreign(bundle: Path) -> Path:
    """A bundle as another tool would have made it: no manifest."""
    (bundle / "ortist.json").unlink()
    return bundle


def test_what_a_bundle_says_of_its_model(saved: Path) -> None:
    opened = Bundle.open(saved)
    facts = opened.facts
    assert facts.components == {"text_encoder", "unet", "vae_encoder", "vae_decoder"}
    assert facts.denoiser_inputs == {"sample", "timestep", "encoder_hidden_states"}
    assert (facts.in_channels, facts.latent_channels, facts.scale) == (4, 4, 8)
    assert facts.sample_size == (8, 8)
    assert (facts.scaling_factor, facts.shift_factor) == (0.18215, 0.0)
    assert facts.context_widths == {"text_encoder": 24}
    assert facts.encoder_layers == {"text_encoder": 3}
    assert (facts.guidance_width, facts.time_ids_width, facts.zero_negative) == (None, None, False)
    assert find_family(facts).name == "sd"
    assert opened.scheduler["prediction_type"] == "epsilon"
    assert opened.tokenizers == {"tokenizer": saved / "tokenizer"}
    assert opened.graph_paths["unet"] == saved / "unet" / "model.onnx"
    assert (opened.name, opened.dtype, opened.notes) == ("model", "fp32", ())
    assert opened.with_note("a note").notes == ("a note",)


def test_sdxl(tmp_path: Path) -> None:
    bundle = convert(write_checkpoint(tmp_path / "m", "lcm_sdxl"), tmp_path / "out")
    facts = bundle.facts
    assert facts.denoiser_inputs >= {"text_embeds", "time_ids", "timestep_cond"}
    assert (facts.guidance_width, facts.time_ids_width, facts.zero_negative) == (12, 6, True)
    assert facts.context_widths == {"text_encoder": 8, "text_encoder_2": 16}
    assert list(bundle.tokenizers) == ["tokenizer", "tokenizer_2"]
    assert find_family(facts).name == "sdxl"


def test_a_bundle_without_our_manifest(saved: Path, foreign: Path) -> None:
    opened = Bundle.open(foreign)
    assert opened.manifest is None
    assert (opened.name, opened.dtype) == ("bundle", "fp32")
    assert opened.facts == Bundle.open(saved).facts
    before = opened.content_hash
    data = foreign / "unet/model.onnx_data"
    data.write_bytes(data.read_bytes()[:-1] + b"\1")
    assert Bundle.open(foreign).content_hash != before


def test_recommended_settings(bundle: Path) -> None:
    (bundle / "ortist.json").unlink()
    index = read_json(bundle / "model_index.json")
    recommended = {"num_inference_steps": 12, "guidance_scale": 4.5, "sampler": "Euler"}
    write_json(bundle / "model_index.json", index | {"_ortist_defaults": recommended})
    assert Bundle.open(bundle).facts.defaults == recommended
    for wrong in ({"steps": 1}, {"guidance_scale": "2"}, {"num_inference_steps": True}, [1]):
        write_json(bundle / "model_index.json", index | {"_ortist_defaults": wrong})
        with pytest.raises(BadBundle, match="_ortist_defaults"):
            Bundle.open(bundle)


def test_telling_bundles_from_checkpoints(saved: Path, tmp_path: Path) -> None:
    assert looks_like_bundle(saved)
    assert not looks_like_bundle(saved.parent / "model")
    assert not looks_like_bundle(tmp_path / "none")


def remove(name: str) -> Callable[[Path], None]:
    def change(bundle: Path) -> None:
        path = bundle / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def cut(name: str, count: int = 1) -> Callable[[Path], None]:
    def change(bundle: Path) -> None:
        path = bundle / name
        path.write_bytes(path.read_bytes()[:-count])

    return change


def overwrite(name: str, data: bytes) -> Callable[[Path], None]:
    def change(bundle: Path) -> None:
        (bundle / name).write_bytes(data)

    return change


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no model_index.json": (remove("model_index.json"), "model_index.json is missing"),
    "no unet": (remove("unet"), "unet"),
    "no graph": (remove("vae_decoder/model.onnx"), "vae_decoder/model.onnx is missing"),
    "no weights": (remove("unet/model.onnx_data"), "unet/model.onnx_data is missing"),
    "weights cut short": (cut("unet/model.onnx_data"), "unet/model.onnx_data has"),
    "no config": (remove("unet/config.json"), "unet/config.json is missing"),
    "a broken config": (overwrite("unet/config.json", b"{"), "unet/config.json"),
    "no scheduler": (remove("scheduler"), "scheduler_config.json is missing"),
    "no tokenizer": (remove("tokenizer"), "tokenizer"),
    "no text encoder": (remove("text_encoder"), "text_encoder"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("has_manifest", [True, False])
def test_damage_is_named(bundle: Path, damage: str, has_manifest: bool) -> None:
    change, words = DAMAGES[damage]
    change(bundle)
    if not has_manifest:
        (bundle / "ortist.json").unlink()
    with pytest.raises(BadBundle) as caught:
        Bundle.open(bundle)
    assert words in caught.value.message.replace("\\", "/")
    assert caught.value.hint
    assert "\n" not in caught.value.message


def test_a_file_that_changed_size_is_found_by_the_manifest(bundle: Path) -> None:
    with (bundle / "tokenizer/merges.txt").open("a") as file:
        file.write("x y\n")
    with pytest.raises(BadBundle, match=r"merges\.txt has"):
        Bundle.open(bundle)


def test_a_path_that_is_no_directory(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(BadBundle, match="does not exist"):
        Bundle.open(tmp_path / "none")
    with pytest.raises(BadBundle, match="is a file"):
        Bundle.open(saved / "ortist.json")


@pytest.mark.parametrize("location", ["../model.onnx_data", "/etc/passwd", "a/b", "", ".."])
def test_weights_outside_the_graphs_folder_are_refused(foreign: Path, location: str) -> None:
    path = foreign / "unet/model.onnx"
    proto = onnx.load(path, load_external_data=False)
    for tensor in proto.graph.initializer:
        for item in tensor.external_data:
            if item.key == "location":
                item.value = location
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(BadBundle) as caught:
        Bundle.open(foreign)
    assert caught.value.code == "external-data"


def rename_tensor(path: Path, old: str, new: str) -> None:
    proto = onnx.load(path, load_external_data=False)
    for value in (*proto.graph.input, *proto.graph.output):
        if value.name == old:
            value.name = new
    path.write_bytes(proto.SerializeToString())


@pytest.mark.parametrize(
    ("role", "old", "new"),
    [
        ("unet", "out_sample", "latent"),
        ("unet", "encoder_hidden_states", "context"),
        ("vae_decoder", "latent_sample", "latent"),
        ("vae_decoder", "sample", "images"),
        ("text_encoder", "last_hidden_state", "text_embeddings"),
    ],
)
def test_another_dialect_is_named_by_what_was_found(
    foreign: Path, role: str, old: str, new: str
) -> None:
    rename_tensor(foreign / role / "model.onnx", old, new)
    with pytest.raises(BadBundle) as caught:
        Bundle.open(foreign)
    assert caught.value.code == "unknown-dialect"
    assert role in caught.value.message
    assert repr(old) in caught.value.message
    assert new in caught.value.message


@pytest.mark.parametrize(
    ("role", "key", "value"),
    [
        ("vae_decoder", "block_out_channels", None),
        ("vae_decoder", "block_out_channels", []),
        ("vae_decoder", "scaling_factor", "big"),
        ("text_encoder", "hidden_size", 0),
        ("text_encoder", "num_hidden_layers", True),
        ("unet", "sample_size", [8]),
        ("unet", "sample_size", -8),
    ],
)
def test_a_config_value_that_makes_no_sense_is_named(
    foreign: Path, role: str, key: str, value: object
) -> None:
    path = foreign / role / "config.json"
    config = json.loads(path.read_text()) | {key: value}
    path.write_text(json.dumps(config))
    with pytest.raises(BadBundle) as caught:
        Bundle.open(foreign)
    assert key in caught.value.message
    assert f"{role}/config.json" in caught.value.message.replace("\\", "/")


def test_defaults_that_a_config_leaves_out(foreign: Path) -> None:
    for role in ("vae_decoder", "unet"):
        path = foreign / role / "config.json"
        config = json.loads(path.read_text())
        for key in ("scaling_factor", "shift_factor", "sample_size"):
            config.pop(key, None)
        path.write_text(json.dumps(config))
    facts = Bundle.open(foreign).facts
    assert facts.scaling_factor == 0.18215
    assert facts.sample_size is None
