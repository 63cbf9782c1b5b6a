"""Reads a component's `config.json` strictly: every key is either used or refused.

A checkpoint's configuration is the whole description of its graph, so a key that nobody reads
is a difference nobody notices. `ConfigReader` hands out typed values and remembers which keys
were asked for; `finish` refuses the rest by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from ortist.errors import BadCheckpoint

_HINT = "convert a checkpoint of a supported kind, or report the model so that it can be added"


class ConfigReader:
    """Typed access to the keys of one `config.json`.

    Args:
        mapping: the parsed JSON object.
        source: the file's name as the messages shall show it, e.g. "vae/config.json".
    """

    def __init__(self, mapping: Mapping[str, object], source: str) -> None:
        self._mapping = mapping
        self._source = source
        self._seen: set[str] = set()

    def refuse(self, key: str, value: object, expected: str) -> BadCheckpoint:
        """The error for a key whose value is wrong or not implemented; the caller raises it."""
        return BadCheckpoint(
            f"{self._source}: {key} is {value!r}, but {expected}",
            hint=_HINT,
            code="config-not-implemented",
        )

    def integer(self, key: str, default: int | None = None, *, minimum: int = 1) -> int:
        """A whole number of at least `minimum`; required when there is no default."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self.refuse(key, value, f"it has to be a whole number of at least {minimum}")
        return value

    def number(self, key: str, default: float | None = None, *, positive: bool = False) -> float:
        """A finite number, greater than zero when `positive`; required without a default."""
        value = self._take(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise self.refuse(key, value, "it has to be a finite number")
        if positive and value <= 0:
            raise self.refuse(key, value, "it has to be greater than zero")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise self.refuse(key, value, "it has to be true or false")
        return value

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        """One of the implemented names."""
        value = self._take(key, default)
        if not isinstance(value, str) or value not in choices:
            names = " or ".join(repr(choice) for choice in choices)
            raise self.refuse(key, value, f"only {names} is implemented")
        return value

    def integers(
        self, key: str, default: Sequence[int] | None = None, *, minimum: int = 1
    ) -> tuple[int, ...]:
        """A list, not empty, of whole numbers of at least `minimum`."""
        value = self._take(key, None if default is None else list(default))
        items = _items(value)
        numbers = [n for n in items if isinstance(n, int) and not isinstance(n, bool)]
        if not numbers or len(numbers) != len(items) or min(numbers) < minimum:
            raise self.refuse(
                key, value, f"it has to be a list of whole numbers of at least {minimum}"
            )
        return tuple(numbers)

    def repeated(self, key: str, item: str, count: int, default: Sequence[str]) -> None:
        """A list that has to hold `item` exactly `count` times (block types and the like)."""
        value = self._take(key, [*default])
        if value != [item] * count:
            raise self.refuse(
                key, value, f"only {item!r}, once for each of the {count} levels, is implemented"
            )

    def neutral(self, key: str, *allowed: object) -> None:
        """A key that may be absent, or hold one of the values that change nothing."""
        if key not in self._mapping:
            return
        value = self._take(key, None)
        # True == 1 in Python; a flag must not pass for a number or the reverse.
        if not any(
            value == ok and isinstance(value, bool) == isinstance(ok, bool) for ok in allowed
        ):
            names = " or ".join(repr(ok) for ok in allowed)
            raise self.refuse(key, value, f"only {names} is implemented")

    def raw(self, key: str) -> object:
        """The value as it stands, None when absent, for the caller to judge."""
        self._seen.add(key)
        return self._mapping.get(key)

    def ignore(self, keys: Iterable[str]) -> None:
        """Keys that have no bearing on the graph, whatever they hold."""
        self._seen.update(keys)

    def finish(self) -> None:
        """Refuse what was not read.

        Raises:
            BadCheckpoint: naming every key left over, with its value.
        """
        left = {k: v for k, v in self._mapping.items() if k not in self._seen}
        if left:
            listing = ", ".join(f"{key} = {value!r}" for key, value in left.items())
            raise BadCheckpoint(
                f"{self._source}: not implemented: {listing}",
                hint=_HINT,
                code="config-not-implemented",
            )

    def _take(self, key: str, default: object) -> object:
        self._seen.add(key)
        if key in self._mapping:
            return self._mapping[key]
        if default is None:
            raise BadCheckpoint(
                f"{self._source}: {key} is missing",
                hint="the file is incomplete: fetch or export it again",
                code="config-incomplete",
            )
        return default


def _items(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
