"""The CLIP tokenizer: prompt to token ids.

Byte-level byte-pair encoding of lower-case text (Radford et al. 2021, arXiv:2103.00020;
Sennrich et al. 2016, arXiv:1508.07909) on the `tokenizers` library, giving the ids that
transformers' `CLIPTokenizer` (5.x) gives. It leaves Unicode as it is but for the canonical
composition (NFC): unlike the older, pure-Python tokenizer it does not drop control and
zero-width characters, nor split CJK text into characters.
"""

# Releases of tokenizers before 0.23 declare few of their types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import normalizers, pre_tokenizers
from tokenizers.models import BPE

from ortist.errors import BadBundle, BadRequest
from ortist.prompt.tokenizer_files import AddedToken, TokenizerFiles, read_tokenizer_files

_WORD_END: Final = "</w>"
# Special tokens, English contractions, words, single digits, and runs of anything else.
_WORDS: Final = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d"
    r"|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)


@dataclass(frozen=True, eq=False)
class TokenIds:
    """A prompt as the text encoder reads it.

    Attributes:
        ids: [max_length] begin, text, end, padding.
        used: how many of them are not padding: the text's and the two around it.
        dropped: the end of the prompt that did not fit, as it was typed, from the first word
            that is not whole; "" when everything fits.
    """

    ids: NDArray[np.int64]
    used: int
    dropped: str


@dataclass(frozen=True, eq=False)
class ClipTokenizer:
    """A CLIP vocabulary, ready to encode.

    Attributes:
        bos_id: begin of text.
        eos_id: end of text.
        pad_id: padding; the end of text for most models, "!" for SD 2.x and for the second
            tokenizer of SDXL.
        max_length: longest sequence the model was made for, begin and end included (77).
        vocab_size: number of ids, added tokens included.
    """

    bos_id: int
    eos_id: int
    pad_id: int
    max_length: int
    vocab_size: int
    _encoder: tokenizers.Tokenizer = field(repr=False)

    @classmethod
    def from_directory(cls, path: Path | str) -> ClipTokenizer:
        """Read a tokenizer's folder as diffusers lays it out.

        Args:
            path: the folder, with `vocab.json` and `merges.txt`, or `tokenizer.json`; and, when
                its special tokens are not CLIP's own, `tokenizer_config.json` or
                `special_tokens_map.json`.

        Raises:
            BadBundle: a file is missing or damaged, or it is another kind of tokenizer.
        """
        folder = Path(path)
        files = read_tokenizer_files(folder)
        encoder = _encoder(files, folder)
        return cls(
            bos_id=_id_of(encoder, files.bos),
            eos_id=_id_of(encoder, files.eos),
            pad_id=_id_of(encoder, files.pad),
            max_length=files.max_length,
            vocab_size=encoder.get_vocab_size(with_added_tokens=True),
            _encoder=encoder,
        )

    def encode(self, text: str) -> list[int]:
        """The ids of the text alone, however many.

        Raises:
            BadRequest: the text is no valid Unicode.
        """
        return self._encoded(text).ids

    def ids(self, text: str, max_length: int | None = None) -> TokenIds:
        """The text between begin and end, filled up or cut to a fixed length.

        Args:
            text: the prompt.
            max_length: length of the result, at least 2; None for the model's own.

        Raises:
            BadRequest: the text is no valid Unicode, or `max_length` is below 2.
        """
        length = self.max_length if max_length is None else max_length
        if length < 2:
            raise BadRequest(
                f"max_length is {length}, but begin and end of text alone take 2 tokens",
                hint="pass 2 or more, 77 for Stable Diffusion",
            )
        encoded = self._encoded(text)
        kept = encoded.ids[: length - 2]
        ids = np.full(length, self.pad_id, dtype=np.int64)
        used = len(kept) + 2
        ids[:used] = [self.bos_id, *kept, self.eos_id]
        return TokenIds(ids, used, _rest(text, encoded, len(kept)))

    def _encoded(self, text: str) -> tokenizers.Encoding:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadRequest(
                f"the text is no valid Unicode at character {error.start}: "
                f"{text[error.start : error.end]!r}",
                hint="type the prompt again, in UTF-8",
            ) from error
        return self._encoder.encode(text, add_special_tokens=False)


def _encoder(files: TokenizerFiles, folder: Path) -> tokenizers.Tokenizer:
    try:
        model = BPE(
            vocab=dict(files.vocabulary),
            merges=list(files.merges),
            unk_token=files.unk,
            continuing_subword_prefix="",
            end_of_word_suffix=_WORD_END,
            fuse_unk=False,
        )
    except Exception as error:  # the library raises nothing narrower
        raise BadBundle(
            f"{folder}: vocabulary and merges do not fit each other: {error}",
            hint="take both files from the same model",
            code="tokenizer-damaged",
        ) from error
    encoder = tokenizers.Tokenizer(model)
    encoder.normalizer = normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Replace(tokenizers.Regex(r"\s+"), " "),
            normalizers.Lowercase(),
        ]
    )
    encoder.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(_WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    # The library's stub leaves the list's element type open.
    encoder.add_tokens([_added(token) for token, _ in files.added])  # pyright: ignore[reportUnknownMemberType]
    for token, promised in files.added:
        given = _id_of(encoder, token.content)
        if promised is not None and given != promised:
            raise BadBundle(
                f"{folder}: the added token {token.content!r} is said to be {promised}, but the "
                f"vocabulary makes it {given}",
                hint="take all files from the same model",
                code="tokenizer-damaged",
            )
    return encoder


def _added(token: AddedToken) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(
        token.content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=token.special,
    )


def _id_of(encoder: tokenizers.Tokenizer, token: str) -> int:
    number = encoder.token_to_id(token)
    if number is None:  # cannot be: every special token was added
        raise ValueError(f"{token!r} is not in the vocabulary")
    return number


def _rest(text: str, encoded: tokenizers.Encoding, kept: int) -> str:
    """What of the text lies behind the first `kept` tokens, whole words only."""
    if kept == len(encoded.ids):
        return ""
    words = encoded.word_ids
    first = words.index(words[kept])
    return text[encoded.offsets[first][0] : encoded.offsets[-1][1]]
