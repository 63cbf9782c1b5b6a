"""Whole runs against diffusers' pipelines: same weights, same latents, same scheduler config."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ortist import Pipeline
from tests.tiny.pipelines import save_pipeline

pytestmark = pytest.mark.parity

STEPS = 8
LATENTS_TOLERANCE = 1e-3
PICTURE_TOLERANCE = 2  # of 255
PROMPT, NEGATIVE = "a red circle on a white", "blue"

# our name -> class and settings of diffusers
SAMPLERS = {
    "DDIM": ("DDIMScheduler", {}),
    "Euler": ("EulerDiscreteScheduler", {}),
    "Euler Karras": ("EulerDiscreteScheduler", {"use_karras_sigmas": True}),
    "Euler a": ("EulerAncestralDiscreteScheduler", {}),
    "DPM++ 2M": ("DPMSolverMultistepScheduler", {}),
    "DPM++ 2M Karras": ("DPMSolverMultistepScheduler", {"use_karras_sigmas": True}),
}
SPACINGS = ("leading", "trailing", "linspace")
# DPM++ 2M with Karras levels heeds no spacing; asking for one is an error.
CASES = [
    (sampler, spacing)
    for sampler in SAMPLERS
    for spacing in ((None,) if sampler == "DPM++ 2M Karras" else SPACINGS)
]


@pytest.fixture(scope="module")
def make(
    oracle: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[Any, Pipeline]]:
    made: dict[tuple[str, str], tuple[Any, Pipeline]] = {}

    def get(kind: str, prediction_type: str = "epsilon") -> tuple[Any, Pipeline]:
        key = (kind, prediction_type)
        if key not in made:
            folder: Path = tmp_path_factory.mktemp(kind)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("ORTIST_CACHE", str(folder / "cache"))
                reference = save_pipeline(
                    oracle, folder / "model", kind, prediction_type=prediction_type
                )
                made[key] = reference, Pipeline.open(folder / "model")
        return made[key]

    return get


def compare(
    oracle: Any,
    reference: Any,
    ours: Pipeline,
    *,
    sampler: str,
    spacing: str | None,
    guidance: float,
    negative: str | None = NEGATIVE,
    count: int = 1,
    seed: int = 5,
) -> None:
    class_name, settings = SAMPLERS[sampler]
    scheduler = getattr(oracle.diffusers, class_name)
    # From the saved file, as a user would: in memory, diffusers also remembers which settings
    # nobody chose, and forgets those when the class changes.
    reference.scheduler = scheduler.from_config(
        ours.bundle.scheduler,
        **{"use_karras_sigmas": False, **settings},
        **({} if spacing is None else {"timestep_spacing": spacing}),
    )
    size = 64
    latents = oracle.torch.randn((count, 4, size // 8, size // 8)).numpy()
    if guidance <= 1:
        negative = None
    captured: list[np.ndarray] = []
    reference_images = reference(
        PROMPT,
        negative_prompt=negative,
        num_inference_steps=STEPS,
        guidance_scale=guidance,
        num_images_per_prompt=count,
        generator=[oracle.torch.Generator().manual_seed(seed + i) for i in range(count)],
        latents=oracle.torch.from_numpy(latents),
        width=size,
        height=size,
        output_type="np",
        callback_on_step_end=lambda _pipe, _i, _t, tensors: (
            captured.append(tensors["latents"].numpy().copy()) or tensors
        ),
    ).images
    result = ours(
        PROMPT,
        negative_prompt=negative,
        num_inference_steps=STEPS,
        guidance_scale=guidance,
        sampler=sampler,
        timestep_spacing=spacing,
        num_images_per_prompt=count,
        seed=seed,
        latents=latents,
        width=size,
        height=size,
    )
    expected = captured[-1]
    error = np.abs(result.latents - expected).max() / np.abs(expected).max()
    assert error <= LATENTS_TOLERANCE
    for image, reference_image in zip(result.images, reference_images, strict=True):
        difference = np.asarray(image, dtype=np.float64) - np.round(reference_image * 255)
        assert np.abs(difference).max() <= PICTURE_TOLERANCE


@pytest.mark.parametrize("guidance", [7.5, 1.0])
@pytest.mark.parametrize(("sampler", "spacing"), CASES)
def test_every_sampler_and_spacing(oracle, make, sampler, spacing, guidance) -> None:
    reference, ours = make("sd1")
    compare(oracle, reference, ours, sampler=sampler, spacing=spacing, guidance=guidance)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_v_prediction(oracle, make, sampler) -> None:
    reference, ours = make("sd2", "v_prediction")
    compare(oracle, reference, ours, sampler=sampler, spacing=None, guidance=7.5)


@pytest.mark.parametrize("negative", [None, "", NEGATIVE])
@pytest.mark.parametrize("sampler", ["DDIM", "Euler"])
def test_sdxl_with_each_kind_of_negative_prompt(oracle, make, sampler, negative) -> None:
    reference, ours = make("sdxl_base")
    compare(
        oracle, reference, ours, sampler=sampler, spacing="leading", guidance=5.0, negative=negative
    )


def test_distilled_guidance(oracle, make) -> None:
    reference, ours = make("lcm")
    compare(oracle, reference, ours, sampler="DDIM", spacing="leading", guidance=8.0, negative=None)


@pytest.mark.parametrize("sampler", ["Euler a", "DDIM"])
def test_several_pictures(oracle, make, sampler) -> None:
    reference, ours = make("sd1")
    compare(oracle, reference, ours, sampler=sampler, spacing="leading", guidance=7.5, count=3)


def test_the_noise_of_a_seed_is_torchs(oracle, make) -> None:
    reference, ours = make("sd1")
    reference.scheduler = oracle.diffusers.DDIMScheduler.from_config(reference.scheduler.config)
    expected = reference(
        PROMPT,
        num_inference_steps=STEPS,
        generator=[oracle.torch.Generator().manual_seed(11)],
        width=64,
        height=64,
        output_type="latent",
    ).images.numpy()
    ours_latents = ours(
        PROMPT, num_inference_steps=STEPS, sampler="DDIM", seed=11, width=64, height=64
    ).latents
    error = np.abs(ours_latents - expected).max() / np.abs(expected).max()
    assert error <= LATENTS_TOLERANCE
