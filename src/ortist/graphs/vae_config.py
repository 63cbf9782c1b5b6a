"""The configuration of an `AutoencoderKL`, as diffusers writes it.

Defaults of absent keys are those of diffusers' class, because old files leave out the keys
that were added later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from ortist.graphs.config_fields import ConfigReader

DIFFUSERS_GENERIC: Final = ("_class_name", "_diffusers_version", "_name_or_path", "_commit_hash")
"""Keys that diffusers writes into every config and that say nothing about the graph."""

_DEFAULT_SCALING: Final = 0.18215  # of SD 1.x and 2.x, whose early files do not state it


@dataclass(frozen=True)
class VaeConfig:
    """What decides the graphs of a variational autoencoder (Rombach et al. 2022, arXiv:2112.10752).

    Attributes:
        in_channels: channels of the encoder's picture.
        out_channels: channels of the decoder's picture.
        latent_channels: channels of the latents; the encoder gives twice as many (mean, logvar).
        block_out_channels: channels of each level, finest first.
        layers_per_block: residual blocks of an encoder level; a decoder level has one more.
        norm_num_groups: groups of every group normalisation.
        mid_block_add_attention: whether the middle blocks have self-attention.
        use_quant_conv: whether a 1x1 convolution follows the encoder.
        use_post_quant_conv: whether a 1x1 convolution precedes the decoder.
        scaling_factor: latents are multiplied by it after encoding, divided before decoding;
            the graphs leave that to the caller.
        force_upcast: whether half precision overflows in this autoencoder.
        sample_size: edge of the training pictures in pixels (height, width).
    """

    in_channels: int
    out_channels: int
    latent_channels: int
    block_out_channels: tuple[int, ...]
    layers_per_block: int
    norm_num_groups: int
    mid_block_add_attention: bool
    use_quant_conv: bool
    use_post_quant_conv: bool
    scaling_factor: float
    force_upcast: bool
    sample_size: tuple[int, int]

    @property
    def spatial_scale(self) -> int:
        """Pixels per latent along each edge."""
        return 2 ** (len(self.block_out_channels) - 1)

    @classmethod
    def from_json(
        cls, mapping: Mapping[str, object], *, source: str = "vae/config.json"
    ) -> VaeConfig:
        """Read a diffusers `config.json` of class `AutoencoderKL`.

        Raises:
            BadCheckpoint: a key is unknown, or has a value that is not implemented.
        """
        reader = ConfigReader(mapping, source)
        reader.neutral("_class_name", "AutoencoderKL")
        reader.ignore(DIFFUSERS_GENERIC)
        channels = reader.integers("block_out_channels", [64])
        groups = reader.integer("norm_num_groups", 32)
        if any(count % groups for count in channels):
            raise reader.refuse(
                "norm_num_groups", groups, f"it has to divide block_out_channels {list(channels)}"
            )
        reader.repeated(
            "down_block_types", "DownEncoderBlock2D", len(channels), ["DownEncoderBlock2D"]
        )
        reader.repeated("up_block_types", "UpDecoderBlock2D", len(channels), ["UpDecoderBlock2D"])
        reader.choice("act_fn", ("silu", "swish"), "silu")  # two names of one function
        # A shift or a per-channel normalisation of the latents belongs to other families.
        reader.neutral("shift_factor", None, 0.0, 0)
        reader.neutral("latents_mean", None)
        reader.neutral("latents_std", None)
        config = cls(
            in_channels=reader.integer("in_channels", 3),
            out_channels=reader.integer("out_channels", 3),
            latent_channels=reader.integer("latent_channels", 4),
            block_out_channels=channels,
            layers_per_block=reader.integer("layers_per_block", 1),
            norm_num_groups=groups,
            mid_block_add_attention=reader.flag("mid_block_add_attention", True),
            use_quant_conv=reader.flag("use_quant_conv", True),
            use_post_quant_conv=reader.flag("use_post_quant_conv", True),
            scaling_factor=reader.number("scaling_factor", _DEFAULT_SCALING, positive=True),
            force_upcast=reader.flag("force_upcast", True),
            sample_size=_edges(reader),
        )
        reader.finish()
        return config


def _edges(reader: ConfigReader) -> tuple[int, int]:
    value = reader.raw("sample_size")
    if isinstance(value, list) and len(cast("list[object]", value)) == 2:
        height, width = reader.integers("sample_size")
        return height, width
    edge = reader.integer("sample_size", 32)
    return edge, edge
