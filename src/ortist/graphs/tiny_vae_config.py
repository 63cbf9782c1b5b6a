"""The configuration of an `AutoencoderTiny` (TAESD), as diffusers writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ortist.graphs.config_fields import ConfigReader
from ortist.graphs.vae_config import DIFFUSERS_GENERIC


@dataclass(frozen=True)
class TinyVaeConfig:
    """What decides the graphs of a tiny autoencoder (TAESD, github.com/madebyollin/taesd).

    Attributes:
        in_channels: channels of the encoder's picture.
        out_channels: channels of the decoder's picture.
        latent_channels: channels of the latents.
        encoder_channels: channels of all encoder stages.
        decoder_channels: channels of all decoder stages.
        num_encoder_blocks: residual blocks of each encoder stage, finest first.
        num_decoder_blocks: residual blocks of each decoder stage, coarsest first.
        upsampling_scaling_factor: enlargement between two decoder stages.
        scaling_factor: as in the full autoencoder; 1.0 in every published tiny one.
        latent_magnitude: with `latent_shift`, how latents are stored as bytes:
            x / (2 * magnitude) + shift lies in [0, 1]. Encoding and decoding do not use them.
        latent_shift: see `latent_magnitude`.
        force_upcast: whether half precision overflows in this autoencoder.
    """

    in_channels: int
    out_channels: int
    latent_channels: int
    encoder_channels: int
    decoder_channels: int
    num_encoder_blocks: tuple[int, ...]
    num_decoder_blocks: tuple[int, ...]
    upsampling_scaling_factor: int
    scaling_factor: float
    latent_magnitude: float
    latent_shift: float
    force_upcast: bool

    @property
    def encoder_scale(self) -> int:
        """Pixels per latent along each edge, when encoding: every later stage halves."""
        return 2 ** (len(self.num_encoder_blocks) - 1)

    @property
    def decoder_scale(self) -> int:
        """Pixels per latent along each edge, when decoding."""
        return self.upsampling_scaling_factor ** (len(self.num_decoder_blocks) - 1)

    @classmethod
    def from_json(
        cls, mapping: Mapping[str, object], *, source: str = "vae/config.json"
    ) -> TinyVaeConfig:
        """Read a diffusers `config.json` of class `AutoencoderTiny`.

        Raises:
            BadCheckpoint: a key is unknown, or has a value that is not implemented.
        """
        reader = ConfigReader(mapping, source)
        reader.neutral("_class_name", "AutoencoderTiny")
        reader.ignore(DIFFUSERS_GENERIC)
        reader.neutral("act_fn", "relu")
        reader.neutral("upsample_fn", "nearest")
        reader.neutral("shift_factor", 0.0, 0, None)
        encoder_channels, encoder_blocks = _stages(reader, "encoder", (1, 3, 3, 3))
        decoder_channels, decoder_blocks = _stages(reader, "decoder", (3, 3, 3, 1))
        # diffusers adds this copy of the decoder's list when it saves; it has no other use.
        reader.neutral("block_out_channels", [decoder_channels] * len(decoder_blocks))
        config = cls(
            in_channels=reader.integer("in_channels", 3),
            out_channels=reader.integer("out_channels", 3),
            latent_channels=reader.integer("latent_channels", 4),
            encoder_channels=encoder_channels,
            decoder_channels=decoder_channels,
            num_encoder_blocks=encoder_blocks,
            num_decoder_blocks=decoder_blocks,
            upsampling_scaling_factor=reader.integer("upsampling_scaling_factor", 2),
            scaling_factor=reader.number("scaling_factor", 1.0, positive=True),
            latent_magnitude=reader.number("latent_magnitude", 3.0, positive=True),
            latent_shift=reader.number("latent_shift", 0.5),
            force_upcast=reader.flag("force_upcast", False),
        )
        reader.finish()
        return config


def _stages(
    reader: ConfigReader, part: str, default_blocks: tuple[int, ...]
) -> tuple[int, tuple[int, ...]]:
    """Channels and blocks of the stages: one width for all, as no projection joins them."""
    key, blocks_key = f"{part}_block_out_channels", f"num_{part}_blocks"
    channels = reader.integers(key, [64, 64, 64, 64])
    blocks = reader.integers(blocks_key, default_blocks, minimum=0)
    if len(channels) != len(blocks):
        raise reader.refuse(
            blocks_key, list(blocks), f"it has to have as many entries as {key} {list(channels)}"
        )
    if len(set(channels)) > 1:
        raise reader.refuse(key, list(channels), "its stages have to be of one width")
    return channels[0], blocks
