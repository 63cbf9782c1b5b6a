"""`UNetConfig.from_json`: what it resolves, and that it lets nothing pass unread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortist.errors import BadCheckpoint
from ortist.graphs.unet_config import TextTimeConfig, UNetConfig
from tests.tiny.unet import CONFIGS, FULL_CONFIGS, Json


def read(**changes: object) -> UNetConfig:
    return UNetConfig.from_json({**CONFIGS["sd1"], **changes})


def refused(**changes: object) -> BadCheckpoint:
    with pytest.raises(BadCheckpoint) as caught:
        read(**changes)
    return caught.value


def test_an_empty_file_is_the_default_model() -> None:
    config = UNetConfig.from_json({})
    assert [block.channels for block in config.down] == [320, 640, 1280, 1280]
    assert [block.depths for block in config.down] == [(1, 1), (1, 1), (1, 1), None]
    assert [block.depths for block in config.up] == [None, (1, 1, 1), (1, 1, 1), (1, 1, 1)]
    assert [block.resample for block in config.down] == [True, True, True, False]
    assert [block.resample for block in config.up] == [True, True, True, False]
    assert {block.heads for block in (*config.down, *config.up)} == {8}
    assert config.downsampling == 8
    assert config.time_embed_dim == 1280
    assert config.cross_attention_dim == 1280
    assert config.text_time is None
    assert config.sample_size is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("act_fn", "gelu"),
        ("act_fn", "mish"),
        ("addition_embed_type", "text"),
        ("addition_embed_type", "image"),
        ("addition_time_embed_dim", 256),
        ("attention_type", "gated"),
        ("class_embed_type", "timestep"),
        ("class_embed_type", "projection"),
        ("class_embeddings_concat", True),
        ("conv_in_kernel", 4),
        ("conv_out_kernel", 0),
        ("cross_attention_dim", None),
        ("cross_attention_norm", "layer_norm"),
        ("down_block_types", ["CrossAttnDownBlock2D", "AttnDownBlock2D"]),
        ("down_block_types", ["CrossAttnDownBlock2D"]),
        ("down_block_types", "CrossAttnDownBlock2D"),
        ("downsample_padding", 2),
        ("dual_cross_attention", True),
        ("encoder_hid_dim", 4096),
        ("encoder_hid_dim_type", "text_proj"),
        ("flip_sin_to_cos", 1),
        ("freq_shift", 8),
        ("in_channels", 0),
        ("in_channels", "4"),
        ("layers_per_block", [1]),
        ("layers_per_block", 0),
        ("mid_block_scale_factor", 0),
        ("mid_block_type", "UNetMidBlock2DSimpleCrossAttn"),
        ("norm_eps", 0.0),
        ("norm_num_groups", None),
        ("norm_num_groups", 5),
        ("num_class_embeds", 1000),
        ("only_cross_attention", [True]),
        ("out_channels", 4.0),
        ("projection_class_embeddings_input_dim", 2816),
        ("resnet_out_scale_factor", 2.0),
        ("resnet_skip_time_act", True),
        ("resnet_time_scale_shift", "scale_shift"),
        ("reverse_transformer_layers_per_block", [1]),
        ("sample_size", [64]),
        ("time_cond_proj_dim", -1),
        ("time_embedding_act_fn", "silu"),
        ("time_embedding_dim", 0),
        ("time_embedding_type", "fourier"),
        ("timestep_post_act", "silu"),
        ("transformer_layers_per_block", [1, 1, 1]),
        ("transformer_layers_per_block", [[1, 1], [1, 1]]),
        ("transformer_layers_per_block", -1),
        ("up_block_types", ["UpBlock2D", "SkipUpBlock2D"]),
        ("upcast_attention", "yes"),
        ("use_linear_projection", None),
        ("_class_name", "UNet2DModel"),
        ("freeu_scale", 1.5),
    ],
)
def test_what_is_not_implemented_is_refused_by_key_and_value(key: str, value: object) -> None:
    error = refused(**{key: value})
    assert key in error.message
    assert repr(value) in error.message
    assert "unet/config.json" in error.message


def test_notes_of_the_writing_software_are_no_part_of_the_model() -> None:
    notes = {
        "_name_or_path": "somewhere",
        "_anything_else": [1],
        "decay": 0.9999,
        "inv_gamma": 1.0,
        "min_decay": 0.0,
        "optimization_step": 37000,
        "power": 0.6667,
        "update_after_step": 0,
        "use_ema_warmup": False,
        "dropout": 0.1,
    }
    assert read(**notes) == read()


def test_attention_head_dim_is_the_number_of_heads() -> None:
    assert [block.heads for block in read(attention_head_dim=2).down] == [2, 2]
    config = read(attention_head_dim=[2, 8])
    assert [(block.heads, block.head_dim) for block in config.down] == [(2, 8), (8, 4)]
    assert [(block.heads, block.head_dim) for block in config.up] == [(8, 4), (2, 8)]
    assert config.mid is not None
    assert (config.mid.heads, config.mid.head_dim) == (8, 4)


def test_num_attention_heads_has_to_agree_with_the_old_name() -> None:
    expected = read(attention_head_dim=[4, 8])
    assert read(attention_head_dim=[4, 8], num_attention_heads=[4, 8]) == expected
    assert read(attention_head_dim=[4, 4], num_attention_heads=[4, 8]) == expected  # true widths
    assert read(attention_head_dim=4, num_attention_heads=None) == read(attention_head_dim=4)
    alone = {k: v for k, v in CONFIGS["sd1"].items() if k != "attention_head_dim"}
    assert UNetConfig.from_json({**alone, "num_attention_heads": [4, 8]}) == expected
    assert (
        "attention_head_dim [2, 2]"
        in refused(attention_head_dim=[2, 2], num_attention_heads=[4, 8]).message
    )


def test_heads_have_to_divide_the_channels_where_there_is_attention() -> None:
    error = refused(attention_head_dim=[3, 4])
    assert "attention_head_dim" in error.message
    assert "3 heads cannot share 16 channels" in error.message
    # The second level of this model has attention in its middle block only.
    assert read(attention_head_dim=[4, 3], mid_block_type=None).down[1].heads == 3


def test_depths_are_mirrored_on_the_way_up() -> None:
    config = UNetConfig.from_json(FULL_CONFIGS["sdxl_base"])
    assert [block.depths for block in config.down] == [None, (2, 2), (10, 10)]
    assert config.mid is not None
    assert config.mid.depth == 10
    assert [block.depths for block in config.up] == [(10, 10, 10), (2, 2, 2), None]


def test_nested_depths_of_ssd_1b() -> None:
    config = UNetConfig.from_json(
        {
            **FULL_CONFIGS["sdxl_base"],
            "transformer_layers_per_block": [1, [2, 2], [4, 4]],
            "reverse_transformer_layers_per_block": [[4, 4, 10], [2, 1, 1], 1],
        }
    )
    assert [block.depths for block in config.down] == [None, (2, 2), (4, 4)]
    assert [block.depths for block in config.up] == [(4, 4, 10), (2, 1, 1), None]
    assert config.mid is not None
    assert config.mid.depth == 4


def test_uneven_layers_are_mirrored_with_one_more() -> None:
    config = UNetConfig.from_json(CONFIGS["plain_mid_uneven_layers"])
    assert [block.layers for block in config.down] == [1, 3, 2]
    assert [block.layers for block in config.up] == [3, 4, 2]
    assert config.mid is not None
    assert config.mid.depth is None


def test_one_text_width_for_all_levels() -> None:
    assert read(cross_attention_dim=[24, 24]).cross_attention_dim == 24
    error = refused(cross_attention_dim=[24, 32])
    assert "cross_attention_dim is [24, 32]" in error.message
    # A level without attention does not read the text, so its number says nothing.
    assert read(cross_attention_dim=[24, 32], mid_block_type=None).cross_attention_dim == 24


def test_time_ids_are_inferred_or_told() -> None:
    base, refiner = FULL_CONFIGS["sdxl_base"], FULL_CONFIGS["sdxl_refiner"]
    assert UNetConfig.from_json(base).text_time == TextTimeConfig(1280, 6, 256)
    assert UNetConfig.from_json(refiner).text_time == TextTimeConfig(1280, 5, 256)
    told = UNetConfig.from_json(base, num_time_ids=5)
    assert told.text_time == TextTimeConfig(1536, 5, 256)


def test_text_time_needs_its_sizes() -> None:
    for missing in ("addition_time_embed_dim", "projection_class_embeddings_input_dim"):
        config = {k: v for k, v in CONFIGS["sdxl_base"].items() if k != missing}
        with pytest.raises(BadCheckpoint, match=f"{missing} is missing"):
            UNetConfig.from_json(config)
    with pytest.raises(BadCheckpoint, match="leave no room"):
        UNetConfig.from_json({**CONFIGS["sdxl_base"], "projection_class_embeddings_input_dim": 48})


def test_sample_size_is_height_and_width() -> None:
    assert read(sample_size=[8, 12]).sample_size == (8, 12)
    assert read(sample_size=8).sample_size == (8, 8)
    assert read(sample_size=None).sample_size is None


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 40) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(
    name=st.sampled_from(sorted(CONFIGS)),
    key=st.sampled_from(sorted({key for config in CONFIGS.values() for key in config})),
    value=_json,
)
def test_any_value_is_read_or_refused_by_name(name: str, key: str, value: object) -> None:
    config: Json = {**CONFIGS[name], key: value}
    try:
        UNetConfig.from_json(config)
    except BadCheckpoint as error:
        assert "unet/config.json" in error.message
