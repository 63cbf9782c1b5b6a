from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ortist.checkpoints.pickle_file import PickleFile
from ortist.errors import BadCheckpoint
from tests.tiny.torch_file import Call, Name, Parts, dumps, write_older, write_zip

Writer = Callable[[Path, object, Parts], Path]
both_formats = pytest.mark.parametrize("write", [write_zip, write_older])


@both_formats
def test_tensors_are_found_below_the_state_dict(tmp_path: Path, write: Writer) -> None:
    parts = Parts()
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    inner = {"a": parts.tensor(values), "b": parts.tensor(values, (4, 3), (1, 4)), "n": 3}
    with PickleFile(write(tmp_path / "m.ckpt", {"epoch": 7, "state_dict": inner}, parts)) as file:
        assert file.keys() == ("a", "b")
        assert file.root == "state_dict"
        np.testing.assert_array_equal(file.load("a"), values)
        np.testing.assert_array_equal(file.load("b"), values.T)
        assert {(item.name, item.what) for item in file.left_out} == {("epoch", "7"), ("n", "3")}


def attacks(mark: Path) -> dict[str, bytes]:
    """Each would create the file `mark` if it were run."""
    command = f"touch {mark}"
    text = dumps(command)[2:-1]
    evil = f"open({str(mark)!r}, 'w')"
    return {
        "os.system": dumps({"x": Call(Name("os", "system"), (command,))}),
        "posix.system": dumps(Call(Name("posix", "system"), (command,))),
        "builtins.eval": dumps(Call(Name("builtins", "eval"), (evil,))),
        "builtins.getattr": dumps(Call(Name("builtins", "getattr"), (Name("os", "system"), "x"))),
        "nested": dumps({"a": [({"b": Call(Name("os", "system"), (command,))},)]}),
        "dotted": b"\x80\x04\x8c\x05torch\x8c\x11storage.os.system\x93" + text + b"\x85R.",
        "INST": b"(" + text + b"ios\nsystem\n.",
        "OBJ": b"(cos\nsystem\n" + text + b"o.",
        "NEWOBJ": b"cos\nsystem\n" + text + b"\x85\x81.",
        "EXT1": b"\x82\x01.",
        "pickle.loads": dumps(Call(Name("pickle", "loads"), (b"x",))),
    }


@both_formats
@pytest.mark.parametrize("attack", list(attacks(Path("x"))))
def test_nothing_runs(tmp_path: Path, write: Writer, attack: str) -> None:
    mark = tmp_path / "ran"
    path = write(tmp_path / "m.ckpt", attacks(mark)[attack], Parts())
    with pytest.raises(BadCheckpoint, match="nothing of it was run") as caught:
        PickleFile(path)
    assert caught.value.code == "pickle-refused"
    assert not mark.exists()


@both_formats
@pytest.mark.parametrize(
    ("shape", "strides", "offset", "count"),
    [
        ((5,), (1,), 0, None),
        ((2,), (1,), 3, None),
        ((2,), (4,), 0, None),
        ((2,), (-1,), 1, None),
        ((2,), (1,), -1, None),
        ((1 << 40,), (0,), 0, None),
        ((1 << 32,), (1,), 0, 1 << 32),
    ],
)
def test_views_outside_of_their_storage(
    tmp_path: Path,
    write: Writer,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    count: int | None,
) -> None:
    parts = Parts()
    tensor = parts.tensor(np.zeros(4, np.float32), shape, strides, offset, count)
    with pytest.raises(BadCheckpoint) as caught:
        PickleFile(write(tmp_path / "m.pt", {"x": tensor}, parts))
    assert caught.value.code == "bad-pickle"


@both_formats
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_mutated_file_is_read_or_refused(
    tmp_path: Path, write: Writer, data: st.DataObject
) -> None:
    parts = Parts()
    path = write(tmp_path / "m.pt", {"x": parts.tensor(np.arange(6, dtype=np.int16))}, parts)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))] or content)
    try:
        with PickleFile(path) as file:
            names = file.keys()
            for key in names:
                assert file.load(key).shape == file.shape(key)
    except BadCheckpoint:
        pass
