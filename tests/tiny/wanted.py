"""Asks a component's own builder which tensors it wants.

With the answer, the fast tests need neither torch nor a checkpoint, and full-size graphs can be
built without any numbers. That the answer is right is for the parity tests to show.
"""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import onnx_ir as ir

from ortist.errors import BadCheckpoint
from ortist.graphs.weights import Transform, WeightSource, WeightTable
from tests.tiny.weights import ArraySource, Shapes

Build = Callable[[WeightSource], ir.Model]


def wanted_shapes(build: Build) -> Shapes:
    """Names and stored shapes of the tensors that `build` asks for."""
    shapes: Shapes = {}
    take = WeightTable.take

    def record(
        table: WeightTable, key: str, shape: tuple[int, ...], transform: Transform | None
    ) -> ir.Value:
        shapes[key] = shape
        return take(table, key, shape, transform)

    with patch.object(WeightTable, "take", record):
        try:
            build(ArraySource({}))
        except BadCheckpoint as error:
            if error.code != "weights-mismatch":
                raise
    return shapes
