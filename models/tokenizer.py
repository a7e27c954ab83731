"""One path from text to tokens and back, whatever file the vocabulary came from.

Byte-level BPE first splits the text by rule (the *pre-tokenizer*: words, numbers, spaces), writes each piece as bytes
and merges neighbouring bytes in the order learnt in training (Sennrich et al. 2016, Radford et al. 2019).

Control markers inside a text, such as `<|im_start|>`, ARE read as the special tokens they name, as `transformers` does
by default. Text from strangers can therefore open a chat turn; look at `str_tokens` before trusting a prompt.

`encode` adds nothing. What stands in front of a prompt is the caller's explicit choice (`prompt_ids`):
`"doc"` the document separator, `"none"` nothing, `"chat"` the text as one user turn (no system turn).
"""

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from interp.errors import LoadError, UsageError
from interp.models.byte_level import CHARACTER_OF_BYTE, bytes_of
from interp.models.prompt_formats import PrefixPolicy, chat_format, check_policy, document_separator
from interp.models.sources.files import check_length, file_of, file_size
from interp.models.tokenizer_files import backend_from_gguf, backend_from_json, roles_from_folder, roles_from_gguf


@dataclass(frozen=True)
class _Vocabulary:
    """The vocabulary by id: what each token is written as, and which of them are not ordinary text."""

    pieces: dict[int, str]
    added: frozenset[int]
    specials: dict[str, int]


