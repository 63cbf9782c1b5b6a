from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from ortist.denoise import denoise
from ortist.encode import Conditioning
from ortist.errors import BadBundle
from ortist.families.registry import find_family
from ortist.plan import Plan, resolve
from ortist.providers.cpu import PROVIDER
from ortist.request import Request
from ortist.runtime.engine import Engine
from ortist.runtime.session import Array
from ortist.sampling import TorchCpuGenerator
from tests.doubles import SD_FACTS, FakeGraph, opener_of
from tests.test_plan import SCHEDULER

CONTEXT = "encoder_hidden_states"
INPUTS = ("sample", "timestep", CONTEXT)


def model(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
    # Depends on the context, so that guidance shows; small and linear, so that it stays finite.
    weight = feeds[CONTEXT].mean(axis=(1, 2)).reshape(-1, 1, 1, 1)
    return {"out_sample": (feeds["sample"] * weight).astype(np.float32)}


def context(value: float) -> dict[str, np.ndarray]:
    return {CONTEXT: np.full((1, 3, 8), value, np.float32)}


def engine_of(graph: FakeGraph) -> Engine:
    return Engine({"unet": Path("unet")}, PROVIDER, opener=opener_of({"unet": graph}))


def plan_of(**fields: object) -> Plan:
    request = Request("x", **{"seed": 3, "num_inference_steps": 4, **fields})  # pyright: ignore
    return resolve(request, find_family(SD_FACTS), SD_FACTS, SCHEDULER)


def run(plan: Plan, *, guided: bool = True) -> tuple[np.ndarray, FakeGraph]:
    graph = FakeGraph(INPUTS, ("out_sample",), model)
    conditioning = Conditioning(context(0.3), context(0.1) if guided else None, ())
    latents = denoise(plan, conditioning, engine_of(graph), on_step=lambda *_: None)
    return latents, graph


@pytest.mark.parametrize("sampler", ["DDIM", "Euler", "Euler a", "DPM++ 2M"])
def test_the_number_of_pictures_changes_none_of_them(sampler: str) -> None:
    together, _ = run(plan_of(sampler=sampler, num_images_per_prompt=3))
    for index in range(3):
        alone, _ = run(plan_of(sampler=sampler, seed=3 + index))
        np.testing.assert_array_equal(together[index], alone[0])


def test_a_guided_step_runs_the_negative_half_first() -> None:
    _, graph = run(plan_of(num_images_per_prompt=2))
    feeds = graph.feeds[0]
    assert feeds["sample"].shape == (4, 4, 16, 16)
    np.testing.assert_array_equal(feeds["sample"][:2], feeds["sample"][2:])
    assert feeds[CONTEXT][:, 0, 0].tolist() == pytest.approx([0.1, 0.1, 0.3, 0.3])


def test_guidance_is_the_way_from_negative_to_positive() -> None:
    # uncond + g (cond - uncond) = (0.1 + 0.2 g) x: the same as an unguided model of that weight.
    guided, _ = run(plan_of(guidance_scale=4.0))
    graph = FakeGraph(INPUTS, ("out_sample",), model)
    same = denoise(
        plan_of(guidance_scale=1.0),
        Conditioning(context(0.9), None, ()),
        engine_of(graph),
        on_step=lambda *_: None,
    )
    np.testing.assert_allclose(guided, same, rtol=1e-5)


def test_without_guidance_one_pass_is_run() -> None:
    _, graph = run(plan_of(guidance_scale=1.0), guided=False)
    assert graph.feeds[0]["sample"].shape[0] == 1
    assert len(graph.feeds) == 4


def test_given_latents_replace_the_first_noise_only() -> None:
    noise = TorchCpuGenerator(3).normal((4, 16, 16))[np.newaxis]
    by_seed, _ = run(plan_of(sampler="DDIM"))
    given, _ = run(plan_of(sampler="DDIM", latents=noise, seed=99))
    np.testing.assert_array_equal(given, by_seed)


def test_every_step_is_told_with_its_estimate() -> None:
    seen: list[tuple[int, float, tuple[int, ...]]] = []
    graph = FakeGraph(INPUTS, ("out_sample",), model)
    denoise(
        plan_of(),
        Conditioning(context(0.3), context(0.1), ()),
        engine_of(graph),
        on_step=lambda index, row, x0: seen.append((index, row.timestep, x0.shape)),
    )
    assert [index for index, _, _ in seen] == [0, 1, 2, 3]
    assert [float(f["timestep"]) for f in graph.feeds] == [timestep for _, timestep, _ in seen]
    assert all(shape == (1, 4, 16, 16) for _, _, shape in seen)


def test_other_tools_names_of_the_output_are_known_and_unknown_ones_are_an_error() -> None:
    def renamed(name: str) -> FakeGraph:
        return FakeGraph(INPUTS, (name,), lambda f: {name: model(f)["out_sample"]})

    conditioning = Conditioning(context(0.3), context(0.1), ())
    expected, _ = run(plan_of())
    found = denoise(
        plan_of(), conditioning, engine_of(renamed("noise_pred")), on_step=lambda *_: None
    )
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(BadBundle, match="mystery"):
        denoise(plan_of(), conditioning, engine_of(renamed("mystery")), on_step=lambda *_: None)
