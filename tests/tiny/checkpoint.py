"""Small random checkpoints in the diffusers layout, made without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from ortist.graphs.unet import build_unet
from ortist.graphs.unet_config import UNetConfig
from ortist.graphs.vae import build_vae_decoder, build_vae_encoder
from ortist.graphs.vae_config import VaeConfig
from tests.tiny.clip import clip_config, clip_shapes
from tests.tiny.tiny_vae import tiny_vae_config, tiny_vae_shapes
from tests.tiny.tokenizer import vocabulary, write_tokenizer
from tests.tiny.unet import CONFIGS as UNETS
from tests.tiny.vae import vae_config
from tests.tiny.wanted import wanted_shapes
from tests.tiny.weights import Shapes, random_weight

Json = dict[str, object]

SCHEDULER: Json = {
    "_class_name": "DDIMScheduler",
    "_diffusers_version": "0.42.1",
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "num_train_timesteps": 1000,
    "prediction_type": "epsilon",
    "clip_sample": False,
    "set_alpha_to_one": False,
    "steps_offset": 1,
}


def write_json(path: Path, value: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2))


def read_json(path: Path) -> Json:
    value: object = json.loads(path.read_text())
    assert isinstance(value, dict)
    return value


def random_tensors(shapes: Shapes, dtype: str = "float32", seed: int = 0) -> dict[str, np.ndarray]:
    return {
        key: np.ascontiguousarray(random_weight(f"{seed}.{key}", shape), dtype=dtype)
        for key, shape in shapes.items()
    }


def write_weights(
    folder: Path,
    name: str,
    shapes: Shapes,
    *,
    dtype: str = "float32",
    shards: int = 1,
    seed: int = 0,
) -> None:
    """Random tensors as `name`.safetensors, or in several files with an index."""
    tensors = random_tensors(shapes, dtype, seed)
    if shards == 1:
        save_file(tensors, folder / f"{name}.safetensors", metadata={"format": "pt"})
        return
    homes: dict[str, str] = {}
    for number in range(shards):
        file = f"{name}-{number + 1:05}-of-{shards:05}.safetensors"
        part = {key: tensors[key] for key in sorted(tensors)[number::shards]}
        save_file(part, folder / file, metadata={"format": "pt"})
        homes |= dict.fromkeys(part, file)
    write_json(folder / f"{name}.safetensors.index.json", {"metadata": {}, "weight_map": homes})


def write_checkpoint(
    folder: Path,
    kind: str = "sd1",
    *,
    tiny_vae: bool = False,
    dtype: str = "float32",
    shards: int = 1,
    text_prefix: str = "text_model.",
) -> Path:
    """Write a whole checkpoint.

    Args:
        folder: the directory to make.
        kind: the UNet's name in tests/tiny/unet.py ("sd1", "sdxl_base", ...).
        tiny_vae: an AutoencoderTiny in place of the AutoencoderKL.
        dtype: numpy name of the stored type.
        shards: number of files that the UNet's weights are cut into.
        text_prefix: prefix of the text encoder's tensors ("" is transformers 5).
    """
    xl = "sdxl" in kind
    width = 24
    index: Json = {
        "_class_name": f"StableDiffusion{'XL' if xl else ''}Pipeline",
        "_diffusers_version": "0.42.1",
        "scheduler": ["diffusers", "DDIMScheduler"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderTiny" if tiny_vae else "AutoencoderKL"],
    }
    if xl:
        index["force_zeros_for_empty_prompt"] = True
    else:
        index |= {
            "safety_checker": [None, None],
            "feature_extractor": [None, None],
            "requires_safety_checker": False,
        }

    unet_config = UNETS[kind]
    unet = UNetConfig.from_json(unet_config)
    write_json(folder / "unet" / "config.json", unet_config)
    shapes = wanted_shapes(lambda weights: build_unet(unet, weights, dtype="fp32"))
    stem = "diffusion_pytorch_model"
    write_weights(folder / "unet", stem, shapes, dtype=dtype, shards=shards, seed=1)

    if tiny_vae:
        vae_json = tiny_vae_config([1, 1, 1, 1], [1, 1, 1, 1])
        shapes = tiny_vae_shapes(vae_json)
    else:
        vae_json = vae_config([8, 16, 16, 16])
        vae = VaeConfig.from_json(vae_json)
        shapes = wanted_shapes(lambda weights: build_vae_encoder(vae, weights))
        shapes |= wanted_shapes(lambda weights: build_vae_decoder(vae, weights))
    write_json(folder / "vae" / "config.json", vae_json)
    write_weights(folder / "vae", stem, shapes, dtype=dtype, seed=2)

    pooled = 0 if unet.text_time is None else unet.text_time.text_width
    widths = [8, width - 8] if xl else [width]
    for number, encoder_width in enumerate(widths, start=1):
        suffix = "" if number == 1 else f"_{number}"
        class_name = "CLIPTextModelWithProjection" if number == 2 else "CLIPTextModel"
        size = write_tokenizer(folder / f"tokenizer{suffix}")
        vocab, _ = vocabulary()
        config = clip_config(
            architectures=[class_name],
            hidden_size=encoder_width,
            intermediate_size=2 * encoder_width,
            num_attention_heads=2,
            num_hidden_layers=3,
            vocab_size=size,
            max_position_embeddings=16,
            bos_token_id=vocab["<|startoftext|>"],
            eos_token_id=vocab["<|endoftext|>"],
            pad_token_id=vocab["<|endoftext|>"],
            projection_dim=pooled if number == 2 else encoder_width,
        )
        home = folder / f"text_encoder{suffix}"
        write_json(home / "config.json", config)
        prefix = "text_model." if number == 2 else text_prefix
        write_weights(home, "model", clip_shapes(config, prefix), dtype=dtype, seed=2 + number)
        index[f"text_encoder{suffix}"] = ["transformers", class_name]
        index[f"tokenizer{suffix}"] = ["transformers", "CLIPTokenizer"]

    write_json(folder / "scheduler" / "scheduler_config.json", SCHEDULER)
    write_json(folder / "model_index.json", index)
    return folder
