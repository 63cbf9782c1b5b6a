"""Record: what happened in a run, written into every picture.

A PNG carries two text chunks: `parameters`, the line that Stable Diffusion web UIs and picture
readers know ("infotext"), and `ortist`, the whole record as JSON.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

import ortist
from ortist.errors import BadRequest, OutputFailed
from ortist.plan import Note, Plan

RECORD_FORMAT = 1
_CHUNK = "ortist"
_INFOTEXT_CHUNK = "parameters"


@dataclass(frozen=True)
class Provenance:
    """Which model on which software made a picture.

    Attributes:
        model: the model's name for people.
        model_hash: content hash of the checkpoint or bundle, hexadecimal.
        dtype: precision of the graphs ("fp32", "fp16").
        provider: execution provider.
        versions: versions of ortist, Python, numpy and ONNX Runtime.
    """

    model: str
    model_hash: str
    dtype: str
    provider: str
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Record:
    """One run as it happened; plain values only, JSON both ways.

    Attributes:
        request: what was asked, by field name of `Request`.
        prompt ... time_ids: what was decided (see `Plan`).
        latents_given: the starting noise came from the caller, so the seed does not give it.
        provenance: model and software.
        seconds: wall time by stage; "load" is the time to open graphs.
        notes: defaults taken and remarks, each with the field it concerns.
        picture: in a file, which of the run's pictures it holds; its seed is seeds[picture].
    """

    request: Mapping[str, str | int | float | None]
    prompt: str
    negative_prompt: str | None
    num_inference_steps: int
    guidance_scale: float
    sampler: str
    levels: str
    timestep_spacing: str
    seeds: tuple[int, ...]
    width: int
    height: int
    family: str
    latents_given: bool
    provenance: Provenance
    seconds: Mapping[str, float]
    notes: tuple[Note, ...]
    picture: int = 0
    format: int = RECORD_FORMAT

    def to_json(self) -> str:
        """The record as one JSON object, ASCII only (PNG text chunks like it best)."""
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Record:
        """The inverse of `to_json`.

        Raises:
            BadRequest: the text is not a record of a format this version knows.
        """
        try:
            data = cast(dict[str, Any], json.loads(text))
            if data["format"] != RECORD_FORMAT:
                raise BadRequest(
                    f"the record has format {data['format']!r}, this version reads {RECORD_FORMAT}",
                    hint="upgrade ortist",
                    code="bad-record",
                )
            data["provenance"] = Provenance(**data["provenance"])
            data["notes"] = tuple(Note(**note) for note in data["notes"])
            data["seeds"] = tuple(data["seeds"])
            return cls(**data)
        except (ValueError, TypeError, KeyError) as error:
            raise BadRequest(
                f"not a record of ortist: {error}",
                hint="give a picture that ortist wrote",
                code="bad-record",
            ) from error


def make_record(
    plan: Plan, provenance: Provenance, seconds: Mapping[str, float], notes: tuple[Note, ...]
) -> Record:
    """The record of a finished run. `notes` are remarks made after planning."""
    schedule = plan.schedule
    return Record(
        request=plan.request.to_json(),
        prompt=plan.prompt,
        negative_prompt=plan.negative_prompt if plan.uses_negative else None,
        num_inference_steps=schedule.steps,
        guidance_scale=plan.guidance_scale,
        sampler=schedule.sampler,
        levels=schedule.levels,
        timestep_spacing=schedule.spacing,
        seeds=plan.seeds,
        width=plan.width,
        height=plan.height,
        family=plan.family.name,
        latents_given=plan.request.latents is not None,
        provenance=provenance,
        seconds={name: round(value, 6) for name, value in seconds.items()},
        notes=(*plan.notes, *notes),
    )


def versions(runtime: str) -> dict[str, str]:
    """Versions of what a picture depends on; `runtime` is that of ONNX Runtime."""
    return {
        "ortist": ortist.__version__,
        "onnxruntime": runtime,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def infotext(record: Record, index: int) -> str:
    """The settings of picture `index` in the form that A1111 and its readers know."""
    made = record.provenance
    fields: dict[str, str] = {
        "Steps": str(record.num_inference_steps),
        "Sampler": record.sampler,
        "Schedule type": record.levels.capitalize(),
        "CFG scale": f"{record.guidance_scale:g}",
        "Seed": str(record.seeds[index]),
        "Size": f"{record.width}x{record.height}",
        "Model hash": made.model_hash[:10],
        "Model": made.model,
        "RNG": "CPU",
        # No comma and no colon: some readers of this text know nothing of quotes.
        "ONNX": f"{made.provider} ort-{made.versions['onnxruntime']} {made.dtype} "
        f"{record.timestep_spacing}",
        "Version": f"ortist {made.versions['ortist']}",
    }
    lines = [record.prompt]
    if record.negative_prompt:
        lines.append(f"Negative prompt: {record.negative_prompt}")
    lines.append(", ".join(f"{key}: {_quoted(value)}" for key, value in fields.items() if value))
    return "\n".join(lines)


def _quoted(value: str) -> str:
    if any(mark in value for mark in ",:\n"):
        return json.dumps(value, ensure_ascii=False)
    return value


def save_png(
    image: Image.Image, path: Path, record: Record, index: int, *, overwrite: bool
) -> None:
    """Write picture `index` of a run with its settings, whole or not at all.

    Raises:
        OutputFailed: the file exists and `overwrite` is false, or it cannot be written.
    """
    info = PngInfo()
    info.add_text(_INFOTEXT_CHUNK, infotext(record, index))
    info.add_text(_CHUNK, replace(record, picture=index).to_json())
    check_writable(path, overwrite=overwrite)
    part: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        part = Path(name)
        with os.fdopen(handle, "wb") as file:
            image.save(file, format="PNG", pnginfo=info)
            file.flush()
            os.fsync(file.fileno())
        part.chmod(0o666 & ~_umask())
        _put(part, path, overwrite=overwrite)
    except OSError as error:
        raise OutputFailed(
            f"cannot write {path}: {error.strerror or error}",
            hint="check the folder's rights and free space, or choose another --out",
            code="cannot-write",
        ) from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def check_writable(path: Path, *, overwrite: bool) -> None:
    """Raise at once what `save_png` would raise for a path that can be seen to be no good.

    Raises:
        OutputFailed: the file exists, or its folder is missing, no folder, or not writable.
    """
    folder = path.parent
    if path.is_dir():
        raise OutputFailed(
            f"{path} is a folder", hint="give --out a file name ending in .png", code="is-folder"
        )
    if path.exists() and not overwrite:
        raise _exists(path)
    if not folder.is_dir():
        raise OutputFailed(
            f"the folder {folder} does not exist",
            hint=f"create it first: mkdir -p {shlex.quote(str(folder))}",
            code="no-folder",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputFailed(
            f"the folder {folder} is not writable",
            hint="change its rights, or choose another --out",
            code="cannot-write",
        )


def _put(part: Path, path: Path, *, overwrite: bool) -> None:
    if overwrite:
        part.replace(path)
        return
    try:
        path.hardlink_to(part)  # fails if somebody made the file meanwhile; replace() would not
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError:  # a file system without hard links
        part.replace(path)


def _exists(path: Path) -> OutputFailed:
    return OutputFailed(
        f"{path} exists already",
        hint="choose another --out, or overwrite it with --force",
        code="exists",
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_record(path: Path) -> Record:
    """The record in a picture that ortist wrote.

    Raises:
        BadRequest: the file is no picture, or carries no record of ortist.
    """
    try:
        with Image.open(path) as image:
            text = image.info.get(_CHUNK)
    except OSError as error:
        raise BadRequest(
            f"{path} cannot be read as a picture: {error}",
            hint="give a PNG that ortist wrote",
            code="bad-record",
        ) from error
    if not isinstance(text, str):
        raise BadRequest(
            f"{path} carries no record of ortist",
            hint="give a PNG that ortist wrote",
            code="bad-record",
        )
    return Record.from_json(text)
