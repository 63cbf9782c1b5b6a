"""Small random pipelines of diffusers, saved as the directories that ortist opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tiny.clip import clip_config
from tests.tiny.tokenizer import vocabulary, write_tokenizer
from tests.tiny.unet import CONFIGS as UNETS
from tests.tiny.vae import vae_config
from tests.tiny.weights import random_weight

SD_SCHEDULER: dict[str, object] = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "clip_sample": False,
    "set_alpha_to_one": False,
    "steps_offset": 1,
}


def save_pipeline(oracle: Any, folder: Path, kind: str, *, prediction_type: str = "epsilon") -> Any:
    """Make a pipeline with random weights, save it in `folder`, and return it.

    Args:
        oracle: torch, diffusers, transformers.
        kind: the UNet's name in tests/tiny/unet.py ("sd1", "sdxl_base", "lcm", ...).
        prediction_type: what the UNet is said to predict.
    """
    xl = "sdxl" in kind
    unet = _filled(oracle, oracle.diffusers.UNet2DConditionModel(**_arguments(UNETS[kind])), 1)
    vae_settings = _arguments(vae_config([8, 16, 16, 16]))
    vae = _filled(oracle, oracle.diffusers.AutoencoderKL(**vae_settings), 2)
    scheduler = oracle.diffusers.DDIMScheduler(**SD_SCHEDULER, prediction_type=prediction_type)
    parts: dict[str, Any] = {"unet": unet, "vae": vae, "scheduler": scheduler}
    width = 24
    if xl:
        pooled = unet.config.projection_class_embeddings_input_dim
        pooled -= 6 * unet.config.addition_time_embed_dim
        parts |= _text(oracle, folder, "", 8, seed=3)
        parts |= _text(oracle, folder, "_2", width - 8, seed=4, projection=pooled)
        pipe = oracle.diffusers.StableDiffusionXLPipeline(**parts, add_watermarker=False)
    else:
        parts |= _text(oracle, folder, "", width, seed=3)
        pipe = oracle.diffusers.StableDiffusionPipeline(
            **parts, safety_checker=None, feature_extractor=None, requires_safety_checker=False
        )
    pipe.set_progress_bar_config(disable=True)
    pipe.save_pretrained(folder)
    return pipe


def _arguments(config: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in config.items() if not key.startswith("_")}


def _text(
    oracle: Any, folder: Path, suffix: str, width: int, *, seed: int, projection: int | None = None
) -> dict[str, Any]:
    size = write_tokenizer(folder / f"made_tokenizer{suffix}")
    vocab, _ = vocabulary()
    config = clip_config(
        hidden_size=width,
        intermediate_size=2 * width,
        num_attention_heads=2,
        num_hidden_layers=3,
        vocab_size=size,
        max_position_embeddings=16,
        bos_token_id=vocab["<|startoftext|>"],
        eos_token_id=vocab["<|endoftext|>"],
        pad_token_id=vocab["<|endoftext|>"],
        **({} if projection is None else {"projection_dim": projection}),
    )
    config.pop("architectures")
    config.pop("dtype")
    config.pop("transformers_version")
    made = oracle.transformers.CLIPTextConfig(**config)
    classes = oracle.transformers
    kind = classes.CLIPTextModel if projection is None else classes.CLIPTextModelWithProjection
    encoder = kind(made)
    tokenizer = classes.CLIPTokenizer.from_pretrained(folder / f"made_tokenizer{suffix}")
    return {
        f"text_encoder{suffix}": _filled(oracle, encoder, seed),
        f"tokenizer{suffix}": tokenizer,
    }


def _filled(oracle: Any, model: Any, seed: int) -> Any:
    """The model with random weights of ours: no norm and no zero-initialised layer is neutral."""
    state = model.state_dict()
    for key, tensor in state.items():
        if tensor.dtype == oracle.torch.float32:
            array = random_weight(f"{seed}.{key}", tuple(tensor.shape))
            state[key] = oracle.torch.from_numpy(array)
    model.load_state_dict(state)
    return model.eval()
