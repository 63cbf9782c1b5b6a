"""Every sampler against diffusers' scheduler, over the same model and noise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from ortist.sampling import (
    SchedulerConfig,
    TorchCpuGenerator,
    begin,
    make_schedule,
    resolve_sampler,
    step,
)
from ortist.sampling.schedule import training_schedule
from tests.parity.conftest import Oracle
from tests.sampling.reference import reference, scheduler_of
from tests.sampling.runs import CLASSES, SD15, Case, fake_model, ours, relative_error, schedule_of

pytestmark = [
    pytest.mark.parity,
    # diffusers' own, about numpy 2 and old files
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

STEPS = (1, 2, 4, 8, 20, 30)
SPACINGS = ("leading", "trailing", "linspace")
SAMPLER_LEVELS = [
    (sampler, levels)
    for sampler in CLASSES
    for levels in ((None,) if sampler == "ddim" else (None, "karras", "exponential"))
]


@pytest.fixture
def compare(oracle: Oracle) -> Any:
    oracle.diffusers.utils.logging.set_verbosity_error()

    def check(case: Case, tolerance: float = 1e-5) -> None:
        theirs = reference(case, oracle.torch, oracle.diffusers)
        mine = ours(case)
        error = relative_error(mine, theirs)
        assert error <= tolerance, f"{case.name}: {error:.2e}"
        expected = scheduler_of(case, oracle.diffusers).timesteps.numpy()
        rows = schedule_of(case).rows
        np.testing.assert_allclose([row.timestep for row in rows], expected, rtol=3e-7, atol=1e-6)

    return check


@pytest.mark.parametrize(("sampler", "levels"), SAMPLER_LEVELS)
@pytest.mark.parametrize("spacing", SPACINGS)
@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
def test_final_latents(
    compare: Any, sampler: str, levels: str | None, spacing: str, prediction: str
) -> None:
    for steps in STEPS:
        compare(Case(sampler, steps, spacing, prediction, levels, seed=steps, shape=(2, 4, 8, 8)))


@pytest.mark.parametrize("sampler", ["ddim", "euler", "dpmpp-2m"])
@pytest.mark.parametrize("spacing", SPACINGS)
def test_models_that_predict_the_picture(compare: Any, sampler: str, spacing: str) -> None:
    for steps in STEPS:
        compare(Case(sampler, steps, spacing, "sample"))


@pytest.mark.parametrize("eta", [0.3, 1.0])
@pytest.mark.parametrize("spacing", SPACINGS)
@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
def test_ddim_with_eta(compare: Any, eta: float, spacing: str, prediction: str) -> None:
    for steps in STEPS:
        compare(Case("ddim", steps, spacing, prediction, eta=eta))


@pytest.mark.parametrize("sampler", CLASSES)
@pytest.mark.parametrize(
    "extra",
    [
        {"clip_sample": True, "clip_sample_range": 0.7},
        {"set_alpha_to_one": True},
        {"steps_offset": 0},
        {"final_sigmas_type": "sigma_min"},
        {"beta_schedule": "linear", "beta_start": 0.0001, "beta_end": 0.02},
        {"trained_betas": [0.001 + 0.0001 * i for i in range(100)], "num_train_timesteps": 100},
        {"num_train_timesteps": 777},
        {"timestep_type": "continuous"},
        {"solver_type": "heun"},
        {"solver_type": "bh2"},
        {"lower_order_final": False},
        {"lower_order_final": False, "final_sigmas_type": "sigma_min"},
        {"euler_at_final": True, "final_sigmas_type": "sigma_min"},
        {"lambda_min_clipped": -1.5},
    ],
    ids=json.dumps,
)
def test_settings(compare: Any, sampler: str, extra: Mapping[str, object]) -> None:
    for prediction in ("epsilon", "v_prediction"):
        for steps in (1, 8, 20):
            compare(Case(sampler, steps, "leading", prediction, extra=extra))


@pytest.mark.parametrize("sampler", ["euler", "dpmpp-2m"])
def test_ends_of_karras_levels_from_the_file(compare: Any, sampler: str) -> None:
    ends = {"sigma_min": 0.05, "sigma_max": 10.0}
    for steps in STEPS:
        compare(Case(sampler, steps, levels="karras", extra=ends))


def test_ddim_clips_alike_for_every_prediction(compare: Any) -> None:
    clip = {"clip_sample": True, "clip_sample_range": 0.7}
    for prediction in ("epsilon", "v_prediction", "sample"):
        for eta in (0.0, 0.5):
            compare(Case("ddim", 10, prediction=prediction, eta=eta, extra=clip))


@pytest.mark.parametrize("sampler", CLASSES)
def test_what_the_file_leaves_out_has_the_classs_default(compare: Any, sampler: str) -> None:
    compare(Case(sampler, 10, base={"clip_sample": False}, spacing=None, prediction=None))


# Zero terminal SNR and cosine schedules start at sigmas of 4096 and 20291. There diffusers'
# x + (x - x0) / sigma * (target - sigma) cancels in float32 and loses about sigma * 1e-7, while
# the row target / sigma * x + (1 - target / sigma) * x0 does not; so the comparison is with
# diffusers' formula in float64, and ours has to be the nearer one.


@pytest.mark.parametrize("sampler", ["euler", "euler-a"])
@pytest.mark.parametrize("spacing", ["trailing", "linspace"])
@pytest.mark.parametrize(
    "extra", [{"rescale_betas_zero_snr": True}, {"beta_schedule": "squaredcos_cap_v2"}], ids=str
)
def test_very_high_sigmas_are_nearer_to_the_formula_than_the_reference(
    oracle: Oracle, sampler: str, spacing: str, extra: Mapping[str, object]
) -> None:
    if oracle.torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("the noise itself differs in the last bits here, times 4096 and more")
    for steps in (2, 8, 20):
        case = Case(sampler, steps, spacing, "v_prediction", extra=extra)
        exact = euler_in_float64(case, oracle)
        mine = relative_error(ours(case), exact)
        theirs = relative_error(reference(case, oracle.torch, oracle.diffusers), exact)
        assert mine <= 1e-4, f"{case.name}: {mine:.1e} (diffusers {theirs:.1e})"
        assert not theirs < mine / 2, f"{case.name}: {mine:.1e} (diffusers {theirs:.1e})"


def euler_in_float64(case: Case, oracle: Oracle) -> np.ndarray:
    scheduler = scheduler_of(case, oracle.diffusers)
    sigmas = scheduler.sigmas.numpy().astype(np.float64)
    generator = oracle.torch.Generator().manual_seed(case.seed)
    draw = oracle.torch.randn(case.shape, generator=generator).numpy().astype(np.float64)
    x = draw * float(scheduler.init_noise_sigma)
    for index, timestep in enumerate(scheduler.timesteps):
        sigma, target = sigmas[index], sigmas[index + 1]
        scaled = (x / np.sqrt(sigma**2 + 1)).astype(np.float32)
        output = fake_model(scaled, float(timestep)).astype(np.float64)
        x0 = -output * sigma / np.sqrt(sigma**2 + 1) + x / (sigma**2 + 1)
        up, noise = 0.0, 0.0
        if case.sampler == "euler-a":
            up = np.sqrt(target**2 * (sigma**2 - target**2) / sigma**2)
            noise = oracle.torch.randn(case.shape, generator=generator).numpy()
        down = np.sqrt(max(target**2 - up**2, 0.0))
        x = x + (x - x0) / sigma * (down - sigma) + noise * up
    return x.astype(np.float32)


@pytest.mark.parametrize("spacing", SPACINGS)
@pytest.mark.parametrize("sampler", ["ddim", "dpmpp-2m"])
def test_zero_terminal_snr(compare: Any, sampler: str, spacing: str) -> None:
    for steps in (2, 8, 20):
        extra = {"rescale_betas_zero_snr": True}
        compare(Case(sampler, steps, spacing, "v_prediction", extra=extra))


@pytest.mark.parametrize("levels", [None, "karras"])
def test_cosine_schedules(oracle: Oracle, compare: Any, levels: str | None) -> None:
    extra = {"beta_schedule": "squaredcos_cap_v2", "lambda_min_clipped": -5.1}
    if levels is None:
        for spacing in SPACINGS:
            for steps in (4, 20):
                compare(Case("dpmpp-2m", steps, spacing, extra=extra))
        return
    # diffusers stumbles over time steps that are equal after cutting; the levels can be compared.
    case = Case("dpmpp-2m", 20, levels=levels, extra=extra)
    expected = scheduler_of(case, oracle.diffusers)
    rows = schedule_of(case).rows
    assert [row.timestep for row in rows] == expected.timesteps.tolist()
    sigmas = [row.sigma / row.alpha for row in rows]
    np.testing.assert_allclose(sigmas, expected.sigmas.numpy()[:-1], rtol=3e-7)


@pytest.mark.parametrize("sampler", CLASSES)
def test_starting_in_the_middle_from_a_picture(oracle: Oracle, sampler: str) -> None:
    # As image-to-image does: noise is added at the level of the first step that is run.
    torch = oracle.torch
    steps, start, shape = 20, 7, (1, 4, 8, 8)
    case = Case(sampler, steps, "leading")
    scheduler = scheduler_of(case, oracle.diffusers)
    generator = torch.Generator().manual_seed(3)
    picture = torch.linspace(-2, 2, 256).reshape(shape)
    noise = torch.randn(shape, generator=generator)
    timesteps = scheduler.timesteps[start:]
    if hasattr(scheduler, "set_begin_index"):
        scheduler.set_begin_index(start)
    x = scheduler.add_noise(picture, noise, timesteps[:1])
    for timestep in timesteps:
        scaled = scheduler.scale_model_input(x, timestep)
        output = torch.from_numpy(fake_model(scaled.numpy(), float(timestep)))
        arguments = {"generator": generator} if sampler == "euler-a" else {}
        (x, *_) = scheduler.step(output, timestep, x, return_dict=False, **arguments)

    config = SchedulerConfig.from_json(case.settings)
    rows = make_schedule(resolve_sampler(sampler), config, steps, start=start).rows
    source = TorchCpuGenerator(3)
    first = rows[0]
    start_x = first.alpha * picture.numpy() + first.sigma * source.normal(shape)
    state = begin(start_x.astype(np.float32))
    for row in rows:
        output = fake_model(state.x * np.float32(row.scale_in), row.timestep)
        state = step(row, state, output, source.normal(shape) if row.noise else None)
    assert relative_error(state.x, x.numpy()) <= 1e-5


def test_starting_noise_has_the_same_scale(oracle: Oracle) -> None:
    for sampler, levels in SAMPLER_LEVELS:
        for spacing in SPACINGS:
            case = Case(sampler, 10, spacing, levels=levels)
            expected = float(scheduler_of(case, oracle.diffusers).init_noise_sigma)
            assert schedule_of(case).init_noise_sigma == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        SD15,
        {},
        {**SD15, "beta_schedule": "linear"},
        {**SD15, "num_train_timesteps": 1001},
        {**SD15, "num_train_timesteps": 4000},
        {"beta_schedule": "squaredcos_cap_v2"},
    ],
    ids=json.dumps,
)
def test_training_levels(oracle: Oracle, settings: dict[str, object]) -> None:
    theirs = oracle.diffusers.EulerDiscreteScheduler.from_config(dict(settings))
    config = SchedulerConfig.from_json(settings)
    mine = training_schedule(
        count=config.num_train_timesteps or 1000,
        beta_start=config.beta_start or 0.0001,
        beta_end=config.beta_end or 0.02,
        beta_schedule=config.beta_schedule or "linear",
        trained_betas=None,
        zero_terminal_snr=False,
        keep_last_finite=True,
    )
    expected = theirs.alphas_cumprod.numpy()
    if oracle.torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
        assert np.array_equal(mine.alphas_cumprod.astype(np.float32), expected)
    np.testing.assert_allclose(mine.alphas_cumprod, expected, rtol=3e-6)
    np.testing.assert_allclose(mine.sigmas[::-1], theirs.sigmas.numpy()[:-1], rtol=1e-4)


def test_every_class_that_is_read_writes_files_that_are_read(oracle: Oracle) -> None:
    from ortist.sampling.config import _CLASSES

    read = 0
    for name in sorted(_CLASSES - {"DPMSolverSDEScheduler"}):  # that one needs torchsde
        scheduler = getattr(oracle.diffusers, name)()
        settings = json.loads(scheduler.to_json_string())
        assert SchedulerConfig.from_json(settings).class_name == name
        read += 1
    assert read >= 18


def test_the_longest_trailing_schedules_lack_only_the_extra_step(oracle: Oracle) -> None:
    # 61 does not divide 1000 exactly in floating point: diffusers gets a 62nd step at time -1.
    case = Case("euler", 61, "trailing")
    expected = scheduler_of(case, oracle.diffusers).timesteps.tolist()
    assert expected[-1] == -1
    assert [row.timestep for row in schedule_of(case).rows] == expected[:-1]


@pytest.mark.parametrize(
    "settings",
    [
        {"_class_name": "DDIMScheduler"},
        {"_class_name": "PNDMScheduler", "steps_offset": 0},
        {"_class_name": "DDIMScheduler", "clip_sample": True, "steps_offset": 1},
        {"_class_name": "EulerDiscreteScheduler", "steps_offset": 1},
    ],
    ids=json.dumps,
)
def test_stable_diffusion_files_are_mended_alike(
    oracle: Oracle, settings: Mapping[str, object]
) -> None:
    oracle.diffusers.utils.logging.set_verbosity_error()
    scheduler = getattr(oracle.diffusers, str(settings["_class_name"])).from_config(dict(settings))
    pipeline = oracle.diffusers.StableDiffusionPipeline(
        vae=None,
        text_encoder=None,
        tokenizer=None,
        unet=None,
        scheduler=scheduler,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    theirs = pipeline.scheduler.config
    mine, _ = SchedulerConfig.from_json(settings).as_stable_diffusion()
    assert mine.steps_offset == theirs.steps_offset
    assert mine.clip_sample is bool(getattr(theirs, "clip_sample", False))
