from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from ortist.checkpoints.sharded import ShardedSafetensors
from ortist.errors import BadCheckpoint
from tests.tiny.checkpoint import random_tensors, write_weights

SHAPES = {"a": (2, 3), "b": (4,), "c": (1, 1), "d": (5,)}


def write(folder: Path, shards: int = 3) -> Path:
    write_weights(folder, "model", dict(SHAPES), shards=shards)
    return folder / "model.safetensors.index.json"


def test_tensors_come_from_their_files(tmp_path: Path) -> None:
    source = ShardedSafetensors(write(tmp_path))
    assert [file.name for file in source.files] == [
        f"model-{n:05}-of-00003.safetensors" for n in (1, 2, 3)
    ]
    assert set(source.keys()) == set(SHAPES)
    for key, expected in random_tensors(dict(SHAPES)).items():
        assert source.shape(key) == expected.shape
        assert source.dtype(key) == np.float32
        np.testing.assert_array_equal(source.load(key), expected)
    source.close()


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    index = write(tmp_path)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(BadCheckpoint, match=r"model-00002-of-00003\.safetensors is missing"):
        ShardedSafetensors(index)


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/passwd", "sub/x", "a\\b", "C:x", "..", "", 3, None]
)
def test_an_index_may_not_lead_out_of_its_folder(tmp_path: Path, name: object) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(BadCheckpoint) as caught:
        ShardedSafetensors(index)
    assert caught.value.code == "bad-index"
    assert "'a'" in caught.value.message


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": 3}'])
def test_a_damaged_index(tmp_path: Path, text: str) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(text)
    with pytest.raises(BadCheckpoint) as caught:
        ShardedSafetensors(index)
    assert str(index) in caught.value.message


def test_an_index_that_disagrees_with_its_files(tmp_path: Path) -> None:
    index = write(tmp_path)
    data = json.loads(index.read_text())
    homes = data["weight_map"]
    index.write_text(json.dumps({"weight_map": homes | {"more": homes["a"]}}))
    with pytest.raises(BadCheckpoint, match=r"'more' lies in .* does not hold it"):
        ShardedSafetensors(index)
    del homes["a"]
    index.write_text(json.dumps({"weight_map": homes}))
    with pytest.raises(BadCheckpoint, match=r"holds 'a', which .* does not place there"):
        ShardedSafetensors(index)
    index = write(tmp_path)
    save_file({"b": np.zeros(4, np.float32)}, tmp_path / "model-00001-of-00003.safetensors")
    with pytest.raises(BadCheckpoint, match=r"does not hold it"):
        ShardedSafetensors(index)
