"""Checking the graphs of a bundle."""

from __future__ import annotations

from pathlib import Path

from ortist.bundle.layout import GRAPH_FILE
from ortist.errors import BadBundle


def check_graph(folder: Path) -> None:
    """Run `onnx.checker` with full type and shape inference over the graph in `folder`.

    Raises:
        BadBundle: the checker found a fault.
    """
    import onnx

    path = folder / GRAPH_FILE
    try:
        onnx.checker.check_model(str(path), full_check=True)  # pyright: ignore[reportUnknownMemberType]
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as cause:
        raise BadBundle(
            f"{path} does not pass onnx.checker: {' '.join(str(cause).split())}",
            hint="this is a fault of the program that wrote the graph: please report it",
            code="graph-invalid",
        ) from cause
