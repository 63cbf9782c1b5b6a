"""A checkpoint cut into several safetensors files, tied together by an index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np

from ortist.checkpoints.safetensors_file import SafetensorsFile
from ortist.errors import BadCheckpoint
from ortist.files import read_json

_HINT = "the checkpoint was not fetched whole: fetch it again"


class ShardedSafetensors:
    """The tensors of every file that an index names; a `WeightSource`.

    Args:
        index: the index, `*.safetensors.index*.json`: {"weight_map": {tensor: file}}.

    Attributes:
        index: the index.
        files: the shards, in order of name.

    Raises:
        BadCheckpoint: the index is damaged, leads out of its folder, or does not say what its
            files hold; or a file is missing or damaged.
    """

    def __init__(self, index: Path) -> None:
        self.index = index
        homes = _weight_map(index)
        names = sorted(set(homes.values()))
        self._shards: dict[str, SafetensorsFile] = {}
        try:
            for name in names:
                self._shards[name] = SafetensorsFile(index.parent / name)
            _check_index(index, homes, self._shards)
        except BaseException:
            self.close()
            raise
        self.files = tuple(index.parent / name for name in names)
        self._homes = {key: self._shards[name] for key, name in homes.items()}

    def keys(self) -> tuple[str, ...]:
        """Every tensor's name, in the order of the index."""
        return tuple(self._homes)

    def shape(self, key: str) -> tuple[int, ...]:
        """Shape as stored."""
        return self._homes[key].shape(key)

    def dtype(self, key: str) -> np.dtype[np.generic]:
        """Dtype as stored."""
        return self._homes[key].dtype(key)

    def load(self, key: str) -> np.ndarray:
        """The tensor in its stored dtype, in memory of its own.

        Raises:
            BadCheckpoint: its file can no longer be read.
        """
        return self._homes[key].load(key)

    def close(self) -> None:
        """Close every file."""
        for shard in self._shards.values():
            shard.close()


def _weight_map(index: Path) -> dict[str, str]:
    found = read_json(index, BadCheckpoint, hint=_HINT).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise BadCheckpoint(f"{index} has no weight_map", hint=_HINT, code="bad-index")
    homes: dict[str, str] = {}
    for key, name in found.items():
        if not isinstance(name, str) or not _is_plain_name(name):
            raise BadCheckpoint(
                f"{index} says that {key!r} lies in {name!r}, which is no file name",
                hint=_HINT,
                code="bad-index",
            )
        homes[key] = name
    return homes


def _is_plain_name(name: str) -> bool:
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    return name not in ("", ".", "..") and posix.name == name and windows.name == name


def _check_index(
    index: Path, homes: Mapping[str, str], shards: Mapping[str, SafetensorsFile]
) -> None:
    held = {name: frozenset(shard.keys()) for name, shard in shards.items()}
    for key, name in homes.items():
        if key not in held[name]:
            raise BadCheckpoint(
                f"{index} says that {key!r} lies in {name}, which does not hold it",
                hint=_HINT,
                code="bad-index",
            )
    for name, keys in held.items():
        for key in keys:
            if homes.get(key) != name:
                raise BadCheckpoint(
                    f"{index.parent / name} holds {key!r}, which {index.name} does not place there",
                    hint=_HINT,
                    code="bad-index",
                )
