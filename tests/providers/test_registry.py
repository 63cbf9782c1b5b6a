from __future__ import annotations

import pytest

from ortist.errors import NoProvider
from ortist.providers.registry import choose_provider, providers


def test_every_module_registers_one_provider_under_its_own_name() -> None:
    known = providers()
    assert "cpu" in known
    assert all(name == provider.name for name, provider in known.items())


def test_auto_takes_what_the_runtime_has() -> None:
    assert choose_provider("auto", ["CPUExecutionProvider"]).name == "cpu"


def test_auto_without_any_known_provider_says_what_there_is() -> None:
    with pytest.raises(NoProvider, match="OddExecutionProvider"):
        choose_provider("auto", ["OddExecutionProvider"])


def test_an_unknown_name_gets_its_near_match() -> None:
    with pytest.raises(NoProvider) as caught:
        choose_provider("cpuu", ["CPUExecutionProvider"])
    assert "did you mean 'cpu'" in caught.value.hint


def test_a_wheel_without_the_provider_names_the_extra() -> None:
    with pytest.raises(NoProvider) as caught:
        choose_provider("cpu", ["OddExecutionProvider"])
    assert 'pip install "ortist[cpu]"' in caught.value.hint
