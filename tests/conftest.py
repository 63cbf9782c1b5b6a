"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import settings

# A busy machine makes any example slow: time limits would fail for reasons that are not ours.
settings.register_profile("ortist", deadline=None)
settings.load_profile("ortist")
