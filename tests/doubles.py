"""Honest doubles for the tests: graphs that compute something simple, facts of a small model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from ortist.families.spec import ModelFacts
from ortist.providers.spec import Provider
from ortist.runtime.session import Array, Graph, TensorSpec

FLOAT = np.dtype(np.float32)

SD_FACTS = ModelFacts(
    components=frozenset({"text_encoder", "unet", "vae_decoder"}),
    denoiser_inputs=frozenset({"sample", "timestep", "encoder_hidden_states"}),
    in_channels=4,
    latent_channels=4,
    scale=8,
    sample_size=(16, 16),
    scaling_factor=0.5,
    shift_factor=0.0,
    context_widths={"text_encoder": 8},
    encoder_layers={"text_encoder": 2},
    guidance_width=None,
    zero_negative=False,
    time_ids_width=None,
    defaults={},
)


class FakeGraph:
    """A graph whose outputs are given by a Python function of its feeds; keeps every feed."""

    def __init__(
        self,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        compute: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    ) -> None:
        self.inputs = {name: TensorSpec(name, FLOAT, ()) for name in inputs}
        self.outputs = {name: TensorSpec(name, FLOAT, ()) for name in outputs}
        self._compute = compute
        self.feeds: list[dict[str, Array]] = []

    def run(self, feeds: Mapping[str, Array], outputs: tuple[str, ...]) -> tuple[Array, ...]:
        assert set(feeds) == set(self.inputs)
        self.feeds.append(dict(feeds))
        results = self._compute(feeds)
        return tuple(results[name] for name in outputs)


def opener_of(graphs: Mapping[str, Graph]) -> Callable[[Path, Provider, str], Graph]:
    """An opener for `Engine` that hands out `graphs` by role."""

    def opener(_path: Path, _provider: Provider, role: str) -> Graph:
        return graphs[role]

    return opener


def skip_without_runtime() -> None:
    """Skip a test that needs a real session where no ONNX Runtime is installed."""
    pytest.importorskip("onnxruntime")
