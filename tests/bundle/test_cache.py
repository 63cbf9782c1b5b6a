from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from ortist.bundle import cache
from ortist.bundle.cache import HashMemory, cache_folder, cached_bundle
from ortist.errors import BadCheckpoint, OutputFailed
from ortist.events import Event, StageStarted
from ortist.files import sha256_of
from tests.tiny.checkpoint import read_json, write_checkpoint, write_json


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORTIST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Listener:
    """Counts conversions."""

    def __init__(self) -> None:
        self.conversions = 0

    def __call__(self, event: Event) -> None:
        self.conversions += isinstance(event, StageStarted)


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "bundles").iterdir() if path.is_dir())


def test_a_checkpoint_is_converted_once(saved: Path, folder: Path, tmp_path: Path) -> None:
    listener = Listener()
    first = cached_bundle(saved, on_event=listener)
    again = cached_bundle(saved, on_event=listener)
    moved = Path(shutil.copytree(saved, tmp_path / "elsewhere" / "renamed"))
    renamed = cached_bundle(moved, on_event=listener)
    assert renamed.path == again.path == first.path
    assert (first.name, renamed.name) == ("model", "renamed")
    assert listener.conversions == 1
    assert first.path.parent == folder / "bundles"
    assert first.notes == ()


def test_precision_content_and_converter_count(
    saved: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached_bundle(saved)
    assert cached_bundle(saved, dtype="fp16").dtype == "fp16"
    changed = Path(shutil.copytree(saved, tmp_path / "changed"))
    scheduler = changed / "scheduler/scheduler_config.json"
    write_json(scheduler, read_json(scheduler) | {"prediction_type": "v_prediction"})
    assert cached_bundle(changed).scheduler["prediction_type"] == "v_prediction"
    monkeypatch.setattr(cache, "converter_id", lambda: "9.9.9+abc")
    cached_bundle(saved)
    assert len(entries(folder)) == 4


@pytest.mark.parametrize("damage", ["unet/model.onnx_data", "ortist.json", "unet/model.onnx"])
def test_a_damaged_bundle_is_made_again_with_a_note(saved: Path, folder: Path, damage: str) -> None:
    listener = Listener()
    path = cached_bundle(saved, on_event=listener).path
    (path / damage).write_bytes((path / damage).read_bytes()[:-20])
    mended = cached_bundle(saved, on_event=listener)
    assert listener.conversions == 2
    assert mended.path == path
    assert len(mended.notes) == 1
    assert damage.rsplit("/", 1)[-1] in mended.notes[0]
    assert cached_bundle(saved, on_event=listener).notes == ()
    assert listener.conversions == 2
    assert len(entries(folder)) == 1


def test_a_directory_that_is_no_bundle_is_replaced(saved: Path, folder: Path) -> None:
    path = cached_bundle(saved).path
    shutil.rmtree(path)
    path.mkdir()
    assert cached_bundle(saved).path == path
    (path / "ortist.json").unlink()  # then it could be anything
    assert cached_bundle(saved).manifest is not None


def test_a_bad_checkpoint_leaves_no_entry(folder: Path, tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "model")
    config = read_json(model / "unet/config.json")
    write_json(model / "unet/config.json", config | {"cross_attention_dim": 40})
    with pytest.raises(BadCheckpoint, match="expected"):
        cached_bundle(model)
    assert entries(folder) == []


def test_a_cache_that_cannot_be_written(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ORTIST_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(OutputFailed) as caught:
        cached_bundle(saved)
    assert "ORTIST_CACHE" in caught.value.hint
    assert str(tmp_path / "file") in caught.value.message


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the places of Linux")
def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for cache_home, chosen, expected in (
        ("", "", tmp_path / ".cache/ortist"),
        ("/x", "", Path("/x/ortist")),
        ("/x", "~/c", tmp_path / "c"),
    ):
        monkeypatch.setenv("XDG_CACHE_HOME", cache_home)
        monkeypatch.setenv("ORTIST_CACHE", chosen)
        assert cache_folder() == expected


def test_hashes_learnt_anew_are_kept_although_the_bundle_is_there(
    saved: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_LARGE", 1)
    model = Path(shutil.copytree(saved, tmp_path / "model"))
    cached_bundle(model)
    os.utime(model / "unet" / "diffusion_pytorch_model.safetensors")
    read: list[Path] = []

    def counted(path: Path) -> str:
        read.append(path)
        return sha256_of(path)

    monkeypatch.setattr(cache, "sha256_of", counted)
    cached_bundle(model)
    assert len(read) == 1
    cached_bundle(model)
    assert len(read) == 1


def test_hashes_of_large_files_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_LARGE", 3)
    read: list[Path] = []

    def counted(path: Path) -> str:
        read.append(path)
        return sha256_of(path)

    monkeypatch.setattr(cache, "sha256_of", counted)
    file = tmp_path / "file"
    file.write_bytes(b"large")

    def hash_once() -> str:
        memory = HashMemory(tmp_path / "hashes.json")
        found = memory.sha256(file)
        memory.save()
        return found

    first = hash_once()
    assert hash_once() == first == sha256_of(file)
    assert len(read) == 1
    file.write_bytes(b"Large")
    assert hash_once() == sha256_of(file) != first
    (tmp_path / "hashes.json").write_text("damaged")
    assert hash_once() == sha256_of(file)
    file.write_bytes(b"ab")
    assert hash_once() == sha256_of(file)
