from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from ortist.errors import BadRequest, OutputFailed
from ortist.plan import Note
from ortist.record import Provenance, Record, infotext, read_record, save_png

RECORD = Record(
    request={"prompt": "a cat, a dog", "seed": 7, "sampler": None},
    prompt="a cat, a dog",
    negative_prompt="fish",
    num_inference_steps=20,
    guidance_scale=7.0,
    sampler="DPM++ 2M",
    levels="karras",
    timestep_spacing="leading",
    seeds=(7, 8),
    width=128,
    height=64,
    family="sd",
    latents_given=False,
    provenance=Provenance(
        model="shapes",
        model_hash="0123456789abcdef",
        dtype="fp32",
        provider="cpu",
        versions={"ortist": "0.1.0", "onnxruntime": "1.32.0"},
    ),
    seconds={"encode": 0.5},
    notes=(Note("sampler", "because"),),
)
PICTURE = Image.new("RGB", (4, 4), "red")


def test_a_record_comes_back_from_its_json() -> None:
    assert Record.from_json(RECORD.to_json()) == RECORD


def test_the_infotext_is_what_web_uis_read() -> None:
    assert infotext(RECORD, 1) == (
        "a cat, a dog\n"
        "Negative prompt: fish\n"
        "Steps: 20, Sampler: DPM++ 2M, Schedule type: Karras, CFG scale: 7, Seed: 8, "
        "Size: 128x64, Model hash: 0123456789, Model: shapes, RNG: CPU, "
        "ONNX: cpu ort-1.32.0 fp32 leading, Version: ortist 0.1.0"
    )


def test_an_empty_negative_prompt_has_no_line() -> None:
    assert "Negative" not in infotext(replace(RECORD, negative_prompt=""), 0)


def test_a_png_carries_both_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    save_png(PICTURE, path, RECORD, 1, overwrite=False)
    assert read_record(path) == replace(RECORD, picture=1)
    with Image.open(path) as image:
        assert image.info["parameters"] == infotext(RECORD, 1)
        assert image.getpixel((0, 0)) == (255, 0, 0)
    assert os.listdir(tmp_path) == ["a.png"]


def test_text_beyond_latin_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    record = replace(RECORD, prompt="ein Kätzchen, 猫 🐈")
    save_png(PICTURE, path, record, 0, overwrite=False)
    assert read_record(path).prompt == record.prompt
    with Image.open(path) as image:
        assert image.info["parameters"].startswith(record.prompt)


def test_an_existing_file_is_kept_unless_overwriting_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"mine")
    with pytest.raises(OutputFailed) as caught:
        save_png(PICTURE, path, RECORD, 0, overwrite=False)
    assert caught.value.code == "exists"
    assert path.read_bytes() == b"mine"
    save_png(PICTURE, path, RECORD, 0, overwrite=True)
    assert read_record(path) == RECORD


def test_a_failing_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full)
    with pytest.raises(OutputFailed, match="No space left"):
        save_png(PICTURE, tmp_path / "a.png", RECORD, 0, overwrite=False)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', json.dumps({"format": 99}), "null", "3"]
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        Record.from_json(text)
    assert caught.value.code == "bad-record"


def test_a_picture_without_a_record_and_a_file_that_is_no_picture(tmp_path: Path) -> None:
    PICTURE.save(tmp_path / "plain.png")
    (tmp_path / "text.png").write_text("no picture")
    for name in ("plain.png", "text.png", "absent.png"):
        with pytest.raises(BadRequest):
            read_record(tmp_path / name)
