from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

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
    table = numpy_helper.from_array(np.zeros((2, 3), np.float32), "table")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["out"])],
        "gather",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n", 3])],
        [table],
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())
    opened = open_graph(path, PROVIDER, role="unet")
    with pytest.raises(BadBundle, match="unet failed in ONNX Runtime"):
        opened.run({"ids": np.asarray([7])}, ("out",))
    assert capfd.readouterr().err == ""
