from __future__ import annotations

import json
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ortist.checkpoints.safetensors_file import SafetensorsFile
from ortist.errors import BadCheckpoint


def write(path: Path, header: object, data: bytes = b"", length: int | None = None) -> Path:
    """A file with that header; `length` is what it claims the header to take."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


STORED = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U64": np.dtype(np.uint64),
    "U32": np.dtype(np.uint32),
    "U16": np.dtype(np.uint16),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}


@pytest.mark.parametrize("stored", STORED)
def test_every_stored_type_is_read_as_it_is(tmp_path: Path, stored: str) -> None:
    values = np.array([[0, 1, 2], [3, 1, 0]]).astype(STORED[stored])
    header = {
        "__metadata__": {"format": "pt"},
        # An odd number of bytes first: tensors need not be aligned.
        "first": entry("U8", [1], 0, 1),
        "x": entry(stored, [2, 3], 1, 1 + values.nbytes),
    }
    file = SafetensorsFile(write(tmp_path / "m.safetensors", header, b"\7" + values.tobytes()))
    assert file.keys() == ("first", "x")
    assert file.metadata == {"format": "pt"}
    assert file.shape("x") == (2, 3)
    assert file.dtype("x") == STORED[stored]
    loaded = file.load("x")
    assert loaded.dtype == STORED[stored]
    assert loaded.tobytes() == values.tobytes()
    file.close()


def test_what_the_formats_own_library_writes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors = {
        "scalar": np.array(2.5, np.float32),
        "empty": np.zeros((0, 4), np.float32),
        "matrix": rng.standard_normal((3, 5)).astype(np.float16),
        "ids": np.arange(7),
    }
    save_file(tensors, tmp_path / "m.safetensors", metadata={"a": "b"})
    file = SafetensorsFile(tmp_path / "m.safetensors")
    assert set(file.keys()) == set(tensors)
    for key, values in tensors.items():
        np.testing.assert_array_equal(file.load(key), values)


ONE = {"x": entry("F32", [2], 0, 8)}

FAULTS: dict[str, tuple[object, bytes, int | None, str]] = {
    "a header that is longer than the file": (ONE, bytes(8), 10**10, "claims a header"),
    "a header that is nearly as long as its limit": (ONE, bytes(8), 10**8, "claims a header"),
    "a header that takes in the data": (ONE, bytes(8), 200, "claims a header"),
    "no JSON": (b'{"x": [', b"", None, "not valid JSON"),
    "JSON, but no object": (b"[]", b"", None, "does not start with"),
    "no UTF-8": (b'{"\xff": 1}', b"", None, "not valid JSON"),
    "deep nesting": (b'{"x":' + b"[" * 100_000, b"", None, "not valid JSON"),
    "the same name twice": (
        b'{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
        b'"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        b"\0",
        None,
        "'x' is given twice",
    ),
    "a name that is no Unicode": (b'{"\\ud800": {}}', b"", None, "no valid Unicode"),
    "metadata that is no text": ({"__metadata__": {"a": 1}}, b"", None, "__metadata__"),
    "an entry that is no object": ({"x": 3}, b"", None, "'x' is no object"),
    "a field too few": ({"x": {"dtype": "F32", "shape": [1]}}, b"", None, "has the fields"),
    "a field too many": (
        {"x": {**entry("F32", [1], 0, 4), "more": 1}},
        bytes(4),
        None,
        "has the fields",
    ),
    "a negative size": ({"x": entry("F32", [-1], 0, 4)}, bytes(4), None, "shape [-1]"),
    "a fractional size": ({"x": {**entry("F32", [], 0, 4), "shape": [1.0]}}, bytes(4), None, "1.0"),
    "a size that is true": ({"x": {**entry("U8", [], 0, 1), "shape": [True]}}, b"\0", None, "True"),
    "a shape of 10 TB": ({"x": entry("F32", [10**6, 10**7], 0, 4)}, bytes(4), None, "takes"),
    "a shape that overflows": (
        {"x": entry("F32", [0, 2**63, 2**63], 0, 0)},
        b"",
        None,
        "has the shape",
    ),
    "too many dimensions": ({"x": entry("U8", [1] * 99, 0, 1)}, b"\0", None, "has the shape"),
    "offsets in reverse": ({"x": entry("F32", [2], 8, 0)}, bytes(8), None, "data_offsets"),
    "one offset": ({"x": {**entry("F32", [2], 0, 8), "data_offsets": [8]}}, bytes(8), None, "[8]"),
    "a tensor past the end": (ONE, bytes(7), None, "cut short"),
    "a shape that does not fit its bytes": ({"x": entry("F32", [3], 0, 8)}, bytes(8), None, "12"),
    "overlapping tensors": (
        {"x": entry("F32", [2], 0, 8), "y": entry("F32", [2], 4, 12)},
        bytes(12),
        None,
        "'y' overlaps",
    ),
    "two tensors in one place": (
        {"x": entry("F32", [2], 0, 8), "y": entry("F32", [2], 0, 8)},
        bytes(8),
        None,
        "overlaps",
    ),
    "a hole": (
        {"x": entry("U8", [1], 0, 1), "y": entry("U8", [1], 5, 6)},
        bytes(6),
        None,
        "4 bytes before 'y'",
    ),
    "bytes after the last tensor": (ONE, bytes(11), None, "last 3 bytes"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_file_is_refused_with_file_and_fault(tmp_path: Path, fault: str) -> None:
    header, data, length, said = FAULTS[fault]
    path = write(tmp_path / "m.safetensors", header, data, length)
    with pytest.raises(BadCheckpoint) as caught:
        SafetensorsFile(path)
    assert str(path) in caught.value.message
    assert said in caught.value.message
    assert caught.value.hint
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_file_too_short_for_a_header(tmp_path: Path, size: int) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(bytes(size))
    with pytest.raises(BadCheckpoint, match=r"is empty|fewer than"):
        SafetensorsFile(path)


@pytest.mark.parametrize("dtype", ["F4", "F8_E8M0", "C64", "", 5, None])
def test_a_type_that_cannot_be_read_is_named(tmp_path: Path, dtype: object) -> None:
    header = {"x": {"dtype": dtype, "shape": [1], "data_offsets": [0, 1]}}
    with pytest.raises(BadCheckpoint) as caught:
        SafetensorsFile(write(tmp_path / "m.safetensors", header, b"\0"))
    assert caught.value.code == "stored-type"
    assert repr(dtype) in caught.value.message
    assert "BF16" in caught.value.hint


def test_a_missing_file_a_folder_and_a_git_lfs_pointer(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint) as caught:
        SafetensorsFile(tmp_path / "none.safetensors")
    assert caught.value.code == "file-missing"
    with pytest.raises(BadCheckpoint) as caught:
        SafetensorsFile(tmp_path)
    assert caught.value.code == "file-unreadable"
    pointer = tmp_path / "pointer.safetensors"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(BadCheckpoint) as caught:
        SafetensorsFile(pointer)
    assert caught.value.code == "lfs-pointer"
    assert "git lfs pull" in caught.value.hint


def test_a_file_that_is_cut_short_while_open(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", {"x": entry("F32", [1000], 0, 4000)}, bytes(4000))
    file = SafetensorsFile(path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(BadCheckpoint, match="cut short while it was read, at 'x'"):
        file.load("x")


def reads_alike(path: Path) -> bool:
    """Whether we take the file; if we do, the format's own library takes it and agrees."""
    try:
        ours = SafetensorsFile(path)
    except BadCheckpoint:
        return False
    with safe_open(path, "np") as theirs:
        assert set(ours.keys()) == set(theirs.keys())
        for key in ours.keys():  # noqa: SIM118
            if ours.dtype(key).name.startswith(("bfloat16", "float8")):
                continue  # what the library gives for these depends on its version
            expected = theirs.get_tensor(key)
            assert ours.load(key).dtype == expected.dtype
            assert ours.load(key).tobytes() == expected.tobytes()
    ours.close()
    return True


