"""The published measurement of `shapes`, with drawings in place of the model's pictures."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

FOLDER = Path(__file__).parents[2] / "training" / "shapes"


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("report")


class Flat:
    """A pipeline whose pictures are all white."""

    def __init__(self) -> None:
        self.seeds: list[int] = []
        self.images = [Image.new("RGB", (128, 128), (255, 255, 255))]
        self.record = self

    def to_json(self) -> str:
        return json.dumps({"num_inference_steps": 20, "provenance": {"model": "flat"}})

    def __call__(self, prompt: str, *, seed: int, **settings: Any) -> Flat:
        assert settings == {"num_inference_steps": 20}
        self.seeds.append(seed)
        return self


def test_prompts_are_held_out_and_fixed(report: ModuleType) -> None:
    prompts = report.held_out_prompts(300, 200)
    assert len(set(prompts)) == 500
    kinds = [len(report.checker.parse_prompt(prompt).objects) for prompt in prompts]
    assert kinds == [1] * 300 + [2] * 200
    assert report.held_out_prompts(3, 2) == prompts[:3] + prompts[300:302]


def test_prompts_never_occur_in_training(report: ModuleType) -> None:
    prompts = set(report.held_out_prompts(300, 200))
    for share in (0.0, 1.0):
        scenes = report.draw.sample(np.random.default_rng(5), 5000, share)
        trained = scenes.take(~report.draw.held_out(scenes))
        assert prompts.isdisjoint(report.draw.caption(trained, i) for i in range(len(trained)))


def test_figures_and_sheet(report: ModuleType, tmp_path: Path) -> None:
    prompts, pipe = report.held_out_prompts(16, 10), Flat()
    made = report.make(pipe, prompts, {"num_inference_steps": 20})
    assert pipe.seeds == list(range(1000, 1026))
    table = report.checker.evaluate([item.picture for item in made], prompts)
    data = json.loads(json.dumps(report.as_json(made, table)))
    assert data["provenance"] == {"model": "flat"}
    assert data["settings"]["num_inference_steps"] == 20
    assert data["single"]["rates"]["all"]["right"] == 0
    assert len(data["failures"]) == 26 and "shape" in data["failures"][0]["wrong"]
    page = report.front(made, table, singles=15, pairs=9)
    path = tmp_path / "images" / "sheet.png"
    report._write(path, page)
    assert Image.open(path).size == page.size
