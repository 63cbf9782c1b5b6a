from __future__ import annotations

import json
from pathlib import Path

import pytest

from ortist.bundle.manifest import MANIFEST, FileEntry, Manifest
from ortist.errors import BadBundle

EXAMPLE = Manifest(
    source="model",
    content="ab" * 32,
    dtype="fp32",
    opset=17,
    ir_version=8,
    converter="0.1.0+0",
    versions={"ortist": "0.1.0"},
    model={"scale": 8, "sample_size": [64, 64]},
    files={"unet/model.onnx": FileEntry(3, "cd" * 32)},
    verification={"onnx_checker": "passed"},
    left_out=("safety_checker",),
)


def test_it_reads_what_it_writes(tmp_path: Path) -> None:
    EXAMPLE.write(tmp_path)
    assert Manifest.read(tmp_path) == EXAMPLE


def test_a_bundle_of_another_tool_has_none(tmp_path: Path) -> None:
    assert Manifest.read(tmp_path) is None


@pytest.mark.parametrize("key", ["format", "source", "content", "opset", "files", "left_out"])
@pytest.mark.parametrize("value", [None, True, [1], {"a": 1}, -0.5])
def test_a_damaged_entry_is_named(tmp_path: Path, key: str, value: object) -> None:
    EXAMPLE.write(tmp_path)
    data = json.loads((tmp_path / MANIFEST).read_text())
    data[key] = value
    (tmp_path / MANIFEST).write_text(json.dumps(data))
    with pytest.raises(BadBundle) as caught:
        Manifest.read(tmp_path)
    assert key in caught.value.message


@pytest.mark.parametrize("name", ["../x", "/x", "a//b", "a/./b", "C:/x", "a\\b", ""])
def test_files_outside_the_bundle_are_refused(tmp_path: Path, name: str) -> None:
    EXAMPLE.write(tmp_path)
    data = json.loads((tmp_path / MANIFEST).read_text())
    data["files"] = {name: {"size": 1, "sha256": ""}}
    (tmp_path / MANIFEST).write_text(json.dumps(data))
    with pytest.raises(BadBundle, match="files"):
        Manifest.read(tmp_path)


def test_a_newer_format_asks_for_a_newer_ortist(tmp_path: Path) -> None:
    EXAMPLE.write(tmp_path)
    path = tmp_path / MANIFEST
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(BadBundle, match="format 2, this ortist knows format 1"):
        Manifest.read(tmp_path)


def test_sizes_are_compared(tmp_path: Path) -> None:
    (tmp_path / "unet").mkdir()
    with pytest.raises(BadBundle, match=r"model\.onnx is missing"):
        EXAMPLE.check_files(tmp_path)
    (tmp_path / "unet" / "model.onnx").write_bytes(b"12")
    with pytest.raises(BadBundle, match=r"has 2 bytes, ortist.json says 3"):
        EXAMPLE.check_files(tmp_path)
    (tmp_path / "unet" / "model.onnx").write_bytes(b"123")
    EXAMPLE.check_files(tmp_path)
