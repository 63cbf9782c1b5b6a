from __future__ import annotations

import itertools
import math
import time
from pathlib import Path

import numpy as np
import pytest

from ortist.errors import BadCheckpoint, BadRequest
from ortist.sampling import (
    SAMPLERS,
    Schedule,
    SchedulerConfig,
    TorchCpuGenerator,
    begin,
    make_schedule,
    resolve_sampler,
    step,
)
from ortist.sampling.schedule import training_schedule
from tests.sampling.runs import CLASSES, SD15, Case, golden_cases, ours, relative_error, schedule_of

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "samplers.npz")
CONFIG = SchedulerConfig.from_json(SD15)
SPACINGS = ("leading", "trailing", "linspace")


def plan(name: str, steps: int = 20, config: SchedulerConfig = CONFIG, **options) -> Schedule:
    return make_schedule(resolve_sampler(name), config, steps, **options)


def test_the_golden_file_holds_these_runs() -> None:
    assert list(GOLDEN["names"]) == [case.name for case in golden_cases()]


@pytest.mark.parametrize("index", range(len(golden_cases())), ids=lambda i: golden_cases()[i].name)
def test_final_latents_are_those_of_diffusers(index: int) -> None:
    case = golden_cases()[index]
    assert relative_error(ours(case), GOLDEN["latents"][index]) <= 1e-5


# Properties that every sampler has, whoever adds it.

EVERY = pytest.mark.parametrize("name", [sampler.name for sampler in SAMPLERS])


@EVERY
@pytest.mark.parametrize("spacing", SPACINGS)
@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
def test_a_perfect_model_is_followed_home(name: str, spacing: str, prediction: str) -> None:
    # A model that always knows the picture: whatever the path, the run has to end at it.
    config = SchedulerConfig.from_json(
        {**SD15, "prediction_type": prediction, "set_alpha_to_one": True}
    )
    picture = np.linspace(-1.5, 1.5, 32, dtype=np.float32).reshape(1, 2, 4, 4)
    noise = TorchCpuGenerator(0)
    schedule = plan(name, 12, config, spacing=spacing)
    state = begin(noise.normal(picture.shape) * np.float32(schedule.init_noise_sigma))
    for row in schedule.rows:
        x = state.x.astype(np.float64)
        present = (x - row.alpha * picture) / row.sigma
        length = math.hypot(row.alpha, row.sigma)
        output = {
            "epsilon": present,
            "v_prediction": (row.alpha * present - row.sigma * picture) / length,
            "sample": picture.astype(np.float64),
        }[prediction]
        draw = noise.normal(picture.shape) if row.noise else None
        state = step(row, state, output.astype(np.float32), draw)
        np.testing.assert_allclose(state.x0, picture, atol=2e-4)
    np.testing.assert_allclose(state.x, picture, atol=2e-4)


@EVERY
@pytest.mark.parametrize("spacing", SPACINGS)
def test_levels_fall_and_each_row_belongs_to_its_step(name: str, spacing: str) -> None:
    rows = plan(name, 30, spacing=spacing).rows
    ratios = [row.sigma / row.alpha for row in rows]
    assert ratios == sorted(ratios, reverse=True)
    assert [row.step for row in rows] == sorted(row.step for row in rows)
    assert {row.step for row in rows} == set(range(30))


@EVERY
@pytest.mark.parametrize("spacing", SPACINGS)
def test_every_number_of_steps_works_or_is_refused(name: str, spacing: str) -> None:
    for steps in (*range(1, 70), 103, 201, 500, 998, 999, 1000):
        try:
            schedule = plan(name, steps, spacing=spacing)
        except BadRequest as error:
            assert steps >= 999, steps  # no room for an offset
            assert f"{steps} steps do not fit" in error.message
            continue
        assert len({row.step for row in schedule.rows}) == steps
        numbers = [
            value
            for row in schedule.rows
            for value in (row.scale_in, row.c_skip, row.c_out, *row.x_mix, *row.x0_mix, *row.noise)
        ]
        assert np.all(np.isfinite(numbers))
        assert all(0 <= row.timestep <= 999 for row in schedule.rows)


@EVERY
@pytest.mark.parametrize("steps", [0, -3, 1001])
def test_steps_out_of_range_are_refused(name: str, steps: int) -> None:
    with pytest.raises(BadRequest, match=f"{steps} steps"):
        plan(name, steps)


@EVERY
def test_skipping_steps_starts_a_shorter_run(name: str) -> None:
    whole, late = plan(name, 10).rows, plan(name, 10, start=4).rows
    assert [row.step for row in late] == [4, 5, 6, 7, 8, 9]
    assert [row.timestep for row in late] == [row.timestep for row in whole if row.step >= 4]
    assert max(len(late[0].x_mix), len(late[0].x0_mix)) == 1  # there is no history yet
    with pytest.raises(BadRequest, match="leaves none"):
        plan(name, 10, start=10)


