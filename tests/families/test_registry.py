from __future__ import annotations

from dataclasses import replace

import pytest

from ortist.errors import BadBundle
from ortist.families.registry import families, find_family
from tests.doubles import SD_FACTS

SDXL_FACTS = replace(
    SD_FACTS,
    components=SD_FACTS.components | {"text_encoder_2"},
    denoiser_inputs=SD_FACTS.denoiser_inputs | {"text_embeds", "time_ids"},
    time_ids_width=6,
)


def test_every_module_registers_one_family_under_its_own_name() -> None:
    assert set(families()) == {"sd", "sdxl"}
    assert all(name == family.name for name, family in families().items())


@pytest.mark.parametrize(("facts", "name"), [(SD_FACTS, "sd"), (SDXL_FACTS, "sdxl")])
def test_the_family_follows_from_components_and_inputs(facts, name) -> None:
    assert find_family(facts).name == name


def test_families_exclude_each_other() -> None:
    for facts in (SD_FACTS, SDXL_FACTS):
        assert sum(family.decline(facts) is None for family in families().values()) == 1


def test_a_model_of_no_family_is_told_each_reason() -> None:
    facts = replace(SD_FACTS, components=frozenset({"unet", "vae_decoder"}))
    with pytest.raises(BadBundle) as caught:
        find_family(facts)
    assert "not sd: it has no text_encoder" in caught.value.message
    assert "not sdxl:" in caught.value.message


def test_the_refiner_is_not_taken_for_the_base_model() -> None:
    with pytest.raises(BadBundle, match="5 time ids"):
        find_family(replace(SDXL_FACTS, time_ids_width=5))


def test_an_input_that_nothing_feeds_is_found_before_work_starts() -> None:
    facts = replace(SD_FACTS, denoiser_inputs=SD_FACTS.denoiser_inputs | {"controlnet_cond"})
    with pytest.raises(BadBundle, match="controlnet_cond"):
        find_family(facts)


def test_a_model_that_also_takes_a_picture_is_declined() -> None:
    with pytest.raises(BadBundle, match="9 channels"):
        find_family(replace(SD_FACTS, in_channels=9))
