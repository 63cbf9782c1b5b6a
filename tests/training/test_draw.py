"""The drawing code of `shapes`, held against the checker, which shares none of it."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "training" / "shapes"


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("draw")


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("checker")


@pytest.mark.parametrize("pairs", [0.0, 1.0])
def test_a_drawing_is_what_its_caption_says(
    draw: ModuleType, checker: ModuleType, pairs: float
) -> None:
    rng = np.random.default_rng(11)
    scenes = draw.sample(rng, 100, pairs)
    pictures = np.rint(draw.draw(draw.place(scenes, rng))).astype(np.uint8).transpose(0, 2, 3, 1)
    for i, picture in enumerate(pictures):
        prompt = draw.caption(scenes, i)
        assert checker.check(np.ascontiguousarray(picture), prompt).all, prompt


def test_every_shape_and_size_in_the_center(draw: ModuleType, checker: ModuleType) -> None:
    kinds = list(itertools.product(range(len(draw.SHAPES)), range(len(draw.SIZES))))
    shape, size = np.array(kinds).T
    zeros = np.zeros(len(kinds), np.int64)
    scenes = draw.Scenes(
        background=zeros + 8,
        color=np.stack([zeros, zeros + 1], 1),
        shape=np.stack([shape, zeros], 1),
        size=size,
        cell=np.stack([zeros, zeros], 1),
        relation=zeros - 1,
    )
    placed = draw.place(scenes, np.random.default_rng(0), jitter=False)
    pictures = np.rint(draw.draw(placed)).astype(np.uint8).transpose(0, 2, 3, 1)
    for i, picture in enumerate(pictures):
        prompt = draw.caption(scenes, i)
        assert checker.check(np.ascontiguousarray(picture), prompt).all, prompt
        assert tuple(picture[0, 0]) == draw.PALETTE["white"]


def test_a_window_is_a_part_of_the_whole(draw: ModuleType) -> None:
    placed = draw.place(draw.sample(np.random.default_rng(1), 4, 0.5), np.random.default_rng(2))
    origin = np.array([[0, 0], [64, 0], [13, 40], [64, 64]], np.float32)
    whole, parts = draw.draw(placed), draw.draw(placed, 64, origin)
    for picture, part, (x, y) in zip(whole, parts, origin.astype(int), strict=True):
        np.testing.assert_allclose(part, picture[:, y : y + 64, x : x + 64], atol=1e-2)


def test_training_scenes_are_never_held_out(draw: ModuleType) -> None:
    scenes = draw.sample_training(np.random.default_rng(3), 2000, 0.5)
    assert len(scenes) == 2000
    assert not draw.held_out(scenes).any()
    share = draw.held_out(draw.sample(np.random.default_rng(3), 8000, 0.5)).mean()
    assert share == pytest.approx(1 / 16, rel=0.2)


def test_objects_differ_from_the_background(draw: ModuleType) -> None:
    scenes = draw.sample(np.random.default_rng(4), 3000, 0.5)
    assert (scenes.color != scenes.background[:, None]).all()
    assert (scenes.cell[scenes.size == draw.SIZES.index("large"), 0] == 0).all()
