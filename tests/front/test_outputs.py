from __future__ import annotations

from pathlib import Path

import pytest

from ortist.errors import BadRequest, OutputFailed
from ortist.front.outputs import choose_outputs


def test_without_out_the_name_comes_from_prompt_and_seed(tmp_path: Path) -> None:
    outputs = choose_outputs(tmp_path, "A Red Circle, please!", 1, overwrite=False)
    assert outputs.path(0, 5) == tmp_path / "a-red-circle-please-5.png"


def test_an_empty_prompt_has_a_name_too(tmp_path: Path) -> None:
    assert choose_outputs(tmp_path, "", 1, overwrite=False).path(0, 5).name == "picture-5.png"


def test_a_taken_name_gets_a_number(tmp_path: Path) -> None:
    (tmp_path / "x-5.png").touch()
    assert choose_outputs(tmp_path, "x", 1, overwrite=False).path(0, 5).name == "x-5-2.png"


def test_a_named_file_is_numbered_where_there_are_several(tmp_path: Path) -> None:
    outputs = choose_outputs(tmp_path / "a.png", "x", 2, overwrite=False)
    assert [outputs.path(i, 9).name for i in range(2)] == ["a-1.png", "a-2.png"]


def test_an_existing_file_fails_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "a-2.png").touch()
    with pytest.raises(OutputFailed, match=r"a-2\.png exists already"):
        choose_outputs(tmp_path / "a.png", "x", 2, overwrite=False)
    choose_outputs(tmp_path / "a.png", "x", 2, overwrite=True)


def test_a_name_without_suffix_is_a_folder_made_when_it_is_needed(tmp_path: Path) -> None:
    outputs = choose_outputs(tmp_path / "pictures", "x", 2, overwrite=False)
    assert not (tmp_path / "pictures").exists()
    outputs.make_folder()
    assert outputs.path(0, 5) == tmp_path / "pictures" / "x-5.png"
    assert (tmp_path / "pictures").is_dir()


def test_folders_are_made_with_their_parents(tmp_path: Path) -> None:
    outputs = choose_outputs(tmp_path / "a" / "b", "x", 1, overwrite=False)
    outputs.make_folder()
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("name", ["pictures", "pictures/more", "pictures.png/a.png"])
def test_a_file_where_a_folder_should_be(tmp_path: Path, name: str) -> None:
    (tmp_path / "pictures").touch()
    (tmp_path / "pictures.png").touch()
    with pytest.raises(OutputFailed, match="is a file"):
        choose_outputs(tmp_path / name, "x", 1, overwrite=False)


def test_the_home_folder_and_the_spelling_of_the_suffix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert choose_outputs(Path("~/A.PNG"), "x", 1, overwrite=False).path(0, 1) == tmp_path / "A.PNG"
    with pytest.raises(BadRequest, match="no such home"):
        choose_outputs(Path("~nobody-of-that-name/a.png"), "x", 1, overwrite=False)


def test_long_prompts_are_cut_between_words(tmp_path: Path) -> None:
    path = choose_outputs(tmp_path, "word " * 30, 1, overwrite=False).path(0, 5)
    assert path.name == "word-" * 9 + "5.png"
    endless = choose_outputs(tmp_path, "w" * 300, 1, overwrite=False).path(0, 5)
    assert endless.name == "w" * 48 + "-5.png"


@pytest.mark.parametrize("name", ["a.jpg", "a.webp"])
def test_another_suffix_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadRequest):
        choose_outputs(Path(f"{tmp_path}/{name}"), "x", 1, overwrite=False)


def test_a_missing_folder_and_a_folder_called_png(tmp_path: Path) -> None:
    with pytest.raises(OutputFailed, match="does not exist"):
        choose_outputs(tmp_path / "missing" / "a.png", "x", 1, overwrite=False)
