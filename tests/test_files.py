from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from ortist import files
from ortist.errors import BadBundle, BadCheckpoint
from ortist.files import force_to_disk, read_json, sha256_of, write_json


def test_json_comes_back(tmp_path: Path) -> None:
    value = {"a": [1, 2.5, None, True], "é": {"b": "\n"}}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json", BadBundle, hint="h") == value


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (bytes(9), "is empty"),
        (b"{", "is not valid JSON"),
        (b"\xff\xfe{}", "is not valid JSON"),
        (b'{"a": 1, "a": 2}', "'a' is given twice"),
        (b'{"a":' * 100_000, "is not valid JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not valid JSON"),
        (b'{"a": NaN}', "NaN is no finite number"),
        (b'{"a": [-Infinity]}', "-Infinity is no finite number"),
        (b'{"a": 1e999}', "1e999 is no finite number"),
        (b"[]", "holds a JSON list"),
        (b"null", "holds a JSON NoneType"),
    ],
)
def test_what_is_no_json_object(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(BadCheckpoint) as caught:
        read_json(path, BadCheckpoint, hint="fetch it again")
    assert str(path) in caught.value.message
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint == "fetch it again"


def test_missing_unreadable_and_huge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadBundle, match="is missing"):
        read_json(tmp_path / "none", BadBundle, hint="h")
    with pytest.raises(BadBundle, match="cannot be read"):
        read_json(tmp_path, BadBundle, hint="h")
    (tmp_path / "x").write_bytes(b'{"a": 1}')
    monkeypatch.setattr(files, "_MAX_JSON", 7)
    with pytest.raises(BadBundle, match="too large"):
        read_json(tmp_path / "x", BadBundle, hint="h")


def test_values_that_json_does_not_have_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x", {"a": float("nan")})


@pytest.mark.parametrize("size", [0, 1, (1 << 20) + 3])
def test_the_hash_is_sha256_of_all_bytes(tmp_path: Path, size: int) -> None:
    data = bytes(i % 251 for i in range(size))
    (tmp_path / "x").write_bytes(data)
    assert sha256_of(tmp_path / "x") == hashlib.sha256(data).hexdigest()


def test_files_and_folders_can_be_forced_to_the_disk(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    force_to_disk(tmp_path / "x")
    force_to_disk(tmp_path)
    with pytest.raises(FileNotFoundError):
        force_to_disk(tmp_path / "none")
