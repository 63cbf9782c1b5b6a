"""The strict reader of config.json files."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortist.errors import BadCheckpoint
from ortist.graphs.config_fields import ConfigReader

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(value=JSON)
def test_an_integer_is_a_whole_number_and_no_flag(value: object) -> None:
    reader = ConfigReader({"n": value}, "c.json")
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        assert reader.integer("n") == value
    else:
        with pytest.raises(BadCheckpoint, match=r"c\.json: n is "):
            reader.integer("n")


@given(value=JSON)
def test_wrong_values_are_refused_and_never_crash(value: object) -> None:
    reads: list[Callable[[ConfigReader], object]] = [
        lambda r: r.number("k"),
        lambda r: r.flag("k", True),
        lambda r: r.choice("k", ("a", "b"), "a"),
        lambda r: r.integers("k"),
        lambda r: r.repeated("k", "Block", 2, ["Block"]),
    ]
    for read in reads:
        try:
            read(ConfigReader({"k": value}, "c.json"))
        except BadCheckpoint as error:
            assert repr(value) in error.message
            assert error.hint


@given(value=JSON)
def test_neutral_tells_flags_from_numbers(value: object) -> None:
    reader = ConfigReader({"k": value}, "c.json")
    neutral = value is None or (not isinstance(value, bool) and value in (0, 0.0))
    if neutral:
        reader.neutral("k", None, 0)
        reader.finish()
    else:
        with pytest.raises(BadCheckpoint, match="None or 0 is implemented"):
            reader.neutral("k", None, 0)


def test_what_nobody_read_is_named_with_its_value() -> None:
    reader = ConfigReader({"width": 3, "mystery": [1], "seen": 0}, "unet/config.json")
    assert reader.integer("width") == 3
    reader.ignore(["seen", "absent"])
    with pytest.raises(BadCheckpoint) as raised:
        reader.finish()
    assert raised.value.message == "unet/config.json: not implemented: mystery = [1]"
    assert raised.value.code == "config-not-implemented"


def test_a_required_key_that_is_missing() -> None:
    with pytest.raises(BadCheckpoint, match=r"c\.json: width is missing") as raised:
        ConfigReader({}, "c.json").integer("width")
    assert raised.value.code == "config-incomplete"


def test_an_absent_key_takes_its_default() -> None:
    reader = ConfigReader({}, "c.json")
    assert reader.integer("a", 4) == 4
    assert reader.number("b", 0.5) == 0.5
    assert reader.flag("c", False) is False
    assert reader.integers("d", [1, 2]) == (1, 2)
    reader.neutral("e", None)
    reader.finish()