class Tokenizer:
    """Text ↔ tokens for one vocabulary; immutable, safe to share between threads.

    Attributes:
        d_vocab: number of ids the model knows; the file may name fewer (padded embeddings).
        special_ids: ids of control tokens, which stand for no text.
        doc_separator_id: the id that separates documents in pre-training, or None. Not the file's "bos".
        pad_id: a valid id to fill a batch with; padded positions are masked, so nothing depends on the choice.
    """

    def __init__(self, backend: Backend, roles: Mapping[str, str] | None = None, d_vocab: int | None = None) -> None:
        """Wrap a `tokenizers` pipeline; `roles` names its "bos", "eos", "pad" and "unk" tokens, where they exist."""
        self._backend = backend
        self._roles = dict(roles or {})
        self._vocabulary = _vocabulary(backend)
        self._byte_level = _is_byte_level(backend)
        specials = self._vocabulary.specials
        named = max(self._vocabulary.pieces, default=-1) + 1
        if d_vocab is not None and d_vocab < named:
            raise LoadError(
                f"The tokenizer names {named} ids but the model has only {d_vocab}; they do not belong together."
            )
        self.d_vocab = named if d_vocab is None else d_vocab
        self.special_ids = frozenset(specials.values())
        separator = document_separator(specials, self._roles.get("bos"))
        self.doc_separator_id = None if separator is None else specials[separator]
        self.pad_id = self._find_pad_id()

    @classmethod
    def from_file(cls, path: str | Path) -> "Tokenizer":
        """Read `tokenizer.json` (the file, or its folder) and what `tokenizer_config.json` says beside it."""
        path = Path(path)
        file = (file_of(path, "tokenizer.json") or path / "tokenizer.json") if path.is_dir() else path
        try:
            check_length(file_size(file), f"The tokenizer file {file}")
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise LoadError(f"The tokenizer file {file} cannot be read: {error}.") from error
        return cls(backend_from_json(text, str(file)), roles_from_folder(file.parent))

    @classmethod
    def from_gguf(cls, fields: Mapping[str, object], source: str = "the GGUF file") -> "Tokenizer":
        """Build the tokenizer that GGUF metadata describes: vocabulary, merges and the stated pre-tokenizer.

        Raises `LoadError` for a tokenizer model or pre-tokenizer that is not known: a guess would split differently
        from training and shift every later position, silently.
        """
        return cls(backend_from_gguf(fields, source), roles_from_gguf(fields, source))

    @classmethod
    def from_json(cls, text: str, roles: Mapping[str, str] | None = None) -> "Tokenizer":
        """Build from the text of a `tokenizer.json`, as `tokenizers.Tokenizer.to_str()` writes it."""
        return cls(backend_from_json(text, "the tokenizer given"), roles)

    @property
    def sha256(self) -> str:
        """A hash of all that decides how text is cut: the pipeline, the roles of special tokens, the number of ids."""
        text = json.dumps([self._backend.to_str(), self._roles, self.d_vocab], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def padded_to(self, d_vocab: int) -> "Tokenizer":
        """The same tokenizer for a model with `d_vocab` ids; raises `LoadError` if it names more than that."""
        return self if d_vocab == self.d_vocab else Tokenizer(self._backend, self._roles, d_vocab)

    def encode(self, text: str) -> list[int]:
        """The tokens of `text` alone, never a prefix. Control markers in the text become their special tokens."""
        return self.encode_with_offsets(text)[0]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The tokens of `text`, and for each the half-open range of characters that it covers.

        A leading space belongs to its token. Tokens that share one character (an emoji of several bytes) share its
        range, so match spans by overlap, not by equality.
        """
        _require_text(text)
        encoding = self._backend.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def prompt_ids(self, text: str, prefix: PrefixPolicy = "doc") -> list[int]:
        """The tokens of a prompt under an explicit prefix policy: `prefix_ids + encode(text) + suffix_ids`.

        A text that already begins with the document separator is not given a second one. Raises `UsageError` for an
        empty text, for characters that the vocabulary would silently drop, and for a policy this model cannot follow.
        """
        ids = self.encode(text)
        if lost := set(text.encode()) & self._unwritable_bytes:
            raise UsageError(
                f"The vocabulary has no token for {_shown(bytes(sorted(lost)))!r}; those characters would silently "
                "vanish from the prompt. Remove them from the text."
            )
        if not ids:
            raise UsageError(f"The prompt {text!r} is empty: it has no tokens. Give at least one character of text.")
        before = self.prefix_ids(prefix)
        if before and ids[0] == before[0]:
            if prefix == "chat":
                raise UsageError("The text already begins with a chat marker; use prefix='none' to take it as it is.")
            before = []
        return before + ids + self.suffix_ids(prefix)

    def prefix_ids(self, policy: PrefixPolicy) -> list[int]:
        """The ids that `policy` puts before a text."""
        check_policy(policy)
        if policy == "none":
            return []
        if policy == "chat":
            return list(self._chat_ids[0])
        if self.doc_separator_id is None:
            raise UsageError("This vocabulary names no document separator, so prefix='doc' has no meaning; use 'none'.")
        return [self.doc_separator_id]

    def suffix_ids(self, policy: PrefixPolicy) -> list[int]:
        """The ids that `policy` puts after a text: with "chat", the end of the turn and the opening of the answer."""
        check_policy(policy)
        return list(self._chat_ids[1]) if policy == "chat" else []

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a token sequence, special tokens included; bytes that are no whole UTF-8 become U+FFFD."""
        return self._backend.decode(self._checked(ids), skip_special_tokens=False)

    def str_tokens(self, ids: Iterable[int]) -> list[str]:
        r"""One string per token. A token whose bytes are no whole UTF-8 shows them as `\xf0\x9f`; nothing is lost."""
        return [self._text_of(index) for index in self._checked(ids)]

    def token_bytes(self, index: int) -> bytes:
        """The bytes that one token stands for; a special token stands for its own name, a padding id for nothing."""
        (index,) = self._checked([index])
        piece = self._vocabulary.pieces.get(index, "")
        if index in self._vocabulary.added:
            return piece.encode()
        return bytes_of(piece) if self._byte_level else _bytes_of_sentence_piece(piece)

    def single_token(self, text: str) -> int:
        """The one token that `text` is (mind the leading space); `UsageError` showing the pieces if it is several."""
        ids = self.encode(text)
        if len(ids) != 1:
            raise UsageError(
                f"{text!r} is {len(ids)} tokens, not one: {self.str_tokens(ids)}. "
                "Give a word that is a single token; in most vocabularies that includes its leading space."
            )
        return ids[0]

    @property
    def ordered_by_merges(self) -> bool:
        """Whether ids, behind the special ones, follow the merges of a BPE training: frequent pairs come first."""
        return isinstance(self._backend.model, BPE)

    @functools.cached_property
    def _chat_ids(self) -> tuple[list[int], list[int]]:
        form = chat_format(self._vocabulary.specials)
        if form is None:
            raise UsageError("This model has no chat markers that are known here, so prefix='chat' has no meaning.")
        return self.encode(form.before), self.encode(form.after)

    @functools.cached_property
    def _unwritable_bytes(self) -> frozenset[int]:
        if not self._byte_level:
            return frozenset()
        pieces = set(self._vocabulary.pieces.values())
        return frozenset(byte for byte, character in CHARACTER_OF_BYTE.items() if character not in pieces)

    def _find_pad_id(self) -> int:
        for role in ("pad", "eos"):
            index = self._backend.token_to_id(self._roles.get(role, ""))
            if index is not None:
                return index
        return self.doc_separator_id or 0

    def _checked(self, ids: Iterable[int]) -> list[int]:
        checked = [int(index) for index in ids]
        for index in checked:
            if not 0 <= index < self.d_vocab:
                raise UsageError(
                    f"Token id {index} does not exist; this vocabulary has the ids 0 to {self.d_vocab - 1}."
                )
        return checked

    def _text_of(self, index: int) -> str:
        return _shown(self.token_bytes(index)) if index in self._vocabulary.pieces else f"<unused {index}>"


def _require_text(text: str) -> None:
    if not isinstance(text, str):
        raise UsageError(f"A text is expected, not {type(text).__name__}.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"Character {error.start} of the text is half of a surrogate pair; no UTF-8 can write it."
        ) from error


def _shown(data: bytes) -> str:
    return data.decode("utf-8", errors="backslashreplace")


def _vocabulary(backend: Backend) -> _Vocabulary:
    added = backend.get_added_tokens_decoder()
    return _Vocabulary(
        pieces={index: piece for piece, index in backend.get_vocab(with_added_tokens=True).items()},
        added=frozenset(added),
        specials={token.content: index for index, token in added.items() if token.special},
    )


def _is_byte_level(backend: Backend) -> bool:
    """Whether the pieces are written in the byte alphabet; refuses decoders whose bytes could not be stated."""
    steps = _step_types(json.loads(backend.decoder.__getstate__())) if backend.decoder is not None else []
    if "ByteLevel" in steps:
        return True
    if "ByteFallback" in steps or "Metaspace" in steps:
        return False
    raise LoadError(
        f"The tokenizer's decoder ({', '.join(steps) or 'none'}) is not supported; known are byte-level BPE and "
        "SentencePiece-style BPE with byte fallback."
    )


def _step_types(decoder: Mapping[str, object]) -> Sequence[str]:
    steps = decoder.get("decoders")
    if isinstance(steps, list):
        return [str(step.get("type")) for step in steps]
    return [str(decoder.get("type"))]


def _bytes_of_sentence_piece(piece: str) -> bytes:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace("\N{LOWER ONE EIGHTH BLOCK}", " ").encode()
