"""What a PyTorch pickle may speak of, and the inert records that ortist makes of it.

Nothing is imported and nothing of the file is called: a global is a name, looked up in the
tables below, and "calling" it means filling one of these records. Names outside the tables are
refused. Layout of the records: `torch/_utils.py` and `torch/serialization.py` of PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import cast

import numpy as np

from ortist.checkpoints.texts import shortened

MAX_RANK = 32
MAX_ELEMENTS = 1 << 48
MAX_EXPANDED = 1 << 24  # bytes: what a view that repeats elements may take beyond its storage


class Malformed(ValueError):
    """The pickle is not what PyTorch writes; the text says where it differs."""


class Refused(ValueError):
    """The pickle asks for something that is not allowed; the text names it."""


@dataclass(frozen=True, eq=False)
class Placeholder:
    """Stands for a class or an object of which only the name is kept."""

    name: str


@dataclass(frozen=True)
class Global:
    """An allowed name that has a meaning of its own, such as a function that builds tensors."""

    name: str


@dataclass(frozen=True)
class StorageType:
    """A storage class of torch; None for the untyped one, which counts bytes."""

    dtype: np.dtype[np.generic] | None


@dataclass(frozen=True)
class Dtype:
    """A dtype of torch; None for one that numpy does not have."""

    name: str
    dtype: np.dtype[np.generic] | None


@dataclass(frozen=True)
class Storage:
    """A run of elements kept elsewhere in the file: its key and how many there are.

    `dtype` is None for an untyped storage, whose elements are bytes.
    """

    key: str
    dtype: np.dtype[np.generic] | None
    count: int

    @property
    def nbytes(self) -> int:
        """Bytes it takes in the file."""
        return self.count * (1 if self.dtype is None else self.dtype.itemsize)


@dataclass(frozen=True, eq=False)
class Tensor:
    """A view into a storage; `offset` and `strides` count elements of `dtype`."""

    storage: Storage
    dtype: np.dtype[np.generic]
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def span(self) -> int:
        """Elements from the first to the last one it uses."""
        if 0 in self.shape:
            return 0
        return 1 + sum((d - 1) * s for d, s in zip(self.shape, self.strides, strict=True))


def _ml(name: str) -> np.dtype[np.generic]:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
_DTYPES = {
    **{name: name for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32")},
    **{name: name for name in ("int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool")},
    **{name: name for name in ("complex64", "complex128", "float8_e4m3fn", "float8_e5m2")},
    **{name: name for name in ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")},
}
_FUNCTIONS = {
    ("collections", "OrderedDict"),
    ("_codecs", "encode"),
    ("torch._utils", "_rebuild_tensor"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_tensor_v3"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch._utils", "_rebuild_parameter_with_state"),
}
# Kept by name only. They lie beside the weights in checkpoints of trainers (step counts, best
# scores, settings); a numpy array among them is no weight either.
_BY_NAME = {
    ("builtins", "set"),
    ("__builtin__", "set"),
    ("builtins", "frozenset"),
    ("__builtin__", "frozenset"),
    ("builtins", "complex"),
    ("builtins", "bytearray"),
    ("builtins", "slice"),
    ("builtins", "int"),
    ("builtins", "float"),
    ("builtins", "str"),
    ("builtins", "bool"),
    ("builtins", "list"),
    ("builtins", "dict"),
    ("builtins", "tuple"),
    ("collections", "defaultdict"),
    ("collections", "Counter"),
    ("argparse", "Namespace"),
    ("typing", "Any"),
    ("pathlib", "PosixPath"),
    ("pathlib", "WindowsPath"),
    ("torch", "Size"),
    ("torch", "device"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("pytorch_lightning.callbacks.model_checkpoint", "ModelCheckpoint"),
    ("pytorch_lightning.callbacks.early_stopping", "EarlyStopping"),
    ("pytorch_lightning.utilities.parsing", "AttributeDict"),
    ("lightning.pytorch.callbacks.model_checkpoint", "ModelCheckpoint"),
    ("lightning_fabric.utilities.data", "AttributeDict"),
    ("omegaconf.dictconfig", "DictConfig"),
    ("omegaconf.listconfig", "ListConfig"),
    ("omegaconf.base", "ContainerMetadata"),
    ("omegaconf.base", "Metadata"),
    ("omegaconf.nodes", "AnyNode"),
}


def find_global(module: str, name: str) -> object:
    """The record that stands for `module.name`.

    Raises:
        Refused: the name is not among those a checkpoint of weights needs.
    """
    if (module, name) in _FUNCTIONS:
        return Global(f"{module}.{name}")
    if (module, name) in _BY_NAME:
        return Placeholder(f"{module}.{name}")
    if module in {"torch", "torch.storage"} and name == "UntypedStorage":
        return StorageType(None)
    if module == "torch" and name in _STORAGES:
        return StorageType(_numpy(_STORAGES[name]))
    if module == "torch" and name in _DTYPES:
        return Dtype(name, _numpy(_DTYPES[name]))
    raise Refused(f"the global {shortened(f'{module}.{name}', 200)}")


def _numpy(name: str) -> np.dtype[np.generic]:
    if name.startswith(("bfloat", "float8")):
        return _ml(name)
    return np.dtype(name).newbyteorder("<")


def call(function: object, arguments: object) -> object:
    """The record that `function(*arguments)` stands for.

    Raises:
        Malformed: arguments that torch does not write.
        Refused: something that cannot be called here.
    """
    if not isinstance(arguments, tuple):
        raise Malformed("arguments that are no tuple")
    if isinstance(function, Placeholder):
        return Placeholder(function.name)
    if not isinstance(function, Global):
        raise Refused(f"a call of {shortened(function)}")
    return _result(function, cast("tuple[object, ...]", arguments))


def _result(function: Global, given: tuple[object, ...]) -> object:
    match function.name.rpartition(".")[2]:
        case "OrderedDict":
            return _ordered_dict(given)
        case "encode":
            return _encoded(given)
        case "_rebuild_parameter" | "_rebuild_parameter_with_state":
            if given and isinstance(given[0], Tensor):
                return given[0]
        case "_rebuild_tensor" if len(given) == 4:
            return _tensor(given[0], given[1], given[2], given[3])
        case "_rebuild_tensor_v2" if len(given) in {6, 7}:
            _check_plain(given[6] if len(given) == 7 else None)
            return _tensor(given[0], given[1], given[2], given[3])
        case "_rebuild_tensor_v3" if len(given) in {7, 8}:
            _check_plain(given[7] if len(given) == 8 else None)
            return _tensor(given[0], given[1], given[2], given[3], given[6])
        case _:
            pass
    raise Malformed(f"{function.name} is given {len(given)} arguments it does not take")


def _ordered_dict(given: tuple[object, ...]) -> dict[object, object]:
    made: dict[object, object] = {}
    if not given:
        return made
    if len(given) == 1 and isinstance(given[0], list):
        for pair in cast("list[object]", given[0]):
            if not isinstance(pair, list | tuple):
                break
            items = cast("list[object] | tuple[object, ...]", pair)
            if len(items) != 2:
                break
            put(made, items[0], items[1])
        else:
            return made
    raise Malformed("collections.OrderedDict is given something other than pairs")


def put(target: dict[object, object], key: object, value: object) -> None:
    """`target[key] = value`, for keys that are cheap to hash and not yet there."""
    items = cast("tuple[object, ...]", key) if isinstance(key, tuple) else (key,)
    if not all(_is_key(item) for item in items):
        raise Malformed(f"a dictionary has a key that is {shortened(cast('object', key))}")
    if key in target:
        raise Malformed(f"the key {shortened(cast('object', key))} is given twice")
    target[key] = value


def _is_key(value: object) -> bool:
    """Hashed in bounded time and depth; a tuple in a tuple in a tuple ... is not."""
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 64
    known = (str, bytes, float, Placeholder, Global, StorageType, Dtype)
    return value is None or isinstance(value, known)


def _encoded(given: tuple[object, ...]) -> bytes:
    """How protocol 2 writes bytes: as text that is encoded as Latin-1."""
    if len(given) == 2 and isinstance(given[0], str) and given[1] == "latin1":
        try:
            return given[0].encode("latin1")
        except UnicodeEncodeError:
            pass
    raise Malformed("_codecs.encode is given something other than Latin-1 text")


def _check_plain(metadata: object) -> None:
    if metadata:
        raise Malformed(f"a tensor carries {shortened(metadata)} (conjugated, negated or unknown)")


def _tensor(
    storage: object, offset: object, shape: object, strides: object, dtype: object = None
) -> Tensor:
    if not isinstance(storage, Storage):
        raise Malformed("a tensor without a storage")
    if dtype is None:
        if storage.dtype is None:
            raise Malformed("a tensor without a type")
        stored = storage.dtype
    elif isinstance(dtype, Dtype) and dtype.dtype is not None:
        stored = dtype.dtype
    else:
        raise Malformed(f"a tensor of the type {shortened(dtype)}")
    first = _natural(offset)
    sizes, steps = _naturals(shape), _naturals(strides)
    if first is None or sizes is None or steps is None or len(sizes) != len(steps):
        raise Malformed(
            f"a tensor of shape {shortened(shape)}, strides {shortened(strides)} and offset "
            f"{shortened(offset)}"
        )
    if len(sizes) > MAX_RANK or prod(d for d in sizes if d) > MAX_ELEMENTS:
        raise Malformed(f"a tensor of shape {shortened(shape)}")
    tensor = Tensor(storage, stored, first, sizes, steps)
    if (first + tensor.span) * stored.itemsize > storage.nbytes:
        raise Malformed(
            f"a tensor of shape {list(sizes)} that ends at element {first + tensor.span}, outside "
            f"its storage of {storage.nbytes} bytes"
        )
    if prod(sizes) * stored.itemsize > max(storage.nbytes, MAX_EXPANDED):
        raise Malformed(
            f"a tensor of shape {list(sizes)} that repeats a storage of {storage.nbytes} bytes"
        )
    return tensor


def storage(identifier: object) -> Storage:
    """The storage that a persistent id speaks of: ("storage", type, key, device, count).

    The older format adds a sixth entry for views of storages, which is None since torch 0.4.
    """
    if isinstance(identifier, tuple):
        fields = cast("tuple[object, ...]", identifier)
        if fields and fields[0] != "storage":
            raise Refused(f"the persistent id {shortened(fields[0])}")
        if len(fields) == 5 or (len(fields) == 6 and fields[5] is None):
            _, kind, key, _, count = fields[:5]
            number = _natural(count)
            if isinstance(kind, StorageType) and isinstance(key, str) and number is not None:
                return Storage(key, kind.dtype, number)
    raise Malformed("a persistent id that is no storage")


def _natural(value: object) -> int | None:
    """An int from 0 to 2**63 - 1."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
        return value
    return None


def _naturals(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, tuple):
        return None
    items = cast("tuple[object, ...]", value)
    numbers = [number for item in items if (number := _natural(item)) is not None]
    return tuple(numbers) if len(numbers) == len(items) else None
