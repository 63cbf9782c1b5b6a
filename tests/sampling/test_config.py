from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortist.errors import BadCheckpoint
from ortist.sampling import SchedulerConfig

# As published with Stable Diffusion 1.5, 2.1 and SDXL.
SD15 = """{"_class_name": "PNDMScheduler", "_diffusers_version": "0.6.0", "beta_end": 0.012,
 "beta_schedule": "scaled_linear", "beta_start": 0.00085, "num_train_timesteps": 1000,
 "set_alpha_to_one": false, "skip_prk_steps": true, "steps_offset": 1, "trained_betas": null,
 "clip_sample": false}"""
SD21 = """{"_class_name": "DDIMScheduler", "_diffusers_version": "0.8.0", "beta_end": 0.012,
 "beta_schedule": "scaled_linear", "beta_start": 0.00085, "clip_sample": false,
 "num_train_timesteps": 1000, "prediction_type": "v_prediction", "set_alpha_to_one": false,
 "skip_prk_steps": true, "steps_offset": 1, "trained_betas": null}"""
SDXL = """{"_class_name": "EulerDiscreteScheduler", "_diffusers_version": "0.19.0.dev0",
 "beta_end": 0.012, "beta_schedule": "scaled_linear", "beta_start": 0.00085, "clip_sample": false,
 "interpolation_type": "linear", "num_train_timesteps": 1000, "prediction_type": "epsilon",
 "sample_max_value": 1.0, "set_alpha_to_one": false, "skip_prk_steps": true, "steps_offset": 1,
 "timestep_spacing": "leading", "trained_betas": null, "use_karras_sigmas": false}"""


@pytest.mark.parametrize("text", [SD15, SD21, SDXL], ids=["sd15", "sd21", "sdxl"])
def test_published_files_are_read(text: str) -> None:
    config = SchedulerConfig.from_json(json.loads(text))
    assert (config.beta_start, config.beta_end) == (0.00085, 0.012)
    assert config.num_train_timesteps == 1000
    assert config.steps_offset == 1
    assert config.set_alpha_to_one is False


def test_what_the_file_leaves_out_stays_open() -> None:
    config = SchedulerConfig.from_json(json.loads(SD15))
    assert config.timestep_spacing is None
    assert config.prediction_type is None
    assert SchedulerConfig.from_json({}) == SchedulerConfig()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("beta_schedule", "sigmoid"),
        ("prediction_type", "flow_prediction"),
        ("timestep_spacing", "sideways"),
        ("final_sigmas_type", "one"),
        ("timestep_type", "fractional"),
        ("num_train_timesteps", 0),
        ("num_train_timesteps", 1000.5),
        ("num_train_timesteps", True),
        ("steps_offset", -1),
        ("beta_start", "0.1"),
        ("beta_start", -0.1),
        ("beta_end", float("nan")),
        ("clip_sample", "false"),
        ("clip_sample", 0),
        ("trained_betas", []),
        ("trained_betas", [0.1, "x"]),
        ("trained_betas", [0.1, 1.0]),
        ("sigma_max", float("inf")),
        ("_class_name", "FlowMatchEulerDiscreteScheduler"),
        ("_class_name", "EDMEulerScheduler"),
        ("_class_name", 3),
        ("solver_type", 2),
        ("shift", 3.0),
        ("made_up", "yes"),
    ],
)
def test_a_value_that_is_not_understood_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(BadCheckpoint) as caught:
        SchedulerConfig.from_json({key: value})
    assert f"{key} is {value!r}" in caught.value.message
    assert caught.value.hint


def test_two_rules_for_the_levels_contradict_each_other() -> None:
    with pytest.raises(BadCheckpoint, match="use_karras_sigmas is on as well"):
        SchedulerConfig.from_json({"use_karras_sigmas": True, "use_exponential_sigmas": True})


def test_a_list_of_betas_has_to_be_as_long_as_training() -> None:
    with pytest.raises(BadCheckpoint, match=r"num_train_timesteps is 3.*2 numbers"):
        SchedulerConfig.from_json({"num_train_timesteps": 3, "trained_betas": [0.1, 0.2]})


def test_the_key_from_before_prediction_type() -> None:
    assert SchedulerConfig.from_json({"predict_epsilon": True}).prediction_type == "epsilon"
    assert SchedulerConfig.from_json({"predict_epsilon": False}).prediction_type == "sample"


def test_stable_diffusion_files_are_mended_as_in_diffusers() -> None:
    old = SchedulerConfig.from_json({"clip_sample": True, "steps_offset": 0})
    mended, notes = old.as_stable_diffusion()
    assert (mended.steps_offset, mended.clip_sample) == (1, False)
    assert len(notes) == 2
    assert "says 0" in notes[0]
    current = SchedulerConfig.from_json(json.loads(SD15))
    assert current.as_stable_diffusion() == (current, ())


_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.floats(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
_keys = st.one_of(
    st.sampled_from([name for name in SchedulerConfig.__slots__ if name != "others"]),
    st.sampled_from(["_class_name", "thresholding", "skip_prk_steps", "predict_epsilon"]),
    st.text(max_size=8),
)


@given(st.dictionaries(_keys, _values, max_size=5))
def test_any_file_is_read_or_refused(settings: dict[str, object]) -> None:
    try:
        SchedulerConfig.from_json(settings)
    except BadCheckpoint as error:
        assert any(key in error.message for key in settings)
