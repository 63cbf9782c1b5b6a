"""Small tiny autoencoders (TAESD): configurations and tensors."""

from __future__ import annotations

from tests.tiny.weights import Shapes

# madebyollin/taesd
TAESD: dict[str, object] = {
    "_class_name": "AutoencoderTiny",
    "_diffusers_version": "0.20.0.dev0",
    "act_fn": "relu",
    "decoder_block_out_channels": [64, 64, 64, 64],
    "encoder_block_out_channels": [64, 64, 64, 64],
    "force_upcast": False,
    "in_channels": 3,
    "latent_channels": 4,
    "latent_magnitude": 3,
    "latent_shift": 0.5,
    "num_decoder_blocks": [3, 3, 3, 1],
    "num_encoder_blocks": [1, 3, 3, 3],
    "out_channels": 3,
    "scaling_factor": 1.0,
    "upsampling_scaling_factor": 2,
}


def tiny_vae_config(
    encoder: list[int], decoder: list[int], width: int = 8, **changes: object
) -> dict[str, object]:
    """A config.json as diffusers 0.42 writes it, with the given blocks for each stage."""
    return {
        **TAESD,
        "_diffusers_version": "0.42.1",
        "block_out_channels": [width] * len(decoder),
        "decoder_block_out_channels": [width] * len(decoder),
        "encoder_block_out_channels": [width] * len(encoder),
        "num_decoder_blocks": decoder,
        "num_encoder_blocks": encoder,
        "shift_factor": 0.0,
        "upsample_fn": "nearest",
        **changes,
    }


def tiny_vae_shapes(config: dict[str, object]) -> Shapes:
    """The tensors of both halves, numbered as in the two sequential modules."""
    latent, picture = 4, 3
    encoder_blocks, decoder_blocks = config["num_encoder_blocks"], config["num_decoder_blocks"]
    encoder_widths = config["encoder_block_out_channels"]
    decoder_widths = config["decoder_block_out_channels"]
    assert isinstance(encoder_blocks, list)
    assert isinstance(decoder_blocks, list)
    assert isinstance(encoder_widths, list)
    assert isinstance(decoder_widths, list)
    width = encoder_widths[0]
    encoder: list[Shapes] = []
    for stage, blocks in enumerate(encoder_blocks):
        encoder.append(_conv(width, width if stage else picture, bias=stage == 0))
        encoder.extend(_block(width) for _ in range(blocks))
    encoder.append(_conv(latent, width))
    width = decoder_widths[0]
    decoder: list[Shapes] = [_conv(width, latent), {}]
    for stage, blocks in enumerate(decoder_blocks):
        decoder.extend(_block(width) for _ in range(blocks))
        if stage < len(decoder_blocks) - 1:
            decoder.extend([{}, _conv(width, width, bias=False)])
    decoder.append(_conv(picture, width))
    return {
        f"{half}.layers.{number}.{key}": shape
        for half, layers in (("encoder", encoder), ("decoder", decoder))
        for number, tensors in enumerate(layers)
        for key, shape in tensors.items()
    }


def _conv(out: int, given: int, *, bias: bool = True) -> Shapes:
    shapes: Shapes = {"weight": (out, given, 3, 3)}
    return {**shapes, "bias": (out,)} if bias else shapes


def _block(width: int) -> Shapes:
    return {
        f"conv.{number}.{key}": shape
        for number in (0, 2, 4)
        for key, shape in _conv(width, width).items()
    }
