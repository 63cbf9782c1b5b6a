"""Settings that all tests share."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from hypothesis import settings

# A busy machine makes any example slow: time limits would fail for reasons that are not ours.
settings.register_profile("ortist", deadline=None)
settings.load_profile("ortist")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Tests neither use what lies in the user's cache nor leave anything there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORTIST_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
