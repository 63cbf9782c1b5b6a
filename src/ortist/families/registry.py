"""Finding the family of a model."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from ortist.errors import BadBundle
from ortist.families.spec import FamilySpec, ModelFacts

_NOT_FAMILIES = {"spec", "registry"}


def families() -> dict[str, FamilySpec]:
    """Every family by name: one per module of this folder."""
    package = import_module("ortist.families")
    names = [module.name for module in iter_modules(package.__path__)]
    found: list[FamilySpec] = [
        import_module(f"ortist.families.{name}").FAMILY
        for name in names
        if name not in _NOT_FAMILIES
    ]
    return {family.name: family for family in found}


def find_family(facts: ModelFacts) -> FamilySpec:
    """The one family that the model belongs to.

    Raises:
        BadBundle: no family takes the model (with each one's reason), or it takes a picture
            besides the prompt, which no task of ours feeds yet.
    """
    reasons: list[str] = []
    for family in families().values():
        reason = family.decline(facts)
        if reason is None:
            return _check(family, facts)
        reasons.append(f"not {family.name}: {reason}")
    raise BadBundle(
        f"the model is of no known family ({'; '.join(reasons)})",
        hint="ortist runs Stable Diffusion 1.x, 2.x and XL text-to-image models",
        code="unknown-family",
    )


def _check(family: FamilySpec, facts: ModelFacts) -> FamilySpec:
    missing = set(family.bindings) - facts.denoiser_inputs
    unfed = facts.denoiser_inputs - set(family.bindings) - set(family.optional)
    if missing or unfed:
        raise BadBundle(
            f"the denoiser's inputs {sorted(facts.denoiser_inputs)} are not those of "
            f"{family.title}: missing {sorted(missing)}, unknown {sorted(unfed)}",
            hint="convert the original checkpoint with ortist",
            code="graph-inputs",
        )
    if facts.in_channels != facts.latent_channels:
        raise BadBundle(
            f"the model takes {facts.in_channels} channels ({facts.latent_channels} are the "
            "latents; the others are for a picture or mask)",
            hint="image-to-image and inpainting models cannot be run from a prompt alone",
            code="needs-picture",
        )
    return family
