from __future__ import annotations

import pytest

from ortist.checkpoints.directory import DiffusersDirectory
from ortist.errors import BadCheckpoint
from ortist.models import embedded_models, embedded_path


def test_every_embedded_model_opens() -> None:
    for name in embedded_models():
        assert DiffusersDirectory.open(embedded_path(name)).components


def test_an_unknown_one_is_named() -> None:
    with pytest.raises(BadCheckpoint, match="'nonsense'"):
        embedded_path("nonsense")
    with pytest.raises(BadCheckpoint):
        embedded_path("../models")
