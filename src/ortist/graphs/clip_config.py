"""The configuration of a CLIP text encoder, as transformers writes it.

Defaults of absent keys are those of transformers' `CLIPTextConfig`, because a file that leaves
a key out means that default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from ortist.graphs.config_fields import ConfigReader

Activation = Literal["quick_gelu", "gelu"]

LEGACY_EOS_TOKEN_ID: Final = 2
"""An end-of-text id that never was one: transformers before 4.31 wrote it to every config."""

_PLAIN: Final = "CLIPTextModel"
_PROJECTED: Final = "CLIPTextModelWithProjection"

# Keys that say nothing about the graph: provenance, initialisation, training, special tokens
# that only the tokenizer needs, and what transformers' base class wrote for all of its models.
_GENERIC: Final = (
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "transformers_version",
    "dtype",
    "torch_dtype",
    "initializer_factor",
    "initializer_range",
    "attention_dropout",
    "dropout",
    "bos_token_id",
    "pad_token_id",
    "sep_token_id",
    "decoder_start_token_id",
    "gradient_checkpointing",
    "chunk_size_feed_forward",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "use_cache",
    "torchscript",
    "tf_legacy_loss",
    "use_bfloat16",
    "finetuning_task",
    "id2label",
    "label2id",
    "num_labels",
    "prefix",
    "problem_type",
    "task_specific_params",
    "tie_encoder_decoder",
    "tie_word_embeddings",
    "tokenizer_class",
)
# Text generation settings, which old versions wrote for models that cannot generate.
_GENERATION: Final = (
    "bad_words_ids",
    "begin_suppress_tokens",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_scores",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict_in_generate",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
)


@dataclass(frozen=True)
class ClipTextConfig:
    """What decides the graph of a CLIP text encoder (Radford et al. 2021, arXiv:2103.00020).

    Attributes:
        vocab_size: number of token embeddings.
        hidden_size: width of the hidden states.
        intermediate_size: width inside the feed-forward blocks.
        num_hidden_layers: number of transformer layers.
        num_attention_heads: heads of each layer; divides `hidden_size`.
        max_position_embeddings: longest sequence, in tokens.
        hidden_act: "quick_gelu" (x * sigmoid(1.702 x)) or "gelu" (exact, with erf).
        layer_norm_eps: epsilon of every layer normalisation.
        eos_token_id: pooling takes the state at the first position of this id; the value 2
            (`LEGACY_EOS_TOKEN_ID`) means the position of the highest id instead.
        projection_dim: width of `text_embeds`, None for an encoder without projection.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    hidden_act: Activation
    layer_norm_eps: float
    eos_token_id: int
    projection_dim: int | None

    @classmethod
    def from_json(
        cls,
        mapping: Mapping[str, object],
        *,
        class_name: str | None = None,
        source: str = "text_encoder/config.json",
    ) -> ClipTextConfig:
        """Read a transformers `config.json` (4.x or 5.x).

        Args:
            mapping: the parsed file.
            class_name: the encoder's class in `model_index.json`, which outranks the file's
                own `architectures`; None when there is no such file.
            source: the file's name for messages.

        Raises:
            BadCheckpoint: a key is unknown, or has a value that is not implemented.
        """
        reader = ConfigReader(mapping, source)
        reader.neutral("model_type", "clip_text_model")
        projected = _is_projected(reader, class_name)
        width = reader.integer("hidden_size", 512)
        heads = reader.integer("num_attention_heads", 8)
        if width % heads:
            raise reader.refuse(
                "num_attention_heads", heads, f"it has to divide hidden_size {width}"
            )
        # Plain encoders carry a projection_dim too (and it may be null): it is not used there.
        projection = reader.integer("projection_dim", 512) if projected else None
        reader.ignore(("projection_dim",))
        config = cls(
            vocab_size=reader.integer("vocab_size", 49408),
            hidden_size=width,
            intermediate_size=reader.integer("intermediate_size", 2048),
            num_hidden_layers=reader.integer("num_hidden_layers", 12),
            num_attention_heads=heads,
            max_position_embeddings=reader.integer("max_position_embeddings", 77),
            hidden_act=cast(
                "Activation", reader.choice("hidden_act", ("quick_gelu", "gelu"), "quick_gelu")
            ),
            layer_norm_eps=reader.number("layer_norm_eps", 1e-5, positive=True),
            eos_token_id=reader.integer("eos_token_id", 49407, minimum=0),
            projection_dim=projection,
        )
        reader.ignore(_GENERIC)
        reader.ignore(_GENERATION)
        # Base class keys that would change the model if they were set.
        reader.neutral("add_cross_attention", False)
        reader.neutral("cross_attention_hidden_size", None)
        reader.neutral("is_decoder", False)
        reader.neutral("is_encoder_decoder", False)
        reader.neutral("pruned_heads", {}, None)
        reader.finish()
        return config


def _is_projected(reader: ConfigReader, class_name: str | None) -> bool:
    key, names = "architectures", reader.raw("architectures")
    if class_name is not None:
        key, names = "the class in model_index.json", [class_name]
    if names in (None, [], [_PLAIN]):
        return False
    if names == [_PROJECTED]:
        return True
    raise reader.refuse(key, names, f"only {_PLAIN} and {_PROJECTED} are implemented")
