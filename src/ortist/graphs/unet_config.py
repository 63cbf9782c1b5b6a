"""The configuration of a `UNet2DConditionModel`, as diffusers writes it, resolved.

The file describes every level through lists, single numbers that stand for lists, and names
whose meaning drifted. `UNetConfig` has none of that: three sequences of blocks with every number
decided, so that the graph can be drawn from it directly. Defaults of absent keys are those of
diffusers' class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ortist.graphs.layers import GroupNormSpec
from ortist.graphs.level_fields import LevelReader, items_of

CLASS_NAME: Final = "UNet2DConditionModel"

_DOWN_TYPES: Final = {"CrossAttnDownBlock2D": True, "DownBlock2D": False}
_UP_TYPES: Final = {"CrossAttnUpBlock2D": True, "UpBlock2D": False}
_MID_TYPES: Final = {"UNetMidBlock2DCrossAttn": True, "UNetMidBlock2D": False}
_DEFAULT_DOWN: Final = (*["CrossAttnDownBlock2D"] * 3, "DownBlock2D")
_DEFAULT_UP: Final = ("UpBlock2D", *["CrossAttnUpBlock2D"] * 3)
_DEFAULT_CHANNELS: Final = (320, 640, 1280, 1280)
_HEADS: Final = "attention_head_dim"  # which states the number of heads, see `_heads`

_NEUTRAL: Final[Mapping[str, tuple[object, ...]]] = {
    "attention_type": ("default",),
    "class_embed_type": (None,),
    "class_embeddings_concat": (False,),
    "cross_attention_norm": (None,),
    "dual_cross_attention": (False,),
    "encoder_hid_dim": (None,),
    "encoder_hid_dim_type": (None,),
    "num_class_embeds": (None,),
    "resnet_out_scale_factor": (1, 1.0),
    "resnet_skip_time_act": (False,),
    "resnet_time_scale_shift": ("default",),
    "time_embedding_act_fn": (None,),
    "time_embedding_type": ("positional",),
    "timestep_post_act": (None,),
}
"""Keys whose other values are not implemented."""

_NO_BEARING: Final = (
    # Training only.
    "dropout",
    # Read by block types that are refused above, whatever these keys hold.
    "addition_embed_type_num_heads",
    "mid_block_only_cross_attention",
    # State of the moving average that training scripts leave in the file.
    "decay",
    "inv_gamma",
    "min_decay",
    "optimization_step",
    "power",
    "update_after_step",
    "use_ema_warmup",
)


@dataclass(frozen=True)
class BlockConfig:
    """One block of a level: residual blocks, each with a transformer behind it or not.

    Attributes:
        channels: output channels of every residual block.
        layers: number of residual blocks.
        depths: layers of the transformer behind each residual block; None without attention.
        heads: attention heads.
        only_cross_attention: the first attention of a transformer layer looks at the text too.
        resample: whether the block ends by halving (down) or doubling (up) the size.
    """

    channels: int
    layers: int
    depths: tuple[int, ...] | None
    heads: int
    only_cross_attention: bool
    resample: bool

    @property
    def has_attention(self) -> bool:
        """Whether transformers follow the residual blocks."""
        return self.depths is not None

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.channels // self.heads


@dataclass(frozen=True)
class MidConfig:
    """The block at the lowest resolution.

    Attributes:
        channels: its channels.
        depth: transformer layers between its two residual blocks; None for a single residual
            block without attention.
        heads: attention heads.
        scale: residual sums are divided by it.
    """

    channels: int
    depth: int | None
    heads: int
    scale: float

    @property
    def has_attention(self) -> bool:
        """Whether there is a transformer."""
        return self.depth is not None

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.channels // self.heads


@dataclass(frozen=True)
class TextTimeConfig:
    """The extra conditioning of SDXL: a pooled text embedding and some sizes ("time ids").

    Attributes:
        text_width: width of `text_embeds`.
        num_time_ids: numbers in `time_ids`: 6, or 5 in the refiner.
        time_id_width: width of the sinusoidal embedding of each number.
    """

    text_width: int
    num_time_ids: int
    time_id_width: int


@dataclass(frozen=True)
class UNetConfig:
    """What decides the graph of a conditional UNet (Rombach et al. 2022, arXiv:2112.10752).

    Attributes:
        in_channels: channels of `sample`.
        out_channels: channels of `out_sample`.
        sample_size: latent height and width of the training pictures, where the file says so.
        center_input_sample: map the input from [0, 1] to [-1, 1] first.
        base_channels: channels after the first convolution.
        time_embed_dim: width of the time embedding.
        flip_sin_to_cos: cosines before sines in sinusoidal embeddings.
        freq_shift: see `layers.sinusoidal_embedding`.
        time_cond_proj_dim: width of the guidance embedding `timestep_cond` (LCM); None without.
        cross_attention_dim: width of the text tokens.
        text_time: the conditioning of SDXL; None without.
        conv_in_kernel: side of the first convolution's kernel.
        conv_out_kernel: side of the last convolution's kernel.
        downsample_padding: 1 on all sides, or 0 for the bottom and right only.
        norm: constants of the group normalisations outside transformers.
        use_linear_projection: a transformer's outer projections are linear maps, not 1x1
            convolutions.
        upcast_attention: attention scores need float32.
        down: blocks from the finest level to the coarsest.
        mid: the block between; None in models that dropped it.
        up: blocks from the coarsest level to the finest.
    """

    in_channels: int
    out_channels: int
    sample_size: tuple[int, int] | None
    center_input_sample: bool
    base_channels: int
    time_embed_dim: int
    flip_sin_to_cos: bool
    freq_shift: float
    time_cond_proj_dim: int | None
    cross_attention_dim: int
    text_time: TextTimeConfig | None
    conv_in_kernel: int
    conv_out_kernel: int
    downsample_padding: int
    norm: GroupNormSpec
    use_linear_projection: bool
    upcast_attention: bool
    down: tuple[BlockConfig, ...]
    mid: MidConfig | None
    up: tuple[BlockConfig, ...]

    @property
    def downsampling(self) -> int:
        """How many latents of each edge meet in one at the lowest resolution."""
        return 2 ** sum(block.resample for block in self.down)

    @classmethod
    def from_json(
        cls,
        mapping: Mapping[str, object],
        *,
        source: str = "unet/config.json",
        num_time_ids: int | None = None,
    ) -> UNetConfig:
        """Read a diffusers `config.json` of class `UNet2DConditionModel`.

        Args:
            mapping: the parsed JSON object.
            source: the file's name in messages.
            num_time_ids: length of `time_ids`, which the file does not state: 5 if the pipeline
                requires an aesthetics score, else 6. None infers it: a model whose pooled text
                embedding would be as wide as its text tokens when there are 5 is a refiner.

        Raises:
            BadCheckpoint: a key is unknown, or has a value that is not implemented.
        """
        reader = LevelReader(mapping, source)
        reader.neutral("_class_name", CLASS_NAME)
        # Keys with an underscore are notes of the software that wrote the file.
        reader.ignore(key for key in mapping if key.startswith("_"))
        reader.ignore(_NO_BEARING)
        for key, allowed in _NEUTRAL.items():
            reader.neutral(key, *allowed)
        reader.choice("act_fn", ("silu", "swish"), "silu")  # two names of one function

        down, mid, up = _blocks(reader)
        base = down[0].channels
        cross_attention_dim = _cross_attention_dim(reader, down, mid, up)
        config = cls(
            in_channels=reader.integer("in_channels", 4),
            out_channels=reader.integer("out_channels", 4),
            sample_size=_sample_size(reader),
            center_input_sample=reader.flag("center_input_sample", False),
            base_channels=base,
            time_embed_dim=reader.optional_integer("time_embedding_dim") or 4 * base,
            flip_sin_to_cos=reader.flag("flip_sin_to_cos", True),
            freq_shift=_freq_shift(reader, base),
            time_cond_proj_dim=reader.optional_integer("time_cond_proj_dim"),
            cross_attention_dim=cross_attention_dim,
            text_time=_text_time(reader, cross_attention_dim, num_time_ids),
            conv_in_kernel=reader.odd("conv_in_kernel", 3),
            conv_out_kernel=reader.odd("conv_out_kernel", 3),
            downsample_padding=_downsample_padding(reader),
            norm=_norm(reader, down),
            use_linear_projection=reader.flag("use_linear_projection", False),
            upcast_attention=reader.flag("upcast_attention", False),
            down=down,
            mid=mid,
            up=up,
        )
        reader.finish()
        return config


def _blocks(
    reader: LevelReader,
) -> tuple[tuple[BlockConfig, ...], MidConfig | None, tuple[BlockConfig, ...]]:
    channels = reader.integers("block_out_channels", _DEFAULT_CHANNELS)
    levels = len(channels)
    down_attention = reader.block_types("down_block_types", _DEFAULT_DOWN, _DOWN_TYPES)
    up_attention = reader.block_types("up_block_types", _DEFAULT_UP, _UP_TYPES)
    for key, blocks in (("down_block_types", down_attention), ("up_block_types", up_attention)):
        if len(blocks) != levels:
            raise reader.refuse(
                key, reader.raw(key), f"block_out_channels has {levels} levels {list(channels)}"
            )
    layers = reader.per_level("layers_per_block", levels, 2)
    heads = _heads(reader, channels)
    only_cross = reader.flags("only_cross_attention", levels)
    depths_key, reverse_key = "transformer_layers_per_block", "reverse_transformer_layers_per_block"
    stated = reader.value(depths_key, 1)
    down_depths = reader.depths(depths_key, stated, layers)
    up_layers = [count + 1 for count in reversed(layers)]
    reverse = reader.raw(reverse_key)
    if reverse is None:
        entries = items_of(stated, levels)
        if any(isinstance(entry, list) for entry in entries):
            raise reader.refuse(depths_key, stated, f"nested lists need {reverse_key} as well")
        reverse_depths = reader.depths(depths_key, entries[::-1], up_layers)
    else:
        reverse_depths = reader.depths(reverse_key, reverse, up_layers)

    down = tuple(
        BlockConfig(
            channels=channels[level],
            layers=layers[level],
            depths=down_depths[level] if down_attention[level] else None,
            heads=heads[level],
            only_cross_attention=only_cross[level],
            resample=level < levels - 1,
        )
        for level in range(levels)
    )
    up = tuple(
        BlockConfig(
            channels=channels[level],
            layers=layers[level] + 1,
            depths=reverse_depths[index] if up_attention[index] else None,
            heads=heads[level],
            only_cross_attention=only_cross[level],
            resample=level > 0,
        )
        for index, level in enumerate(reversed(range(levels)))
    )
    mid = _mid(reader, channels[-1], down_depths[-1][0], heads[-1])
    stated_heads = "num_attention_heads" if reader.raw("num_attention_heads") else _HEADS
    for block in (*down, mid, *up):
        if block is not None and block.has_attention and block.channels % block.heads:
            expected = f"{block.heads} heads cannot share {block.channels} channels"
            raise reader.refuse(stated_heads, reader.value(stated_heads, 8), expected)
    return down, mid, up


def _mid(reader: LevelReader, channels: int, depth: int, heads: int) -> MidConfig | None:
    scale = reader.number("mid_block_scale_factor", 1.0, positive=True)
    if reader.value("mid_block_type", "UNetMidBlock2DCrossAttn") is None:
        return None
    name = reader.choice("mid_block_type", tuple(_MID_TYPES), "UNetMidBlock2DCrossAttn")
    return MidConfig(channels, depth if _MID_TYPES[name] else None, heads, scale)


def _heads(reader: LevelReader, channels: Sequence[int]) -> tuple[int, ...]:
    """Attention heads of each level.

    Under its old name `attention_head_dim` the file states the *number* of heads; thousands of
    files do, so the name cannot be taken at its word. Where a file has `num_attention_heads`
    too, the two have to agree under one of the readings of the old name.
    """
    levels = len(channels)
    stated = reader.per_level(_HEADS, levels, 8)
    heads = stated
    if reader.raw("num_attention_heads") is not None:
        heads = reader.per_level("num_attention_heads", levels, None)
        widths = tuple(width // count for width, count in zip(channels, heads, strict=True))
        if reader.has(_HEADS) and stated not in (heads, widths):
            raise reader.refuse(
                "num_attention_heads",
                list(heads),
                f"attention_head_dim {list(stated)} contradicts it",
            )
    return heads


def _cross_attention_dim(
    reader: LevelReader,
    down: Sequence[BlockConfig],
    mid: MidConfig | None,
    up: Sequence[BlockConfig],
) -> int:
    widths = reader.per_level("cross_attention_dim", len(down), 1280)
    blocks = [*zip(widths, down, strict=True), *zip(widths[::-1], up, strict=True)]
    used = {width for width, block in blocks if block.has_attention}
    if mid is not None and mid.has_attention:
        used.add(widths[-1])
    if len(used) > 1:
        raise reader.refuse(
            "cross_attention_dim", list(widths), "one text serves all levels, so one width can"
        )
    return used.pop() if used else widths[0]


def _text_time(
    reader: LevelReader, cross_attention_dim: int, num_time_ids: int | None
) -> TextTimeConfig | None:
    width_key, total_key = "addition_time_embed_dim", "projection_class_embeddings_input_dim"
    if reader.value("addition_embed_type", None) is None:
        reader.neutral(width_key, None)
        reader.neutral(total_key, None)
        return None
    reader.choice("addition_embed_type", ("text_time",), "text_time")
    width, total = reader.integer(width_key), reader.integer(total_key)
    if num_time_ids is None:
        num_time_ids = 5 if total - 5 * width == cross_attention_dim else 6
    text_width = total - num_time_ids * width
    if text_width <= 0:
        raise reader.refuse(
            total_key, total, f"{num_time_ids} time ids of {width} leave no room for the text"
        )
    return TextTimeConfig(text_width, num_time_ids, width)


def _sample_size(reader: LevelReader) -> tuple[int, int] | None:
    value = reader.raw("sample_size")
    if value is None:
        return None
    height, width = reader.per_level("sample_size", 2, None)
    return height, width


def _downsample_padding(reader: LevelReader) -> int:
    padding = reader.integer("downsample_padding", 1, minimum=0)
    if padding > 1:
        raise reader.refuse("downsample_padding", padding, "only 0 or 1 is implemented")
    return padding


def _freq_shift(reader: LevelReader, base_channels: int) -> float:
    shift = reader.number("freq_shift", 0.0)
    if shift >= base_channels // 2:
        raise reader.refuse(
            "freq_shift", shift, f"it has to be below half of {base_channels} channels"
        )
    return shift


def _norm(reader: LevelReader, down: Sequence[BlockConfig]) -> GroupNormSpec:
    groups = reader.integer("norm_num_groups", 32)
    channels = [block.channels for block in down]
    if any(count % groups for count in channels):
        raise reader.refuse(
            "norm_num_groups", groups, f"it has to divide block_out_channels {channels}"
        )
    return GroupNormSpec(groups, reader.number("norm_eps", 1e-5, positive=True))
