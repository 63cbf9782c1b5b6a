from __future__ import annotations

import errno
import hashlib
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file, save_file

from ortist.bundle import atomic, write
from ortist.bundle.read import Bundle
from ortist.bundle.verify import check_graph
from ortist.bundle.write import convert
from ortist.errors import BadCheckpoint, OrtistError, OutputFailed
from ortist.events import Event, StageAdvanced, StageDone, StageStarted
from tests.tiny.checkpoint import read_json, write_checkpoint, write_json

UNET = "unet/diffusion_pytorch_model.safetensors"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def model(saved: Path, tmp_path: Path) -> Path:
    """A checkpoint to damage."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def initializers(folder: Path) -> dict[str, np.ndarray]:
    """The graph's tensors as another program sees them."""
    proto = onnx.load(folder / "model.onnx")
    return {
        tensor.name: onnx.numpy_helper.to_array(tensor, str(folder))
        for tensor in proto.graph.initializer
    }


def test_the_layout(saved: Path, tmp_path: Path) -> None:
    convert(saved, tmp_path / "out")
    out = tmp_path / "out"
    found = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    graphs = ("text_encoder", "unet", "vae_encoder", "vae_decoder")
    assert found == {
        "model_index.json",
        "ortist.json",
        "scheduler/scheduler_config.json",
        *(f"tokenizer/{path.name}" for path in (saved / "tokenizer").iterdir()),
        *(f"{g}/{f}" for g in graphs for f in ("model.onnx", "model.onnx_data", "config.json")),
    }
    assert names(tmp_path) == ["out"]
    index = read_json(out / "model_index.json")
    assert index == read_json(saved / "model_index.json")
    for name in ("vae_encoder", "vae_decoder"):
        config = read_json(out / name / "config.json")
        # Readers of bundles look for these; the checkpoint may leave them out.
        assert config["scaling_factor"] == 0.18215
        assert config["block_out_channels"] == [8, 16, 16, 16]
    assert "time_cond_proj_dim" in read_json(out / "unet" / "config.json")
    assert read_json(out / "text_encoder" / "config.json")["num_hidden_layers"] == 3


