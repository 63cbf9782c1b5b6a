"""The CLIP tokenizer, without transformers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortist.errors import BadBundle, BadRequest
from ortist.prompt.tokens import ClipTokenizer
from tests.tiny.byte_tokenizer import END, LAYOUTS, START, Layout, write_byte_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    write_byte_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> ClipTokenizer:
    return ClipTokenizer.from_directory(folder)


def words(folder: Path, *tokens: str) -> list[int]:
    vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    return [vocab[token] for token in tokens]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("red cat", ["red</w>", "cat</w>"]),
        ("  RED \t\n cat  ", ["red</w>", "cat</w>"]),
        ("cats", ["ca", "t", "s</w>"]),
        ("cat's", ["cat</w>", "'s</w>"]),
        ("42", ["4</w>", "2</w>"]),
        ("on!!", ["on</w>", "!!</w>"]),
        ("", []),
        ("é", ["Ã", "©</w>"]),
        ("e\u0301", ["Ã", "©</w>"]),  # composed first
        (f"red{END}", ["red</w>", END]),
    ],
)
def test_encodes(folder: Path, tokenizer: ClipTokenizer, text: str, tokens: list[str]) -> None:
    assert tokenizer.encode(text) == words(folder, *tokens)


def test_fills_up_to_the_models_length(folder: Path, tokenizer: ClipTokenizer) -> None:
    found = tokenizer.ids("red cat")
    bos, eos, red, cat = words(folder, START, END, "red</w>", "cat</w>")
    assert found.ids.dtype == np.int64
    assert found.ids.tolist() == [bos, red, cat, eos] + [eos] * 73
    assert (found.used, found.dropped) == (4, "")


@pytest.mark.parametrize(
    ("text", "length", "kept", "dropped"),
    [
        ("red cat on", 5, ["red</w>", "cat</w>", "on</w>"], ""),
        ("red cat on", 4, ["red</w>", "cat</w>"], "on"),
        ("red  CAT, On!! ", 3, ["red</w>"], "CAT, On!!"),
        ("red cat", 2, [], "red cat"),
        # A word that is cut in two is named whole, though its beginning still counts.
        ("red cats on", 5, ["red</w>", "ca", "t"], "cats on"),
        ("red éé on", 4, ["red</w>", "Ã"], "éé on"),
        (f"red {END} cat", 3, ["red</w>"], f"{END} cat"),
    ],
)
def test_names_what_does_not_fit(
    folder: Path, tokenizer: ClipTokenizer, text: str, length: int, kept: list[str], dropped: str
) -> None:
    found = tokenizer.ids(text, length)
    assert found.ids.tolist()[: found.used] == words(folder, START, *kept, END)
    assert len(found.ids) == length
    assert found.dropped == dropped


@given(text=st.text(max_size=40), length=st.integers(2, 30))
def test_any_text(tokenizer: ClipTokenizer, text: str, length: int) -> None:
    whole = tokenizer.encode(text)
    found = tokenizer.ids(text, length)
    kept = min(len(whole), length - 2)
    assert found.ids.shape == (length,)
    assert found.used == kept + 2
    assert found.ids.tolist()[: found.used] == [
        tokenizer.bos_id,
        *whole[:kept],
        tokenizer.eos_id,
    ]
    assert set(found.ids.tolist()[found.used :]) <= {tokenizer.pad_id}
    assert (found.dropped == "") == (kept == len(whole))
    assert found.dropped in text
    # What is left out gives at least the ids that are missing.
    assert tokenizer.encode(found.dropped)[-(len(whole) - kept) or len(whole) :] == whole[kept:]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_says_the_same(
    tmp_path: Path, tokenizer: ClipTokenizer, layout: Layout
) -> None:
    write_byte_tokenizer(tmp_path, layout)
    found = ClipTokenizer.from_directory(tmp_path)
    for name in ("bos_id", "eos_id", "pad_id", "max_length", "vocab_size"):
        assert getattr(found, name) == getattr(tokenizer, name)
    text = f"Red cat's thing !! {START} é 7"
    assert found.ids(text).ids.tolist() == tokenizer.ids(text).ids.tolist()


@pytest.mark.parametrize("layout", ["map", "decoder", "whole"])
def test_padding_of_its_own(tmp_path: Path, layout: Layout) -> None:
    """SD 2.x and SDXL's second tokenizer pad with "!", which then is no end of a word."""
    vocab = write_byte_tokenizer(tmp_path, layout, pad="!")
    tokenizer = ClipTokenizer.from_directory(tmp_path)
    assert tokenizer.pad_id == vocab["!"]
    assert tokenizer.ids("on", 5).ids.tolist()[2:] == [vocab[END], vocab["!"], vocab["!"]]
    assert tokenizer.encode("on!") == [vocab["on</w>"], vocab["!"]]


