"""Which code wrote a bundle: bundles in the cache are used only by the code that made them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from ortist import __version__

# What decides the bytes of a bundle. Tests, runtime and fronts may change freely.
_PACKAGES = ("graphs", "checkpoints", "bundle")


@cache
def converter_id() -> str:
    """Version of ortist and a hash of the sources that decide what a bundle looks like.

    The hash makes an edited copy of ortist convert anew instead of running an old graph. An
    installation without sources has the version alone.
    """
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    sources = sorted(path for package in _PACKAGES for path in (root / package).glob("*.py"))
    for path in sources:
        digest.update(path.name.encode() + b"\n" + path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:12]}" if sources else __version__
