"""Conversions that are killed, raced and starved never leave what looks like a whole bundle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tiny.checkpoint import write_checkpoint

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the script forks")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("kill")
    source = write_checkpoint(folder / "model", tiny_vae=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.bundle.kill_script", str(source), str(folder / "work")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_kill_9_at_any_point_leaves_no_bundle_and_the_next_run_makes_one(
    report: dict[str, Any],
) -> None:
    points = report["killed"]["points"]
    assert len(points) == 6
    for point, found in points.items():
        assert found["status"] == -9, point
        # What the run before left is gone, what this one leaves is no "out".
        partial = [] if point == "at 0.0" else ["ortist-partial", "ortist-partial.lock"]
        assert found["left"] == partial, point
    assert report["killed"]["whole"]
    assert report["killed"]["names"] == ["out"]


def test_kill_9_while_replacing_keeps_the_old_bundle(report: dict[str, Any]) -> None:
    for found in report["replaced"].values():
        assert found == {"status": -9, "old is back": True, "names": ["out"]}


def test_processes_that_want_the_same_bundle(report: dict[str, Any]) -> None:
    race = report["race"]
    assert race["convert"] == [0, 0, 0]
    assert race["cache"] == [0, 0, 0]
    assert race["conversions for the cache"] == 1
    assert race["whole"]
    assert race["names"] == ["cache", "conversions", "out"]
    assert race["partials"] == []


def test_a_system_that_stops_the_writing(report: dict[str, Any]) -> None:
    assert report["limited"] == {"status": 6, "names": []}