shapes = st.lists(st.integers(0, 3), max_size=3)
names = st.text('aZ0._/ "\\é\u2028\U0001f600', max_size=4)


@st.composite
def valid_files(draw: st.DrawFn) -> bytes:
    """A file as any writer could lay it out: odd names, empty tensors, padding, any order."""
    tensors = draw(
        st.dictionaries(names, st.tuples(st.sampled_from(sorted(STORED)), shapes), max_size=3)
    )
    header: dict[str, object] = {}
    position = 0
    for name, (stored, shape) in tensors.items():
        size = int(np.prod(shape)) * STORED[stored].itemsize
        header[name] = entry(stored, shape, position, position + size)
        position += size
    order = draw(st.permutations(sorted(header)))
    text = json.dumps({name: header[name] for name in order}).encode()
    text += b" " * draw(st.integers(0, 9))
    # Zeros and ones are valid in every type, bool included.
    return struct.pack("<Q", len(text)) + text + bytes(n % 2 for n in range(position))


@settings(max_examples=60, deadline=None)
@given(data=valid_files())
def test_every_valid_file_is_read(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "valid.safetensors"
    path.write_bytes(data)
    assert reads_alike(path)


@settings(max_examples=100, deadline=None)
@given(
    data=valid_files(),
    edits=st.lists(st.tuples(st.integers(0, 2000), st.binary(max_size=3)), min_size=1),
)
def test_a_mangled_file_is_refused_or_read_as_the_library_reads_it(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, edits: list[tuple[int, bytes]]
) -> None:
    mangled = bytearray(data)
    for position, replacement in edits:
        start = position % (len(mangled) + 1)
        mangled[start : start + len(replacement)] = replacement
    path = tmp_path_factory.getbasetemp() / "mangled.safetensors"
    path.write_bytes(mangled)
    try:
        reads_alike(path)
    except SafetensorError as refusal:
        pytest.fail(f"we read what the library refuses: {refusal}")


@settings(max_examples=50, deadline=None)
@given(data=st.binary(max_size=200))
def test_random_bytes_never_do_anything_but_be_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "random.safetensors"
    path.write_bytes(data)
    reads_alike(path)
