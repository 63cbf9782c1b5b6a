"""Key maps of the autoencoders.

The full one: the single-file layout counts levels by resolution on both ways, so the decoder's
levels run backwards; diffusers counts them in the order in which they are passed. The middle's
attention is made of 1x1 convolutions in the one and of matrices in the other.

The tiny one (TAESD, github.com/madebyollin/taesd) is one plain list of modules. The original
decoder starts with a module without tensors (it bends the latents), which diffusers leaves out.
"""

from __future__ import annotations

from ortist.checkpoints.layouts import KeyMap, TieList
from ortist.graphs.tiny_vae_config import TinyVaeConfig
from ortist.graphs.vae_config import VaeConfig

_MID_ATTENTION = (("q", "to_q"), ("k", "to_k"), ("v", "to_v"), ("proj_out", "to_out.0"))


def vae_key_map(config: VaeConfig) -> KeyMap:
    """Every tensor of an `AutoencoderKL`, prefix "first_stage_model." left out."""
    ties = TieList()
    levels = config.block_out_channels
    last = len(levels) - 1
    latent = config.latent_channels

    ties.conv("encoder.conv_in", "encoder.conv_in", levels[0], config.in_channels)
    given = levels[0]
    for level, channels in enumerate(levels):
        single, diffusers = f"encoder.down.{level}", f"encoder.down_blocks.{level}"
        for layer in range(config.layers_per_block):
            _resnet(
                ties, f"{single}.block.{layer}", f"{diffusers}.resnets.{layer}", given, channels
            )
            given = channels
        if level < last:
            halving = f"{diffusers}.downsamplers.0.conv"
            ties.conv(f"{single}.downsample.conv", halving, channels, channels)
    _mid(ties, "encoder", config)
    ties.norm("encoder.norm_out", "encoder.conv_norm_out", levels[-1])
    ties.conv("encoder.conv_out", "encoder.conv_out", 2 * latent, levels[-1])
    if config.use_quant_conv:
        ties.conv("quant_conv", "quant_conv", 2 * latent, 2 * latent, kernel=1)

    if config.use_post_quant_conv:
        ties.conv("post_quant_conv", "post_quant_conv", latent, latent, kernel=1)
    ties.conv("decoder.conv_in", "decoder.conv_in", levels[-1], latent)
    _mid(ties, "decoder", config)
    given = levels[-1]
    for index, level in enumerate(reversed(range(len(levels)))):
        channels = levels[level]
        single, diffusers = f"decoder.up.{level}", f"decoder.up_blocks.{index}"
        for layer in range(config.layers_per_block + 1):
            _resnet(
                ties, f"{single}.block.{layer}", f"{diffusers}.resnets.{layer}", given, channels
            )
            given = channels
        if level > 0:
            doubling = f"{diffusers}.upsamplers.0.conv"
            ties.conv(f"{single}.upsample.conv", doubling, channels, channels)
    ties.norm("decoder.norm_out", "decoder.conv_norm_out", levels[0])
    ties.conv("decoder.conv_out", "decoder.conv_out", config.out_channels, levels[0])
    return ties.finish()


def _mid(ties: TieList, half: str, config: VaeConfig) -> None:
    channels = config.block_out_channels[-1]
    single, diffusers = f"{half}.mid", f"{half}.mid_block"
    for index in range(2):
        block = f"{single}.block_{index + 1}"
        _resnet(ties, block, f"{diffusers}.resnets.{index}", channels, channels)
    if config.mid_block_add_attention:
        single, diffusers = f"{single}.attn_1", f"{diffusers}.attentions.0"
        ties.norm(f"{single}.norm", f"{diffusers}.group_norm", channels)
        for part, name in _MID_ATTENTION:
            names = (f"{single}.{part}", f"{diffusers}.{name}")
            ties.linear(*names, channels, channels, form="pointwise")


def _resnet(ties: TieList, single: str, diffusers: str, given: int, channels: int) -> None:
    ties.norm(f"{single}.norm1", f"{diffusers}.norm1", given)
    ties.conv(f"{single}.conv1", f"{diffusers}.conv1", channels, given)
    ties.norm(f"{single}.norm2", f"{diffusers}.norm2", channels)
    ties.conv(f"{single}.conv2", f"{diffusers}.conv2", channels, channels)
    if given != channels:
        shortcut = f"{diffusers}.conv_shortcut"
        ties.conv(f"{single}.nin_shortcut", shortcut, channels, given, kernel=1)


def tiny_encoder_key_map(config: TinyVaeConfig) -> KeyMap:
    """Every tensor of the encoder of an `AutoencoderTiny`; the original file holds it alone."""
    stages = _Stages("encoder.layers", config.encoder_channels, shift=0)
    for stage, blocks in enumerate(config.num_encoder_blocks):
        if stage == 0:
            stages.conv(config.encoder_channels, config.in_channels)
        else:
            stages.conv(config.encoder_channels, config.encoder_channels, bias=False)
        stages.blocks(blocks)
    stages.conv(config.latent_channels, config.encoder_channels)
    return stages.ties.finish()


def tiny_decoder_key_map(config: TinyVaeConfig) -> KeyMap:
    """Every tensor of the decoder of an `AutoencoderTiny`; the original file holds it alone."""
    stages = _Stages("decoder.layers", config.decoder_channels, shift=1)
    stages.conv(config.decoder_channels, config.latent_channels)
    stages.skip()  # an activation
    last = len(config.num_decoder_blocks) - 1
    for stage, blocks in enumerate(config.num_decoder_blocks):
        stages.blocks(blocks)
        if stage < last:
            stages.skip()  # an enlargement
            stages.conv(config.decoder_channels, config.decoder_channels, bias=False)
    stages.conv(config.out_channels, config.decoder_channels)
    return stages.ties.finish()


class _Stages:
    """One plain list of modules; the original numbers are `shift` ahead of diffusers'."""

    def __init__(self, prefix: str, channels: int, *, shift: int) -> None:
        self.ties = TieList()
        self._prefix = prefix
        self._channels = channels
        self._shift = shift
        self._number = 0

    def skip(self) -> None:
        """A module without tensors."""
        self._number += 1

    def conv(self, out: int, given: int, *, bias: bool = True) -> None:
        """A 3x3 convolution."""
        self.ties.conv(*self._names(), out, given, bias=bias)
        self._number += 1

    def blocks(self, count: int) -> None:
        """Residual blocks of three convolutions."""
        for _ in range(count):
            single, diffusers = self._names()
            for member in (0, 2, 4):
                names = (f"{single}.conv.{member}", f"{diffusers}.conv.{member}")
                self.ties.conv(*names, self._channels, self._channels)
            self._number += 1

    def _names(self) -> tuple[str, str]:
        return str(self._number + self._shift), f"{self._prefix}.{self._number}"
