"""The CLIP text encoder, with or without projection, as an ONNX graph.

A pre-norm transformer with learned positions and a causal mask (Radford et al. 2021,
arXiv:2103.00020), in the numerical form of transformers' `CLIPTextModel`.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import onnx_ir as ir

from ortist.graphs.builder import BOOL, INT64, GraphBuilder, Precision, Value, WeightSource
from ortist.graphs.clip_config import LEGACY_EOS_TOKEN_ID, ClipTextConfig
from ortist.graphs.layers import (
    AttentionSpec,
    causal_mask,
    gelu,
    layer_norm,
    linear,
    multi_head_attention,
    quick_gelu,
)

__all__ = ["ClipTextConfig", "build_clip_text_encoder"]

_PREFIX = "text_model"
_INT32 = ir.DataType.INT32


def build_clip_text_encoder(
    config: ClipTextConfig,
    weights: WeightSource,
    *,
    dtype: Precision = "fp32",
    hidden_states: bool = True,
    name: str = "text_encoder",
) -> ir.Model:
    """Emit the graph of a text encoder.

    Input: `input_ids` int64 [batch_size, sequence_length], at most
    `config.max_position_embeddings` long (77 for every published model).

    Outputs, in the graph's dtype and under optimum-onnx's names:
        with projection: `text_embeds` [batch_size, projection_dim], then `last_hidden_state`;
        without: `last_hidden_state`, then `pooler_output` [batch_size, hidden_size];
        `hidden_states.0` (the embeddings) to `hidden_states.N` (layer N's output, before the
        final normalisation), all [batch_size, sequence_length, hidden_size] like
        `last_hidden_state`, which is after it.

    Args:
        config: the architecture.
        weights: the state dict; keys with the prefix "text_model." (transformers 4) and without
            it (a plain encoder saved by transformers 5) are both read, and kept as they are.
        dtype: dtype of weights, arithmetic and outputs.
        hidden_states: whether to expose the hidden states. optimum-onnx does so for SDXL only;
            skipping layers ("clip skip") needs them for every family, and optimum-onnx, which
            takes outputs by name, does not mind.
        name: component name in messages and in the graph.

    Raises:
        BadCheckpoint: the weights do not fit the configuration.
    """
    b = GraphBuilder(name, weights, dtype=dtype)
    prefixed = any(key.startswith(f"{_PREFIX}.") for key in weights.keys())  # noqa: SIM118
    ids = b.input("input_ids", ("batch_size", "sequence_length"), INT64)
    with b.scope(_PREFIX) if prefixed else nullcontext():
        states = [_embeddings(b, ids, config)]
        mask = causal_mask(b, ids)
        for index in range(config.num_hidden_layers):
            states.append(_layer(b, f"encoder.layers.{index}", states[-1], mask, config))
        last = layer_norm(b, "final_layer_norm", states[-1], config.layer_norm_eps)
    pooled = _pool(b, last, ids, config)
    sequence = ("batch_size", "sequence_length", config.hidden_size)
    if config.projection_dim is not None:
        embeds = linear(b, "text_projection", pooled, config.projection_dim, bias=False)
        b.output("text_embeds", embeds, ("batch_size", config.projection_dim))
        b.output("last_hidden_state", last, sequence)
    else:
        b.output("last_hidden_state", last, sequence)
        b.output("pooler_output", pooled, ("batch_size", config.hidden_size))
    if hidden_states:
        for index, state in enumerate(states):
            b.output(f"hidden_states.{index}", state, sequence)
    return b.finish(_is_unneeded)


def _is_unneeded(key: str) -> bool:
    # Old files store the buffer 0, 1, 2, ...; an encoder used without its projection may have one.
    return key.endswith("embeddings.position_ids") or key == "text_projection.weight"


def _embeddings(b: GraphBuilder, ids: Value, config: ClipTextConfig) -> Value:
    with b.scope("embeddings"):
        tokens = b.weight("token_embedding.weight", (config.vocab_size, config.hidden_size))
        positions = b.weight(
            "position_embedding.weight", (config.max_position_embeddings, config.hidden_size)
        )
        in_use = b.slice(positions, b.ints(0), b.shape(ids, 1, 2), axes=(0,))
        return b.add(b.gather(tokens, ids), in_use)


def _layer(b: GraphBuilder, name: str, x: Value, mask: Value, config: ClipTextConfig) -> Value:
    activation = quick_gelu if config.hidden_act == "quick_gelu" else gelu
    with b.scope(name):
        h = layer_norm(b, "layer_norm1", x, config.layer_norm_eps)
        x = b.add(x, _self_attention(b, "self_attn", h, mask, config))
        h = layer_norm(b, "layer_norm2", x, config.layer_norm_eps)
        h = activation(b, linear(b, "mlp.fc1", h, config.intermediate_size))
        return b.add(x, linear(b, "mlp.fc2", h, config.hidden_size))


def _self_attention(
    b: GraphBuilder, name: str, x: Value, mask: Value, config: ClipTextConfig
) -> Value:
    width, heads = config.hidden_size, config.num_attention_heads
    spec = AttentionSpec(heads=heads, head_dim=width // heads)
    with b.scope(name):
        query = linear(b, "q_proj", x, width)
        key = linear(b, "k_proj", x, width)
        value = linear(b, "v_proj", x, width)
        mixed = multi_head_attention(b, query, key, value, spec, mask=mask)
        return linear(b, "out_proj", mixed, width)


def _pool(b: GraphBuilder, states: Value, ids: Value, config: ClipTextConfig) -> Value:
    """The state of each sequence's end-of-text token, [batch_size, hidden_size]."""
    if config.eos_token_id == LEGACY_EOS_TOKEN_ID:
        # The end-of-text token has the highest id of CLIP's vocabulary. Not every provider has
        # an int64 ArgMax.
        scores = b.cast(ids, _INT32)
    else:
        eos = b.constant(np.asarray(config.eos_token_id, dtype=np.int64))
        is_eos = b.op("Equal", [ids, eos], dims=("batch_size", "sequence_length"), dtype=BOOL)
        scores = b.cast(is_eos, _INT32)
    # Of equal scores ArgMax takes the first: padding may repeat the end-of-text token.
    position = b.op(
        "ArgMax",
        [scores],
        dims=("batch_size", 1),
        dtype=INT64,
        attributes={"axis": 1, "keepdims": 1},
    )
    return b.op(
        "GatherND",
        [states, position],
        dims=("batch_size", config.hidden_size),
        attributes={"batch_dims": 1},
    )
