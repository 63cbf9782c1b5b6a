"""Checks and runs a model that a graph builder returned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import onnx
import onnx_ir as ir


def checked(model: ir.Model) -> onnx.ModelProto:
    """The model as a proto, after onnx's full check (types and shapes inferred strictly)."""
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    return proto


class Session:
    """An ONNX Runtime session on one thread of the CPU that answers with every output by name."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._names = [value.name for value in self._session.get_outputs()]

    def run_all(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        values = self._session.run(self._names, dict(feeds))
        return {name: np.asarray(value) for name, value in zip(self._names, values, strict=True)}


def session(model: ir.Model) -> Session:
    """Check the model and open it."""
    return Session(checked(model))


def run(model: ir.Model, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Check the model and run it once."""
    return session(model).run_all(feeds)


def op_counts(model: ir.Model) -> Counter[str]:
    """How often each operator occurs."""
    return Counter(node.op_type for node in model.graph)


def dims(values: Iterable[onnx.ValueInfoProto]) -> dict[str, list[int | str]]:
    """Names and shapes of a proto's inputs or outputs."""
    return {
        value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in values
    }


def relative_error(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference over the largest magnitude of the reference."""
    assert ours.shape == theirs.shape
    difference = np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max()
    return float(difference / np.abs(theirs.astype(np.float64)).max())
