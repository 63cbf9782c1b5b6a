"""A small CLIP vocabulary: single letters, and merges that make a few words one token."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = ("red", "circle", "on", "a", "white", "blue")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
BOS, EOS = "<|startoftext|>", "<|endoftext|>"


def vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Token -> id, and the merges in order."""
    tokens = [*LETTERS, *(letter + "</w>" for letter in LETTERS)]
    merges: list[tuple[str, str]] = []
    for word in WORDS:
        left = word[0]
        for index, letter in enumerate(word[1:], start=1):
            right = letter + ("</w>" if index == len(word) - 1 else "")
            if left + right not in tokens:
                merges.append((left, right))
                tokens.append(left + right)
            left += right
    return {token: index for index, token in enumerate([*tokens, BOS, EOS])}, merges


def write_tokenizer(folder: Path, *, length: int = 16, pad: str = EOS) -> int:
    """Write a CLIPTokenizer's files; returns the size of the vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab, merges = vocabulary()
    (folder / "vocab.json").write_text(json.dumps(vocab))
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n")
    special = {"bos_token": BOS, "eos_token": EOS, "unk_token": EOS, "pad_token": pad}
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    config = {**special, "tokenizer_class": "CLIPTokenizer", "model_max_length": length}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return len(vocab)
