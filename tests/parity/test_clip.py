"""Our CLIP graphs against transformers in float32, same random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ortist.graphs.clip import build_clip_text_encoder
from ortist.graphs.clip_config import ClipTextConfig
from tests.tiny.clip import clip_config
from tests.tiny.graphs import relative_error, session
from tests.tiny.weights import ArraySource, random_weight

pytestmark = pytest.mark.parity

TOLERANCE = 1e-5
PROJECTED = {"architectures": ["CLIPTextModelWithProjection"]}

CONFIGS: dict[str, dict[str, object]] = {
    "sd1": clip_config(eos_token_id=2),
    "sd2": clip_config(
        eos_token_id=2,
        hidden_act="gelu",
        hidden_size=40,
        num_attention_heads=5,
        num_hidden_layers=3,
    ),
    "sdxl_second": clip_config(
        **PROJECTED,
        eos_token_id=2,
        hidden_act="gelu",
        hidden_size=48,
        num_attention_heads=3,
        num_hidden_layers=5,
        projection_dim=20,
    ),
    "true_eos": clip_config(eos_token_id=63, num_hidden_layers=1, num_attention_heads=1),
    "eos_below_other_ids": clip_config(
        **PROJECTED, eos_token_id=30, hidden_size=24, layer_norm_eps=1e-3, intermediate_size=96
    ),
}


def model_of(oracle: Any, config: dict[str, object]) -> Any:
    arguments = {k: v for k, v in config.items() if k not in {"architectures", "model_type"}}
    arguments.pop("transformers_version")
    (name,) = config["architectures"]  # type: ignore[misc]
    settings = oracle.transformers.CLIPTextConfig(**arguments)
    model = getattr(oracle.transformers, name)(settings).eval()
    state = {key: random_weight(key, value.shape) for key, value in model.state_dict().items()}
    model.load_state_dict({key: oracle.torch.from_numpy(value) for key, value in state.items()})
    return model


def state_of(model: Any) -> dict[str, np.ndarray]:
    return {key: tensor.numpy() for key, tensor in model.state_dict().items()}


def token_ids(batch: int, length: int, eos: int, seed: int) -> np.ndarray:
    """Sequences that hold the end token at least once, and sometimes again as padding."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(3, 62, size=(batch, length))
    ids[ids == eos] = 4
    for row in ids:
        start = rng.integers(0, length)
        row[start] = eos
        row[start + 1 :] = rng.choice([eos, 5, 63 if eos == 63 else 0], size=length - start - 1)
    return ids


@pytest.mark.parametrize("name", CONFIGS)
def test_every_output_agrees(oracle: Any, name: str) -> None:
    json = CONFIGS[name]
    model = model_of(oracle, json)
    config = ClipTextConfig.from_json(json)
    runner = session(build_clip_text_encoder(config, ArraySource(state_of(model)), dtype="fp32"))
    eos = 63 if config.eos_token_id == 2 else config.eos_token_id
    errors: dict[tuple[str, int, int], float] = {}
    for seed, (batch, length) in enumerate([(1, 20), (2, 20), (2, 7), (3, 1)]):
        ids = token_ids(batch, length, eos, seed)
        expected = model(oracle.torch.from_numpy(ids), output_hidden_states=True)
        found = runner.run_all({"input_ids": ids})
        pooled = "text_embeds" if config.projection_dim is not None else "pooler_output"
        wanted = {
            pooled: expected[pooled],
            "last_hidden_state": expected.last_hidden_state,
            **{f"hidden_states.{i}": h for i, h in enumerate(expected.hidden_states)},
        }
        assert list(found) == (
            list(wanted)
            if config.projection_dim is not None
            else ["last_hidden_state", "pooler_output", *list(wanted)[2:]]
        )
        for output, tensor in wanted.items():
            errors[output, batch, length] = relative_error(found[output], tensor.numpy())
    print(f"clip {name}: {max(errors.values()):.1e}")
    assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.parametrize("architecture", ["CLIPTextModel", "CLIPTextModelWithProjection"])
def test_saved_config_is_understood(oracle: Any, architecture: str, tmp_path: Any) -> None:
    """What save_pretrained writes today is read: keys with a prefix or without, and the config."""
    import json

    from safetensors.numpy import load_file

    model = model_of(oracle, clip_config(architectures=[architecture]))
    model.save_pretrained(tmp_path)
    config = ClipTextConfig.from_json(json.loads((tmp_path / "config.json").read_text()))
    saved = ArraySource(load_file(tmp_path / "model.safetensors"))
    ids = token_ids(1, 9, 63, seed=1)
    found = session(build_clip_text_encoder(config, saved, dtype="fp32")).run_all(
        {"input_ids": ids}
    )
    expected = model(oracle.torch.from_numpy(ids)).last_hidden_state.numpy()
    assert relative_error(found["last_hidden_state"], expected) <= TOLERANCE
