"""The denoiser: a UNet with cross-attention to a text (Rombach et al. 2022, arXiv:2112.10752).

    sample -> conv_in -> down blocks -> mid block -> up blocks -> norm, SiLU, conv_out -> out_sample
                            |                           ^
                            +------- skips (concat) ----+

Every residual block also receives the time embedding, every transformer the text. Names of
inputs and outputs are those that optimum-onnx writes, so its users' tools can run the graph.
"""

from __future__ import annotations

import onnx_ir as ir

from ortist.graphs.builder import FLOAT, GraphBuilder, Precision, Value, WeightSource
from ortist.graphs.layers import (
    AttentionSpec,
    GroupNormSpec,
    attention,
    conv,
    downsample,
    feed_forward_geglu,
    group_norm,
    image_to_tokens,
    layer_norm,
    linear,
    resnet_block,
    silu,
    sinusoidal_embedding,
    time_mlp,
    tokens_to_image,
    upsample,
)
from ortist.graphs.unet_config import BlockConfig, MidConfig, TextTimeConfig, UNetConfig

_TRANSFORMER_EPSILON = 1e-6  # of the group norm before a transformer, whatever norm_eps says


def build_unet(config: UNetConfig, weights: WeightSource, *, dtype: Precision) -> ir.Model:
    """Emit the denoiser's graph.

    Inputs (float type of the graph unless said otherwise):
        sample: noisy latents [batch_size, in_channels, height, width]. Any size: on the way up
            each level is cropped to the skip it meets, as the reference does.
        timestep: scalar, fractions allowed; float32 in every precision, because float16 has
            steps of 0.5 from 512 on and the highest frequency turns by one radian a step.
        encoder_hidden_states: text tokens [batch_size, sequence_length, cross_attention_dim].
        text_embeds, time_ids: with `config.text_time`, [batch_size, text_width] and
            [batch_size, num_time_ids].
        timestep_cond: with `config.time_cond_proj_dim`, [batch_size, time_cond_proj_dim].

    Output:
        out_sample [batch_size, out_channels, height, width].

    Raises:
        BadCheckpoint: the weights do not fit the config.
    """
    b = GraphBuilder("unet", weights, dtype=dtype)
    image = ("batch_size", config.in_channels, "height", "width")
    sample = b.input("sample", image)
    timestep = b.input("timestep", (), FLOAT)
    text = b.input(
        "encoder_hidden_states", ("batch_size", "sequence_length", config.cross_attention_dim)
    )
    time = silu(b, _time_embedding(b, config, timestep))
    unet = _UNet(b, config, text, time)

    if config.center_input_sample:
        sample = b.sub(b.mul(sample, 2.0), 1.0)
    x = conv(b, "conv_in", sample, config.base_channels, kernel=config.conv_in_kernel)
    skips = [x]
    for index, block in enumerate(config.down):
        with b.scope(f"down_blocks.{index}"):
            x = unet.down_block(block, x, skips)
    if config.mid is not None:
        with b.scope("mid_block"):
            x = unet.mid_block(config.mid, x)
    for index, block in enumerate(config.up):
        with b.scope(f"up_blocks.{index}"):
            x = unet.up_block(block, x, skips)
    x = silu(b, group_norm(b, "conv_norm_out", x, config.norm))
    x = conv(b, "conv_out", x, config.out_channels, kernel=config.conv_out_kernel)

    b.output("out_sample", x, ("batch_size", config.out_channels, "height", "width"))
    return b.finish()


def _time_embedding(b: GraphBuilder, config: UNetConfig, timestep: Value) -> Value:
    """[1 or batch_size, time_embed_dim]; one row when nothing in it depends on the sample."""

    def waves(steps: Value, width: int) -> Value:
        embedding = sinusoidal_embedding(
            b,
            b.cast(steps, FLOAT),
            width,
            flip_sin_to_cos=config.flip_sin_to_cos,
            freq_shift=config.freq_shift,
        )
        return b.cast(embedding, b.dtype)

    # Inputs are declared in optimum's order, whatever the order of use below.
    extra = None if config.text_time is None else _text_time_inputs(b, config.text_time)
    with b.scope("time_proj"):
        embedding = waves(b.reshape(timestep, (1,)), config.base_channels)
    if config.time_cond_proj_dim is not None:
        condition = b.input("timestep_cond", ("batch_size", config.time_cond_proj_dim))
        with b.scope("time_embedding"):
            guidance = linear(b, "cond_proj", condition, config.base_channels, bias=False)
            embedding = b.add(embedding, guidance)
    embedding = time_mlp(b, "time_embedding", embedding, config.time_embed_dim)
    if config.text_time is not None and extra is not None:
        text_embeds, time_ids = extra
        with b.scope("add_time_proj"):
            ids = waves(time_ids, config.text_time.time_id_width)
            ids = b.reshape(
                ids, (0, config.text_time.num_time_ids * config.text_time.time_id_width)
            )
            both = b.concat([text_embeds, ids], axis=1)
        added = time_mlp(b, "add_embedding", both, config.time_embed_dim)
        embedding = b.add(embedding, added)
    return embedding


