"""Our bundles in optimum-onnx, unmodified: they load, run, and give our pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ortist import Pipeline
from ortist.bundle.write import convert
from ortist.models import embedded_models, embedded_path
from tests.parity.conftest import load
from tests.tiny.checkpoint import write_checkpoint

pytestmark = pytest.mark.parity

STEPS = 8
LATENTS_TOLERANCE = 1e-3
PICTURE_TOLERANCE = 2  # of 255


@pytest.fixture(scope="module")
def optimum(oracle: Any) -> Any:
    """The library that most ONNX bundles on the Hugging Face Hub are made for."""
    return load("optimum.onnxruntime")


def compare(
    oracle: Any, optimum: Any, bundle: Path, *, prompt: str, size: int, guidance: float
) -> None:
    """Draw the same with both; assert that latents and pictures agree."""
    theirs = optimum.ORTDiffusionPipeline.from_pretrained(bundle)
    theirs.set_progress_bar_config(disable=True)
    theirs.scheduler = oracle.diffusers.DDIMScheduler.from_config(
        theirs.scheduler.config, timestep_spacing="leading"
    )
    ours = Pipeline.open(bundle)
    latents = oracle.torch.randn(
        (1, ours.facts.latent_channels, size // ours.facts.scale, size // ours.facts.scale),
        generator=oracle.torch.Generator().manual_seed(7),
    )
    captured: list[np.ndarray] = []

    def capture(_pipe: Any, _step: int, _time: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        captured.append(tensors["latents"].numpy().copy())
        return tensors

    expected = theirs(
        prompt,
        num_inference_steps=STEPS,
        guidance_scale=guidance,
        latents=latents,
        width=size,
        height=size,
        output_type="np",
        callback_on_step_end=capture,
    ).images[0]
    result = ours(
        prompt,
        num_inference_steps=STEPS,
        guidance_scale=guidance,
        sampler="DDIM",
        timestep_spacing="leading",
        seed=0,
        latents=latents.numpy(),
        width=size,
        height=size,
    )
    final = captured[-1]
    assert np.abs(result.latents - final).max() <= LATENTS_TOLERANCE * np.abs(final).max()
    picture = np.asarray(result.images[0], dtype=np.float64)
    assert np.abs(picture - np.round(expected * 255)).max() <= PICTURE_TOLERANCE
    assert picture.std() > 10  # no flat picture, on which everything would agree


@pytest.mark.parametrize("guidance", [7.5, 1.0])
@pytest.mark.parametrize(
    ("kind", "tiny_vae"),
    [("sd1", False), ("sd2", False), ("sdxl_base", False), ("sd1", True)],
    ids=["sd1", "sd2", "sdxl", "tiny-vae"],
)
def test_a_tiny_random_model(
    oracle: Any, optimum: Any, tmp_path: Path, kind: str, tiny_vae: bool, guidance: float
) -> None:
    source = write_checkpoint(tmp_path / "model", kind, tiny_vae=tiny_vae)
    convert(source, tmp_path / "bundle", check=True)
    compare(
        oracle,
        optimum,
        tmp_path / "bundle",
        prompt="a red circle on a white",
        size=64,
        guidance=guidance,
    )


@pytest.mark.parametrize("name", embedded_models())
def test_the_embedded_model(oracle: Any, optimum: Any, tmp_path: Path, name: str) -> None:
    convert(embedded_path(name), tmp_path / "bundle", check=True)
    compare(
        oracle,
        optimum,
        tmp_path / "bundle",
        prompt="a large red circle on a white background",
        size=128,
        guidance=5.0,
    )