@EVERY
def test_history_is_kept_exactly_as_long_as_rows_read_it(name: str) -> None:
    rows = plan(name, 6).rows
    for row, after in itertools.pairwise(rows):
        assert row.keep_x >= len(after.x_mix)
        assert row.keep_x0 >= len(after.x0_mix) - 1
    assert (rows[-1].keep_x, rows[-1].keep_x0, rows[-1].keep_noise) == (1, 1, 0)


@EVERY
def test_fifty_steps_are_planned_within_20_ms(name: str) -> None:
    def seconds() -> float:
        begun = time.perf_counter()
        plan(name, 50)
        return time.perf_counter() - begun

    assert min(seconds() for _ in range(5)) < 0.020


# What is particular to one sampler or setting.


def test_the_starting_noise_depends_on_spacing_in_the_euler_family() -> None:
    largest = 14.6146
    assert plan("euler", spacing="trailing").init_noise_sigma == pytest.approx(largest, abs=1e-3)
    assert plan("euler", spacing="linspace").init_noise_sigma == pytest.approx(largest, abs=1e-3)
    leading = plan("euler a", spacing="leading")
    sigma = leading.rows[0].sigma
    assert leading.init_noise_sigma == pytest.approx(math.hypot(1, sigma))
    assert plan("ddim").init_noise_sigma == 1.0
    assert plan("dpm++ 2m").init_noise_sigma == 1.0


def test_spacing_comes_from_the_request_then_the_checkpoint_then_the_sampler() -> None:
    said = SchedulerConfig.from_json({**SD15, "timestep_spacing": "trailing"})
    assert plan("euler").spacing == "linspace"
    assert plan("ddim").spacing == "leading"
    assert plan("euler", config=said).spacing == "trailing"
    assert plan("euler", config=said, spacing="leading").spacing == "leading"
    with pytest.raises(BadRequest, match="'sideways'"):
        plan("euler", spacing="sideways")


def test_euler_gives_the_model_fractions_of_time_steps() -> None:
    timesteps = [row.timestep for row in plan("euler", 4, spacing="linspace").rows]
    assert timesteps == [999.0, 666.0, 333.0, 0.0]
    assert plan("euler", 8, spacing="linspace").rows[1].timestep == pytest.approx(
        856.2857, abs=1e-3
    )


def test_ddim_ends_at_the_first_training_level_or_at_none() -> None:
    ends = {
        to_one: plan("ddim", 5, SchedulerConfig.from_json({**SD15, "set_alpha_to_one": to_one}))
        for to_one in (True, False)
    }
    last = {to_one: schedule.rows[-1] for to_one, schedule in ends.items()}
    assert last[True].x_mix == (0.0,)
    assert last[False].x_mix[0] > 0.01


def test_ancestral_noise_is_drawn_at_every_step_even_where_it_counts_nothing() -> None:
    rows = plan("euler a", 5).rows
    assert [bool(row.noise) for row in rows] == [True] * 5
    assert rows[-1].noise == (0.0,)


def test_eta_is_the_share_of_ancestral_noise() -> None:
    assert plan("ddim").eta == 0.0
    assert plan("euler a").eta == 1.0
    assert plan("euler").eta is None
    assert not any(row.noise for row in plan("ddim", eta=0.0).rows)
    assert all(row.noise for row in plan("ddim", eta=0.1).rows)
    plain, quiet = plan("euler").rows, plan("euler a", eta=0.0).rows
    assert [(row.x_mix, row.noise) for row in quiet] == [(row.x_mix, row.noise) for row in plain]


