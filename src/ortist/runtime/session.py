"""Sessions: the only module that imports onnxruntime.

A `Graph` is what the rest of ortist sees of a session: named inputs and outputs with dtype and
shape, and `run`. Feeds are cast to what the graph declares, so that float16 graphs, int32 token
ids and 1-D timesteps of other tools' exports all work through one door.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ortist.errors import BadBundle, NoProvider

if TYPE_CHECKING:
    from ortist.providers.spec import Provider

Array = NDArray[np.generic]

_NUMPY_TYPES: dict[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}


@dataclass(frozen=True)
class TensorSpec:
    """A graph's input or output: name, dtype, and shape (a name or None where it is free)."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int | str | None, ...]


class Graph(Protocol):
    """A graph that is ready to run."""

    @property
    def inputs(self) -> Mapping[str, TensorSpec]:
        """The inputs by name."""
        ...

    @property
    def outputs(self) -> Mapping[str, TensorSpec]:
        """The outputs by name."""
        ...

    def run(self, feeds: Mapping[str, Array], outputs: tuple[str, ...]) -> tuple[Array, ...]:
        """Run once; the feeds are cast to the declared dtypes, the named outputs returned."""
        ...


class _OrtTensorInfo(Protocol):
    name: str
    type: str
    shape: list[int | str | None]


class _OrtSession(Protocol):
    def get_inputs(self) -> list[_OrtTensorInfo]: ...
    def get_outputs(self) -> list[_OrtTensorInfo]: ...
    def get_providers(self) -> list[str]: ...
    def run(self, names: list[str], feeds: Mapping[str, Array]) -> list[Array]: ...


class _OrtSessionOptions(Protocol):
    log_severity_level: int


class _OrtModule(Protocol):
    __version__: str

    def SessionOptions(self) -> _OrtSessionOptions: ...  # noqa: N802
    def InferenceSession(  # noqa: N802
        self, path: str, options: _OrtSessionOptions, *, providers: list[object]
    ) -> _OrtSession: ...
    def get_available_providers(self) -> list[str]: ...


def _runtime() -> _OrtModule:
    if find_spec("onnxruntime") is None:
        raise NoProvider(
            "ONNX Runtime is not installed",
            hint='install the extra for your machine, for a CPU: pip install "ortist[cpu]"',
            code="no-runtime",
        )
    # From 1.32 on it keeps usage records under the home folder and sends them. Nobody asked for
    # that by drawing a picture; who wants it sets the variable to 0.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        module = import_module("onnxruntime")
    except ImportError as error:
        raise NoProvider(
            f"ONNX Runtime is installed but cannot be imported: {error}",
            hint="reinstall exactly one runtime wheel, for a CPU: "
            'pip install --force-reinstall "ortist[cpu]"',
            code="broken-runtime",
        ) from error
    if not hasattr(module, "InferenceSession"):
        raise NoProvider(
            "the folder 'onnxruntime' that Python finds holds no ONNX Runtime (left over from an "
            "uninstall, or a folder of that name in the way)",
            hint="remove that folder, then reinstall exactly one runtime wheel, for a CPU: "
            'pip install --force-reinstall "ortist[cpu]"',
            code="broken-runtime",
        )
    return cast(_OrtModule, module)


def runtime_version() -> str:
    """The version of the installed ONNX Runtime.

    Raises:
        NoProvider: no ONNX Runtime is installed.
    """
    return _runtime().__version__


def available_providers() -> tuple[str, ...]:
    """ONNX Runtime's names of the execution providers that its wheel was built with.

    Raises:
        NoProvider: no ONNX Runtime is installed.
    """
    return tuple(_runtime().get_available_providers())