def _text_time_inputs(b: GraphBuilder, config: TextTimeConfig) -> tuple[Value, Value]:
    text_embeds = b.input("text_embeds", ("batch_size", config.text_width))
    return text_embeds, b.input("time_ids", ("batch_size", config.num_time_ids))


class _UNet:
    """What all blocks share: the builder, the config, the text and the activated time."""

    def __init__(self, b: GraphBuilder, config: UNetConfig, text: Value, time: Value) -> None:
        self.b = b
        self.config = config
        self.text = text
        self.time = time

    def down_block(self, block: BlockConfig, x: Value, skips: list[Value]) -> Value:
        """Residual blocks and transformers, then halve the size; every result is a skip."""
        b = self.b
        for layer in range(block.layers):
            x = self.resnet(layer, x, block.channels)
            if block.depths is not None:
                x = self.transformer(layer, x, block, block.depths[layer])
            skips.append(x)
        if block.resample:
            x = downsample(b, "downsamplers.0", x, padding=self.config.downsample_padding)
            skips.append(x)
        return x

    def mid_block(self, mid: MidConfig, x: Value) -> Value:
        """Residual block, transformer, residual block; or the first alone."""
        x = self.resnet(0, x, mid.channels, scale=mid.scale)
        if mid.depth is None:
            return x
        x = self.transformer(0, x, mid, mid.depth)
        return self.resnet(1, x, mid.channels, scale=mid.scale)

    def up_block(self, block: BlockConfig, x: Value, skips: list[Value]) -> Value:
        """Each residual block takes one skip, last first; then double the size."""
        b = self.b
        for layer in range(block.layers):
            x = self.resnet(layer, b.concat([x, skips.pop()], axis=1), block.channels)
            if block.depths is not None:
                x = self.transformer(layer, x, block, block.depths[layer])
        if block.resample:
            x = upsample(b, "upsamplers.0", x, like=skips[-1])
        return x

    def resnet(self, index: int, x: Value, channels: int, *, scale: float = 1.0) -> Value:
        """Residual block number `index` of the current scope."""
        return resnet_block(
            self.b,
            f"resnets.{index}",
            x,
            channels,
            self.config.norm,
            time=self.time,
            output_scale=scale,
        )

    def transformer(
        self, index: int, x: Value, block: BlockConfig | MidConfig, depth: int
    ) -> Value:
        """Transformer number `index` of the current scope: pixels become tokens and return."""
        b = self.b
        spec = AttentionSpec(block.heads, block.head_dim, upcast=self.config.upcast_attention)
        only_cross = isinstance(block, BlockConfig) and block.only_cross_attention
        norm = GroupNormSpec(self.config.norm.groups, _TRANSFORMER_EPSILON)
        with b.scope(f"attentions.{index}"):
            h = group_norm(b, "norm", x, norm)
            if self.config.use_linear_projection:
                tokens = linear(b, "proj_in", image_to_tokens(b, h), block.channels)
            else:
                tokens = image_to_tokens(b, conv(b, "proj_in", h, block.channels, kernel=1))
            for layer in range(depth):
                with b.scope(f"transformer_blocks.{layer}"):
                    tokens = self.transformer_layer(tokens, spec, only_cross)
            if self.config.use_linear_projection:
                h = tokens_to_image(b, linear(b, "proj_out", tokens, block.channels), like=x)
            else:
                h = tokens_to_image(b, tokens, like=x)
                h = conv(b, "proj_out", h, block.channels, kernel=1)
            return b.add(h, x)

    def transformer_layer(self, tokens: Value, spec: AttentionSpec, only_cross: bool) -> Value:
        """Self-attention, cross-attention, feed-forward; each normalised before and added."""
        b = self.b
        first = self.text if only_cross else None
        h = attention(b, "attn1", layer_norm(b, "norm1", tokens), spec, context=first)
        tokens = b.add(h, tokens)
        h = attention(b, "attn2", layer_norm(b, "norm2", tokens), spec, context=self.text)
        tokens = b.add(h, tokens)
        h = feed_forward_geglu(b, "ff", layer_norm(b, "norm3", tokens))
        return b.add(h, tokens)
