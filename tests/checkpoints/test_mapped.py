from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ortist.checkpoints.layouts import KeyMap, Tie
from ortist.checkpoints.layouts_text import open_clip_key_map
from ortist.checkpoints.layouts_vae import vae_key_map
from ortist.checkpoints.mapped import MappedWeights
from ortist.errors import BadCheckpoint
from ortist.graphs.clip_config import ClipTextConfig
from ortist.graphs.vae_config import VaeConfig
from tests.tiny.clip import clip_config
from tests.tiny.vae import vae_config
from tests.tiny.weights import ArraySource, random_source

PATH = Path("model.safetensors")
KEYS = KeyMap(
    (
        Tie("same", ("kept",), (2, 3)),
        Tie("in_proj", ("q", "k", "v"), (2, 4), "stacked"),
        Tie("conv", ("matrix",), (2, 3), "pointwise"),
        Tie("projection", ("projection.weight",), (5, 2), "transposed"),
    )
)


class Source(ArraySource):
    """Counts what is read."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        super().__init__(arrays)
        self.read: list[str] = []
        self.closed = False

    def load(self, key: str) -> np.ndarray:
        self.read.append(key)
        return super().load(key)

    def close(self) -> None:
        self.closed = True


def single(prefix: str = "") -> Source:
    shapes = KEYS.single_shapes()
    return Source(
        {
            prefix + key: np.arange(np.prod(shape), dtype=np.float16).reshape(shape)
            for key, shape in shapes.items()
        }
    )


def test_every_change_is_applied_on_load_and_only_then() -> None:
    source = single("model.")
    weights = MappedWeights(source, KEYS.to_diffusers(), PATH, prefix="model.")
    stacked = source.arrays["model.in_proj"]
    expected = {
        "kept": source.arrays["model.same"],
        "q": stacked[:2],
        "k": stacked[2:4],
        "v": stacked[4:],
        "matrix": source.arrays["model.conv"][:, :, 0, 0],
        "projection.weight": source.arrays["model.projection"].T,
    }
    assert set(weights.keys()) == set(expected)
    assert {key: weights.shape(key) for key in expected} == KEYS.diffusers_shapes()
    assert {weights.dtype(key) for key in expected} == {np.dtype(np.float16)}
    assert source.read == []
    for key, array in expected.items():
        np.testing.assert_array_equal(weights.load(key), array)
    assert len(source.read) == len(expected)
    weights.close()
    assert source.closed


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1), (2, 3, 1, 1)])
def test_matrices_may_be_stored_as_such(shape: tuple[int, ...]) -> None:
    source = single()
    source.arrays["conv"] = source.arrays["conv"].reshape(shape)
    weights = MappedWeights(source, KEYS.to_diffusers(), PATH)
    np.testing.assert_array_equal(weights.load("matrix"), [[0, 1, 2], [3, 4, 5]])


def test_a_missing_tensor_is_named() -> None:
    source = single("a.")
    del source.arrays["a.in_proj"]
    with pytest.raises(BadCheckpoint, match=r"model.safetensors lacks a\.in_proj$") as caught:
        MappedWeights(source, KEYS.to_diffusers(), PATH, prefix="a.")
    assert caught.value.code == "weights-missing"


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ("same", (3, 2)),
        ("in_proj", (7, 4)),
        ("in_proj", (9, 4)),
        ("in_proj", ()),
        ("conv", (2, 3, 3, 3)),
        ("conv", (3, 2, 1, 1)),
        ("projection", (5, 2)),
    ],
)
def test_a_tensor_of_another_shape_is_refused(key: str, shape: tuple[int, ...]) -> None:
    source = single()
    source.arrays[key] = np.zeros(shape, np.float16)
    with pytest.raises(BadCheckpoint) as caught:
        MappedWeights(source, KEYS.to_diffusers(), PATH)
    assert key in caught.value.message
    assert str(list(shape)) in caught.value.message


def test_unlike_dtypes_are_not_stacked() -> None:
    shapes = KEYS.diffusers_shapes()
    arrays: dict[str, np.ndarray] = {
        key: np.zeros(shape, np.float32 if key == "k" else np.float16)
        for key, shape in shapes.items()
    }
    with pytest.raises(BadCheckpoint, match="in_proj would be stacked of float16 and float32"):
        MappedWeights(Source(arrays), KEYS.to_single(), PATH)


CLIP = ClipTextConfig.from_json(clip_config(architectures=["CLIPTextModelWithProjection"]))
ROUND_TRIPS = {
    "open_clip": open_clip_key_map(CLIP),
    "vae": vae_key_map(VaeConfig.from_json(vae_config([8, 16]))),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_there_and_back_gives_the_same_tensors(name: str) -> None:
    keys = ROUND_TRIPS[name]
    stored = random_source(keys.single_shapes()).arrays
    there = MappedWeights(Source(stored), keys.to_diffusers(), PATH)
    back = MappedWeights(there, keys.to_single(), PATH)
    assert set(back.keys()) == set(stored)
    for key, array in stored.items():
        np.testing.assert_array_equal(back.load(key), array)
