from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ortist.errors import BadRequest
from ortist.families.registry import find_family
from ortist.families.spec import ModelFacts
from ortist.plan import Plan, resolve
from ortist.request import Request
from ortist.sampling import SchedulerConfig
from tests.doubles import SD_FACTS

SCHEDULER = SchedulerConfig.from_json(
    {
        "_class_name": "DDIMScheduler",
        "beta_start": 0.00085,
        "beta_end": 0.012,
        "beta_schedule": "scaled_linear",
        "num_train_timesteps": 1000,
        "clip_sample": False,
        "set_alpha_to_one": False,
        "steps_offset": 1,
    }
)


def plan_of(request: Request, facts: ModelFacts = SD_FACTS) -> Plan:
    return resolve(request, find_family(facts), facts, SCHEDULER, draw_seed=lambda: 77)


def test_everything_left_open_is_decided_and_explained() -> None:
    plan = plan_of(Request("a cat"))
    assert (plan.width, plan.height) == (128, 128)
    assert plan.latent_shape == (4, 16, 16)
    assert plan.seeds == (77,)
    assert plan.guidance_scale == 7.5
    assert plan.schedule.steps == 20
    explained = {note.field for note in plan.notes}
    assert {"width", "height", "seed", "guidance_scale", "num_inference_steps", "sampler"} <= (
        explained
    )


def test_nothing_is_explained_that_was_asked_for() -> None:
    plan = plan_of(
        Request(
            "a cat",
            num_inference_steps=3,
            guidance_scale=2.0,
            sampler="euler",
            seed=0,
            width=64,
            height=32,
        )
    )
    fields = {note.field for note in plan.notes}
    assert not fields & {"width", "height", "seed", "guidance_scale", "num_inference_steps"}
    assert plan.seeds == (0,)  # zero is a seed, not "unset"
    assert plan.latent_shape == (4, 4, 8)


def test_the_models_own_recommendation_comes_before_the_familys() -> None:
    facts = replace(
        SD_FACTS, defaults={"num_inference_steps": 9, "guidance_scale": 3, "sampler": "euler"}
    )
    plan = plan_of(Request("a cat"), facts)
    assert plan.schedule.steps == 9
    assert plan.guidance_scale == 3.0
    assert plan.schedule.sampler == "Euler"


def test_each_picture_has_the_next_seed() -> None:
    plan = plan_of(Request("a cat", seed=5, num_images_per_prompt=3))
    assert plan.seeds == (5, 6, 7)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"width": 100}, "width 100 is not a multiple of 8"),
        ({"height": 0}, "height 0 is out of range"),
        ({"height": -8}, "height -8 is out of range"),
        ({"width": 1 << 20}, "out of range"),
        ({"num_inference_steps": 0}, "num_inference_steps is 0"),
        ({"num_inference_steps": -3}, "num_inference_steps is -3"),
        ({"num_images_per_prompt": 0}, "num_images_per_prompt is 0"),
        ({"guidance_scale": -1.0}, "guidance_scale is -1"),
        ({"guidance_scale": float("nan")}, "guidance_scale is nan"),
        ({"seed": -1}, "seed -1 is out of range"),
        ({"seed": 2**64}, "out of range"),
        ({"seed": 2**64 - 1, "num_images_per_prompt": 2}, "out of range for 2 pictures"),
        ({"sampler": "eular"}, "eular"),
        ({"timestep_spacing": "sideways"}, "sideways"),
        ({"latents": np.zeros((1, 4, 8, 8), np.float32)}, "latents have the shape"),
        ({"latents": np.full((1, 4, 16, 16), np.nan, np.float32)}, "NaN"),
        ({"negative_prompt": "dogs", "guidance_scale": 1.0}, "no effect at guidance 1"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_hint(fields, words) -> None:
    with pytest.raises(BadRequest) as caught:
        plan_of(Request("a cat", **fields))
    assert words in caught.value.message
    assert caught.value.hint


def test_the_size_hint_names_the_nearest_size_that_works() -> None:
    with pytest.raises(BadRequest) as caught:
        plan_of(Request("a cat", width=101))
    assert "use 104" in caught.value.hint


def test_guidance_at_one_has_no_negative_pass() -> None:
    assert not plan_of(Request("a cat", guidance_scale=1.0)).uses_negative
    assert plan_of(Request("a cat", guidance_scale=1.01)).uses_negative


def test_an_absent_negative_prompt_is_the_empty_text_or_zeros_as_the_model_was_trained() -> None:
    assert plan_of(Request("a cat")).negative_prompt == ""
    zeroed = replace(SD_FACTS, zero_negative=True)
    assert plan_of(Request("a cat"), zeroed).negative_prompt is None
    assert plan_of(Request("a cat", negative_prompt=""), zeroed).negative_prompt == ""


def test_distilled_guidance_never_runs_a_negative_pass() -> None:
    facts = replace(
        SD_FACTS,
        guidance_width=16,
        denoiser_inputs=SD_FACTS.denoiser_inputs | {"timestep_cond"},
    )
    plan = plan_of(Request("a cat", guidance_scale=8.0), facts)
    assert not plan.uses_negative
    assert plan.bindings["timestep_cond"] == "guidance"
    with pytest.raises(BadRequest, match="distilled"):
        plan_of(Request("a cat", negative_prompt="dogs"), facts)