class OrtGraph:
    """A graph opened as an ONNX Runtime session."""

    def __init__(self, session: _OrtSession, role: str) -> None:
        self._session = session
        self._role = role
        self.inputs: Mapping[str, TensorSpec] = _specs(session.get_inputs(), role)
        self.outputs: Mapping[str, TensorSpec] = _specs(session.get_outputs(), role)

    def run(self, feeds: Mapping[str, Array], outputs: tuple[str, ...]) -> tuple[Array, ...]:
        """Run once.

        Args:
            feeds: one array per input; cast to the input's dtype, rank checked.
            outputs: the names of the outputs wanted.

        Raises:
            BadBundle: an input is missing, unknown or of the wrong rank, or the graph failed.
        """
        missing = [name for name in self.inputs if name not in feeds]
        unknown = [name for name in feeds if name not in self.inputs]
        if missing or unknown:
            raise BadBundle(
                f"{self._role} wants the inputs {list(self.inputs)}; "
                f"missing: {missing}, unknown: {unknown}",
                hint="the bundle's graph does not fit its family; convert the checkpoint again",
                code="graph-inputs",
            )
        ready = {name: _cast(array, self.inputs[name], self._role) for name, array in feeds.items()}
        try:
            return tuple(self._session.run(list(outputs), ready))
        except Exception as error:  # ONNX Runtime raises its own types, all of them Exception
            shapes = {name: array.shape for name, array in ready.items()}
            raise BadBundle(
                f"{self._role} failed in ONNX Runtime with inputs {shapes}: {_one_line(error)}",
                hint="try another size, or convert the checkpoint again",
                code="graph-run",
            ) from error


def open_graph(path: Path, provider: Provider, *, role: str) -> OrtGraph:
    """Open `path` as a session on `provider`.

    Args:
        path: a `model.onnx`; its external data lies beside it.
        provider: where it is to run; a session that opened elsewhere is an error.
        role: the component's name, for messages.

    Raises:
        NoProvider: no ONNX Runtime, the wheel lacks the provider, or the session fell back.
        BadBundle: ONNX Runtime cannot load the graph.
    """
    ort = _runtime()
    if provider.ort_name not in ort.get_available_providers():
        raise NoProvider(
            f"the installed ONNX Runtime {ort.__version__} has no {provider.ort_name} "
            f"(it has {', '.join(ort.get_available_providers())})",
            hint=f'install the wheel that has it: pip install "ortist[{provider.extra}]"',
            code="provider-missing",
        )
    options = ort.SessionOptions()
    options.log_severity_level = 4  # errors reach the user as exceptions, once
    try:
        session = ort.InferenceSession(
            str(path), options, providers=[(provider.ort_name, dict(provider.options))]
        )
    except Exception as error:  # ONNX Runtime raises its own types, all of them Exception
        raise BadBundle(
            f"ONNX Runtime {ort.__version__} cannot load {path.parent.name}/{path.name}: "
            f"{_one_line(error)}",
            hint="convert the checkpoint again; if that does not help, upgrade ONNX Runtime",
            code="graph-load",
        ) from error
    used = session.get_providers()
    if not used or used[0] != provider.ort_name:
        raise NoProvider(
            f"{role} was to run on {provider.ort_name} but ONNX Runtime opened it on {used}",
            hint="see ONNX Runtime's messages above; or ask for --provider cpu",
            code="provider-fallback",
        )
    return OrtGraph(session, role)


def _specs(infos: list[_OrtTensorInfo], role: str) -> dict[str, TensorSpec]:
    specs: dict[str, TensorSpec] = {}
    for info in infos:
        if info.type not in _NUMPY_TYPES:
            raise BadBundle(
                f"{role} has the tensor {info.name!r} of type {info.type}",
                hint=f"known types: {sorted(_NUMPY_TYPES)}",
                code="graph-type",
            )
        dtype = np.dtype(_NUMPY_TYPES[info.type])
        specs[info.name] = TensorSpec(info.name, dtype, tuple(info.shape))
    return specs


def _cast(array: Array, spec: TensorSpec, role: str) -> Array:
    if array.ndim == len(spec.shape):
        shaped = array
    elif array.ndim == 0 and len(spec.shape) == 1:
        shaped = array.reshape(1)  # older exports take the timestep as a vector
    else:
        raise BadBundle(
            f"{role} wants {spec.name!r} with {len(spec.shape)} dimensions, got {array.ndim}",
            hint="the bundle's graph does not fit its family; convert the checkpoint again",
            code="graph-inputs",
        )
    return np.ascontiguousarray(shaped, dtype=spec.dtype).reshape(shaped.shape)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