@pytest.mark.parametrize("kind", ["sd1", "sdxl_base"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_graphs_pass_the_checker_and_hold_the_weights(
    tmp_path: Path, kind: str, dtype: str
) -> None:
    source = write_checkpoint(tmp_path / "model", kind)
    bundle = convert(source, tmp_path / "out", dtype="fp32" if dtype == "fp32" else "fp16")
    kept = np.float32 if dtype == "fp32" else np.float16
    for role, entry in bundle.graphs.items():
        check_graph(entry.path.parent)
        component = "vae" if role.startswith("vae") else role
        (file,) = (source / component).glob("*.safetensors")
        stored = load_file(file)
        found = initializers(entry.path.parent)
        weights = {name for name in found if name in stored}
        assert weights, role
        for name in weights:
            expected = stored[name].astype(kept)
            if found[name].shape != expected.shape:  # laid out for a MatMul or to broadcast
                expected = expected.T if expected.ndim == 2 else expected.reshape(-1, 1, 1)
            elif expected.ndim == 2 and not np.array_equal(found[name], expected):
                expected = expected.T
            np.testing.assert_array_equal(found[name], expected)
        assert found.keys() - weights == {n for n in found if n.startswith("const/")}
        external = {tensor.name for tensor in entry.facts.external}
        assert external == weights
        assert (entry.facts.opset, entry.facts.ir_version, entry.facts.domains) == (17, 8, ())


def test_offsets_are_aligned_and_do_not_overlap(saved: Path, tmp_path: Path) -> None:
    bundle = convert(saved, tmp_path / "out")
    for entry in bundle.graphs.values():
        end = 0
        for tensor in entry.facts.external:
            assert tensor.location == "model.onnx_data"
            assert tensor.offset >= end
            assert tensor.length is not None
            assert tensor.offset % (4096 if tensor.length >= 65536 else 64) == 0
            end = tensor.offset + tensor.length
        assert entry.path.with_name("model.onnx_data").stat().st_size == end


def test_the_manifest(saved: Path, tmp_path: Path) -> None:
    bundle = convert(saved, tmp_path / "out", check=True)
    manifest = bundle.manifest
    assert manifest is not None
    assert manifest.source == "model"
    assert manifest.dtype == bundle.dtype == "fp32"
    assert manifest.verification == {"onnx_checker": "passed"}
    assert set(manifest.versions) == {"ortist", "onnx", "onnx_ir"}
    assert manifest.model["denoiser_inputs"] == ["encoder_hidden_states", "sample", "timestep"]
    for name, entry in manifest.files.items():
        data = (tmp_path / "out" / name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (entry.size, entry.sha256)
    here = {p.relative_to(bundle.path).as_posix() for p in bundle.path.rglob("*") if p.is_file()}
    assert here == {*manifest.files, "ortist.json"}


def test_the_same_checkpoint_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    first = convert(saved, tmp_path / "one")
    second = convert(saved, tmp_path / "two")
    assert first.manifest == second.manifest


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_weights_are_cast_on_the_way(tmp_path: Path, dtype: str) -> None:
    source = write_checkpoint(tmp_path / "model", dtype=dtype)
    bundle = convert(source, tmp_path / "out")
    found = initializers(bundle.graphs["unet"].path.parent)["conv_in.weight"]
    stored = load_file(source / UNET)["conv_in.weight"]
    assert stored.dtype == dtype
    np.testing.assert_array_equal(found, stored.astype(np.float32))


def test_sharded_tiny_vae_and_the_names_of_transformers_5(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "m", tiny_vae=True, shards=3, text_prefix="")
    bundle = convert(source, tmp_path / "out")
    assert bundle.facts.scaling_factor == 1.0
    assert bundle.facts.scale == 8
    text = {tensor.name for tensor in bundle.graphs["text_encoder"].facts.external}
    assert all(name.startswith("text_model.") for name in text)


def test_progress_is_told_in_bytes(saved: Path, tmp_path: Path) -> None:
    events: list[Event] = []
    convert(saved, tmp_path / "out", on_event=events.append)
    first, *steps, last = events
    assert isinstance(first, StageStarted)
    assert isinstance(last, StageDone)
    done = [step.done for step in steps if isinstance(step, StageAdvanced)]
    assert len(done) == len(steps) > 10
    assert done == sorted(done)
    assert done[-1] == first.total
    assert all(step.total == first.total for step in steps if isinstance(step, StageAdvanced))


def test_a_component_that_is_left_out_is_recorded(model: Path, tmp_path: Path) -> None:
    index = read_json(model / "model_index.json")
    index["safety_checker"] = ["stable_diffusion", "StableDiffusionSafetyChecker"]
    write_json(model / "model_index.json", index)
    bundle = convert(model, tmp_path / "out")
    assert bundle.manifest is not None
    assert bundle.manifest.left_out == ("safety_checker",)
    assert bundle.index["safety_checker"] == [None, None]


# What goes wrong


def refuses(source: Path, out: Path, error: type[OrtistError]) -> OrtistError:
    """Convert, expect `error`, and that nothing is left behind."""
    before = names(out.parent)
    with pytest.raises(error) as caught:
        convert(source, out)
    assert names(out.parent) == before
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value


def drop(model: Path, count: int) -> None:
    tensors = load_file(model / UNET)
    for name in sorted(tensors)[:count]:
        del tensors[name]
    save_file(tensors, model / UNET)


def test_missing_tensors_are_named_three_of_them(model: Path, tmp_path: Path) -> None:
    gone = sorted(load_file(model / UNET))
    drop(model, 5)
    message = refuses(model, tmp_path / "out", BadCheckpoint).message
    assert "unet: 5 tensors" in message
    assert sum(name in message for name in gone[:5]) == 3
    assert "missing" in message
    assert "and 2 more" in message


def test_other_shapes_are_named_with_both(model: Path, tmp_path: Path) -> None:
    config = read_json(model / "unet/config.json")
    write_json(model / "unet/config.json", config | {"cross_attention_dim": 40})
    message = refuses(model, tmp_path / "out", BadCheckpoint).message
    assert "attn2.to_k.weight: expected [16, 40], found [16, 24]" in message


def test_tensors_without_a_place_are_named(model: Path, tmp_path: Path) -> None:
    tensors = load_file(model / UNET)
    save_file(tensors | {"surprise.weight": np.zeros(3, np.float32)}, model / UNET)
    assert "surprise.weight" in refuses(model, tmp_path / "out", BadCheckpoint).message


def test_a_setting_that_is_not_implemented_is_named(model: Path, tmp_path: Path) -> None:
    config = read_json(model / "unet/config.json")
    write_json(model / "unet/config.json", config | {"class_embed_type": "timestep"})
    message = refuses(model, tmp_path / "out", BadCheckpoint).message
    assert "unet/config.json" in message
    assert "class_embed_type" in message
    assert "'timestep'" in message


def test_a_class_that_is_not_implemented_is_named(model: Path, tmp_path: Path) -> None:
    index = read_json(model / "model_index.json")
    write_json(
        model / "model_index.json", index | {"text_encoder": ["transformers", "T5EncoderModel"]}
    )
    error = refuses(model, tmp_path / "out", BadCheckpoint)
    assert "text_encoder is a T5EncoderModel" in error.message
    assert "CLIPTextModel" in error.hint


@pytest.mark.parametrize("position", [0, 4, 60, -1000, -1])
def test_corrupt_weights(model: Path, tmp_path: Path, position: int) -> None:
    """A header cut, or damaged, or data that end too soon."""
    path = model / UNET
    data = path.read_bytes()
    if position < 0:
        path.write_bytes(data[:position])
    else:
        path.write_bytes(data[:position] + b"\xff" * 4 + data[position + 4 :])
    assert str(path) in refuses(model, tmp_path / "out", BadCheckpoint).message


def test_values_beyond_half_precision_are_refused(model: Path, tmp_path: Path) -> None:
    tensors = load_file(model / UNET)
    tensors["conv_out.bias"][0] = 1e6
    save_file(tensors, model / UNET)
    with pytest.raises(BadCheckpoint, match=r"conv_out\.bias"):
        convert(model, tmp_path / "out", dtype="fp16")
    assert names(tmp_path) == ["model"]
    convert(model, tmp_path / "out", dtype="fp32")


def test_a_target_that_exists(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("precious")
    assert refuses(saved, tmp_path / "out", OutputFailed).code == "output-exists"
    assert (tmp_path / "out" / "mine").read_text() == "precious"
    convert(saved, tmp_path / "out", replace=True)
    assert not (tmp_path / "out" / "mine").exists()


def test_a_target_that_cannot_be_made(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputFailed) as caught:
        convert(saved, tmp_path / "file" / "out")
    assert caught.value.exit_code == 6


def test_too_small_a_disk(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda _place: Usage)
    assert refuses(saved, tmp_path / "out", OutputFailed).code == "disk-full"


def test_a_disk_that_fills_up(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object, **_more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(write, "write_json", full)
    assert "No space left" in refuses(saved, tmp_path / "out", OutputFailed).message


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_ctrl_c_leaves_nothing(saved: Path, tmp_path: Path, share: float) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, StageStarted) and share == 0:
            raise KeyboardInterrupt
        if isinstance(event, StageAdvanced) and event.done >= share * event.total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(saved, tmp_path / "out", on_event=interrupt)
    assert names(tmp_path) == []


def test_a_conversion_that_comes_second_takes_the_bundle_of_the_first(
    saved: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first: list[Bundle] = []

    def overtake(event: Event) -> None:
        if isinstance(event, StageStarted) and not first:
            first.append(convert(saved, out))

    second = convert(saved, out, on_event=overtake)
    assert second.manifest == first[0].manifest
    assert names(tmp_path) == ["out"]


def test_a_conversion_overtaken_by_another_models_is_an_error(
    saved: Path, model: Path, tmp_path: Path
) -> None:
    scheduler = model / "scheduler/scheduler_config.json"
    write_json(scheduler, read_json(scheduler) | {"prediction_type": "v_prediction"})
    started: list[Event] = []

    def overtake(event: Event) -> None:
        if isinstance(event, StageStarted) and not started:
            started.append(event)
            convert(model, tmp_path / "out")

    with pytest.raises(OutputFailed) as caught:
        convert(saved, tmp_path / "out", on_event=overtake)
    assert caught.value.code == "output-exists"
    assert Bundle.open(tmp_path / "out").scheduler["prediction_type"] == "v_prediction"
