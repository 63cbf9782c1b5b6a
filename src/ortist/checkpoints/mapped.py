"""A component of a checkpoint under the names of the other layout, one tensor at a time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ortist.checkpoints.layouts import Change, Move, Shape
from ortist.checkpoints.renamed import Weights
from ortist.errors import BadCheckpoint

_HINT = "the file is of another model than it seems: convert it with a configuration of its own"
_THIRDS: Mapping[Change, int] = {"first": 0, "second": 1, "third": 2}


class MappedWeights:
    """`source` as the moves of a `KeyMap` make it; a `WeightSource`.

    Names, shapes and dtypes are known without reading a tensor. A tensor is changed when it is
    loaded, and nothing is kept: of a stacked tensor, query, key and value are each read anew.

    Args:
        source: the tensors as stored; closed by `close`.
        moves: what to make, by name (`KeyMap.to_diffusers` or `KeyMap.to_single`).
        path: where the tensors come from, for messages.
        prefix: what stands before the names of the moves' sources in `source`.

    Raises:
        BadCheckpoint: a tensor is missing, or has another shape than the moves expect.
    """

    def __init__(
        self, source: Weights, moves: Mapping[str, Move], path: Path, *, prefix: str = ""
    ) -> None:
        self._source = source
        self._moves = dict(moves)
        self._prefix = prefix
        stored = set(source.keys())
        wanted = {prefix + key for move in moves.values() for key in move.sources}
        missing = sorted(wanted - stored)
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise BadCheckpoint(
                f"{path} lacks {', '.join(missing[:3])}{more}", hint=_HINT, code="weights-missing"
            )
        for move in self._moves.values():
            shapes = [source.shape(prefix + key) for key in move.sources]
            found = _changed_shape(shapes, move.change)
            if found != move.shape:
                names = ", ".join(prefix + key for key in move.sources)
                raise BadCheckpoint(
                    f"{path}: {names} has shape {', '.join(str(list(s)) for s in shapes)}, which "
                    f"does not make {move.target} of shape {list(move.shape)}",
                    hint=_HINT,
                    code="weights-mismatch",
                )
            dtypes = {source.dtype(prefix + key) for key in move.sources}
            if len(dtypes) > 1:
                kinds = " and ".join(sorted(str(dtype) for dtype in dtypes))
                raise BadCheckpoint(
                    f"{path}: {move.target} would be stacked of {kinds}",
                    hint="store query, key and value in one dtype",
                    code="weights-mismatch",
                )

    def keys(self) -> tuple[str, ...]:
        """Every tensor's name."""
        return tuple(self._moves)

    def shape(self, key: str) -> Shape:
        """Shape of the tensor that `load` gives."""
        return self._moves[key].shape

    def dtype(self, key: str) -> np.dtype[np.generic]:
        """Dtype as stored."""
        return self._source.dtype(self._prefix + self._moves[key].sources[0])

    def load(self, key: str) -> np.ndarray:
        """The tensor in its stored dtype; a view of what was read unless tensors are stacked."""
        move = self._moves[key]
        arrays = [self._source.load(self._prefix + name) for name in move.sources]
        match move.change:
            case "keep" | "flatten" | "unflatten":
                return arrays[0].reshape(move.shape)
            case "transpose":
                return arrays[0].T
            case "stack":
                return np.concatenate(arrays)
            case "first" | "second" | "third":
                rows = move.shape[0]
                start = _THIRDS[move.change] * rows
                return arrays[0][start : start + rows]

    def close(self) -> None:
        """Close the files."""
        self._source.close()


def _changed_shape(shapes: list[Shape], change: Change) -> Shape | None:
    """Shape of the result of `change`; None where it cannot be applied."""
    shape = shapes[0]
    match change:
        case "keep":
            return shape
        case "first" | "second" | "third":
            return None if not shape or shape[0] % 3 else (shape[0] // 3, *shape[1:])
        case "stack":
            return (len(shapes) * shape[0], *shape[1:]) if len(set(shapes)) == 1 else None
        case "flatten":
            # Some tools store the matrices as they are, or as one-dimensional convolutions.
            return shape[:2] if all(edge == 1 for edge in shape[2:]) else None
        case "unflatten":
            return (*shape, 1, 1) if len(shape) == 2 else shape
        case "transpose":
            return shape[::-1]
