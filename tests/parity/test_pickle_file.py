"""Files that torch itself saves, in both of its formats, read without it."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ortist.checkpoints.pickle_file import PickleFile
from ortist.errors import BadCheckpoint
from tests.parity.conftest import Oracle

pytestmark = pytest.mark.parity

DTYPES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
    "complex128",
    "uint16",
    "uint32",
    "uint64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]

both_formats = pytest.mark.parametrize("in_zip", [True, False], ids=["zip", "older"])


def same(torch: Any, file: PickleFile, key: str, tensor: Any) -> None:
    """Bit for bit; numpy has no name for some types, so bytes are compared."""
    wanted = tensor.detach().contiguous()
    assert file.shape(key) == tuple(wanted.shape)
    assert file.dtype(key).name == str(wanted.dtype).removeprefix("torch.")
    loaded = file.load(key)
    assert loaded.shape == tuple(wanted.shape)
    assert loaded.flags.c_contiguous
    assert loaded.tobytes() == wanted.reshape(-1).view(torch.uint8).numpy().tobytes()


@both_formats
@pytest.mark.parametrize("name", DTYPES)
def test_every_type(oracle: Oracle, tmp_path: Path, name: str, in_zip: bool) -> None:
    torch = oracle.torch
    tensor = (torch.arange(12).reshape(3, 4) % 3).to(torch.float32).to(getattr(torch, name))
    path = tmp_path / "m.pt"
    torch.save({"x": tensor, "y": tensor[1:, :2]}, path, _use_new_zipfile_serialization=in_zip)
    with PickleFile(path) as file:
        assert file.keys() == ("x", "y")
        same(torch, file, "x", tensor)
        same(torch, file, "y", tensor[1:, :2])


@both_formats
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_views_parameters_and_shared_storages(
    oracle: Oracle, tmp_path: Path, in_zip: bool, protocol: int
) -> None:
    torch = oracle.torch
    base = torch.randn(6, 8)
    tensors = {
        "whole": base,
        "transposed": base.T,
        "strided": base[::2, 1::3],
        "row": base[3],
        "column": base[:, 3],
        "one": base[2, 5],
        "repeated": torch.randn(1, 4).expand(3, 4),
        "channels_last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "frozen": torch.nn.Parameter(torch.randn(2, 2).half(), requires_grad=False),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "empty_view": base[2:2],
    }
    path = tmp_path / "m.pt"
    torch.save(tensors, path, pickle_protocol=protocol, _use_new_zipfile_serialization=in_zip)
    with PickleFile(path) as file:
        assert file.keys() == tuple(tensors)
        assert file.left_out == ()
        for key, tensor in tensors.items():
            same(torch, file, key, tensor)


@both_formats
def test_a_trainers_checkpoint(oracle: Oracle, tmp_path: Path, in_zip: bool) -> None:
    torch = oracle.torch
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    with torch.enable_grad():
        optimizer = torch.optim.AdamW(net.parameters())
        net(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    saved = {
        "epoch": 3,
        "state_dict": net.state_dict(),
        "optimizer_states": [optimizer.state_dict()],
        "lr": 1e-4,
        "best": np.float32(0.5),
        "history": np.arange(3),
        "hyper_parameters": OrderedDict(device=torch.device("cpu"), shape=torch.Size([1, 2])),
    }
    path = tmp_path / "m.ckpt"
    torch.save(saved, path, _use_new_zipfile_serialization=in_zip)
    with PickleFile(path) as file:
        assert file.root == "state_dict"
        assert file.keys() == tuple(net.state_dict())
        for key, tensor in net.state_dict().items():
            same(torch, file, key, tensor)
        assert {item.name for item in file.left_out} == saved.keys() - {"state_dict"}


@both_formats
def test_what_would_be_read_wrongly_is_refused(
    oracle: Oracle, tmp_path: Path, in_zip: bool
) -> None:
    torch = oracle.torch
    path = tmp_path / "m.pt"
    for value in (
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.qint8),
        torch.eye(3).to_sparse(),
        torch.zeros(3, device="meta"),
    ):
        torch.save({"x": value}, path, _use_new_zipfile_serialization=in_zip)
        with pytest.raises(BadCheckpoint):
            PickleFile(path)


def test_a_whole_module_is_refused_by_name(oracle: Oracle, tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    oracle.torch.save(oracle.torch.nn.Linear(2, 2), path)
    with pytest.raises(BadCheckpoint, match=r"torch\.nn\.modules\.linear\.Linear") as caught:
        PickleFile(path)
    assert caught.value.code == "pickle-refused"
