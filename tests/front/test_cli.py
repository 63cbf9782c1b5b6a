"""The command from the outside: exit codes, one clear line with a hint, nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from ortist.events import OnEvent
from ortist.front import cli
from ortist.models import embedded_path
from ortist.pipeline import Pipeline, Result
from ortist.record import read_record
from ortist.request import Request

PROMPT = "a red circle on a white background"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def generate(*arguments: str) -> int:
    return cli.run(["generate", *arguments])


def test_a_picture_with_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate(PROMPT, "--seed", "7", "--steps", "2", "--out", "a.png") == 0
    out = capsys.readouterr().out
    assert out.strip() == "a.png  seed 7"
    record = read_record(Path("a.png"))
    assert (record.prompt, record.seeds, record.num_inference_steps) == (PROMPT, (7,), 2)
    with Image.open("a.png") as image:
        assert image.size == (128, 128)
        assert image.info["parameters"].startswith(PROMPT + "\nSteps: 2, Sampler: ")


def test_a_seed_nobody_asked_for_is_printed_and_recorded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert generate(PROMPT, "--steps", "1") == 0
    name, seed = capsys.readouterr().out.split("  seed ")
    assert read_record(Path(name)).seeds == (int(seed),)


def test_the_recorded_settings_make_the_picture_again() -> None:
    assert generate(PROMPT, "--steps", "3", "--sampler", "Euler a", "--out", "a.png") == 0
    seed = read_record(Path("a.png")).seeds[0]
    again = ["--steps", "3", "--sampler", "Euler a", "--seed", str(seed), "--out", "b.png"]
    assert generate(PROMPT, *again) == 0
    with Image.open("a.png") as a, Image.open("b.png") as b:
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate(PROMPT, "--steps", "1", "--count", "2", "--seed", "4", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert [image["seed"] for image in said["images"]] == [4, 5]
    assert all(Path(image["path"]).is_file() for image in said["images"])
    assert [image["record"]["seeds"] for image in said["images"]] == [[4], [5]]


@pytest.mark.parametrize("prompt", ["", "xyzzy flurb 猫 🐈", "a " * 200])
def test_any_prompt_draws(prompt: str) -> None:
    assert generate(prompt, "--steps", "1", "--out", "a.png") == 0


def test_words_that_do_not_fit_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("a " * 200 + "zebra", "--steps", "1", "--out", "a.png") == 0
    assert "zebra" in capsys.readouterr().err


def test_sizes_other_than_the_trained_one_work() -> None:
    assert generate(PROMPT, "--steps", "1", "--size", "72x136", "--out", "a.png") == 0
    with Image.open("a.png") as image:
        assert image.size == (72, 136)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--size", "100x128"], 2, "width 100 is not a multiple of 8"),
        (["--size", "128x0"], 2, "height 0 is out of range"),
        (["--size", "big"], 2, "'big' is not WIDTHxHEIGHT"),
        (["--steps", "0"], 2, "--steps is 0"),
        (["--steps", "-4"], 2, "--steps is -4"),
        (["--steps", "5000"], 2, "5000 steps are out of range"),
        (["--steps", "many"], 2, "'--steps'"),
        (["--count", "0"], 2, "--count is 0"),
        (["--seed", "-1"], 2, "seed -1 is out of range"),
        (["--guidance", "-2"], 2, "--guidance is -2"),
        (["--sampler", "Eular a"], 2, "Eular a"),
        (["--spacing", "wide"], 2, "wide"),
        (["--negative", "blue", "--guidance", "1"], 2, "no effect"),
        (["--model", "shapez"], 2, "there is no model 'shapez'"),
        (["--provider", "abacus"], 5, "unknown provider 'abacus'"),
        (["--dtype", "int3"], 2, "unknown dtype 'int3'"),
        (["--out", "a.gif"], 2, "neither a PNG file nor a folder"),
        (["--out", "missing/a.png"], 6, "does not exist"),
        (["--out", "a" * 300 + ".png"], 6, "File name too long"),
        (["--model", "a" * 300], 6, "File name too long"),
        (["--frobnicate"], 2, "frobnicate"),
    ],
)
def test_bad_input_is_one_clear_line_with_a_hint(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate(PROMPT, *arguments) == code
    said = capsys.readouterr().err
    assert words in said
    lines = said.strip().splitlines()
    assert [line.split(":")[0] for line in lines] == ["error", "hint"]
    assert os.listdir() == []


def test_near_names_of_samplers_and_models_are_offered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    generate(PROMPT, "--sampler", "Eular a")
    assert "Euler a" in capsys.readouterr().err
    generate(PROMPT, "--model", "shapez")
    assert "did you mean 'shapes'" in capsys.readouterr().err


def test_an_existing_file_is_kept_without_force(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.png").write_bytes(b"mine")
    assert generate(PROMPT, "--steps", "1", "--out", "a.png") == 6
    assert "--force" in capsys.readouterr().err
    assert Path("a.png").read_bytes() == b"mine"
    assert generate(PROMPT, "--steps", "1", "--out", "a.png", "--force") == 0
    assert read_record(Path("a.png")).prompt == PROMPT


def test_a_missing_runtime_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ortist.runtime.session.find_spec", lambda _name: None)
    assert generate(PROMPT) == 5
    assert 'pip install "ortist[cpu]"' in capsys.readouterr().err


def test_without_arguments_it_helps(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([]) == 0
    assert "generate" in capsys.readouterr().out


def test_a_model_that_gives_nan_is_an_error_and_no_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Path(shutil.copytree(embedded_path("shapes"), tmp_path / "model"))
    file = model / "unet" / "diffusion_pytorch_model.safetensors"
    weights = load_file(file)
    weights["conv_in.weight"][:] = np.nan
    save_file(weights, file)
    assert generate(PROMPT, "--model", "model", "--steps", "1", "--out", "a.png") == 4
    assert "NaN" in capsys.readouterr().err
    assert not Path("a.png").exists()


def test_another_size_than_the_trained_one_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate(PROMPT, "--steps", "1", "--size", "64x64", "--out", "a.png") == 0
    assert "trained at 128x128" in capsys.readouterr().err


def test_pictures_are_written_as_they_are_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, seen = Pipeline.run, []

    def counted(self: Pipeline, request: Request, **rest: OnEvent) -> Result:
        seen.append(len(list(tmp_path.glob("*.png"))))
        return run(self, request, **rest)

    monkeypatch.setattr(Pipeline, "run", counted)
    assert generate(PROMPT, "--steps", "1", "--count", "3") == 0
    assert seen == [0, 1, 2]


def test_debug_shows_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate(PROMPT, "--steps", "0", "--debug") == 2
    assert "Traceback" in capsys.readouterr().err
    assert generate(PROMPT, "--steps", "0") == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_fault_of_ours_is_called_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> Pipeline:
        raise RuntimeError("boom")

    monkeypatch.setattr(Pipeline, "open", broken)
    assert generate(PROMPT) == 70
    assert "fault of ortist" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_an_interrupt_leaves_nothing_and_exits_130() -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "ortist"),
            *("generate", PROMPT, "--steps", "900", "--out", "a.png"),
        ],
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs, this test among them, may have been told to ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    try:
        time.sleep(4)
        assert process.poll() is None, "it was to be still drawing"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "interrupted" in said
    assert os.listdir() == []
