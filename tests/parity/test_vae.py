"""Our autoencoder graphs against diffusers' AutoencoderKL in float32, same random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ortist.graphs.vae import build_vae_decoder, build_vae_encoder
from ortist.graphs.vae_config import VaeConfig
from tests.tiny.graphs import relative_error, session
from tests.tiny.vae import vae_config
from tests.tiny.weights import ArraySource, random_weight

pytestmark = pytest.mark.parity

TOLERANCE = 1e-5

CONFIGS: dict[str, dict[str, object]] = {
    "four_levels": vae_config([8, 16, 16, 24], layers_per_block=2, norm_num_groups=8),
    "no_mid_attention": vae_config([6, 12], mid_block_add_attention=False, norm_num_groups=2),
    "no_quant_convs": vae_config(
        [16, 8, 32],
        use_quant_conv=False,
        use_post_quant_conv=False,
        latent_channels=16,
        norm_num_groups=1,
    ),
    "one_level": vae_config([12], layers_per_block=3, norm_num_groups=3, out_channels=1),
    "one_quant_conv": vae_config([8, 8, 8], use_post_quant_conv=False, in_channels=4),
}


def model_of(oracle: Any, config: dict[str, object]) -> Any:
    arguments = {key: value for key, value in config.items() if not key.startswith("_")}
    model = oracle.diffusers.AutoencoderKL(**arguments).eval()
    state = {key: random_weight(key, value.shape) for key, value in model.state_dict().items()}
    model.load_state_dict({key: oracle.torch.from_numpy(value) for key, value in state.items()})
    return model


def state_of(model: Any) -> dict[str, np.ndarray]:
    return {key: tensor.numpy() for key, tensor in model.state_dict().items()}


def images(batch: int, channels: int, height: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(batch + height)
    return rng.standard_normal((batch, channels, height, width), dtype=np.float32)


# Batch, height and width in latents; the picture's edges are those times the scale.
SIZES = [(1, 4, 4), (2, 4, 6), (1, 9, 5)]


@pytest.mark.parametrize("name", CONFIGS)
def test_both_halves_agree(oracle: Any, name: str) -> None:
    json = CONFIGS[name]
    model = model_of(oracle, json)
    config, source = VaeConfig.from_json(json), ArraySource(state_of(model))
    encode = session(build_vae_encoder(config, source, dtype="fp32"))
    decode = session(build_vae_decoder(config, source, dtype="fp32"))
    errors: dict[tuple[str, int, int, int], float] = {}
    for batch, height, width in SIZES:
        scale = config.spatial_scale
        sample = images(batch, config.in_channels, height * scale, width * scale)
        expected = model.encode(oracle.torch.from_numpy(sample)).latent_dist.parameters.numpy()
        found = encode.run_all({"sample": sample})["latent_parameters"]
        assert found.shape == (batch, 2 * config.latent_channels, height, width)
        errors["encoder", batch, height, width] = relative_error(found, expected)
        latents = images(batch, config.latent_channels, height, width)
        expected = model.decode(oracle.torch.from_numpy(latents)).sample.numpy()
        found = decode.run_all({"latent_sample": latents})["sample"]
        errors["decoder", batch, height, width] = relative_error(found, expected)
    print(f"vae {name}: {max(errors.values()):.1e}")
    assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.parametrize("form", ["matrices", "convolutions"])
def test_old_attention_names_agree(oracle: Any, form: str) -> None:
    json = CONFIGS["four_levels"]
    model = model_of(oracle, json)
    old = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    state: dict[str, np.ndarray] = {}
    for key, array in state_of(model).items():
        renamed = key
        for new_name, old_name in old.items():
            if f".attentions.0.{new_name}." in key:
                renamed = key.replace(f".{new_name}.", f".{old_name}.")
                if form == "convolutions" and key.endswith("weight"):
                    array = array[:, :, None, None]  # noqa: PLW2901
        state[renamed] = array
    assert len(set(state) - set(model.state_dict())) == 16
    config = VaeConfig.from_json(json)
    runner = session(build_vae_decoder(config, ArraySource(state), dtype="fp32"))
    latents = images(1, 4, 6, 4)
    expected = model.decode(oracle.torch.from_numpy(latents)).sample.numpy()
    assert (
        relative_error(runner.run_all({"latent_sample": latents})["sample"], expected) <= TOLERANCE
    )


def test_saved_config_is_understood(oracle: Any, tmp_path: Any) -> None:
    import json

    model = model_of(oracle, CONFIGS["one_quant_conv"])
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert VaeConfig.from_json(saved) == VaeConfig.from_json(CONFIGS["one_quant_conv"])
