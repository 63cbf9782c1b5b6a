"""From what a user names to an open bundle: embedded models, bundles, checkpoints."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import cast, get_args

from ortist.bundle.cache import cached_bundle
from ortist.bundle.read import Bundle, looks_like_bundle
from ortist.errors import BadRequest
from ortist.events import OnEvent
from ortist.graphs.precision import Precision
from ortist.models import embedded_models, embedded_path


def open_source(source: str | Path, *, dtype: str | None, on_event: OnEvent) -> Bundle:
    """Open the model that `source` names; convert it first where it is a checkpoint.

    Args:
        source: an embedded model's name, a bundle's folder or a checkpoint's folder. A name wins
            over a folder of that name; write "./shapes" for the folder.
        dtype: "fp32", "fp16" or None for the bundle's own (float32 for checkpoints).
        on_event: told of the progress of a conversion.

    Raises:
        BadRequest: there is no such model, or the precision is unknown or not the bundle's.
        BadCheckpoint, BadBundle: the model's files are damaged or not supported.
    """
    precision = _precision(dtype)
    if isinstance(source, str) and source in embedded_models():
        return cached_bundle(embedded_path(source), dtype=precision or "fp32", on_event=on_event)
    path = Path(source)
    if not path.exists():
        near = get_close_matches(str(source), embedded_models(), n=1)
        raise BadRequest(
            f"there is no model {str(source)!r}",
            hint=(f"did you mean {near[0]!r}? " if near else "")
            + f"give an embedded model ({', '.join(embedded_models())}) or a folder that exists",
            code="no-model",
        )
    if not looks_like_bundle(path):
        return cached_bundle(path, dtype=precision or "fp32", on_event=on_event)
    bundle = Bundle.open(path)
    if precision is not None and precision != bundle.dtype:
        raise BadRequest(
            f"{path} is a bundle of dtype {bundle.dtype}, not {precision}",
            hint="leave dtype out, or open the checkpoint that the bundle was made from",
            code="bad-dtype",
        )
    return bundle


def _precision(dtype: str | None) -> Precision | None:
    if dtype is None:
        return None
    known = get_args(Precision)
    if dtype not in known:
        raise BadRequest(
            f"unknown dtype {dtype!r}", hint=f"use {' or '.join(known)}", code="bad-dtype"
        )
    return cast(Precision, dtype)
