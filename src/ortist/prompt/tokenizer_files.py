"""Reads the files of a CLIP tokenizer's folder into one value.

Which file outranks which follows transformers 5 (its `CLIPTokenizer`): the vocabulary comes
from `tokenizer.json` where there is one, else from `vocab.json` and `merges.txt`; special
tokens come from `tokenizer_config.json`, where `special_tokens_map.json` overrides it unless
the former has a complete list (`added_tokens_decoder`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from ortist.errors import BadBundle

_START: Final = "<|startoftext|>"
_END: Final = "<|endoftext|>"
_DEFAULT_SPECIALS: Final = {
    "bos_token": _START,
    "eos_token": _END,
    "unk_token": _END,
    "pad_token": _END,
}
# In the order in which transformers gives ids to those that the vocabulary lacks.
_SPECIAL_KEYS: Final = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_EXTRA_KEYS: Final = ("additional_special_tokens", "extra_special_tokens")
_CLASSES: Final = (None, "CLIPTokenizer", "CLIPTokenizerFast")
_LONGEST: Final = 1_000_000  # transformers writes 1e30 where no limit is known
_CLIP_LENGTH: Final = 77
_HINT: Final = "copy the tokenizer folder of the original model, or convert the checkpoint again"


@dataclass(frozen=True)
class AddedToken:
    """A token that is looked for in the text before anything else is done to it.

    Attributes:
        content: the characters.
        single_word: whether letters must not touch it.
        lstrip: whether it takes the white space on its left with it.
        rstrip: the same on its right.
        normalized: whether it is looked for in the normalised (lower-case) text.
        special: whether it is a control token.
    """

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = True


@dataclass(frozen=True)
class TokenizerFiles:
    """What a tokenizer's folder says.

    Attributes:
        vocabulary: token -> id.
        merges: pairs of tokens that join, first things first.
        added: tokens of their own, in the order in which they are given ids; with the id the
            files promise, None where they promise none.
        bos: begin of text.
        eos: end of text.
        pad: fills the sequence up.
        unk: stands for what the vocabulary lacks.
        max_length: longest sequence, begin and end included.
    """

    vocabulary: Mapping[str, int]
    merges: tuple[tuple[str, str], ...]
    added: tuple[tuple[AddedToken, int | None], ...]
    bos: str
    eos: str
    pad: str
    unk: str
    max_length: int


def read_tokenizer_files(folder: Path) -> TokenizerFiles:
    """Read a tokenizer's folder.

    Raises:
        BadBundle: a file is missing or damaged, or describes another kind of tokenizer.
    """
    config = _json_object(folder / "tokenizer_config.json", required=False)
    _check_kind(config, folder)
    whole_path = folder / "tokenizer.json"
    whole = _json_object(whole_path, required=False)
    if whole:
        vocabulary, merges = _from_whole(whole, whole_path)
    else:
        vocabulary = _vocabulary(folder / "vocab.json")
        merges = _merges(folder / "merges.txt")
    specials: dict[str, object] = {**_DEFAULT_SPECIALS, **_chosen(config)}
    listed: dict[str, tuple[AddedToken, int | None]] = {}
    if "added_tokens_decoder" in config:
        decoder = _object(config["added_tokens_decoder"], folder, "added_tokens_decoder")
        _add_listed(listed, ((key, value) for key, value in decoder.items()), folder)
    else:
        specials.update(_chosen(_json_object(folder / "special_tokens_map.json", required=False)))
        old = _json_object(folder / "added_tokens.json", required=False)
        names = {token.content for token in _named(specials, folder).values()}
        for content, number in old.items():
            special = content in names
            token = AddedToken(content, normalized=not special, special=special)
            listed[content] = (token, _id(number, folder))
        entries = [_object(entry, folder, "added_tokens") for entry in _list(whole, "added_tokens")]
        _add_listed(listed, ((entry.get("id"), entry) for entry in entries), folder)
    named = _named(specials, folder)
    return TokenizerFiles(
        vocabulary=vocabulary,
        merges=tuple(merges),
        added=_ordered(listed, named, specials, folder),
        bos=named["bos_token"].content,
        eos=named["eos_token"].content,
        pad=named["pad_token"].content,
        unk=named["unk_token"].content,
        max_length=_max_length(config, folder),
    )


def _named(specials: Mapping[str, object], folder: Path) -> dict[str, AddedToken]:
    named = {
        key: _token(specials[key], folder) for key in _SPECIAL_KEYS if specials.get(key) is not None
    }
    missing = [key for key in _DEFAULT_SPECIALS if key not in named]
    if missing:
        raise _damaged(folder, f"{missing[0]} is null")
    return named


def _ordered(
    listed: Mapping[str, tuple[AddedToken, int | None]],
    named: Mapping[str, AddedToken],
    specials: Mapping[str, object],
    folder: Path,
) -> tuple[tuple[AddedToken, int | None], ...]:
    """The added tokens as they are given ids: the listed ones by id, then the rest."""
    ordered = sorted(listed.values(), key=lambda pair: -1 if pair[1] is None else pair[1])
    added = {token.content: (token, number) for token, number in ordered}
    extra = [_token(item, folder) for key in _EXTRA_KEYS for item in _list(specials, key)]
    for token in (*named.values(), *extra):
        # Named twice with other properties (end of text and padding, often), the later counts.
        if token.content not in listed:
            added[token.content] = (token, None)
    control = {token.content for token in named.values()}
    return tuple(
        (replace(token, special=token.special or token.content in control), number)
        for token, number in added.values()
    )


def _chosen(mapping: Mapping[str, object]) -> dict[str, object]:
    """The entries that name special tokens."""
    return {key: mapping[key] for key in (*_SPECIAL_KEYS, *_EXTRA_KEYS) if key in mapping}


def _check_kind(config: Mapping[str, object], folder: Path) -> None:
    kind = config.get("tokenizer_class")
    if kind not in _CLASSES:
        raise BadBundle(
            f"{folder}: tokenizer_class is {kind!r}, only CLIPTokenizer is implemented",
            hint="use a model whose text encoder is CLIP",
            code="tokenizer-not-implemented",
        )
    for key in ("padding_side", "truncation_side"):
        if config.get(key, "right") != "right":
            raise BadBundle(
                f"{folder}: {key} is {config[key]!r}, only 'right' is implemented",
                hint=_HINT,
                code="tokenizer-not-implemented",
            )


def _max_length(config: Mapping[str, object], folder: Path) -> int:
    value = config.get("model_max_length", _CLIP_LENGTH)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 2:
        raise _damaged(folder, f"model_max_length is {value!r}")
    return int(value) if value <= _LONGEST else _CLIP_LENGTH


def _from_whole(
    whole: Mapping[str, object], path: Path
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    model = _object(whole.get("model"), path, "model")
    if model.get("type", "BPE") != "BPE":
        raise _damaged(path, f"its model is {model.get('type')!r}, not 'BPE'")
    vocabulary = _checked_vocabulary(model.get("vocab"), path)
    merges: list[tuple[str, str]] = []
    for entry in _list(model, "merges"):
        # Old files join the two with a blank, new ones make a list of them.
        parts = entry.split(" ") if isinstance(entry, str) else entry
        merges.append(_pair(parts, path))
    return vocabulary, merges


def _vocabulary(path: Path) -> dict[str, int]:
    return _checked_vocabulary(_json_object(path, required=True), path)


def _checked_vocabulary(value: object, path: Path) -> dict[str, int]:
    entries = _object(value, path, "the vocabulary")
    vocabulary = {token: number for token, number in entries.items() if _is_id(number)}
    if not vocabulary or len(vocabulary) != len(entries):
        raise _damaged(path, "a vocabulary has to be an object of tokens and their whole numbers")
    return cast("dict[str, int]", vocabulary)


def _merges(path: Path) -> list[tuple[str, str]]:
    lines = _text(path).split("\n")
    return [_pair(line.split(" "), path) for line in lines if line and not _is_version(line)]


def _is_version(line: str) -> bool:
    return line.startswith("#version")


def _pair(parts: object, path: Path) -> tuple[str, str]:
    items = cast("list[object]", parts) if isinstance(parts, list) else []
    if len(items) != 2 or not all(isinstance(item, str) and item for item in items):
        raise _damaged(path, f"a merge has to be two tokens, but one is {parts!r}")
    left, right = cast("list[str]", items)
    return left, right


def _add_listed(
    listed: dict[str, tuple[AddedToken, int | None]],
    entries: Iterable[tuple[object, object]],
    folder: Path,
) -> None:
    for number, entry in entries:
        token = _token(entry, folder)
        listed[token.content] = (token, _id(number, folder))


def _token(value: object, folder: Path) -> AddedToken:
    if isinstance(value, str) and value:
        return AddedToken(value)
    fields = _object(value, folder, "a special token")
    content = fields.get("content")
    if not isinstance(content, str) or not content:
        raise _damaged(folder, f"a special token has the content {content!r}")
    # Files of special tokens leave "special" out; lists of added tokens always state it.
    special = fields.get("special", True) is True
    return AddedToken(
        content=content,
        single_word=fields.get("single_word") is True,
        lstrip=fields.get("lstrip") is True,
        rstrip=fields.get("rstrip") is True,
        normalized=fields.get("normalized", not special) is True,
        special=special,
    )


def _id(value: object, folder: Path) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not _is_id(number):
        raise _damaged(folder, f"an added token has the id {value!r}")
    return cast("int", number)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _object(value: object, path: Path, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _damaged(path, f"{what} has to be a JSON object")
    return cast("dict[str, object]", value)


def _list(mapping: Mapping[str, object], key: str) -> list[object]:
    value = mapping.get(key)
    return cast("list[object]", value) if isinstance(value, list) else []


def _json_object(path: Path, *, required: bool) -> dict[str, object]:
    if not required and not path.is_file():
        return {}
    try:
        value: object = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise _damaged(path, f"it is no JSON ({error.msg} in line {error.lineno})") from error
    return _object(value, path, "the file")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadBundle(f"{path} is missing", hint=_HINT, code="tokenizer-missing") from error
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, what: str) -> BadBundle:
    return BadBundle(f"{path}: {what}", hint=_HINT, code="tokenizer-damaged")
