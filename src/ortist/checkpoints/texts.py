"""Values of a file as they are shown in messages."""

from __future__ import annotations

from typing import cast


def shortened(value: object, limit: int = 80) -> str:
    """`repr` of a plain value, cut to `limit` characters; of others the type.

    Containers of containers are not followed: their depth is the file's to choose.
    """
    if isinstance(value, str | bytes):
        text = repr(value[: limit + 1])
    elif isinstance(value, int):
        text = str(value) if value.bit_length() < 1000 else f"a number of {value.bit_length()} bits"
    elif value is None or isinstance(value, float):
        text = repr(value)
    elif isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)[:9]
        inner = (
            "..." if isinstance(item, tuple) else shortened(item, limit // 4) for item in items
        )
        text = f"({', '.join(inner)})"
    else:
        text = f"a {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 3] + "..."
