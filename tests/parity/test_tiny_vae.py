"""Our tiny autoencoder graphs against diffusers' AutoencoderTiny in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ortist.graphs.tiny_vae import build_tiny_vae_decoder, build_tiny_vae_encoder
from ortist.graphs.tiny_vae_config import TinyVaeConfig
from tests.tiny.graphs import relative_error, session
from tests.tiny.tiny_vae import tiny_vae_config
from tests.tiny.weights import ArraySource, random_weight

pytestmark = pytest.mark.parity

TOLERANCE = 1e-5

CONFIGS: dict[str, dict[str, object]] = {
    "taesd": tiny_vae_config([1, 3, 3, 3], [3, 3, 3, 1]),
    "uneven": tiny_vae_config([2, 0, 1], [1, 2], 6, latent_magnitude=5, latent_channels=16),
    "triple": tiny_vae_config([1, 1], [0, 1, 1], 4, upsampling_scaling_factor=3),
}


def model_of(oracle: Any, config: dict[str, object]) -> Any:
    arguments = {key: value for key, value in config.items() if not key.startswith("_")}
    arguments.pop("block_out_channels")
    model = oracle.diffusers.AutoencoderTiny(**arguments).eval()
    state = {key: random_weight(key, value.shape) for key, value in model.state_dict().items()}
    model.load_state_dict({key: oracle.torch.from_numpy(value) for key, value in state.items()})
    return model


@pytest.mark.parametrize("name", CONFIGS)
def test_both_halves_agree(oracle: Any, name: str) -> None:
    json = CONFIGS[name]
    model = model_of(oracle, json)
    config = TinyVaeConfig.from_json(json)
    source = ArraySource({key: tensor.numpy() for key, tensor in model.state_dict().items()})
    encode = session(build_tiny_vae_encoder(config, source, dtype="fp32"))
    decode = session(build_tiny_vae_decoder(config, source, dtype="fp32"))
    rng = np.random.default_rng(3)
    errors: dict[tuple[str, int, int, int], float] = {}
    for batch, height, width in [(1, 4, 4), (2, 3, 5), (1, 7, 2)]:
        scale = config.encoder_scale
        size = (batch, config.in_channels, height * scale, width * scale)
        sample = rng.uniform(-1, 1, size).astype(np.float32)
        expected = model.encode(oracle.torch.from_numpy(sample)).latents.numpy()
        found = encode.run_all({"sample": sample})["latent_sample"]
        assert found.shape == (batch, config.latent_channels, height, width)
        errors["encoder", batch, height, width] = relative_error(found, expected)
        latents = rng.normal(0, 3, (batch, config.latent_channels, height, width))
        latents = latents.astype(np.float32)
        expected = model.decode(oracle.torch.from_numpy(latents)).sample.numpy()
        found = decode.run_all({"latent_sample": latents})["sample"]
        scale = config.decoder_scale
        assert found.shape == (batch, config.out_channels, height * scale, width * scale)
        errors["decoder", batch, height, width] = relative_error(found, expected)
    print(f"tiny vae {name}: {max(errors.values()):.1e}")
    assert max(errors.values()) <= TOLERANCE, errors


def test_saved_config_is_understood(oracle: Any, tmp_path: Any) -> None:
    import json

    model = model_of(oracle, CONFIGS["taesd"])
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert TinyVaeConfig.from_json(saved) == TinyVaeConfig.from_json(CONFIGS["taesd"])
