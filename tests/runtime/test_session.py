from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ortist.errors import BadBundle
from ortist.providers.cpu import PROVIDER
from ortist.runtime.session import open_graph


@pytest.mark.skipif(os.name == "nt", reason="the home folder of POSIX")
def test_nothing_of_the_runtimes_own_lands_in_the_home_folder(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "ortist", "generate", "a red circle", "--steps", "1"),
        *("--out", str(tmp_path / "a.png")),
    ]
    environment = {
        name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"
    }
    home = tmp_path / "home"
    home.mkdir()
    environment |= {"HOME": str(home), "ORTIST_CACHE": str(tmp_path / "cache")}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert list(home.rglob("*")) == []


def test_a_fault_of_a_graph_is_told_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "unet" / "model.onnx"
    path.parent.mkdir()
    path.write_bytes(b"no graph")
    with pytest.raises(BadBundle, match=r"cannot load unet/model\.onnx"):
        open_graph(path, PROVIDER, role="unet")
    assert capfd.readouterr().err == ""
