"""Small autoencoders: configurations as diffusers writes them, and their tensors."""

from __future__ import annotations

from tests.tiny.weights import Shapes

# The autoencoder of SD 1.5 (written before scaling_factor and force_upcast existed).
VAE_SD1: dict[str, object] = {
    "_class_name": "AutoencoderKL",
    "_diffusers_version": "0.6.0",
    "act_fn": "silu",
    "block_out_channels": [128, 256, 512, 512],
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "in_channels": 3,
    "latent_channels": 4,
    "layers_per_block": 2,
    "norm_num_groups": 32,
    "out_channels": 3,
    "sample_size": 512,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
}


def vae_config(levels: list[int], **changes: object) -> dict[str, object]:
    """A tiny autoencoder's config.json as diffusers 0.42 writes it."""
    return {
        "_class_name": "AutoencoderKL",
        "_diffusers_version": "0.42.1",
        "act_fn": "silu",
        "block_out_channels": levels,
        "down_block_types": ["DownEncoderBlock2D"] * len(levels),
        "force_upcast": True,
        "in_channels": 3,
        "latent_channels": 4,
        "latents_mean": None,
        "latents_std": None,
        "layers_per_block": 1,
        "mid_block_add_attention": True,
        "norm_num_groups": 4,
        "out_channels": 3,
        "sample_size": 32,
        "scaling_factor": 0.18215,
        "shift_factor": None,
        "up_block_types": ["UpDecoderBlock2D"] * len(levels),
        "use_post_quant_conv": True,
        "use_quant_conv": True,
        **changes,
    }


def vae_shapes(config: dict[str, object]) -> Shapes:
    """The tensors of both halves."""
    levels = config["block_out_channels"]
    assert isinstance(levels, list)
    counts = [config[key] for key in ("in_channels", "out_channels", "latent_channels")]
    picture_in, picture_out, latent = (count for count in counts if isinstance(count, int))
    per_level = config["layers_per_block"]
    assert isinstance(per_level, int)
    shapes: Shapes = {}
    _convolution(shapes, "encoder.conv_in", levels[0], picture_in)
    _convolution(shapes, "encoder.conv_out", 2 * latent, levels[-1])
    _convolution(shapes, "decoder.conv_in", levels[-1], latent)
    _convolution(shapes, "decoder.conv_out", picture_out, levels[0])
    _norm(shapes, "encoder.conv_norm_out", levels[-1])
    _norm(shapes, "decoder.conv_norm_out", levels[0])
    if config.get("use_quant_conv", True):
        _convolution(shapes, "quant_conv", 2 * latent, 2 * latent, kernel=1)
    if config.get("use_post_quant_conv", True):
        _convolution(shapes, "post_quant_conv", latent, latent, kernel=1)
    _blocks(shapes, "encoder.down_blocks", levels, per_level, "downsamplers")
    _blocks(shapes, "decoder.up_blocks", levels[::-1], per_level + 1, "upsamplers")
    for half in ("encoder", "decoder"):
        for index in range(2):
            _resnet(shapes, f"{half}.mid_block.resnets.{index}", levels[-1], levels[-1])
        if config.get("mid_block_add_attention", True):
            attention = f"{half}.mid_block.attentions.0"
            _norm(shapes, f"{attention}.group_norm", levels[-1])
            for module in ("to_q", "to_k", "to_v", "to_out.0"):
                shapes[f"{attention}.{module}.weight"] = (levels[-1], levels[-1])
                shapes[f"{attention}.{module}.bias"] = (levels[-1],)
    return shapes


def _blocks(shapes: Shapes, name: str, levels: list[int], count: int, sampler: str) -> None:
    given = levels[0]
    for level, channels in enumerate(levels):
        for index in range(count):
            _resnet(shapes, f"{name}.{level}.resnets.{index}", given, channels)
            given = channels
        if level < len(levels) - 1:
            _convolution(shapes, f"{name}.{level}.{sampler}.0.conv", channels, channels)


def _resnet(shapes: Shapes, name: str, given: int, channels: int) -> None:
    _norm(shapes, f"{name}.norm1", given)
    _convolution(shapes, f"{name}.conv1", channels, given)
    _norm(shapes, f"{name}.norm2", channels)
    _convolution(shapes, f"{name}.conv2", channels, channels)
    if given != channels:
        _convolution(shapes, f"{name}.conv_shortcut", channels, given, kernel=1)


def _norm(shapes: Shapes, name: str, channels: int) -> None:
    shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (channels,)


def _convolution(shapes: Shapes, name: str, out: int, given: int, *, kernel: int = 3) -> None:
    shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (out, given, kernel, kernel), (out,)
