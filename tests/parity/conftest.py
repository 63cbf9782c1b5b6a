"""The oracle: torch, diffusers and transformers, imported only when a test asks for them."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest


@dataclass(frozen=True)
class Oracle:
    """The reference implementations. Any: torch ships no types that help here."""

    torch: Any
    diffusers: Any
    transformers: Any


def load(name: str) -> ModuleType:
    """Import a module of the oracle.

    Without it a test is skipped, but under CI it fails: a parity run that compares nothing must
    not pass.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        reason = f"needs {name} (extra: parity): {error}"
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    """The reference implementations, on one thread and without gradients."""
    torch: Any = load("torch")
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    return Oracle(torch, load("diffusers"), load("transformers"))
