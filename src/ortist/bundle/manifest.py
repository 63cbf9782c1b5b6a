"""ortist.json: what a bundle was made from, by what, and what its files have to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar, cast

from ortist.errors import BadBundle
from ortist.files import JsonObject, JsonValue, read_json, write_json

MANIFEST = "ortist.json"
FORMAT = 1

_HINT = "convert the checkpoint again"
_T = TypeVar("_T", str, int, dict[str, JsonValue])


@dataclass(frozen=True)
class FileEntry:
    """Size in bytes and SHA-256 (hexadecimal) of one file."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The contents of ortist.json.

    Attributes:
        source: name of the checkpoint, without the way to it.
        content: content key of the checkpoint (see `checkpoints.content`), hexadecimal.
        dtype: "fp32" or "fp16".
        opset, ir_version: of every graph.
        converter: identifies the code that wrote the bundle.
        versions: of ortist and the libraries that wrote it.
        model: what kind of model it is, for people and programs that only look.
        files: every other file of the bundle, by path relative to it.
        verification: check -> outcome.
        left_out: components of the checkpoint that the bundle does not have.
    """

    source: str
    content: str
    dtype: str
    opset: int
    ir_version: int
    converter: str
    versions: Mapping[str, str]
    model: Mapping[str, JsonValue]
    files: Mapping[str, FileEntry]
    verification: Mapping[str, str] = field(default_factory=dict[str, str])
    left_out: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        """Write it to `folder`."""
        write_json(folder / MANIFEST, {"format": FORMAT, **asdict(self)})

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """The manifest of the bundle `folder`; None where another tool made the bundle.

        Raises:
            BadBundle: it is damaged, or of a format that only a newer ortist knows.
        """
        path = folder / MANIFEST
        if not path.exists():
            return None
        data = read_json(path, BadBundle, hint=_HINT)
        version = _get(data, "format", int, path)
        if version != FORMAT:
            raise BadBundle(
                f"{path} has format {version}, this ortist knows format {FORMAT}",
                hint="upgrade ortist, or convert the checkpoint again",
                code="manifest-format",
            )
        return cls(
            source=_get(data, "source", str, path),
            content=_get(data, "content", str, path),
            dtype=_get(data, "dtype", str, path),
            opset=_get(data, "opset", int, path),
            ir_version=_get(data, "ir_version", int, path),
            converter=_get(data, "converter", str, path),
            versions=_texts(data, "versions", path),
            model=_get(data, "model", dict, path),
            files=_files(data, path),
            verification=_texts(data, "verification", path),
            left_out=_names(data, "left_out", path),
        )

    def check_files(self, folder: Path) -> None:
        """Compare the size of every file with the manifest.

        Raises:
            BadBundle: naming the first file that is missing or has another size.
        """
        for name, entry in self.files.items():
            path = folder / name
            try:
                size = path.stat().st_size
            except OSError:
                raise BadBundle(f"{path} is missing", hint=_HINT, code="file-missing") from None
            if size != entry.size:
                raise BadBundle(
                    f"{path} has {size} bytes, {MANIFEST} says {entry.size}",
                    hint=_HINT,
                    code="file-size",
                )


def _damaged(path: Path, key: str) -> BadBundle:
    return BadBundle(f"{path}: {key} is missing or damaged", hint=_HINT, code="bad-manifest")


def _get(data: JsonObject, key: str, kind: type[_T], path: Path) -> _T:
    value = data.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _damaged(path, key)
    return value


def _texts(data: JsonObject, key: str, path: Path) -> dict[str, str]:
    value = _get(data, key, dict, path)
    if not all(isinstance(text, str) for text in value.values()):
        raise _damaged(path, key)
    return cast("dict[str, str]", value)


def _names(data: JsonObject, key: str, path: Path) -> tuple[str, ...]:
    value = data.get(key)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise _damaged(path, key)
    return tuple(cast("list[str]", value))


def _files(data: JsonObject, path: Path) -> dict[str, FileEntry]:
    entries: dict[str, FileEntry] = {}
    for name, value in _get(data, "files", dict, path).items():
        if not isinstance(value, dict) or not _is_inside(name):
            raise _damaged(path, f"files: {name}")
        entries[name] = FileEntry(_get(value, "size", int, path), _get(value, "sha256", str, path))
    return entries


def _is_inside(name: str) -> bool:
    """Whether `name` is a relative path that stays within the bundle."""
    parts = name.split("/")
    return all(part not in ("", ".", "..") and not set(part) & set("\\:\0") for part in parts)
