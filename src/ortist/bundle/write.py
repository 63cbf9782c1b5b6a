"""Conversion: a checkpoint becomes a bundle, graph by graph, tensor by tensor."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib.metadata import version
from math import prod
from pathlib import Path

import numpy as np

from ortist import __version__
from ortist.bundle.atomic import new_directory, require_free, require_space
from ortist.bundle.converter import converter_id
from ortist.bundle.external import write_graph
from ortist.bundle.layout import CONFIG_FILE
from ortist.bundle.manifest import FileEntry, Manifest
from ortist.bundle.read import Bundle
from ortist.bundle.recipes import Recipe, recipes
from ortist.bundle.verify import check_graph
from ortist.checkpoints.content import content_key, unreadable
from ortist.checkpoints.directory import (
    MODEL_INDEX,
    SCHEDULER_CONFIG,
    DiffusersDirectory,
    tokenizer_files,
)
from ortist.checkpoints.renamed import Weights
from ortist.errors import OutputFailed
from ortist.events import OnEvent, StageAdvanced, StageDone, StageStarted, ignore_event
from ortist.files import JsonObject, sha256_of, write_json
from ortist.graphs.builder import IR_VERSION, OPSET, Precision

_SPARE = 32 << 20  # graphs, padding, configurations, and room to breathe
_EVENTS = 200


def convert(
    source: Path,
    out: Path,
    *,
    dtype: Precision = "fp32",
    variant: str | None = None,
    replace: bool = False,
    check: bool = False,
    content: str | None = None,
    on_event: OnEvent = ignore_event,
) -> Bundle:
    """Write the checkpoint `source` as the ONNX bundle `out`.

    `out` appears when everything in it is written and on the disk; an error, Ctrl-C or a killed
    process leaves nothing there. If another process finishes the same conversion first, its
    bundle is returned.

    Args:
        source: a checkpoint in the diffusers layout.
        out: the directory to make.
        dtype: precision of weights and arithmetic.
        variant: which weights to take where there are several (see `DiffusersDirectory.open`).
        replace: put it in the place of an existing directory.
        check: run `onnx.checker` over each graph; recorded in the manifest.
        content: the checkpoint's content key, where the caller knows it.
        on_event: told of the stage "convert" in bytes written.

    Raises:
        BadCheckpoint: the checkpoint is incomplete, damaged, inconsistent or not implemented.
        OutputFailed: `out` exists, cannot be written, or the disk is too small.
    """
    began = time.perf_counter()
    require_free(out, replace=replace)
    checkpoint = DiffusersDirectory.open(source, variant=variant)
    todo = recipes(checkpoint)
    key = content or content_key(checkpoint.path, checkpoint.files())
    with ExitStack() as stack:
        weights: dict[str, Weights] = {}
        for name, component in checkpoint.components.items():
            weights[name] = component.open_weights()
            stack.callback(weights[name].close)
        total = _bytes_to_write(weights, dtype)
        require_space(out, total + _SPARE)
        on_event(StageStarted("convert", total))
        try:
            with new_directory(out, replace=replace) as folder:
                files = _write_graphs(folder, todo, weights, dtype, _Progress(total, on_event))
                files |= _write_settings(folder, checkpoint, todo)
                verification = _verify(folder, todo) if check else {"onnx_checker": "not run"}
                _manifest(
                    checkpoint, key, dtype, folder=folder, files=files, verification=verification
                ).write(folder)
        except OutputFailed as lost:
            winner = _same(out, key, dtype) if lost.code == "output-exists" else None
            if winner is None:
                raise
            on_event(StageDone("convert", time.perf_counter() - began))
            return winner
    on_event(StageDone("convert", time.perf_counter() - began))
    return Bundle.open(out)


def _same(out: Path, key: str, dtype: Precision) -> Bundle | None:
    """The bundle at `out`, if it is what this conversion would have made."""
    bundle = Bundle.open(out)
    manifest = bundle.manifest
    if manifest is None:
        return None
    found = (manifest.content, manifest.dtype, manifest.converter)
    return bundle if found == (key, dtype, converter_id()) else None


def _bytes_to_write(weights: Mapping[str, Weights], dtype: Precision) -> int:
    """Bytes of all weights in `dtype`; each tensor of a VAE goes to one of its two graphs."""
    itemsize = np.dtype({"fp32": np.float32, "fp16": np.float16}[dtype]).itemsize
    counts = (prod(source.shape(key)) for source in weights.values() for key in list(source.keys()))
    return itemsize * sum(counts)


class _Progress:
    """Turns bytes per tensor into a few hundred events."""

    def __init__(self, total: int, on_event: OnEvent) -> None:
        self._total = total
        self._on_event = on_event
        self._done = 0
        self._told = 0

    def step(self, role: str) -> Callable[[int, str], None]:
        """The callback for the graph of `role`."""

        def advance(count: int, name: str) -> None:
            self._done += count
            if (self._done - self._told) * _EVENTS >= self._total or self._done >= self._total:
                self._told = self._done
                self._on_event(StageAdvanced("convert", self._done, self._total, f"{role} {name}"))

        return advance


def _write_graphs(
    folder: Path,
    todo: tuple[Recipe, ...],
    weights: Mapping[str, Weights],
    dtype: Precision,
    progress: _Progress,
) -> dict[str, FileEntry]:
    # All graphs are built before the first is written: they take no memory to speak of, and
    # weights that do not fit their config are found before any work is done.
    graphs = [(item, item.build(weights[item.component], dtype)) for item in todo]
    files: dict[str, FileEntry] = {}
    for item, model in graphs:
        home = folder / item.role
        home.mkdir()
        written = write_graph(model, home, on_bytes=progress.step(item.role))
        files |= {f"{item.role}/{name}": entry for name, entry in written.items()}
    return files


def _write_settings(
    folder: Path, checkpoint: DiffusersDirectory, todo: tuple[Recipe, ...]
) -> dict[str, FileEntry]:
    """Everything of the bundle that is no graph, except its manifest."""
    written: list[Path] = []

    def put(path: Path, value: JsonObject) -> None:
        path.parent.mkdir(exist_ok=True)
        write_json(path, value)
        written.append(path)

    def copy(file: Path) -> None:
        try:
            data = file.read_bytes()
        except OSError as cause:  # told apart from what goes wrong when writing
            raise unreadable(file, cause) from cause
        path = folder / file.parent.name / file.name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        written.append(path)

    for item in todo:
        put(folder / item.role / CONFIG_FILE, item.config)
    put(folder / "scheduler" / SCHEDULER_CONFIG, checkpoint.scheduler)
    for tokenizer in checkpoint.tokenizers.values():
        for file in tokenizer_files(tokenizer):
            copy(file)
    for file in checkpoint.extras:
        copy(file)
    absent: JsonObject = {name: [None, None] for name in checkpoint.left_out}
    put(folder / MODEL_INDEX, checkpoint.index | absent)
    return {
        path.relative_to(folder).as_posix(): FileEntry(path.stat().st_size, sha256_of(path))
        for path in written
    }


def _verify(folder: Path, todo: tuple[Recipe, ...]) -> dict[str, str]:
    for item in todo:
        check_graph(folder / item.role)
    return {"onnx_checker": "passed"}


def _manifest(
    checkpoint: DiffusersDirectory,
    key: str,
    dtype: Precision,
    *,
    folder: Path,
    files: Mapping[str, FileEntry],
    verification: Mapping[str, str],
) -> Manifest:
    return Manifest(
        source=checkpoint.path.resolve().name,
        content=key,
        dtype=dtype,
        opset=OPSET,
        ir_version=IR_VERSION,
        converter=converter_id(),
        versions={
            "ortist": __version__,
            "onnx": version("onnx"),
            "onnx_ir": version("onnx-ir"),
        },
        model=Bundle.open(folder).describe(),
        files=dict(sorted(files.items())),
        verification=verification,
        left_out=checkpoint.left_out,
    )
