"""Engine: opens a bundle's graphs by role on first use and keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ortist.errors import BadBundle
from ortist.providers.spec import Provider
from ortist.runtime.session import Graph, open_graph


class Engine:
    """The graphs of one bundle on one provider.

    Args:
        graphs: path of each component's `model.onnx`, by role.
        provider: where they run.
        opener: opens one graph; replaced in tests.
    """

    def __init__(
        self,
        graphs: Mapping[str, Path],
        provider: Provider,
        *,
        opener: Callable[[Path, Provider, str], Graph] | None = None,
    ) -> None:
        self.provider = provider
        self._paths = graphs
        self._open = opener or _open
        self._graphs: dict[str, Graph] = {}

    def graph(self, role: str) -> Graph:
        """The graph of `role`, opened on first use.

        Raises:
            BadBundle: the bundle has no such component, or its graph cannot be loaded.
            NoProvider: the provider cannot run here.
        """
        if role not in self._graphs:
            if role not in self._paths:
                raise BadBundle(
                    f"the bundle has no {role} (it has {', '.join(sorted(self._paths))})",
                    hint="convert the checkpoint again",
                    code="component-missing",
                )
            self._graphs[role] = self._open(self._paths[role], self.provider, role)
        return self._graphs[role]


def _open(path: Path, provider: Provider, role: str) -> Graph:
    return open_graph(path, provider, role=role)
