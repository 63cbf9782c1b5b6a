"""Writing one graph: `model.onnx`, and its weights beside it in `model.onnx_data`.

Every weight goes into the data file, however small the model: the graph file then holds
structure only, a weight can be replaced by name when a session opens, and one code path serves
all sizes. (For the embedded model a session over both files opens as fast as over one.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir

from ortist.bundle.layout import DATA_FILE, GRAPH_FILE
from ortist.bundle.manifest import FileEntry

# A page for what may be mapped on its own, a cache line for the rest.
_LARGE, _PAGE, _LINE = 1 << 16, 4096, 64


def weights_of(model: ir.Model) -> list[ir.Value]:
    """The initialisers that are read from the checkpoint, in the order they are stored."""
    values = model.graph.initializers.values()
    return [value for value in values if isinstance(value.const_value, ir.LazyTensor)]


def write_graph(
    model: ir.Model, folder: Path, *, on_bytes: Callable[[int, str], None]
) -> dict[str, FileEntry]:
    """Write `model` into `folder`, reading its weights one at a time.

    The model's lazy tensors are replaced by references to the data file.

    Args:
        model: a graph whose weights are `LazyTensor`s.
        folder: an existing folder.
        on_bytes: called after each tensor with its number of bytes and its name.

    Returns:
        The files written, by name within `folder`.

    Raises:
        BadCheckpoint: a tensor cannot be read or does not fit the dtype.
        OSError: the files cannot be written.
    """
    digest = hashlib.sha256()
    position = 0
    with (folder / DATA_FILE).open("wb", buffering=1 << 18) as file:

        def put(data: memoryview | bytes) -> None:
            nonlocal position
            file.write(data)
            digest.update(data)
            position += len(data)

        for value in weights_of(model):
            tensor = value.const_value
            if tensor is None or value.name is None:
                raise ValueError(f"{value} is no weight")
            put(bytes(_padding(position, tensor.nbytes)))
            start = position
            put(_data(tensor))
            if position - start != tensor.nbytes:
                raise ValueError(f"{value.name} has {position - start} bytes, not {tensor.nbytes}")
            value.const_value = _reference(tensor, value.name, start, folder)
            on_bytes(tensor.nbytes, value.name)
    graph = ir.to_proto(model).SerializeToString(deterministic=True)
    (folder / GRAPH_FILE).write_bytes(graph)
    return {
        GRAPH_FILE: FileEntry(len(graph), hashlib.sha256(graph).hexdigest()),
        DATA_FILE: FileEntry(position, digest.hexdigest()),
    }


def _padding(position: int, size: int) -> int:
    return -position % (_PAGE if size >= _LARGE else _LINE)


def _data(tensor: ir.TensorProtocol) -> memoryview:
    array = np.ascontiguousarray(tensor.numpy())
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return little.reshape(-1).view(np.uint8).data


def _reference(
    tensor: ir.TensorProtocol, name: str, offset: int, folder: Path
) -> ir.ExternalTensor:
    return ir.ExternalTensor(
        location=DATA_FILE,
        offset=offset,
        length=tensor.nbytes,
        dtype=tensor.dtype,
        shape=ir.Shape(int(dim) for dim in tensor.shape.numpy()),
        name=name,
        metadata_props=dict(tensor.metadata_props),
        base_dir=folder,
    )
