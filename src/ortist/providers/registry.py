"""Finding and choosing execution providers."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules

from ortist.errors import NoProvider
from ortist.providers.spec import Provider

_NOT_PROVIDERS = {"spec", "registry"}


def providers() -> dict[str, Provider]:
    """Every provider by name: one per module of this folder, highest rank first."""
    package = import_module("ortist.providers")
    names = [module.name for module in iter_modules(package.__path__)]
    found: list[Provider] = [
        import_module(f"ortist.providers.{name}").PROVIDER
        for name in names
        if name not in _NOT_PROVIDERS
    ]
    return {p.name: p for p in sorted(found, key=lambda p: -p.rank)}


def choose_provider(name: str, available: Sequence[str]) -> Provider:
    """The provider called `name`, or for "auto" the best one that the runtime offers.

    Args:
        name: a provider's name, or "auto".
        available: ONNX Runtime's names of the providers that its wheel has.

    Raises:
        NoProvider: the name is unknown, or the installed wheel lacks the provider.
    """
    known = providers()
    if name == "auto":
        for provider in known.values():
            if provider.ort_name in available:
                return provider
        raise NoProvider(
            f"none of ortist's providers ({', '.join(known)}) is in the installed ONNX Runtime, "
            f"which has {', '.join(available)}",
            hint='install a wheel that has one: pip install --force-reinstall "ortist[cpu]"',
            code="provider-missing",
        )
    if name not in known:
        near = get_close_matches(name, known, n=1)
        raise NoProvider(
            f"unknown provider {name!r}",
            hint=(f"did you mean {near[0]!r}? " if near else "")
            + f"known: auto, {', '.join(known)}",
            code="provider-unknown",
        )
    provider = known[name]
    if provider.ort_name not in available:
        raise NoProvider(
            f"the installed ONNX Runtime has no {provider.ort_name} "
            f"(it has {', '.join(available)})",
            hint=f'install the wheel that has it: pip install "ortist[{provider.extra}]"',
            code="provider-missing",
        )
    return provider
