"""A CLIP vocabulary that knows every byte and joins a few words, in each layout found on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tokenizers import pre_tokenizers

START, END = "<|startoftext|>", "<|endoftext|>"
Layout = Literal["map", "decoder", "whole", "bare"]
LAYOUTS: tuple[Layout, ...] = ("map", "decoder", "whole", "bare")

MERGES: tuple[tuple[str, str], ...] = (
    ("r", "e"),
    ("re", "d</w>"),
    ("c", "a"),
    ("ca", "t</w>"),
    ("i", "n"),
    ("in", "g</w>"),
    ("o", "n</w>"),
    ("!", "!</w>"),
    ("'", "s</w>"),
)


def vocabulary(merges: Sequence[tuple[str, str]] = MERGES) -> dict[str, int]:
    """Bytes, bytes at the end of a word, what the merges make, begin and end: as CLIP's own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *(letter + "</w>" for letter in alphabet)]
    tokens += dict.fromkeys(left + right for left, right in merges)
    return {token: number for number, token in enumerate([*tokens, START, END])}


def write_byte_tokenizer(
    folder: Path,
    layout: Layout = "map",
    *,
    pad: str = END,
    merges: Sequence[tuple[str, str]] = MERGES,
) -> dict[str, int]:
    """Write a tokenizer's folder and return its vocabulary.

    "map" is what transformers 4 wrote for SD 1.x and 2.x, "decoder" what it wrote later,
    "whole" the single file of transformers 5, "bare" a vocabulary and nothing else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vocab = vocabulary(merges)
    flags = {"lstrip": False, "rstrip": False, "single_word": False}
    named: dict[str, object] = {"bos_token": START, "eos_token": END, "unk_token": END}
    config: dict[str, object] = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77}

    def write(name: str, content: object) -> None:
        (folder / name).write_text(json.dumps(content), encoding="utf-8")

    if layout == "whole":
        added = [
            {"id": vocab[token], "content": token, **flags, "normalized": False, "special": True}
            for token in dict.fromkeys([START, END, pad])
        ]
        model = {"type": "BPE", "unk_token": END, "vocab": vocab, "merges": merges}
        write("tokenizer.json", {"version": "1.0", "added_tokens": added, "model": model})
        write("tokenizer_config.json", {**config, **named, "pad_token": pad})
        return vocab
    write("vocab.json", vocab)
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if layout == "map":
        whole = {
            key: {"content": token, **flags, "normalized": True} for key, token in named.items()
        }
        write("special_tokens_map.json", {**whole, "pad_token": pad})
        # SD 2.x's own file: the map, not this, has the padding that counts.
        write("tokenizer_config.json", {**config, "pad_token": END})
    elif layout == "decoder":
        decoder = {
            str(vocab[token]): {"content": token, **flags, "normalized": False, "special": True}
            for token in dict.fromkeys([START, END, pad])
        }
        write(
            "tokenizer_config.json",
            {**config, **named, "pad_token": pad, "added_tokens_decoder": decoder},
        )
    return vocab
