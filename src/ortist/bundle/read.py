"""Opening a bundle: finding its pieces, checking that they are whole, telling what they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath

from ortist.bundle.facts import model_facts
from ortist.bundle.graph_io import GraphFacts, read_graph_facts
from ortist.bundle.layout import CONFIG_FILE, GRAPH_FILE, ROLES
from ortist.bundle.manifest import Manifest
from ortist.checkpoints.content import content_key
from ortist.checkpoints.directory import MODEL_INDEX, SCHEDULER_CONFIG, TOKENIZER_OF
from ortist.errors import BadBundle
from ortist.families.spec import ModelFacts
from ortist.files import JsonObject, JsonValue, read_json

_FIX = "convert the checkpoint again, or fetch the bundle again"


@dataclass(frozen=True)
class GraphEntry:
    """One graph of a bundle: its role, file, what it declares, and its config.json."""

    role: str
    path: Path
    config: JsonObject
    facts: GraphFacts


@dataclass(frozen=True)
class Bundle:
    """A directory of ONNX graphs that make one model, opened and checked.

    Attributes:
        path: the directory.
        index: model_index.json.
        graphs: by role: the text encoders, unet, vae_decoder, and vae_encoder where there is one.
        tokenizers: the folders of the tokenizers, by name ("tokenizer", "tokenizer_2").
        scheduler: scheduler_config.json: the noise schedule and prediction type of the training.
        manifest: ortist.json; None where another tool wrote the bundle.
        facts: the model in the terms of families and plans.
        notes: what a user may want to know about how it was opened.
        title: what the opener calls the model; None for the name it was made under.
    """

    path: Path
    index: JsonObject
    graphs: Mapping[str, GraphEntry]
    tokenizers: Mapping[str, Path]
    scheduler: JsonObject
    manifest: Manifest | None
    facts: ModelFacts
    notes: tuple[str, ...] = ()
    title: str | None = None

    @classmethod
    def open(cls, path: Path) -> Bundle:
        """Open the bundle `path`.

        Files are compared with the manifest by size, and external data with what the graphs
        count on; contents are not read (see `verify`).

        Raises:
            BadBundle: it is no bundle, something is missing, of the wrong size or damaged, or it
                was written in a dialect that is not read yet.
        """
        if not path.is_dir():
            state = "is a file" if path.is_file() else "does not exist"
            raise BadBundle(
                f"{path} {state}; a bundle is a directory",
                hint="check the path",
                code="bundle-missing",
            )
        index = read_json(path / MODEL_INDEX, BadBundle, hint=_FIX)
        manifest = Manifest.read(path)
        if manifest is not None:
            manifest.check_files(path)
        graphs = {role: _graph(path, role) for role in ROLES if (path / role).is_dir()}
        _require_roles(path, graphs)
        tokenizers = {
            name: _tokenizer(path / name) for role, name in TOKENIZER_OF.items() if role in graphs
        }
        scheduler = read_json(path / "scheduler" / SCHEDULER_CONFIG, BadBundle, hint=_FIX)
        facts = model_facts(graphs, index)
        return cls(path, index, graphs, tokenizers, scheduler, manifest, facts)

    @property
    def name(self) -> str:
        """What to call the model: the name of what it was made from, if that is known."""
        if self.title is not None:
            return self.title
        return self.path.resolve().name if self.manifest is None else self.manifest.source

    @property
    def dtype(self) -> str:
        """Precision of the denoiser: "fp32" or "fp16"."""
        if self.manifest is not None:
            return self.manifest.dtype
        sample = self.graphs["unet"].facts.inputs["sample"].dtype
        return "fp16" if sample == "float16" else "fp32"

    @cached_property
    def content_hash(self) -> str:
        """Hash of what the model is, hexadecimal: of the checkpoint the bundle was made from; of
        the bundle's own files (read through once) where another tool made it."""
        if self.manifest is not None:
            return self.manifest.content
        return content_key(self.path, self.files())

    @property
    def graph_paths(self) -> dict[str, Path]:
        """Path of each `model.onnx`, by role."""
        return {role: graph.path for role, graph in self.graphs.items()}

    def files(self) -> tuple[Path, ...]:
        """Every file that decides what the bundle draws, in a fixed order."""
        found = [self.path / MODEL_INDEX, self.path / "scheduler" / SCHEDULER_CONFIG]
        for graph in self.graphs.values():
            data = {graph.path.parent / tensor.location for tensor in graph.facts.external}
            found += [graph.path, graph.path.with_name(CONFIG_FILE), *sorted(data)]
        for folder in self.tokenizers.values():
            found += sorted(p for p in folder.iterdir() if p.is_file())
        return tuple(found)

    def with_note(self, note: str) -> Bundle:
        """The same bundle with one more note."""
        return replace(self, notes=(*self.notes, note))

    def describe(self) -> dict[str, JsonValue]:
        """The model in plain values, for the manifest and for people who look."""
        facts = self.facts
        size = facts.sample_size
        return {
            "class_name": self.index.get("_class_name"),
            "components": [*sorted(facts.components)],
            "denoiser_inputs": [*sorted(facts.denoiser_inputs)],
            "in_channels": facts.in_channels,
            "latent_channels": facts.latent_channels,
            "scale": facts.scale,
            "sample_size": None if size is None else [*size],
            "scaling_factor": facts.scaling_factor,
            "context_widths": {**facts.context_widths},
            "prediction_type": self.scheduler.get("prediction_type"),
        }


