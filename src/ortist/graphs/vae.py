"""The variational autoencoder of Stable Diffusion (`AutoencoderKL`) as two ONNX graphs.

A convolutional autoencoder with residual blocks and, in its middle, one attention over all
positions (Rombach et al. 2022, arXiv:2112.10752; Esser et al. 2021, arXiv:2012.09841).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from ortist.graphs.builder import GraphBuilder, Precision, Value, WeightSource
from ortist.graphs.layers import (
    AttentionSpec,
    GroupNormSpec,
    conv,
    downsample,
    group_norm,
    image_to_tokens,
    linear,
    multi_head_attention,
    resnet_block,
    silu,
    tokens_to_image,
    upsample,
)
from ortist.graphs.vae_config import VaeConfig

__all__ = ["VaeConfig", "build_vae_decoder", "build_vae_encoder"]

_EPSILON = 1e-6
_ENCODER_KEYS = ("encoder.", "quant_conv.")
_DECODER_KEYS = ("decoder.", "post_quant_conv.")
_PROJECTIONS = ("to_q", "to_k", "to_v", "to_out.0")
_OLD_PROJECTIONS = ("query", "key", "value", "proj_attn")  # diffusers before 0.17


def build_vae_encoder(
    config: VaeConfig, weights: WeightSource, *, dtype: Precision = "fp32"
) -> ir.Model:
    """Emit the encoder: picture to the parameters of the latents' distribution.

    Input: `sample` [batch_size, in_channels, sample_height, sample_width], values in [-1, 1],
    height and width multiples of `config.spatial_scale`.

    Output: `latent_parameters` [batch_size, 2 * latent_channels, height / scale, width / scale]:
    the mean, then the logarithm of the variance as the network gives it (diffusers clamps it to
    [-30, 20] before use). Nothing is sampled, and `scaling_factor` is left to the caller.

    Args:
        config: the architecture.
        weights: the state dict of the whole autoencoder; both names of the attention's
            projections (to_q, ... and the older query, key, value, proj_attn) are read.
        dtype: dtype of weights, arithmetic, input and output.

    Raises:
        BadCheckpoint: the weights do not fit the configuration.
    """
    source = _FlatProjections(weights)
    b = GraphBuilder("vae_encoder", source, dtype=dtype)
    norm = GroupNormSpec(config.norm_num_groups, _EPSILON)
    x = b.input("sample", ("batch_size", config.in_channels, "sample_height", "sample_width"))
    with b.scope("encoder"):
        x = conv(b, "conv_in", x, config.block_out_channels[0])
        last = len(config.block_out_channels) - 1
        for level, channels in enumerate(config.block_out_channels):
            with b.scope(f"down_blocks.{level}"):
                for index in range(config.layers_per_block):
                    x = resnet_block(b, f"resnets.{index}", x, channels, norm)
                if level < last:
                    x = downsample(b, "downsamplers.0", x, padding=0)
        x = _mid_block(b, x, config, norm, source)
        x = silu(b, group_norm(b, "conv_norm_out", x, norm))
        x = conv(b, "conv_out", x, 2 * config.latent_channels)
    if config.use_quant_conv:
        x = conv(b, "quant_conv", x, 2 * config.latent_channels, kernel=1)
    scale = config.spatial_scale
    b.output(
        "latent_parameters",
        x,
        (
            "batch_size",
            2 * config.latent_channels,
            f"sample_height / {scale}",
            f"sample_width / {scale}",
        ),
    )
    return b.finish(lambda key: key.startswith(_DECODER_KEYS))


def build_vae_decoder(
    config: VaeConfig, weights: WeightSource, *, dtype: Precision = "fp32"
) -> ir.Model:
    """Emit the decoder: latents to picture.

    Input: `latent_sample` [batch_size, latent_channels, latent_height, latent_width], already
    divided by `config.scaling_factor`.

    Output: `sample` [batch_size, out_channels, latent_height * scale, latent_width * scale],
    about [-1, 1], not clamped.

    Args:
        config: the architecture.
        weights: as for `build_vae_encoder`.
        dtype: dtype of weights, arithmetic, input and output.

    Raises:
        BadCheckpoint: the weights do not fit the configuration.
    """
    source = _FlatProjections(weights)
    b = GraphBuilder("vae_decoder", source, dtype=dtype)
    norm = GroupNormSpec(config.norm_num_groups, _EPSILON)
    x = b.input(
        "latent_sample",
        ("batch_size", config.latent_channels, "latent_height", "latent_width"),
    )
    if config.use_post_quant_conv:
        x = conv(b, "post_quant_conv", x, config.latent_channels, kernel=1)
    with b.scope("decoder"):
        x = conv(b, "conv_in", x, config.block_out_channels[-1])
        x = _mid_block(b, x, config, norm, source)
        last = len(config.block_out_channels) - 1
        for level, channels in enumerate(reversed(config.block_out_channels)):
            with b.scope(f"up_blocks.{level}"):
                for index in range(config.layers_per_block + 1):
                    x = resnet_block(b, f"resnets.{index}", x, channels, norm)
                if level < last:
                    x = upsample(b, "upsamplers.0", x)
        x = silu(b, group_norm(b, "conv_norm_out", x, norm))
        x = conv(b, "conv_out", x, config.out_channels)
    scale = config.spatial_scale
    b.output(
        "sample",
        x,
        (
            "batch_size",
            config.out_channels,
            f"latent_height * {scale}",
            f"latent_width * {scale}",
        ),
    )
    return b.finish(lambda key: key.startswith(_ENCODER_KEYS))


def _mid_block(
    b: GraphBuilder, x: Value, config: VaeConfig, norm: GroupNormSpec, source: _FlatProjections
) -> Value:
    channels = config.block_out_channels[-1]
    with b.scope("mid_block"):
        x = resnet_block(b, "resnets.0", x, channels, norm)
        if config.mid_block_add_attention:
            with b.scope("attentions.0"):
                x = _attention(b, x, channels, norm, source)
        return resnet_block(b, "resnets.1", x, channels, norm)


def _attention(
    b: GraphBuilder, x: Value, channels: int, norm: GroupNormSpec, source: _FlatProjections
) -> Value:
    """Single-head attention over all positions of x, plus x."""
    # The one head is as wide as the image is deep, so its scores may leave the float16 range.
    spec = AttentionSpec(heads=1, head_dim=channels, upcast=True)
    tokens = image_to_tokens(b, group_norm(b, "group_norm", x, norm))
    old = b.path(f"{_OLD_PROJECTIONS[0]}.weight") in source.keys()  # noqa: SIM118
    to_q, to_k, to_v, to_out = _OLD_PROJECTIONS if old else _PROJECTIONS
    query = linear(b, to_q, tokens, channels)
    key = linear(b, to_k, tokens, channels)
    value = linear(b, to_v, tokens, channels)
    mixed = multi_head_attention(b, query, key, value, spec)
    return b.add(x, tokens_to_image(b, linear(b, to_out, mixed, channels), x))


class _FlatProjections:
    """A state dict whose attention projections are matrices.

    Files in the layout of the original code store them as 1x1 convolutions [out, in, 1, 1]; the
    numbers and their order are the same.
    """

    def __init__(self, weights: WeightSource) -> None:
        self._weights = weights
        self._keys = frozenset(weights.keys())

    def keys(self) -> Iterable[str]:
        return self._keys

    def dtype(self, key: str) -> np.dtype:
        return self._weights.dtype(key)

    def shape(self, key: str) -> tuple[int, ...]:
        shape = self._weights.shape(key)
        return shape[:2] if self._is_flattened(key, shape) else shape

    def load(self, key: str) -> np.ndarray:
        stored = self._weights.load(key)
        return stored.reshape(self.shape(key))

    def _is_flattened(self, key: str, shape: tuple[int, ...]) -> bool:
        return ".attentions." in key and len(shape) == 4 and shape[2:] == (1, 1)
