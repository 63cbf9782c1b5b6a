"""Reads the keys of a UNet's `config.json` that hold one value for all levels or one for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from ortist.graphs.config_fields import ConfigReader


class LevelReader(ConfigReader):
    """`ConfigReader` with values per level, and values that may be null."""

    def __init__(self, mapping: Mapping[str, object], source: str) -> None:
        super().__init__(mapping, source)
        self._present = frozenset(mapping)

    def has(self, key: str) -> bool:
        """Whether the file holds the key, be it null."""
        return key in self._present

    def value(self, key: str, default: object) -> object:
        """The value as it stands; the default only when the key is absent."""
        found = self.raw(key)
        return found if self.has(key) else default

    def optional_integer(self, key: str) -> int | None:
        """A whole number of at least 1, or None when absent or null."""
        return None if self.raw(key) is None else self.integer(key)

    def odd(self, key: str, default: int) -> int:
        """The side of a kernel that keeps the size."""
        value = self.integer(key, default)
        if value % 2 == 0:
            raise self.refuse(key, value, "only odd kernels are implemented")
        return value

    def block_types(
        self, key: str, default: Sequence[str], known: Mapping[str, bool]
    ) -> list[bool]:
        """A list of names, as what `known` says of each."""
        value = self.value(key, list(default))
        names = items_of(value, 0)
        if not names or not all(isinstance(name, str) and name in known for name in names):
            raise self.refuse(key, value, f"only lists of {' and '.join(known)} are implemented")
        return [known[str(name)] for name in names]

    def per_level(self, key: str, levels: int, default: int | None) -> tuple[int, ...]:
        """A whole number of at least 1 for all levels, or a list of one for each."""
        value = self.value(key, default)
        items = items_of(value, levels)
        numbers = _whole_numbers(items, 1)
        if len(numbers) != levels or len(items) != levels:
            raise self.refuse(
                key, value, f"it has to be a whole number of at least 1 or a list of {levels} such"
            )
        return numbers

    def flags(self, key: str, levels: int) -> tuple[bool, ...]:
        """True or false for all levels (by default false), or a list of one for each."""
        value = self.value(key, False)
        items = items_of(value, levels)
        flags = tuple(item for item in items if isinstance(item, bool))
        if len(flags) != levels or len(items) != levels:
            raise self.refuse(key, value, f"it has to be true, false, or a list of {levels} such")
        return flags

    def depths(self, key: str, value: object, layers: Sequence[int]) -> list[tuple[int, ...]]:
        """Transformer depths of each layer of each level.

        Args:
            key: for messages.
            value: a number for all, or a list with, for each level, a number for its layers or
                a list of one number for each layer.
            layers: how many layers each level has.
        """
        levels = items_of(value, len(layers))
        out: list[tuple[int, ...]] = []
        for level, count in zip(levels, layers, strict=False):
            items = items_of(level, count)
            numbers = _whole_numbers(items, 0)
            if len(numbers) == len(items) == count:
                out.append(numbers)
        if len(out) != len(layers) or len(levels) != len(layers):
            counts = ", ".join(str(count) for count in layers)
            raise self.refuse(
                key,
                value,
                f"it has to be a whole number or a list of {len(layers)}, each a number or a list "
                f"of one number for each layer (here {counts})",
            )
        return out


def items_of(value: object, count: int) -> list[object]:
    """A list's items; anything else `count` times."""
    return cast("list[object]", value) if isinstance(value, list) else [value] * count


def _whole_numbers(items: Sequence[object], minimum: int) -> tuple[int, ...]:
    return tuple(
        item
        for item in items
        if isinstance(item, int) and not isinstance(item, bool) and item >= minimum
    )
