"""Small UNets, one for each way in which published models differ, and inputs for them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ortist.graphs.unet_config import UNetConfig

Json = dict[str, object]

_CROSS_DOWN, _DOWN = "CrossAttnDownBlock2D", "DownBlock2D"
_CROSS_UP, _UP = "CrossAttnUpBlock2D", "UpBlock2D"


def _config(changes: Mapping[str, object]) -> Json:
    """An SD 1.x in small, with changes."""
    base: Json = {
        "_class_name": "UNet2DConditionModel",
        "_diffusers_version": "0.42.1",
        "block_out_channels": [16, 32],
        "down_block_types": [_CROSS_DOWN, _DOWN],
        "up_block_types": [_UP, _CROSS_UP],
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "attention_head_dim": 4,
        "cross_attention_dim": 24,
        "sample_size": 8,
    }
    return {**base, **changes}


_THREE_LEVELS: Json = {
    "block_out_channels": [8, 16, 24],
    "down_block_types": [_DOWN, _CROSS_DOWN, _CROSS_DOWN],
    "up_block_types": [_CROSS_UP, _CROSS_UP, _UP],
}
_SDXL: Json = {
    **_THREE_LEVELS,
    "attention_head_dim": [1, 2, 3],
    "transformer_layers_per_block": [1, 2, 3],
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": 68,
    "num_attention_heads": None,
}

CONFIGS: dict[str, Json] = {
    "sd1": _config({"layers_per_block": 2}),
    "sd2": _config(
        {
            "attention_head_dim": [2, 8],
            "use_linear_projection": True,
            "upcast_attention": True,
            "dual_cross_attention": False,
            "only_cross_attention": False,
        }
    ),
    "sdxl_base": _config(_SDXL),
    "sdxl_refiner": _config({**_SDXL, "projection_class_embeddings_input_dim": 24 + 5 * 8}),
    "lcm": _config({"time_cond_proj_dim": 20}),
    "lcm_sdxl": _config({**_SDXL, "time_cond_proj_dim": 12}),
    "inpaint_9_channels": _config({"in_channels": 9}),
    "instruct_8_channels": _config({"in_channels": 8, "transformer_layers_per_block": 2}),
    "bk_sdm_without_mid": _config(
        {
            "mid_block_type": None,
            "block_out_channels": [8, 16, 16],
            "down_block_types": [_CROSS_DOWN] * 3,
            "up_block_types": [_CROSS_UP] * 3,
        }
    ),
    "ssd_1b_nested_depths": _config(
        {
            **_SDXL,
            "layers_per_block": 2,
            "transformer_layers_per_block": [1, [2, 1], [1, 3]],
            "reverse_transformer_layers_per_block": [[2, 1, 3], [1, 2, 1], 1],
        }
    ),
    "plain_mid_uneven_layers": _config(
        {**_THREE_LEVELS, "mid_block_type": "UNetMidBlock2D", "layers_per_block": [1, 3, 2]}
    ),
    "only_cross_attention": _config(
        {
            "block_out_channels": [8, 16],
            "down_block_types": [_CROSS_DOWN] * 2,
            "up_block_types": [_CROSS_UP] * 2,
            "only_cross_attention": [True, False],
            "center_input_sample": True,
        }
    ),
    "other_constants": _config(
        {
            "downsample_padding": 0,
            "conv_in_kernel": 5,
            "conv_out_kernel": 1,
            "norm_eps": 1e-3,
            "freq_shift": 1,
            "flip_sin_to_cos": False,
            "mid_block_scale_factor": 1.4142,
            "act_fn": "swish",
        }
    ),
    "koala_empty_transformers": _config(
        {**_SDXL, "attention_head_dim": [2, 4, 4], "transformer_layers_per_block": [0, 2, 0]}
    ),
    "uneven_attention": _config(
        {
            **_THREE_LEVELS,
            "down_block_types": [_CROSS_DOWN, _DOWN, _CROSS_DOWN],
            "up_block_types": [_UP, _CROSS_UP, _CROSS_UP],
            "cross_attention_dim": [24, 24, 24],
            "time_embedding_dim": 40,
            "out_channels": 3,
        }
    ),
    "one_level_odd_width": _config(
        {
            "block_out_channels": [15],
            "down_block_types": [_CROSS_DOWN],
            "up_block_types": [_CROSS_UP],
            "norm_num_groups": 5,
            "attention_head_dim": 3,
        }
    ),
}

_FOUR_LEVELS: Json = {
    "block_out_channels": [320, 640, 1280, 1280],
    "down_block_types": [_CROSS_DOWN, _CROSS_DOWN, _CROSS_DOWN, _DOWN],
    "up_block_types": [_UP, _CROSS_UP, _CROSS_UP, _CROSS_UP],
}
_FULL_SDXL: Json = {
    "block_out_channels": [320, 640, 1280],
    "down_block_types": [_DOWN, _CROSS_DOWN, _CROSS_DOWN],
    "up_block_types": [_CROSS_UP, _CROSS_UP, _UP],
    "attention_head_dim": [5, 10, 20],
    "transformer_layers_per_block": [1, 2, 10],
    "use_linear_projection": True,
    "cross_attention_dim": 2048,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
}
FULL_CONFIGS: dict[str, Json] = {
    "sd1.5": {**_FOUR_LEVELS, "cross_attention_dim": 768},
    "sd2.1": {
        **_FOUR_LEVELS,
        "cross_attention_dim": 1024,
        "attention_head_dim": [5, 10, 20, 20],
        "use_linear_projection": True,
    },
    "sdxl_base": _FULL_SDXL,
    "sdxl_refiner": {
        **_FULL_SDXL,
        "block_out_channels": [384, 768, 1536, 1536],
        "down_block_types": [_DOWN, _CROSS_DOWN, _CROSS_DOWN, _DOWN],
        "up_block_types": [_UP, _CROSS_UP, _CROSS_UP, _UP],
        "attention_head_dim": [6, 12, 24, 24],
        "transformer_layers_per_block": 4,
        "cross_attention_dim": 1280,
        "projection_class_embeddings_input_dim": 2560,
    },
}
"""The published models in full size, for counting: nothing of this size is run in a test."""


def inputs(
    config: UNetConfig,
    *,
    batch: int,
    height: int,
    width: int,
    timestep: float,
    tokens: int = 7,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Feeds for the graph, float32."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    feeds = {
        "sample": normal(batch, config.in_channels, height, width),
        "timestep": np.asarray(timestep, dtype=np.float32),
        "encoder_hidden_states": normal(batch, tokens, config.cross_attention_dim),
    }
    if config.text_time is not None:
        feeds["text_embeds"] = normal(batch, config.text_time.text_width)
        sizes = np.asarray([1024, 768, 0, 64, 1024, 6.5], dtype=np.float32)
        feeds["time_ids"] = np.tile(sizes[: config.text_time.num_time_ids], (batch, 1))
    if config.time_cond_proj_dim is not None:
        feeds["timestep_cond"] = normal(batch, config.time_cond_proj_dim)
    return feeds