def test_added_tokens_of_a_textual_inversion(tmp_path: Path) -> None:
    vocab = write_byte_tokenizer(tmp_path)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<style>": len(vocab)}))
    tokenizer = ClipTokenizer.from_directory(tmp_path)
    assert tokenizer.encode("red <style>") == [vocab["red</w>"], len(vocab)]
    assert tokenizer.vocab_size == len(vocab) + 1


def test_an_unknown_length_is_clips(tmp_path: Path) -> None:
    write_byte_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 1e30}))
    assert ClipTokenizer.from_directory(tmp_path).max_length == 77


# Bad input


def test_text_that_is_no_unicode(tokenizer: ClipTokenizer) -> None:
    with pytest.raises(BadRequest, match="no valid Unicode at character 4"):
        tokenizer.ids("red \udc80")


def test_length_without_room(tokenizer: ClipTokenizer) -> None:
    with pytest.raises(BadRequest, match="max_length is 1"):
        tokenizer.ids("red", 1)


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
def test_missing_file(tmp_path: Path, name: str) -> None:
    write_byte_tokenizer(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(BadBundle, match=re.escape(f"{name} is missing")) as raised:
        ClipTokenizer.from_directory(tmp_path)
    assert raised.value.code == "tokenizer-missing"
    assert raised.value.hint


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("vocab.json", b"{", "it is no JSON"),
        ("vocab.json", b"\xff\xfe", "can't decode"),
        ("vocab.json", b"[1]", "has to be a JSON object"),
        ("vocab.json", b'{"a": "b"}', "whole numbers"),
        ("vocab.json", b"{}", "whole numbers"),
        ("merges.txt", b"#version: 0.2\nr e d\n", "one is ['r', 'e', 'd']"),
        ("merges.txt", b"q q\n", "do not fit each other"),
        ("special_tokens_map.json", b'{"pad_token": 3}', "a special token has to be"),
        ("special_tokens_map.json", b'{"pad_token": null}', "pad_token is null"),
        ("special_tokens_map.json", b'{"pad_token": {"content": ""}}', "the content ''"),
        ("added_tokens.json", b'{"<new>": 9000}', "'<new>' is said to be 9000"),
        ("added_tokens.json", b'{"<new>": "x"}', "has the id 'x'"),
        ("tokenizer_config.json", b'{"tokenizer_class": "T5Tokenizer"}', "'T5Tokenizer'"),
        ("tokenizer_config.json", b'{"padding_side": "left"}', "padding_side is 'left'"),
        ("tokenizer_config.json", b'{"model_max_length": "77"}', "model_max_length is '77'"),
        ("tokenizer.json", b'{"model": {"type": "Unigram"}}', "'Unigram', not 'BPE'"),
        ("tokenizer.json", b'{"model": {"vocab": {"a": 0}, "merges": [["a"]]}}', "one is ['a']"),
    ],
)
def test_damaged_file(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    write_byte_tokenizer(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadBundle, match=re.escape(said)) as raised:
        ClipTokenizer.from_directory(tmp_path)
    assert str(tmp_path) in raised.value.message
    assert raised.value.hint