@pytest.mark.parametrize(
    ("name", "eta", "words"),
    [
        ("euler", 1.0, "eta would have no effect: Euler draws no noise"),
        ("dpm++ 2m", 0.0, "no effect"),
        ("ddim", 1.5, "eta is 1.5"),
        ("ddim", -0.5, "eta is -0.5"),
        ("euler a", float("nan"), "eta is nan"),
    ],
)
def test_an_eta_that_makes_no_sense_is_refused(name: str, eta: float, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        plan(name, eta=eta)
    assert words in caught.value.message
    assert caught.value.hint


def test_karras_levels_of_dpm_leave_no_room_for_spacing() -> None:
    assert plan("dpm++ 2m karras").levels == "karras"
    with pytest.raises(BadRequest, match="no effect"):
        plan("dpm++ 2m karras", spacing="trailing")
    assert plan("euler karras", spacing="leading").rows[0].timestep == 951.0


def test_levels_come_from_the_name_then_the_checkpoint() -> None:
    karras = SchedulerConfig.from_json({**SD15, "use_karras_sigmas": True})
    assert plan("euler", config=karras).levels == "karras"
    assert plan("euler uniform", config=karras).levels == "uniform"
    assert plan("euler exponential", config=karras).levels == "exponential"
    assert plan("dpm++ 2m", config=karras).levels == "karras"


@pytest.mark.parametrize(("name", "says"), [("ddim", "has none"), ("euler a", "by name")])
def test_levels_that_the_reference_leaves_out_are_said_so(name: str, says: str) -> None:
    karras = SchedulerConfig.from_json({**SD15, "use_karras_sigmas": True})
    schedule = plan(name, config=karras)
    assert schedule.levels == "uniform"
    (note,) = schedule.notes
    assert "Karras" in note
    assert says in note


def test_settings_of_another_solver_are_said_to_be_left_out() -> None:
    config = SchedulerConfig.from_json(
        {**SD15, "_class_name": CLASSES["dpmpp-2m"], "algorithm_type": "sde-dpmsolver++"}
    )
    (note,) = plan("dpm++ 2m", config=config).notes
    assert "sde-dpmsolver++" in note
    assert plan("euler", config=config).notes == ()


@pytest.mark.parametrize(
    ("name", "other", "key", "value"),
    [
        ("ddim", "euler", "thresholding", True),
        ("euler", "ddim", "interpolation_type", "log_linear"),
        ("euler", "ddim", "use_beta_sigmas", True),
        ("dpm++ 2m", "euler", "use_lu_lambdas", True),
        ("dpm++ 2m", "euler", "use_flow_sigmas", True),
        ("dpm++ 2m", "euler", "variance_type", "learned_range"),
        ("dpm++ 2m", "euler", "solver_type", "bh7"),
    ],
)
def test_settings_a_sampler_cannot_do_are_refused_by_that_sampler_only(
    name: str, other: str, key: str, value: object
) -> None:
    config = SchedulerConfig.from_json({**SD15, key: value})
    with pytest.raises(BadCheckpoint, match=f"{key} is {value!r}"):
        plan(name, config=config)
    assert plan(other, config=config).rows


def test_pure_noise_cannot_be_the_start_of_a_noise_predicting_ddim() -> None:
    config = SchedulerConfig.from_json({**SD15, "rescale_betas_zero_snr": True})
    with pytest.raises(BadRequest, match="pure noise"):
        plan("ddim", config=config, spacing="trailing")
    assert plan("ddim", config=config, spacing="leading").rows
    velocity = SchedulerConfig.from_json(
        {**SD15, "rescale_betas_zero_snr": True, "prediction_type": "v_prediction"}
    )
    first = plan("ddim", config=velocity, spacing="trailing").rows[0]
    assert (first.alpha, first.sigma, first.c_skip, first.c_out) == (0.0, 1.0, 0.0, -1.0)


def test_a_cosine_schedule_can_be_clipped_where_it_is_nearly_pure_noise() -> None:
    cosine = {**SD15, "beta_schedule": "squaredcos_cap_v2"}
    whole = plan("dpm++ 2m", config=SchedulerConfig.from_json(cosine)).rows[0]
    clipped = SchedulerConfig.from_json({**cosine, "lambda_min_clipped": -5.1})
    first = plan("dpm++ 2m", config=clipped).rows[0]
    assert whole.timestep == 999
    assert first.timestep < 999
    assert math.log(first.alpha / first.sigma) == pytest.approx(-5.1, abs=0.1)


def test_velocity_models_may_take_the_logarithm_of_sigma_for_a_time_step() -> None:
    config = SchedulerConfig.from_json(
        {**SD15, "prediction_type": "v_prediction", "timestep_type": "continuous"}
    )
    for row in plan("euler", config=config).rows[:-1]:
        assert row.timestep == pytest.approx(0.25 * math.log(row.sigma), abs=1e-6)


# The training schedule.


def train(**changes):
    settings = {
        "count": 1000,
        "beta_start": 0.00085,
        "beta_end": 0.012,
        "beta_schedule": "scaled_linear",
        "trained_betas": None,
        "zero_terminal_snr": False,
        "keep_last_finite": True,
    }
    return training_schedule(**{**settings, **changes})


def test_the_levels_of_stable_diffusion() -> None:
    training = train()
    assert training.sigmas[0] == pytest.approx(0.0292, abs=1e-4)
    assert training.sigmas[-1] == pytest.approx(14.6146, abs=1e-3)
    assert training.alphas_cumprod[-1] == pytest.approx(0.0046601, abs=1e-6)


def test_zero_terminal_snr_ends_in_pure_noise() -> None:
    assert train(zero_terminal_snr=True, keep_last_finite=False).alphas_cumprod[-1] == 0.0
    assert train(zero_terminal_snr=True).sigmas[-1] == pytest.approx(4096)
    plain, rescaled = train(), train(zero_terminal_snr=True)
    assert rescaled.alphas_cumprod[0] == pytest.approx(plain.alphas_cumprod[0], rel=1e-6)


def test_a_list_of_betas_is_taken_as_it_is() -> None:
    training = train(trained_betas=(0.5, 0.5))
    assert training.alphas_cumprod.tolist() == [0.5, 0.25]
    schedule = plan("euler", 2, SchedulerConfig.from_json({"trained_betas": [0.5, 0.5]}))
    assert [row.timestep for row in schedule.rows] == [1.0, 0.0]


def test_betas_that_add_no_noise_are_refused() -> None:
    with pytest.raises(BadCheckpoint, match="beta_start 0"):
        train(beta_start=0.0)


def test_a_case_names_itself_whole() -> None:
    assert len({case.name for case in golden_cases()}) == len(golden_cases())
    assert schedule_of(Case("euler", 4, levels="karras")).levels == "karras"
