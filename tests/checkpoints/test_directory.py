from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ortist.checkpoints.directory import DiffusersDirectory, find_weights
from ortist.errors import BadCheckpoint
from tests.tiny.checkpoint import read_json, write_checkpoint, write_json

UNET_WEIGHTS = "unet/diffusion_pytorch_model.safetensors"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def model(saved: Path, tmp_path: Path) -> Path:
    """A checkpoint to damage."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def test_a_whole_checkpoint(saved: Path) -> None:
    opened = DiffusersDirectory.open(saved)
    assert list(opened.components) == ["text_encoder", "unet", "vae"]
    assert opened.components["unet"].class_name == "UNet2DConditionModel"
    assert opened.components["unet"].config["block_out_channels"] == [16, 32]
    assert opened.tokenizers == {"tokenizer": saved / "tokenizer"}
    assert opened.scheduler["beta_schedule"] == "scaled_linear"
    assert opened.left_out == ()
    names = {path.relative_to(saved).as_posix() for path in opened.files()}
    assert {"model_index.json", UNET_WEIGHTS, "tokenizer/vocab.json"} <= names
    weights = opened.components["unet"].open_weights()
    assert weights.load("conv_in.weight").shape == (16, 4, 3, 3)
    weights.close()


def test_two_text_encoders(tmp_path: Path) -> None:
    opened = DiffusersDirectory.open(write_checkpoint(tmp_path / "m", "sdxl_base"))
    assert list(opened.components) == ["text_encoder", "text_encoder_2", "unet", "vae"]
    assert opened.components["text_encoder_2"].class_name == "CLIPTextModelWithProjection"
    assert list(opened.tokenizers) == ["tokenizer", "tokenizer_2"]


def test_what_is_not_used_is_listed(model: Path) -> None:
    index = read_json(model / "model_index.json")
    index["safety_checker"] = ["stable_diffusion", "StableDiffusionSafetyChecker"]
    index["feature_extractor"] = ["transformers", "CLIPImageProcessor"]
    index["image_encoder"] = ["transformers", "CLIPVisionModelWithProjection"]
    write_json(model / "model_index.json", index)
    write_json(model / "feature_extractor/preprocessor_config.json", {"size": 224})
    opened = DiffusersDirectory.open(model)
    assert opened.left_out == ("safety_checker", "image_encoder")
    assert opened.extras == (model / "feature_extractor/preprocessor_config.json",)


def test_sharded_weights(tmp_path: Path) -> None:
    opened = DiffusersDirectory.open(write_checkpoint(tmp_path / "m", shards=3))
    assert opened.components["unet"].weights.name.endswith(".index.json")
    assert sum(path.name.startswith("diffusion_pytorch_model-") for path in opened.files()) == 3
    weights = opened.components["unet"].open_weights()
    assert weights.load("conv_out.bias").shape == (4,)
    weights.close()


@pytest.mark.parametrize(
    ("present", "variant", "chosen"),
    [
        (["diffusion_pytorch_model.safetensors", "model.safetensors"], None, 0),
        (["diffusion_pytorch_model.fp16.safetensors"], None, 0),
        (
            [
                "diffusion_pytorch_model.fp16.safetensors",
                "diffusion_pytorch_model.safetensors",
                "diffusion_pytorch_model.bin",
            ],
            None,
            1,
        ),
        (["model.fp16.safetensors", "model.safetensors"], "fp16", 0),
        (["model.safetensors", "model.non_ema.safetensors"], "non_ema", 1),
        (["model.safetensors.index.json"], None, 0),
        (["diffusion_pytorch_model.safetensors.index.fp16.json"], None, 0),
        (["model.fp16.safetensors.index.json"], "fp16", 0),
    ],
)
def test_which_weights_are_taken(
    tmp_path: Path, present: list[str], variant: str | None, chosen: int
) -> None:
    for name in present:
        (tmp_path / name).touch()
    assert find_weights(tmp_path, variant).name == present[chosen]


def change_index(key: str, value: object) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        index = read_json(model / "model_index.json")
        if value is None:
            index.pop(key)
        else:
            index[key] = value
        write_json(model / "model_index.json", index)

    return change


def remove(name: str) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        path = model / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def overwrite(name: str, data: bytes) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        (model / name).write_bytes(data)

    return change


def rename(name: str, new: str) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        (model / name).rename(model / new)

    return change


DAMAGES: dict[str, tuple[Callable[[Path], None], str, str]] = {
    # what is done to it: change, code, words of the message
    "no model_index.json": (remove("model_index.json"), "no-model-index", "no model_index.json"),
    "an empty model_index.json": (overwrite("model_index.json", b""), "bad-json", "is empty"),
    "zeros for a model_index.json": (
        overwrite("model_index.json", bytes(100)),
        "bad-json",
        "is empty",
    ),
    "half a model_index.json": (overwrite("model_index.json", b'{"unet": ['), "bad-json", "JSON"),
    "a list for a model_index.json": (overwrite("model_index.json", b"[]"), "bad-json", "list"),
    "no unet named": (change_index("unet", None), "unsupported-pipeline", "names no unet"),
    "a null vae": (change_index("vae", [None, None]), "unsupported-pipeline", "names no vae"),
    "no text encoder": (
        change_index("text_encoder", None),
        "unsupported-pipeline",
        "no text_encoder",
    ),
    "a broken entry": (change_index("unet", ["diffusers"]), "bad-model-index", "['diffusers']"),
    "an entry that leads away": (
        change_index("../unet", ["diffusers", "X"]),
        "bad-model-index",
        "'../unet'",
    ),
    "no unet folder": (remove("unet"), "file-missing", "unet/config.json is missing"),
    "no config": (remove("vae/config.json"), "file-missing", "vae/config.json is missing"),
    "a broken config": (overwrite("vae/config.json", b"{,}"), "bad-json", "vae/config.json"),
    "another class in the config": (
        overwrite("vae/config.json", b'{"_class_name": "VQModel"}'),
        "class-mismatch",
        "VQModel",
    ),
    "no weights": (remove(UNET_WEIGHTS), "weights-missing", "unet has no weights"),
    "pickled weights only": (
        rename(UNET_WEIGHTS, "unet/diffusion_pytorch_model.bin"),
        "weights-pickle",
        "diffusion_pytorch_model.bin",
    ),
    "an unknown variant only": (
        rename(UNET_WEIGHTS, "unet/diffusion_pytorch_model.ema.safetensors"),
        "weights-variant",
        "diffusion_pytorch_model.ema.safetensors",
    ),
    "no scheduler": (remove("scheduler"), "file-missing", "scheduler_config.json is missing"),
    "no tokenizer": (remove("tokenizer"), "tokenizer-missing", "tokenizer is missing"),
    "no tokenizer named": (
        change_index("tokenizer", None),
        "tokenizer-missing",
        "tokenizer is missing",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused_by_name(model: Path, damage: str) -> None:
    change, code, words = DAMAGES[damage]
    change(model)
    with pytest.raises(BadCheckpoint) as caught:
        DiffusersDirectory.open(model)
    assert caught.value.code == code
    assert words in caught.value.message.replace("\\", "/")
    assert str(model) in caught.value.message
    assert caught.value.hint


def test_damaged_weights_are_refused_when_they_are_opened(model: Path) -> None:
    path = model / UNET_WEIGHTS
    path.write_bytes(path.read_bytes()[:-1])
    component = DiffusersDirectory.open(model).components["unet"]
    with pytest.raises(BadCheckpoint, match="cut short"):
        component.open_weights()


def test_a_dangling_link_says_what_is_missing(model: Path) -> None:
    (model / UNET_WEIGHTS).unlink()
    (model / UNET_WEIGHTS).symlink_to(model / "blobs" / "gone")
    component = DiffusersDirectory.open(model).components["unet"]
    with pytest.raises(BadCheckpoint, match="is missing"):
        component.open_weights()


def test_the_wrong_kind_of_path(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint) as caught:
        DiffusersDirectory.open(tmp_path / "none")
    assert caught.value.code == "checkpoint-missing"
    with pytest.raises(BadCheckpoint) as caught:
        DiffusersDirectory.open(saved / UNET_WEIGHTS)
    assert caught.value.code == "single-file"
    with pytest.raises(BadCheckpoint) as caught:
        DiffusersDirectory.open(saved / "unet")
    assert caught.value.code == "no-model-index"


def test_names_of_transformers_5_and_of_old_autoencoders(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "m", text_prefix="")
    weights = DiffusersDirectory.open(model).components["text_encoder"].open_weights()
    assert all(key.startswith("text_model.") for key in weights.keys())  # noqa: SIM118
    layer_norm = weights.load("text_model.final_layer_norm.weight")
    assert layer_norm.shape == weights.shape("text_model.final_layer_norm.weight") == (24,)
    assert weights.dtype("text_model.final_layer_norm.weight") == np.float32
    weights.close()


def test_json_with_a_key_given_twice(model: Path) -> None:
    text = (model / "scheduler/scheduler_config.json").read_text()
    twice = text.rstrip().removesuffix("}") + ', "beta_end": 0.5}'
    (model / "scheduler/scheduler_config.json").write_text(twice)
    with pytest.raises(BadCheckpoint, match="'beta_end' is given twice"):
        DiffusersDirectory.open(model)
