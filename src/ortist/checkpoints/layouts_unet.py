"""Key map of the UNet.

The single-file layout numbers what a sample passes through: `input_blocks.0` is the first
convolution; then every residual block (with the transformer behind it) and every halving is an
input block of its own. Every residual block on the way up is an output block, and a doubling is
the last member of the output block it follows. diffusers counts levels, and members in a level.
"""

from __future__ import annotations

from ortist.checkpoints.layouts import KeyMap, TieList
from ortist.graphs.unet_config import BlockConfig, MidConfig, UNetConfig


def unet_key_map(config: UNetConfig) -> KeyMap:
    """Every tensor of the UNet, prefix "model.diffusion_model." left out.

    The guidance embedding of LCM ("time_embed.cond_proj") has no place in the original layout;
    the name is the one that follows from its neighbours.
    """
    return _Walk(config).run()


class _Walk:
    """Follows a sample through the UNet, counting blocks and channels as each layout does."""

    def __init__(self, config: UNetConfig) -> None:
        self.config = config
        self.ties = TieList()
        self.channels = config.base_channels
        self.skips = [self.channels]  # channels of what the way up will take

    def run(self) -> KeyMap:
        config, ties = self.config, self.ties
        width = config.time_embed_dim
        ties.linear("time_embed.0", "time_embedding.linear_1", width, config.base_channels)
        ties.linear("time_embed.2", "time_embedding.linear_2", width, width)
        if config.time_cond_proj_dim is not None:
            ties.linear(
                "time_embed.cond_proj",
                "time_embedding.cond_proj",
                config.base_channels,
                config.time_cond_proj_dim,
                bias=False,
            )
        if config.text_time is not None:
            extra = config.text_time
            given = extra.text_width + extra.num_time_ids * extra.time_id_width
            ties.linear("label_emb.0.0", "add_embedding.linear_1", width, given)
            ties.linear("label_emb.0.2", "add_embedding.linear_2", width, width)
        ties.conv(
            "input_blocks.0.0",
            "conv_in",
            config.base_channels,
            config.in_channels,
            kernel=config.conv_in_kernel,
        )
        number = 1
        for level, block in enumerate(config.down):
            number = self.down(block, f"down_blocks.{level}", number)
        if config.mid is not None:
            self.mid(config.mid)
        number = 0
        for level, block in enumerate(config.up):
            number = self.up(block, f"up_blocks.{level}", number)
        ties.norm("out.0", "conv_norm_out", self.channels)
        ties.conv(
            "out.2",
            "conv_out",
            config.out_channels,
            self.channels,
            kernel=config.conv_out_kernel,
        )
        return ties.finish()

    def down(self, block: BlockConfig, name: str, number: int) -> int:
        """One level downwards from input block `number`; returns the next number."""
        for layer in range(block.layers):
            home = f"input_blocks.{number}"
            self.resnet(f"{home}.0", f"{name}.resnets.{layer}", self.channels, block.channels)
            if block.depths is not None:
                attention = f"{name}.attentions.{layer}"
                self.transformer(f"{home}.1", attention, block, block.depths[layer])
            self.skips.append(self.channels)
            number += 1
        if block.resample:
            home = f"input_blocks.{number}"
            self.ties.conv(
                f"{home}.0.op", f"{name}.downsamplers.0.conv", self.channels, self.channels
            )
            self.skips.append(self.channels)
            number += 1
        return number

    def mid(self, mid: MidConfig) -> None:
        """The lowest resolution: residual block, then transformer and residual block or nothing."""
        self.resnet("middle_block.0", "mid_block.resnets.0", self.channels, mid.channels)
        if mid.depth is not None:
            self.transformer("middle_block.1", "mid_block.attentions.0", mid, mid.depth)
            self.resnet("middle_block.2", "mid_block.resnets.1", mid.channels, mid.channels)

    def up(self, block: BlockConfig, name: str, number: int) -> int:
        """One level upwards from output block `number`; returns the next number."""
        for layer in range(block.layers):
            home = f"output_blocks.{number}"
            given = self.channels + self.skips.pop()
            self.resnet(f"{home}.0", f"{name}.resnets.{layer}", given, block.channels)
            if block.depths is not None:
                attention = f"{name}.attentions.{layer}"
                self.transformer(f"{home}.1", attention, block, block.depths[layer])
            number += 1
        if block.resample:
            member = 2 if block.has_attention else 1
            home = f"output_blocks.{number - 1}.{member}"
            self.ties.conv(
                f"{home}.conv", f"{name}.upsamplers.0.conv", self.channels, self.channels
            )
        return number

    def resnet(self, single: str, diffusers: str, given: int, channels: int) -> None:
        """A residual block from `given` to `channels`, which the walk then has."""
        ties = self.ties
        ties.norm(f"{single}.in_layers.0", f"{diffusers}.norm1", given)
        ties.conv(f"{single}.in_layers.2", f"{diffusers}.conv1", channels, given)
        ties.linear(
            f"{single}.emb_layers.1",
            f"{diffusers}.time_emb_proj",
            channels,
            self.config.time_embed_dim,
        )
        ties.norm(f"{single}.out_layers.0", f"{diffusers}.norm2", channels)
        ties.conv(f"{single}.out_layers.3", f"{diffusers}.conv2", channels, channels)
        if given != channels:
            shortcut = f"{diffusers}.conv_shortcut"
            ties.conv(f"{single}.skip_connection", shortcut, channels, given, kernel=1)
        self.channels = channels

    def transformer(
        self, single: str, diffusers: str, block: BlockConfig | MidConfig, depth: int
    ) -> None:
        """A transformer over pixels; its inner names are the same in both layouts."""
        width = block.channels
        self.ties.norm(f"{single}.norm", f"{diffusers}.norm", width)
        self.projection(f"{single}.proj_in", f"{diffusers}.proj_in", width)
        only_cross = isinstance(block, BlockConfig) and block.only_cross_attention
        for layer in range(depth):
            inner = f"transformer_blocks.{layer}"
            self.transformer_layer(
                f"{single}.{inner}", f"{diffusers}.{inner}", width, only_cross=only_cross
            )
        self.projection(f"{single}.proj_out", f"{diffusers}.proj_out", width)

    def projection(self, single: str, diffusers: str, width: int) -> None:
        """A transformer's way in or out: a matrix in both layouts, or a 1x1 convolution in both."""
        if self.config.use_linear_projection:
            self.ties.linear(single, diffusers, width, width)
        else:
            self.ties.conv(single, diffusers, width, width, kernel=1)

    def transformer_layer(
        self, single: str, diffusers: str, width: int, *, only_cross: bool
    ) -> None:
        """Attention to the pixels, attention to the text, feed-forward with a gate (GEGLU)."""
        ties, text = self.ties, self.config.cross_attention_dim
        for norm in ("norm1", "norm2", "norm3"):
            ties.norm(f"{single}.{norm}", f"{diffusers}.{norm}", width)
        for name, given in (("attn1", text if only_cross else width), ("attn2", text)):
            for part, source in (("to_q", width), ("to_k", given), ("to_v", given)):
                module = f"{name}.{part}"
                ties.linear(
                    f"{single}.{module}", f"{diffusers}.{module}", width, source, bias=False
                )
            out = f"{name}.to_out.0"
            ties.linear(f"{single}.{out}", f"{diffusers}.{out}", width, width)
        inner = 4 * width
        ties.linear(f"{single}.ff.net.0.proj", f"{diffusers}.ff.net.0.proj", 2 * inner, width)
        ties.linear(f"{single}.ff.net.2", f"{diffusers}.ff.net.2", width, inner)
