from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ortist.checkpoints.content import content_key
from ortist.errors import BadCheckpoint


def write(root: Path) -> list[Path]:
    (root / "unet").mkdir(parents=True)
    (root / "a.json").write_bytes(b"one")
    (root / "unet" / "b.bin").write_bytes(b"two")
    return [root / "a.json", root / "unet" / "b.bin"]


def test_a_copy_elsewhere_has_the_same_key(tmp_path: Path) -> None:
    files = write(tmp_path / "x")
    shutil.copytree(tmp_path / "x", tmp_path / "y")
    moved = [tmp_path / "y" / path.relative_to(tmp_path / "x") for path in files]
    assert content_key(tmp_path / "y", moved[::-1]) == content_key(tmp_path / "x", files)


def test_every_byte_and_every_name_counts(tmp_path: Path) -> None:
    files = write(tmp_path)
    first = content_key(tmp_path, files)
    files[1].write_bytes(b"twp")
    second = content_key(tmp_path, files)
    renamed = files[1].rename(files[1].with_name("c.bin"))
    third = content_key(tmp_path, [files[0], renamed])
    assert len({first, second, third, content_key(tmp_path, files[:1])}) == 4


def test_a_file_that_has_gone(tmp_path: Path) -> None:
    files = write(tmp_path)
    files[0].unlink()
    with pytest.raises(BadCheckpoint, match=r"a\.json cannot be read"):
        content_key(tmp_path, files)