def looks_like_bundle(path: Path) -> bool:
    """Whether `path` is a directory of ONNX graphs, whole or not, rather than a checkpoint."""
    return any((path / role / GRAPH_FILE).is_file() for role in ROLES)


def _graph(path: Path, role: str) -> GraphEntry:
    folder = path / role
    facts = read_graph_facts(folder / GRAPH_FILE)
    _check_external(folder, facts)
    config = read_json(folder / CONFIG_FILE, BadBundle, hint=_FIX)
    return GraphEntry(role, folder / GRAPH_FILE, config, facts)


def _check_external(folder: Path, facts: GraphFacts) -> None:
    """Every weight stored outside the graph has to lie within a file of its folder."""
    sizes: dict[str, int] = {}
    for tensor in facts.external:
        location = tensor.location
        if location not in sizes:
            if not _is_plain_name(location):
                raise BadBundle(
                    f"{folder / GRAPH_FILE} keeps {tensor.name!r} in {location!r}, which is no "
                    "file of its own folder",
                    hint=_FIX,
                    code="external-data",
                )
            try:
                sizes[location] = (folder / location).stat().st_size
            except OSError:
                raise BadBundle(
                    f"{folder / location} is missing: it holds weights of {GRAPH_FILE}",
                    hint=_FIX,
                    code="file-missing",
                ) from None
        end = tensor.offset + (tensor.length or 0)
        if end > sizes[location]:
            raise BadBundle(
                f"{folder / location} has {sizes[location]} bytes, but {tensor.name!r} ends at "
                f"byte {end}",
                hint=_FIX,
                code="file-size",
            )


def _is_plain_name(name: str) -> bool:
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    return name not in ("", ".", "..") and posix.name == name and windows.name == name


def _require_roles(path: Path, graphs: Mapping[str, GraphEntry]) -> None:
    missing = [role for role in ("unet", "vae_decoder") if role not in graphs]
    if not any(role.startswith("text_encoder") for role in graphs):
        missing.append("text_encoder")
    if missing:
        raise BadBundle(
            f"{path} has no {', no '.join(missing)} (it has {', '.join(graphs) or 'no graphs'})",
            hint="give the directory that holds model_index.json, unet, vae_decoder and the others",
            code="component-missing",
        )


def _tokenizer(folder: Path) -> Path:
    if not folder.is_dir() or not any(folder.iterdir()):
        raise BadBundle(f"{folder} is missing", hint=_FIX, code="tokenizer-missing")
    return folder
