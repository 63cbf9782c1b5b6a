"""Our tokenizer against transformers' CLIPTokenizer, id for id."""

# ruff: noqa: RUF001 (look-alike letters are the point)

from __future__ import annotations

import gzip
import importlib.util
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from ortist.prompt.tokens import ClipTokenizer
from tests.tiny.byte_tokenizer import END, LAYOUTS, START, write_byte_tokenizer

pytestmark = pytest.mark.parity

TEXTS = (
    "a photo of a cat",
    "Hello, World!",
    "it's John's dog; they're we've I'm you'll he'd 'tis don`t don’t",
    "1234567 3.14 1,000 ½ ² Ⅷ ٣",
    "  a \t\n b   ",
    "",
    "!",
    "wow! !!!! !a",
    "((masterpiece:1.2)), [best], \\(x\\) BREAK AND a_b-c/d@e#f$%^&*",
    f"red{END}cat {START}",
    "supercalifragilisticexpialidocious " * 12,
    "a" * 300,
    "word " * 100,
)
# transformers 4 matches special tokens in lower-cased or original text, depending on its files.
ONLY_IN_5 = (f"red{END.upper()}",)
# Where the pure-Python tokenizer of transformers 4 gives other ids than its fast one and ours.
UNICODE = (
    "日本語の絵 한국어 中文",
    "🎨🖼️👨‍👩‍👧‍👦 emoji",
    "naïve café ÅNGSTRÖM e\u0301 Straße ſ İstanbul ǅ",
    "zero\u200bwidth\u200d\ufeff x\x00\x07y",
    "\u3000full\u00a0width ＡＢＣ",
    "مرحبا שלום",
    "…—“quotes”",
)


def random_texts() -> Iterable[str]:
    rng = random.Random(0)
    near = "abc ABC 123 '!?.,<>|\t\né中🎨\u0301\u200b's't"
    blocks = [(0x20, 0x250), (0x300, 0x3000), (0x3000, 0xD800), (0x1F300, 0x1F700)]
    for _ in range(200):
        yield "".join(rng.choice(near) for _ in range(rng.randint(1, 60)))
        yield "".join(chr(rng.randrange(*rng.choice(blocks))) for _ in range(rng.randint(1, 30)))


def learnt_merges() -> list[tuple[str, str]]:
    """Several hundred merges learnt from our own sources: many words of many pieces."""
    root = Path(__file__).parents[2]
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    trainer = trainers.BpeTrainer(vocab_size=1500, end_of_word_suffix="</w>", show_progress=False)
    sources = sorted((root / "src").rglob("*.py"))
    text = [path.read_text(encoding="utf-8").lower() for path in sources]
    tokenizer.train_from_iterator([*text, *TEXTS, *UNICODE], trainer)
    return [tuple(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def reference(oracle: Any) -> Any:
    """transformers' tokenizer: of two classes in 4.x the one that 5.x kept."""
    classes = oracle.transformers
    return classes.CLIPTokenizerFast if is_old(oracle) else classes.CLIPTokenizer


def is_old(oracle: Any) -> bool:
    return int(oracle.transformers.__version__.split(".")[0]) < 5


def compare(oracle: Any, folder: Path) -> None:
    ours = ClipTokenizer.from_directory(folder)
    theirs = reference(oracle).from_pretrained(folder)
    assert (ours.bos_id, ours.eos_id, ours.pad_id) == (
        theirs.bos_token_id,
        theirs.eos_token_id,
        theirs.pad_token_id,
    )
    newer = () if is_old(oracle) else ONLY_IN_5
    for text in (*TEXTS, *UNICODE, *newer, *random_texts()):
        assert ours.encode(text) == theirs(text, add_special_tokens=False).input_ids, text
        for length in (16, 77):
            expected = theirs(text, padding="max_length", max_length=length, truncation=True)
            assert ours.ids(text, length).ids.tolist() == expected.input_ids, text


@pytest.mark.parametrize("pad", [END, "!"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_small_vocabulary(oracle: Any, tmp_path: Path, layout: Any, pad: str) -> None:
    if layout == "whole" and is_old(oracle):
        pytest.skip("a layout that transformers 4 neither writes nor reads")
    write_byte_tokenizer(tmp_path, layout, pad=pad)
    compare(oracle, tmp_path)


def test_learnt_vocabulary(oracle: Any, tmp_path: Path) -> None:
    merges = learnt_merges()
    assert len(merges) > 800
    write_byte_tokenizer(tmp_path, merges=merges)
    compare(oracle, tmp_path)


@pytest.mark.parametrize("pad", [END, "!"])
def test_what_transformers_saves(oracle: Any, tmp_path: Path, pad: str) -> None:
    write_byte_tokenizer(tmp_path / "made", "decoder", pad=pad)
    tokenizer = reference(oracle).from_pretrained(tmp_path / "made")
    tokenizer.save_pretrained(tmp_path / "saved")
    compare(oracle, tmp_path / "saved")


@pytest.mark.slow
@pytest.mark.parametrize("pad", [END, "!"])
def test_clips_own_vocabulary(oracle: Any, tmp_path: Path, pad: str) -> None:
    """The 49,408 tokens of CLIP, which the package open_clip_torch carries; not for CI."""
    spec = importlib.util.find_spec("open_clip")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs the vocabulary in open_clip_torch")
    packed = Path(spec.submodule_search_locations[0]) / "bpe_simple_vocab_16e6.txt.gz"
    lines = gzip.decompress(packed.read_bytes()).decode().split("\n")[1 : 49152 - 256 - 2 + 1]
    pairs = [tuple(line.split()) for line in lines]
    merges = [(left, right) for left, right in pairs]  # type: ignore[misc]
    vocab = write_byte_tokenizer(tmp_path, merges=merges, pad=pad)
    assert len(vocab) == 49408
    compare(oracle, tmp_path)
