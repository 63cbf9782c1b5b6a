"""The tokenizer of `shapes`, its text encoder, and the captions that training reads.

The tokenizer is CLIP's byte-level BPE with just enough merges that every word of the grammar is one
token. Any other word falls apart into letters, so no prompt is ever refused.
"""

from __future__ import annotations

import json
from pathlib import Path

import draw
import numpy as np
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

LENGTH = 24
WIDTH = 96
BOS, EOS = "<|startoftext|>", "<|endoftext|>"
WORDS = tuple(
    dict.fromkeys(
        " ".join(
            [
                "a an on background small large",
                *draw.COLORS,
                *draw.SHAPES,
                *draw.POSITIONS,
                *draw.RELATIONS,
            ]
        ).split()
    )
)
UNKNOWN_WORD_SHARE = 0.03
NAMED_CENTER_SHARE = 0.3
ARTICLE_SHARE = 0.3  # captions that write "an" before a vowel


def _bytes_as_characters() -> list[str]:
    """The 256 characters that stand for bytes in the vocabularies of GPT-2 and CLIP, in order."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in visible]
    return [chr(b) for b in visible] + [chr(256 + i) for i in range(len(hidden))]


def _merge(symbols: list[str], pair: tuple[str, str]) -> list[str]:
    """The symbols with every occurrence of a pair joined."""
    joined: list[str] = []
    for symbol in symbols:
        if joined and (joined[-1], symbol) == pair:
            joined[-1] += symbol
        else:
            joined.append(symbol)
    return joined


def _merges() -> list[tuple[str, str]]:
    """Merges in order of rank; a new word only adds what the earlier merges leave in pieces."""
    ranked: list[tuple[str, str]] = []
    for word in WORDS:
        symbols = [*word[:-1], word[-1] + "</w>"]
        for pair in ranked:
            symbols = _merge(symbols, pair)
        while len(symbols) > 1:
            pair = (symbols[0], symbols[1])
            ranked.append(pair)
            symbols = _merge(symbols, pair)
    return ranked


def write_tokenizer(folder: Path) -> None:
    """Write vocab.json, merges.txt and the two configuration files that CLIPTokenizer reads."""
    folder.mkdir(parents=True, exist_ok=True)
    base = _bytes_as_characters()
    merges = _merges()
    tokens = [*base, *(c + "</w>" for c in base), *(a + b for a, b in merges), BOS, EOS]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False))
    lines = ["#version: 0.2", *(f"{a} {b}" for a, b in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n")
    special = {"bos_token": BOS, "eos_token": EOS, "unk_token": EOS, "pad_token": EOS}
    (folder / "special_tokens_map.json").write_text(json.dumps(special, indent=2) + "\n")
    config = {
        "tokenizer_class": "CLIPTokenizer",
        "model_max_length": LENGTH,
        "do_lower_case": True,
        "add_prefix_space": False,
        "errors": "replace",
        **special,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def load_tokenizer(folder: Path) -> CLIPTokenizer:
    """The tokenizer in a folder, written there first if it is missing."""
    if not (folder / "vocab.json").exists():
        write_tokenizer(folder)
    return CLIPTokenizer.from_pretrained(folder)


def tokenize(tokenizer: CLIPTokenizer, texts: list[str]) -> np.ndarray:
    """Token ids, int64 (n, LENGTH), padded and truncated."""
    coded = tokenizer(texts, padding="max_length", truncation=True, max_length=LENGTH)
    return np.array(coded["input_ids"], np.int64)


def end_token(tokenizer: CLIPTokenizer) -> int:
    """The id that ends a text and pads it; the last one, where CLIP's pooling looks for it."""
    return len(tokenizer) - 1


def build_text_encoder(tokenizer: CLIPTokenizer) -> CLIPTextModel:
    """The text encoder with fresh weights."""
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=LENGTH,
        projection_dim=WIDTH,
        hidden_act="quick_gelu",
        bos_token_id=len(tokenizer) - 2,
        eos_token_id=end_token(tokenizer),
        pad_token_id=end_token(tokenizer),
    )
    return CLIPTextModel(config)


def training_caption(scenes: draw.Scenes, i: int, rng: np.random.Generator) -> str:
    """The prompt of scene i as training sees it: sometimes with a stray word, or with "an"."""
    words = draw.caption(scenes, i, bool(rng.random() < NAMED_CENTER_SHARE)).split()
    if rng.random() < ARTICLE_SHARE:
        words = [
            "an" if word == "a" and after[0] in "aeiou" else word
            for word, after in zip(words, [*words[1:], "-"], strict=True)
        ]
    if rng.random() < UNKNOWN_WORD_SHARE:
        letters = "".join(chr(97 + k) for k in rng.integers(26, size=rng.integers(2, 6)))
        words.insert(int(rng.integers(len(words) + 1)), letters)
    return " ".join(words)
