"""Key maps of the text encoders.

Single files carry one of two spellings: OpenAI's CLIP as transformers names it (SD 1.x, the first
encoder of SDXL), or OpenCLIP's own names (SD 2.x, the second encoder of SDXL), whose attention
keeps query, key and value in one tensor and whose projection is the transpose.
"""

from __future__ import annotations

from ortist.checkpoints.layouts import KeyMap, TieList
from ortist.graphs.clip_config import ClipTextConfig

_PREFIX = "text_model."
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


def clip_key_map(config: ClipTextConfig, *, bare: bool = False) -> KeyMap:
    """Every tensor of an encoder under transformers' names.

    Args:
        config: the architecture.
        bare: the single file leaves out "text_model.", as early merges and transformers 5 do.
    """
    ties = TieList()
    width, inner = config.hidden_size, config.intermediate_size
    start = "" if bare else _PREFIX

    def names(module: str) -> tuple[str, str]:
        return start + module, _PREFIX + module

    tokens, positions = "embeddings.token_embedding.weight", "embeddings.position_embedding.weight"
    ties.tensor(*names(tokens), (config.vocab_size, width))
    ties.tensor(*names(positions), (config.max_position_embeddings, width))
    for index in range(config.num_hidden_layers):
        layer = f"encoder.layers.{index}"
        for part in _PROJECTIONS:
            ties.linear(*names(f"{layer}.self_attn.{part}"), width, width)
        ties.norm(*names(f"{layer}.layer_norm1"), width)
        ties.linear(*names(f"{layer}.mlp.fc1"), inner, width)
        ties.linear(*names(f"{layer}.mlp.fc2"), width, inner)
        ties.norm(*names(f"{layer}.layer_norm2"), width)
    ties.norm(*names("final_layer_norm"), width)
    if config.projection_dim is not None:
        name = "text_projection.weight"
        ties.tensor(name, name, (config.projection_dim, width))
    return ties.finish()


def open_clip_key_map(config: ClipTextConfig) -> KeyMap:
    """Every tensor of an encoder under OpenCLIP's names (github.com/mlfoundations/open_clip).

    SD 2.x reads the states before OpenCLIP's last layer, so its configuration has one layer less
    than its file, and no projection: those tensors are no part of the map.
    """
    ties = TieList()
    width, inner = config.hidden_size, config.intermediate_size
    embeddings = f"{_PREFIX}embeddings"
    tokens, positions = "token_embedding.weight", "position_embedding.weight"
    ties.tensor(tokens, f"{embeddings}.{tokens}", (config.vocab_size, width))
    ties.tensor(
        "positional_embedding",
        f"{embeddings}.{positions}",
        (config.max_position_embeddings, width),
    )
    for index in range(config.num_hidden_layers):
        single = f"transformer.resblocks.{index}"
        diffusers = f"{_PREFIX}encoder.layers.{index}"
        attention = f"{diffusers}.self_attn"
        for kind, shape in (("weight", (width, width)), ("bias", (width,))):
            query, key, value = (f"{attention}.{part}.{kind}" for part in _PROJECTIONS[:3])
            ties.stacked(f"{single}.attn.in_proj_{kind}", (query, key, value), shape)
        ties.linear(f"{single}.attn.out_proj", f"{attention}.out_proj", width, width)
        ties.norm(f"{single}.ln_1", f"{diffusers}.layer_norm1", width)
        ties.linear(f"{single}.mlp.c_fc", f"{diffusers}.mlp.fc1", inner, width)
        ties.linear(f"{single}.mlp.c_proj", f"{diffusers}.mlp.fc2", width, inner)
        ties.norm(f"{single}.ln_2", f"{diffusers}.layer_norm2", width)
    ties.norm("ln_final", f"{_PREFIX}final_layer_norm", width)
    if config.projection_dim is not None:
        shape = (config.projection_dim, width)
        ties.tensor("text_projection", "text_projection.weight", shape, "transposed")
    return ties.finish()
