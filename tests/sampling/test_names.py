from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortist.errors import BadRequest
from ortist.sampling import SAMPLERS, SchedulerConfig, default_sampler, resolve_sampler
from ortist.sampling.names import fold

SPELLINGS = {
    "euler": ["Euler", "euler", "k_euler", "EULER", "sample_euler", "EulerDiscreteScheduler"],
    "euler-a": [
        "Euler a",
        "euler-a",
        "euler_a",
        "k_euler_a",
        "euler_ancestral",
        "k_euler_ancestral",
        "sample_euler_ancestral",
        "EulerAncestralDiscreteScheduler",
    ],
    "ddim": ["DDIM", "ddim", "DDIMScheduler"],
    "dpmpp-2m": [
        "DPM++ 2M",
        "dpm++2m",
        "dpmpp_2m",
        "dpmpp-2m",
        "k_dpmpp_2m",
        "sample_dpmpp_2m",
        "DPMSolverMultistepScheduler",
    ],
}


@pytest.mark.parametrize(
    ("name", "spelling"), [(name, each) for name, all_ in SPELLINGS.items() for each in all_]
)
def test_every_spelling_finds_its_sampler(name: str, spelling: str) -> None:
    choice = resolve_sampler(spelling)
    assert choice.name == name
    assert choice.levels is None


@pytest.mark.parametrize(
    ("spelling", "name", "levels", "label"),
    [
        ("DPM++ 2M Karras", "dpmpp-2m", "karras", "DPM++ 2M Karras"),
        ("dpmpp_2m_karras", "dpmpp-2m", "karras", "DPM++ 2M Karras"),
        ("Euler a Karras", "euler-a", "karras", "Euler a Karras"),
        ("euler exponential", "euler", "exponential", "Euler Exponential"),
        ("Euler Uniform", "euler", "uniform", "Euler"),
        ("DDIM uniform", "ddim", "uniform", "DDIM"),
    ],
)
def test_a_word_for_the_levels_is_split_off(
    spelling: str, name: str, levels: str, label: str
) -> None:
    choice = resolve_sampler(spelling)
    assert (choice.name, choice.levels, choice.label) == (name, levels, label)


def test_ddim_takes_no_karras_levels() -> None:
    with pytest.raises(BadRequest, match="DDIM does not take Karras levels") as caught:
        resolve_sampler("DDIM Karras")
    assert "DPM++ 2M" in caught.value.hint


@pytest.mark.parametrize(
    ("typed", "near"),
    [("eular", "Euler"), ("dpm++ 2n", "DPM++ 2M"), ("ddimm", "DDIM"), ("dpmpp 2 karras", "DPM++")],
)
def test_an_unknown_name_lists_near_matches_and_all_names(typed: str, near: str) -> None:
    with pytest.raises(BadRequest) as caught:
        resolve_sampler(typed)
    assert repr(typed) in caught.value.message
    assert f"did you mean {near}" in caught.value.hint
    for sampler in SAMPLERS:
        assert f"{sampler.name} ({sampler.label})" in caught.value.hint


@pytest.mark.parametrize("typed", ["", " ", "karras", "++", "euler karras karras", "Euler!"])
def test_fragments_are_no_names(typed: str) -> None:
    with pytest.raises(BadRequest):
        resolve_sampler(typed)


def test_no_two_samplers_share_a_name() -> None:
    spellings = [
        (fold(spelling), sampler.name)
        for sampler in SAMPLERS
        for spelling in {fold(s) for s in (sampler.name, sampler.label, *sampler.aliases)}
    ]
    assert len({folded for folded, _ in spellings}) == len(spellings)


@given(
    spelling=st.sampled_from([each for all_ in SPELLINGS.values() for each in all_]),
    data=st.data(),
)
def test_case_and_separators_do_not_matter(spelling: str, data: st.DataObject) -> None:
    letters: list[str] = []
    for letter in spelling:
        if letter in " _-":
            letters.append(data.draw(st.text(alphabet=" _-\t", max_size=3)))
        else:
            letters.append(data.draw(st.sampled_from([letter.lower(), letter.upper()])))
    assert resolve_sampler("".join(letters)).name == resolve_sampler(spelling).name


@given(st.text())
def test_any_text_is_a_sampler_or_a_clear_error(text: str) -> None:
    try:
        choice = resolve_sampler(text)
    except BadRequest as error:
        assert repr(text) in error.message or "does not take" in error.message
        assert "\n" not in error.message
        assert error.hint
    else:
        assert resolve_sampler(choice.label).name == choice.name


@pytest.mark.parametrize(
    ("settings", "label", "why"),
    [
        ({"_class_name": "DDIMScheduler"}, "DDIM", "own"),
        ({"_class_name": "EulerAncestralDiscreteScheduler"}, "Euler a", "own"),
        ({"_class_name": "DPMSolverMultistepScheduler"}, "DPM++ 2M", "own"),
        (
            {"_class_name": "DPMSolverMultistepScheduler", "algorithm_type": "sde-dpmsolver++"},
            "DPM++ 2M",
            "sde-dpmsolver++) is not implemented",
        ),
        (
            {"_class_name": "DPMSolverMultistepScheduler", "solver_order": 3},
            "DPM++ 2M",
            "solver_order 3) is not implemented",
        ),
        ({"_class_name": "PNDMScheduler"}, "DPM++ 2M", "PNDMScheduler) is not implemented"),
        ({}, "DPM++ 2M", "names no sampler"),
    ],
)
def test_the_checkpoints_own_sampler_is_the_default(
    settings: dict[str, object], label: str, why: str
) -> None:
    found = default_sampler(SchedulerConfig.from_json(settings))
    assert found.choice.label == label
    assert why in found.why
    assert found.is_substitute == ("not implemented" in why)
