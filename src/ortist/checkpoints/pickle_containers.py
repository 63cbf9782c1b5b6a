"""Where a PyTorch file keeps its pickle and its storages: the zip format and the older one.

Zip (torch >= 1.6): `NAME/data.pkl`, `NAME/data/KEY` for each storage, `NAME/byteorder`; members
are stored, never compressed, so that a tensor can be read in its place.
Older: pickles of a magic number, a version, facts about the machine, the object and the list of
storage keys, then each storage as an 8-byte count and its elements.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, cast

from ortist.checkpoints.pickle_machine import unpickle
from ortist.checkpoints.pickle_records import Malformed, Storage
from ortist.checkpoints.raw_file import RawFile, Window
from ortist.checkpoints.texts import shortened

MAX_PICKLE = 32 << 20  # a whole trainer's state of 10,000 tensors takes a tenth of it
_MAX_MEMBERS = 1 << 20
_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_LOCAL = struct.Struct("<4s5H3I2H")  # signature, ..., flags at 2, length of name and of extra

Places = Mapping[str, tuple[int, int]]  # storage key -> first and past-the-last byte


@dataclass(frozen=True)
class Contents:
    """What a container gives: the object, its storages' places, and their byte order."""

    value: object
    places: Places
    big_endian: bool


def open_contents(file: RawFile) -> Contents:
    """The contents of a PyTorch file, whichever of its formats it has.

    Raises:
        Malformed: neither of them, or damaged.
        Refused: see `unpickle`.
    """
    start = file.read_at(0, 512).tobytes()
    if start.startswith(b"PK"):
        return _open_zip(file)
    if start[257:262] == b"ustar":
        raise Malformed("it has the tar format of 2016, which is not read: save it anew with torch")
    return _open_older(file)


def _open_older(file: RawFile) -> Contents:
    window = Window(file, 0, min(file.size, MAX_PICKLE))
    try:
        if unpickle(window) != _MAGIC:
            raise Malformed("it does not start with PyTorch's magic number")
    except Malformed as cause:
        raise Malformed(f"neither of PyTorch's formats ({cause})") from None
    if unpickle(window) != _VERSION:
        raise Malformed("it has a version of the older format that is not known")
    system = unpickle(window)
    if not isinstance(system, dict) or (
        cast("dict[object, object]", system).get("little_endian") is not True
    ):
        raise Malformed("it does not say that its numbers are little-endian")
    storages: list[Storage] = []
    value = unpickle(window, storages)
    keys = unpickle(window)
    if not isinstance(keys, list):
        raise Malformed("its list of storages is no list")
    items = cast("list[object]", keys)
    names = [key for key in items if isinstance(key, str)]
    if len(names) != len(items) or len(set(names)) != len(names):
        raise Malformed("its list of storages holds something other than different names")
    return Contents(value, _places_in_line(file, window.position, names, storages), False)


def _places_in_line(
    file: RawFile, position: int, keys: list[str], storages: list[Storage]
) -> dict[str, tuple[int, int]]:
    """Storages one after another, each behind its count; they cover the rest of the file."""
    known: dict[str, Storage] = {}
    for storage in storages:
        first = known.setdefault(storage.key, storage)
        if (first.count, first.nbytes) != (storage.count, storage.nbytes):
            raise Malformed(f"the storage {shortened(storage.key)} has two lengths")
    places: dict[str, tuple[int, int]] = {}
    for key in keys:
        shown = f"the storage {shortened(key)}"
        storage = known.get(key)
        if storage is None:
            raise Malformed(f"{shown} belongs to nothing")
        start = position + 8
        if storage.nbytes > file.size - start:
            raise Malformed(f"it is cut short at {shown} of {storage.nbytes} bytes")
        count = int.from_bytes(file.read_at(position, 8).tobytes(), "little")
        if count != storage.count:
            raise Malformed(f"{shown} has {count} elements instead of {storage.count}")
        position = start + storage.nbytes
        places[key] = (start, position)
    if missing := next((key for key in known if key not in places), None):
        raise Malformed(f"the storage {shortened(missing)} is missing")
    if position != file.size:
        raise Malformed(f"its last {file.size - position} bytes belong to nothing")
    return places


class _Seekable:
    """A `RawFile` as `zipfile` wants it, for the directory at the end."""

    def __init__(self, file: RawFile) -> None:
        self._file = file
        self._position = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        base = {0: 0, 1: self._position, 2: self._file.size}[whence]
        if base + offset < 0:
            raise OSError("before the start")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, length: int = -1) -> bytes:
        wanted = self._file.size if length < 0 else length
        data = self._file.read_at(self._position, wanted).tobytes()
        self._position += len(data)
        return data

    def seekable(self) -> bool:
        return True


