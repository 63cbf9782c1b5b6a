"""The tiny autoencoder (`AutoencoderTiny`, TAESD) as two ONNX graphs.

Only 3x3 convolutions and ReLU (github.com/madebyollin/taesd): pictures in a fraction of the
full decoder's time, a little softer. The network works on pictures in [0, 1]; the graphs take
and give [-1, 1] like those of the full autoencoder.
"""

from __future__ import annotations

import onnx_ir as ir

from ortist.graphs.builder import GraphBuilder, Precision, Value, WeightSource
from ortist.graphs.layers import conv
from ortist.graphs.tiny_vae_config import TinyVaeConfig

__all__ = ["TinyVaeConfig", "build_tiny_vae_decoder", "build_tiny_vae_encoder"]

_LATENT_LIMIT = 3.0  # the decoder bends latents into (-3, 3), whatever latent_magnitude says


def build_tiny_vae_encoder(
    config: TinyVaeConfig, weights: WeightSource, *, dtype: Precision = "fp32"
) -> ir.Model:
    """Emit the encoder: picture to latents.

    Input: `sample` [batch_size, in_channels, sample_height, sample_width], values in [-1, 1],
    height and width multiples of `config.encoder_scale`.

    Output: `latent_sample` [batch_size, latent_channels, height / scale, width / scale]. There
    is no distribution to draw from; `scaling_factor` is left to the caller.

    Args:
        config: the architecture.
        weights: the state dict of the whole autoencoder.
        dtype: dtype of weights, arithmetic, input and output.

    Raises:
        BadCheckpoint: the weights do not fit the configuration.
    """
    b = GraphBuilder("vae_encoder", weights, dtype=dtype)
    x = b.input("sample", ("batch_size", config.in_channels, "sample_height", "sample_width"))
    x = b.div(b.add(x, 1.0), 2.0)
    layers = _Numbered("encoder.layers")
    for stage, blocks in enumerate(config.num_encoder_blocks):
        if stage == 0:
            x = conv(b, layers.next(), x, config.encoder_channels)
        else:
            x = conv(b, layers.next(), x, config.encoder_channels, stride=2, bias=False)
        for _ in range(blocks):
            x = _block(b, layers.next(), x, config.encoder_channels)
    x = conv(b, layers.next(), x, config.latent_channels)
    scale = config.encoder_scale
    b.output(
        "latent_sample",
        x,
        (
            "batch_size",
            config.latent_channels,
            f"sample_height / {scale}",
            f"sample_width / {scale}",
        ),
    )
    return b.finish(lambda key: key.startswith("decoder."))


def build_tiny_vae_decoder(
    config: TinyVaeConfig, weights: WeightSource, *, dtype: Precision = "fp32"
) -> ir.Model:
    """Emit the decoder: latents to picture.

    Input: `latent_sample` [batch_size, latent_channels, latent_height, latent_width], divided
    by `config.scaling_factor`.

    Output: `sample` [batch_size, out_channels, latent_height * scale, latent_width * scale],
    about [-1, 1], not clamped.

    Args:
        config: the architecture.
        weights: the state dict of the whole autoencoder.
        dtype: dtype of weights, arithmetic, input and output.

    Raises:
        BadCheckpoint: the weights do not fit the configuration.
    """
    b = GraphBuilder("vae_decoder", weights, dtype=dtype)
    x = b.input(
        "latent_sample",
        ("batch_size", config.latent_channels, "latent_height", "latent_width"),
    )
    x = b.mul(b.tanh(b.div(x, _LATENT_LIMIT)), _LATENT_LIMIT)
    layers = _Numbered("decoder.layers")
    x = b.relu(conv(b, layers.next(), x, config.decoder_channels))
    layers.next()  # the activation has a number of its own
    last = len(config.num_decoder_blocks) - 1
    for stage, blocks in enumerate(config.num_decoder_blocks):
        for _ in range(blocks):
            x = _block(b, layers.next(), x, config.decoder_channels)
        if stage < last:
            layers.next()  # and so has the enlargement
            x = b.upsample_nearest(x, config.upsampling_scaling_factor)
            x = conv(b, layers.next(), x, config.decoder_channels, bias=False)
    x = conv(b, layers.next(), x, config.out_channels)
    x = b.sub(b.mul(x, 2.0), 1.0)
    scale = config.decoder_scale
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
    return b.finish(lambda key: key.startswith("encoder."))


class _Numbered:
    """Names of the members of one long sequential module, in order."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._count = 0

    def next(self) -> str:
        name = f"{self._prefix}.{self._count}"
        self._count += 1
        return name


def _block(b: GraphBuilder, name: str, x: Value, channels: int) -> Value:
    """Residual block of three convolutions; `channels` in and out."""
    with b.scope(name):
        h = b.relu(conv(b, "conv.0", x, channels))
        h = b.relu(conv(b, "conv.2", h, channels))
        h = conv(b, "conv.4", h, channels)
        return b.relu(b.add(h, x))
