"""Tokenizer pipelines from files: `tokenizer.json`, and the vocabulary inside a GGUF with its merges or its scores.

A GGUF states the pre-tokenizer of byte-level BPE only by name. The names below are those whose rule is known exactly;
any other is refused, since a near miss splits text differently from training and no later check would notice.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend
from tokenizers.pre_tokenizers import PreTokenizer

from interp.errors import LoadError, nearest
from interp.models.sentence_piece import Pieces, add_markers, pipeline
from interp.models.sources.files import file_of, read_json

_LONGEST_PIECE = 512  # every place where a piece can be cut in two is looked at
_ROLE_KEYS = {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id", "unk": "unknown_token_id"}

# The split of Llama 3 and of Qwen 2: contractions, words with one leading non-letter, up to three digits or one,
# punctuation, whitespace.
_SPLIT = "|".join(
    [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"DIGITS",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


def _gpt2() -> PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _single_digits() -> PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _up_to_three_digits() -> PreTokenizer:
    return _split(r"\p{N}{1,3}")


def _digit_by_digit() -> PreTokenizer:
    return _split(r"\p{N}")


def _split(digits: str) -> PreTokenizer:
    split = pre_tokenizers.Split(Regex(_SPLIT.replace("DIGITS", digits)), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


PRE_TOKENIZERS: Mapping[str, Callable[[], PreTokenizer]] = {
    "gpt-2": _gpt2,
    "olmo": _gpt2,
    "smollm": _single_digits,
    "llama-bpe": _up_to_three_digits,
    "llama3": _up_to_three_digits,
    "llama-v3": _up_to_three_digits,
    "qwen2": _digit_by_digit,
}
_WHOLE_WORDS_FIRST = ("llama-bpe", "llama3", "llama-v3")  # a word that is in the vocabulary is not merged up to
_COMPOSED_FIRST = ("olmo", "qwen2")  # a letter and its accent are read as one character (Unicode's form C)


def backend_from_json(text: str, source: str) -> Backend:
    """A pipeline from the text of a `tokenizer.json`, without the steps that would alter a prompt unasked.

    Truncation, padding and the post-processor (which may add a bos, and trims offsets) are taken out.
    """
    try:
        backend = Backend.from_str(text)
    except BaseException as error:  # the library raises nothing narrower, and a panic of its Rust code is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            raise
        raise LoadError(f"{source} does not describe a tokenizer: {error}.") from error
    backend.no_truncation()
    backend.no_padding()
    backend.post_processor = processors.Sequence([])
    return backend


def roles_from_folder(folder: Path) -> dict[str, str]:
    """Which token is bos, eos, pad and unk according to `tokenizer_config.json`; empty if there is no such file."""
    file = file_of(folder, "tokenizer_config.json")
    if file is None:
        return {}
    stated = read_json(file)
    roles = {role: _content(stated.get(f"{role}_token")) for role in _ROLE_KEYS}
    return {role: token for role, token in roles.items() if token is not None}


def _content(token: object) -> str | None:
    """A token as `tokenizer_config.json` writes it: a string, or an object with its flags."""
    stated = token.get("content") if isinstance(token, dict) else token
    return stated if isinstance(stated, str) else None


def backend_from_gguf(fields: Mapping[str, object], source: str) -> Backend:
    """The pipeline that the metadata of a GGUF describes."""
    match fields.get("tokenizer.ggml.model"):
        case "gpt2":
            return _byte_level_bpe(fields, source)
        case "llama":
            return _sentence_pieces(fields, source)
        case kind:
            raise LoadError(
                f"{source} holds a tokenizer of the kind {kind!r}; only 'gpt2' (byte-level BPE) and 'llama' "
                "(SentencePiece) can be rebuilt from a GGUF. Load the model's Hugging Face folder with its "
                "tokenizer.json instead."
            )


def _byte_level_bpe(fields: Mapping[str, object], source: str) -> Backend:
    rule = fields.get("tokenizer.ggml.pre")
    if not isinstance(rule, str) or rule not in PRE_TOKENIZERS:
        raise LoadError(
            f"{source} states the pre-tokenizer {rule!r}, whose rule is not known here, and guessing would split text "
            f"wrongly.{nearest(str(rule), PRE_TOKENIZERS)} Known: {', '.join(PRE_TOKENIZERS)}. Load the model's "
            "Hugging Face folder with its tokenizer.json instead."
        )
    tokens = _tokens(fields, source)
    vocabulary = {token: index for index, token in enumerate(tokens)}
    merges = _merges(_strings(fields, "merges", source), vocabulary, source)
    backend = Backend(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=rule in _WHOLE_WORDS_FIRST))
    if rule in _COMPOSED_FIRST:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = PRE_TOKENIZERS[rule]()
    backend.decoder = decoders.ByteLevel()
    add_markers(backend, tokens, _kinds(fields, len(tokens), source))
    return backend


def _sentence_pieces(fields: Mapping[str, object], source: str) -> Backend:
    """SentencePiece; where the file does not say otherwise, a text is read with a space in front of it."""
    tokens = _tokens(fields, source)
    scores, space = fields.get("tokenizer.ggml.scores"), fields.get("tokenizer.ggml.add_space_prefix", True)
    if (
        not isinstance(scores, list)
        or len(scores) != len(tokens)
        or not all(isinstance(each, float) for each in scores)
    ):
        raise LoadError(f"{source} has no tokenizer.ggml.scores for each of its {len(tokens)} tokens.")
    if not isinstance(space, bool) or "tokenizer.ggml.precompiled_charsmap" in fields:
        raise LoadError(
            f"{source} has a tokenizer that rewrites text in a way that is not known here. Load the model's Hugging "
            "Face folder with its tokenizer.json instead."
        )
    if any(len(token) > _LONGEST_PIECE for token in tokens):
        raise LoadError(f"{source} is damaged: a token of its vocabulary has more than {_LONGEST_PIECE} characters.")
    unknown = roles_from_gguf(fields, source).get("unk")
    return pipeline(Pieces(tokens, scores, _kinds(fields, len(tokens), source)), unknown, space_in_front=space)


def roles_from_gguf(fields: Mapping[str, object], source: str) -> dict[str, str]:
    """Which token is bos, eos, pad and unk according to the metadata; an id outside the vocabulary is an error."""
    tokens = _strings(fields, "tokens", source)
    roles = {}
    for role, key in _ROLE_KEYS.items():
        index = fields.get(f"tokenizer.ggml.{key}")
        if index is None:
            continue
        if not isinstance(index, int) or not 0 <= index < len(tokens):
            raise LoadError(f"{source} is damaged: {key} is {index!r}, the vocabulary has {len(tokens)} tokens.")
        roles[role] = tokens[index]
    return roles


def _strings(fields: Mapping[str, object], key: str, source: str) -> list[str]:
    values = fields.get(f"tokenizer.ggml.{key}")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise LoadError(f"{source} has no list of strings under tokenizer.ggml.{key}, which its tokenizer needs.")
    return values


def _merges(lines: list[str], vocabulary: Mapping[str, int], source: str) -> list[tuple[str, str]]:
    """The merge rules as pairs, each checked against the vocabulary."""
    merges = []
    for line in lines:
        left, space, right = line.partition(" ")
        if not space or left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
            raise LoadError(f"{source} is damaged: the merge rule {line!r} does not fit the vocabulary.")
        merges.append((left, right))
    return merges


def _tokens(fields: Mapping[str, object], source: str) -> list[str]:
    tokens = _strings(fields, "tokens", source)
    if repeated := len(tokens) - len(set(tokens)):
        raise LoadError(f"{source} is damaged: its vocabulary names {repeated} tokens twice.")
    return tokens


def _kinds(fields: Mapping[str, object], count: int, source: str) -> list[int]:
    """What each token is: a piece of text, a control token, one byte."""
    kinds = fields.get("tokenizer.ggml.token_type")
    if not isinstance(kinds, list) or len(kinds) != count:
        raise LoadError(f"{source} has no tokenizer.ggml.token_type for each of its {count} tokens.")
    return kinds
