"""Checkpoints in the layout of diffusers: one folder per component, tied by model_index.json."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ortist.checkpoints.content import unreadable
from ortist.checkpoints.renamed import (
    RenamedWeights,
    Weights,
    canonical_text_name,
    canonical_vae_name,
)
from ortist.checkpoints.safetensors_file import SafetensorsFile
from ortist.checkpoints.sharded import ShardedSafetensors
from ortist.errors import BadCheckpoint
from ortist.files import JsonObject, read_json

MODEL_INDEX = "model_index.json"
SCHEDULER_CONFIG = "scheduler_config.json"
PREPROCESSOR_CONFIG = "preprocessor_config.json"

TEXT_ENCODERS = ("text_encoder", "text_encoder_2")
TOKENIZER_OF = {"text_encoder": "tokenizer", "text_encoder_2": "tokenizer_2"}
_REQUIRED = ("unet", "vae")
_STEMS = ("diffusion_pytorch_model", "model")
_PICKLES = (".bin", ".ckpt", ".pt", ".pth")

_WHOLE = "fetch the whole checkpoint, or check the path"


@dataclass(frozen=True)
class Component:
    """One component of a checkpoint that becomes a graph.

    Attributes:
        name: its folder's name ("unet").
        class_name: its class in model_index.json ("UNet2DConditionModel").
        folder: where it lies.
        config: its config.json.
        weights: the safetensors file, or the index of its shards.
    """

    name: str
    class_name: str
    folder: Path
    config: JsonObject
    weights: Path

    def open_weights(self) -> Weights:
        """Open the weights under the names that graphs use; close them after use.

        Raises:
            BadCheckpoint: a file is missing or damaged.
        """
        is_index = self.weights.suffix == ".json"
        stored = ShardedSafetensors(self.weights) if is_index else SafetensorsFile(self.weights)
        rename = _RENAMES.get(self.name)
        return stored if rename is None else RenamedWeights(stored, rename, self.weights)


_RENAMES: Mapping[str, Callable[[str], str]] = {
    "vae": canonical_vae_name,
    "text_encoder": canonical_text_name,
    "text_encoder_2": canonical_text_name,
}


@dataclass(frozen=True)
class DiffusersDirectory:
    """A checkpoint in the diffusers layout, checked as far as its JSON files and file names go.

    Attributes:
        path: the directory.
        index: model_index.json.
        components: text_encoder, text_encoder_2, unet, vae, those that are there, in this order.
        tokenizers: folder of each text encoder's tokenizer, by folder name.
        scheduler: scheduler_config.json.
        extras: other small files that travel with the model (the feature extractor's settings).
        left_out: components that model_index.json names and ortist does not use, in its order.
    """

    path: Path
    index: JsonObject
    components: Mapping[str, Component]
    tokenizers: Mapping[str, Path]
    scheduler: JsonObject
    extras: tuple[Path, ...]
    left_out: tuple[str, ...]

    @classmethod
    def open(cls, path: Path, *, variant: str | None = None) -> DiffusersDirectory:
        """Read the directory `path`.

        Args:
            path: the directory that holds model_index.json.
            variant: the weights to take where there are several ("fp16"); None takes the plain
                ones, and "fp16" where there are no plain ones.

        Raises:
            BadCheckpoint: not such a directory, a piece missing or damaged, or a model of a
                kind that ortist does not run. Weights are opened later, by `open_weights`.
        """
        _require_directory(path)
        index = read_json(path / MODEL_INDEX, BadCheckpoint, hint=_WHOLE)
        named = _named_components(index, path)
        _require_unet(named, path)
        encoders = tuple(name for name in TEXT_ENCODERS if name in named)
        used = (*encoders, *_REQUIRED)
        components = {name: _component(path, name, named[name], variant) for name in used}
        tokenizers = {
            TOKENIZER_OF[name]: _tokenizer(path, TOKENIZER_OF[name], named) for name in encoders
        }
        scheduler = read_json(path / "scheduler" / SCHEDULER_CONFIG, BadCheckpoint, hint=_WHOLE)
        extractor = path / "feature_extractor" / PREPROCESSOR_CONFIG
        extras = (extractor,) if extractor.is_file() else ()
        parts = {*used, *tokenizers, "scheduler", *(extra.parent.name for extra in extras)}
        left_out = tuple(name for name in named if name not in parts)
        return cls(path, index, components, tokenizers, scheduler, extras, left_out)

    def files(self) -> tuple[Path, ...]:
        """Every file that a bundle of this checkpoint is made from, in a fixed order.

        Raises:
            BadCheckpoint: the index of sharded weights is damaged, or names a missing file.
        """
        found = [self.path / MODEL_INDEX, self.path / "scheduler" / SCHEDULER_CONFIG]
        for component in self.components.values():
            found += [component.folder / "config.json", component.weights]
            if component.weights.suffix == ".json":
                shards = ShardedSafetensors(component.weights)
                shards.close()
                found += shards.files
        for folder in self.tokenizers.values():
            found += tokenizer_files(folder)
        return (*found, *self.extras)


def tokenizer_files(folder: Path) -> list[Path]:
    """The files of a tokenizer's folder, by name; hidden ones are left out.

    Raises:
        BadCheckpoint: the folder cannot be read.
    """
    try:
        return sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    except OSError as cause:
        raise unreadable(folder, cause) from cause


def _require_directory(path: Path) -> None:
    # os.path says no where pathlib raises: at a folder that may not be looked into.
    if os.path.isdir(path):  # noqa: PTH112
        if os.path.isfile(path / MODEL_INDEX):  # noqa: PTH113
            return
        raise BadCheckpoint(
            f"{path} has no {MODEL_INDEX}, so it is no checkpoint in the diffusers layout",
            hint="give the directory that holds model_index.json, unet, vae and the others",
            code="no-model-index",
        )
    if os.path.isfile(path):  # noqa: PTH113
        raise BadCheckpoint(
            f"{path} is a single file; so far only directories in the diffusers layout are read",
            hint="give the directory that holds model_index.json, unet, vae and the others",
            code="single-file",
        )
    raise BadCheckpoint(
        f"there is no {path}", hint="check the path of the checkpoint", code="checkpoint-missing"
    )


def _named_components(index: JsonObject, path: Path) -> dict[str, str]:
    """Name -> class of the components in model_index.json; null ones are absent."""
    named: dict[str, str] = {}
    for name, value in index.items():
        if name.startswith("_") or not isinstance(value, list):
            continue  # a setting of the pipeline, such as "requires_safety_checker": false
        if value == [None, None]:
            continue
        if len(value) != 2 or not all(isinstance(item, str) for item in value):
            raise BadCheckpoint(
                f"{path / MODEL_INDEX}: {name} is {value!r}, expected [library, class]",
                hint=_WHOLE,
                code="bad-model-index",
            )
        if not _is_folder_name(name):
            raise BadCheckpoint(
                f"{path / MODEL_INDEX}: {name!r} is no folder name",
                hint=_WHOLE,
                code="bad-model-index",
            )
        named[name] = cast(str, value[1])
    return named


def _is_folder_name(name: str) -> bool:
    return bool(name) and name not in (".", "..") and not set(name) & set("/\\:\0")


def _require_unet(named: Mapping[str, str], path: Path) -> None:
    missing = [name for name in _REQUIRED if name not in named]
    if not any(name in named for name in TEXT_ENCODERS):
        missing.append("text_encoder")
    if missing:
        has = ", ".join(named) or "none"
        raise BadCheckpoint(
            f"{path / MODEL_INDEX} names no {' and no '.join(missing)} (it names {has})",
            hint="ortist runs Stable Diffusion 1.x, 2.x and XL: UNet, VAE and CLIP text encoders",
            code="unsupported-pipeline",
        )


def _component(path: Path, name: str, class_name: str, variant: str | None) -> Component:
    folder = path / name
    config = read_json(folder / "config.json", BadCheckpoint, hint=_WHOLE)
    declared = config.get("_class_name", class_name)
    if declared != class_name:
        raise BadCheckpoint(
            f"{path / MODEL_INDEX} says that {name} is a {class_name}, "
            f"{folder / 'config.json'} that it is a {declared}",
            hint="use both files of the same model",
            code="class-mismatch",
        )
    return Component(name, class_name, folder, config, find_weights(folder, variant))


def find_weights(folder: Path, variant: str | None = None) -> Path:
    """The safetensors file of a component's folder, or the index of its shards.

    Args:
        folder: the component's folder.
        variant: as for `DiffusersDirectory.open`.

    Raises:
        BadCheckpoint: there is none, naming what is there instead.
    """
    wanted = (None, "fp16") if variant is None else (variant,)
    for choice in wanted:
        infix = "" if choice is None else f".{choice}"
        for stem in _STEMS:
            for name in (
                f"{stem}{infix}.safetensors",
                f"{stem}.safetensors.index{infix}.json",
                f"{stem}{infix}.safetensors.index.json",
            ):
                # A dangling link is taken too: opening it says that its target is missing.
                if (folder / name).is_file() or (folder / name).is_symlink():
                    return folder / name
    present = sorted(p.name for p in folder.iterdir() if p.is_file()) if folder.is_dir() else []
    pickles = [name for name in present if name.endswith(_PICKLES)]
    others = [name for name in present if ".safetensors" in name]
    if others:
        raise BadCheckpoint(
            f"{folder} has no weights of the {'plain' if variant is None else variant} kind; "
            f"it has {', '.join(others)}",
            hint=f"rename the file wanted to {_STEMS[0]}.safetensors",
            code="weights-variant",
        )
    if pickles:
        raise BadCheckpoint(
            f"{folder} has its weights only as a pickle ({', '.join(pickles)}), which is not read",
            hint="fetch the .safetensors file of the same model",
            code="weights-pickle",
        )
    raise BadCheckpoint(
        f"{folder} has no weights ({_STEMS[0]}.safetensors or {_STEMS[1]}.safetensors)",
        hint=_WHOLE,
        code="weights-missing",
    )


def _tokenizer(path: Path, name: str, named: Mapping[str, str]) -> Path:
    folder = path / name
    if name not in named or not folder.is_dir() or not tokenizer_files(folder):
        raise BadCheckpoint(
            f"{folder} is missing: the text encoder needs its tokenizer",
            hint=_WHOLE,
            code="tokenizer-missing",
        )
    return folder
