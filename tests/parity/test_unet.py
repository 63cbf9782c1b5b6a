"""Our UNet graphs against diffusers' UNet2DConditionModel in float32, same random weights."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ortist.graphs.unet import build_unet
from ortist.graphs.unet_config import UNetConfig
from tests.tiny.graphs import relative_error, session
from tests.tiny.unet import CONFIGS, Json, inputs
from tests.tiny.weights import ArraySource, random_source

pytestmark = pytest.mark.parity

TOLERANCE = 1e-5

# batch, height, width, timestep
CASES = [
    (1, 8, 8, 0.0),
    (2, 8, 8, 999.5),
    (2, 12, 16, 1.0),
    (1, 16, 12, 999.0),
    (1, 8, 16, 481.25),
]
ODD_CASES = [(1, 7, 9, 500.0), (2, 13, 8, 20.0), (1, 5, 6, 999.5)]


@dataclass(frozen=True)
class Pair:
    """The same weights in both implementations."""

    config: UNetConfig
    reference: Any
    weights: ArraySource


def make_model(oracle: Any, config: Json) -> Any:
    arguments = {key: value for key, value in config.items() if not key.startswith("_")}
    return oracle.diffusers.UNet2DConditionModel(**arguments).eval()


def make_pair(oracle: Any, config: Json) -> Pair:
    model = make_model(oracle, config)
    shapes = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    weights = random_source(shapes)
    model.load_state_dict({key: oracle.torch.from_numpy(a) for key, a in weights.arrays.items()})
    return Pair(UNetConfig.from_json(config), model, weights)


def reference_output(oracle: Any, pair: Pair, feeds: dict[str, np.ndarray]) -> np.ndarray:
    tensors = {key: oracle.torch.from_numpy(array) for key, array in feeds.items()}
    added = {key: tensors[key] for key in ("text_embeds", "time_ids") if key in tensors}
    return pair.reference(
        tensors["sample"],
        tensors["timestep"],
        tensors["encoder_hidden_states"],
        timestep_cond=tensors.get("timestep_cond"),
        added_cond_kwargs=added or None,
    ).sample.numpy()


@pytest.mark.parametrize("name", CONFIGS)
def test_agrees_with_diffusers(oracle: Any, name: str) -> None:
    pair = make_pair(oracle, CONFIGS[name])
    graph = session(build_unet(pair.config, pair.weights, dtype="fp32"))
    # With a padding of 0 the reference cannot halve odd sizes consistently either.
    cases = CASES if pair.config.downsample_padding == 0 else CASES + ODD_CASES
    errors: dict[tuple[int, int, int, float], float] = {}
    for batch, height, width, timestep in cases:
        feeds = inputs(pair.config, batch=batch, height=height, width=width, timestep=timestep)
        expected = reference_output(oracle, pair, feeds)
        errors[batch, height, width, timestep] = relative_error(
            graph.run_all(feeds)["out_sample"], expected
        )
    assert max(errors.values()) <= TOLERANCE, errors


def test_a_file_that_states_every_default_means_the_same(oracle: Any) -> None:
    for config in CONFIGS.values():
        complete = json.loads(make_model(oracle, config).to_json_string())
        assert len(complete) > len(config)
        assert UNetConfig.from_json(complete) == UNetConfig.from_json(config)


def test_defaults_of_absent_keys_are_those_of_diffusers(oracle: Any) -> None:
    signature = inspect.signature(oracle.diffusers.UNet2DConditionModel.__init__)
    defaults = {key: p.default for key, p in signature.parameters.items() if key != "self"}
    stated = json.loads(json.dumps(defaults))
    assert UNetConfig.from_json(stated) == UNetConfig.from_json({})


def test_half_precision_stays_close_to_full(oracle: Any) -> None:
    for name in ("sd1", "sd2", "sdxl_base", "lcm"):
        pair = make_pair(oracle, CONFIGS[name])
        feeds = inputs(pair.config, batch=2, height=8, width=8, timestep=999.5)
        expected = reference_output(oracle, pair, feeds)
        half = {
            key: array if key == "timestep" else array.astype(np.float16)
            for key, array in feeds.items()
        }
        graph = session(build_unet(pair.config, pair.weights, dtype="fp16"))
        found = graph.run_all(half)["out_sample"]
        assert found.dtype == np.float16
        assert relative_error(found, expected) <= 1e-2, name