def _open_zip(file: RawFile) -> Contents:
    try:
        with zipfile.ZipFile(cast("IO[bytes]", _Seekable(file))) as archive:
            infos, end = archive.infolist(), archive.start_dir
    except (zipfile.BadZipFile, ValueError, OSError, struct.error, OverflowError, EOFError):
        raise Malformed("its zip directory is damaged or was cut off") from None
    except NotImplementedError as cause:
        raise Malformed(f"its zip directory asks for more than PyTorch's do ({cause})") from None
    members = _member_places(file, infos, end)
    roots = [name for name in members if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(roots) != 1:
        raise Malformed(f"it holds {len(roots)} members NAME/data.pkl instead of one")
    root = roots[0].removesuffix("data.pkl")
    if f"{root}constants.pkl" in members or any(
        name.startswith(f"{root}code/") for name in members
    ):
        raise Malformed("it is a TorchScript program, not a checkpoint of weights")
    start, stop = members[roots[0]]
    if stop - start > MAX_PICKLE:
        raise Malformed(f"its data.pkl takes {stop - start} bytes, more than {MAX_PICKLE}")
    big_endian = _is_big_endian(file, members.get(f"{root}byteorder"))
    window = Window(file, start, stop)
    storages: list[Storage] = []
    value = unpickle(window, storages)
    if window.position != stop:
        raise Malformed("bytes follow its pickle in data.pkl")
    places = {s.key: _member(f"{root}data/{s.key}", s.nbytes, members) for s in storages}
    return Contents(value, places, big_endian)


def _member(name: str, length: int, members: Places) -> tuple[int, int]:
    """Where a storage lies; it has to be there, with the length that is said of it."""
    if name not in members:
        raise Malformed(f"the member {shortened(name)} is missing")
    start, end = members[name]
    if end - start != length:
        raise Malformed(f"the member {shortened(name)} has {end - start} bytes, not {length}")
    return start, end


def _is_big_endian(file: RawFile, place: tuple[int, int] | None) -> bool:
    if place is None:  # before torch 2.1, and always little-endian
        return False
    order = file.read_at(place[0], min(8, place[1] - place[0])).tobytes()
    if order not in {b"little", b"big"}:
        raise Malformed(f"its byte order is {order!r}")
    return order == b"big"


def _member_places(
    file: RawFile, infos: list[zipfile.ZipInfo], end: int
) -> dict[str, tuple[int, int]]:
    """Each member's bytes, which have to lie before the directory and apart from each other."""
    if len(infos) > _MAX_MEMBERS:
        raise Malformed(f"it has {len(infos)} members")
    places: dict[str, tuple[int, int]] = {}
    position = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        shown = shortened(info.filename)
        name = info.orig_filename
        if name in places:
            raise Malformed(f"the member {shown} is there twice")
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
            raise Malformed(f"the member {shown} leads out of the archive")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise Malformed(f"the member {shown} is compressed, which PyTorch never does")
        if info.flag_bits & 0x1:
            raise Malformed(f"the member {shown} is encrypted")
        if info.header_offset < position:
            raise Malformed(f"the member {shown} overlaps the one before it")
        start = _data_start(file, info)
        position = start + info.file_size
        if position > end:
            raise Malformed(f"the member {shown} ends outside the file (it may be cut short)")
        places[name] = (start, position)
    return places


def _data_start(file: RawFile, info: zipfile.ZipInfo) -> int:
    """The first byte after a member's own header, which has to name it as the directory does."""
    shown = shortened(info.filename)
    header = file.read_at(info.header_offset, _LOCAL.size).tobytes()
    if len(header) < _LOCAL.size or not header.startswith(b"PK\x03\x04"):
        raise Malformed(f"the member {shown} has no header where the directory says")
    name_length, extra_length = _LOCAL.unpack(header)[-2:]
    start = info.header_offset + _LOCAL.size
    name = file.read_at(start, name_length).tobytes()
    if name not in {_encoded(info.orig_filename, "utf-8"), _encoded(info.orig_filename, "cp437")}:
        raise Malformed(f"the member {shown} has another name in its own header")
    return start + name_length + extra_length


def _encoded(name: str, encoding: str) -> bytes | None:
    try:
        return name.encode(encoding)
    except UnicodeEncodeError:
        return None
