"""Gemma 3 270M, real weights out of its GGUF file: the same as in `transformers`, which reads that file by itself."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from published import parsed_once

import interp
from interp.models.tokenizer import Tokenizer
from interp.models.transformer import Transformer

TEXTS = [
    "The Eiffel Tower is in the city of",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Das Wetter in Zürich ist heute 東京とは違って " + "schön und sonnig, " * 120 + "aber morgen",
]
"""The last is longer than the window of 512 tokens."""

PICKED = [
    *("", " ", "  ", "   x", " leading", "trailing ", "a  b   c", "\n", "\n\n\n\nx", "\t\tx", "\r\n", " \n \t "),
    *("🙂", "👩‍👩‍👧‍👦", "e\u0301 é", "東京は日本", "한국어", "العربية", "हिन्दी", "\u200b", "\x00\x01", "\ufeff"),
    *("12345", " 3.14", "x1y22", "½", "don't", "DON'T", "snake_case CamelCase", "https://example.org/?q=1&r=2"),
    *("<bos>", "<eos>a", "<start_of_turn>user\nhi<end_of_turn>\n", "<start_of_turn", "<unused5>", "[multimodal]"),
    *("<table><tr>", "</s>", "<0x41>", "▁", "▁▁▁a", "<b>bold</b>", "def f(x):\n        return x"),
    *(" " * count + "x" for count in (5, 30, 31, 32, 33, 47, 63, 64, 100)),
    *("\n" * count + "x" for count in (30, 31, 32, 45)),
]


@pytest.fixture(scope="module")
def file() -> Iterator[Path]:
    """The file in the cache; to run these tests is to accept the Gemma Terms of Use."""
    with parsed_once():
        yield interp.pull("gemma3-270m", accept_terms=True)


@pytest.fixture(scope="module")
def published(file: Path) -> Any:
    """What `transformers` makes of the same file."""
    from transformers import AutoModelForCausalLM

    hf = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, attn_implementation="eager", dtype=torch.float32
    )
    return hf.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def published_tokenizer(file: Path) -> Any:
    """The same for text and tokens."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)


def test_it_is_the_model_that_was_published(gemma3: Transformer) -> None:
    config = gemma3.config
    assert (config.n_layers, config.n_heads, config.n_kv_heads, config.d_model) == (18, 4, 1, 640)
    assert [layer for layer in range(18) if config.layer(layer).window is None] == [5, 11, 17]
    assert config.windows == {512, None}
    assert {rotary.theta for rotary in config.rotaries} == {10_000.0, 1_000_000.0}
    assert gemma3.provenance["model"] == "gemma3-270m"


@pytest.mark.parametrize("text", TEXTS)
def test_logits_and_greedy_tokens_are_the_references(text: str, gemma3: Transformer, published: Any) -> None:
    tokens = gemma3.generate(gemma3.to_tokens(text), 20)
    assert tokens[0, 0] == 2, "a document begins with <bos>"
    theirs = published(tokens, use_cache=False).logits
    assert torch.equal(theirs[:, -21:-1].argmax(-1), tokens[:, -20:])
    theirs -= gemma3(tokens)  # in place: a text's logits are hundreds of megabytes
    assert float(theirs.aminmax().max) <= 5e-4
    assert float(theirs.aminmax().min) >= -5e-4


def test_the_last_text_is_longer_than_the_window(gemma3: Transformer) -> None:
    assert gemma3.to_tokens(TEXTS[-1]).shape[1] > 512


def test_it_knows_where_the_eiffel_tower_is(gemma3: Transformer) -> None:
    assert gemma3.to_string(gemma3(gemma3.to_tokens(TEXTS[0]))[0, -1:].argmax(-1)) == " Paris"


def awkward_strings(tokenizer: Tokenizer, count: int = 300) -> list[str]:
    """Hand-picked strings, and random mixtures of tokens, of characters and of runs of spaces."""
    rng = random.Random(0)
    scraps = ["a", " ", "  ", "\n", "\t", "é", "東", "🙂", "'s", "<", ">", "12", "▁", "\u200d", "<eos>", "."]
    mixed = ["".join(rng.choices(scraps, k=rng.randint(1, 20))) for _ in range(count)]
    words = [tokenizer.decode(rng.sample(range(300, tokenizer.d_vocab), 6)) for _ in range(count)]
    return PICKED + mixed + words


def test_tokens_are_those_of_transformers_on_awkward_strings(gemma3: Transformer, published_tokenizer: Any) -> None:
    strings = awkward_strings(gemma3.tokenizer)
    assert len(strings) > 600
    for text in strings:
        expected = published_tokenizer(text, add_special_tokens=False).input_ids
        assert gemma3.tokenizer.encode(text) == expected, repr(text)


def test_text_survives_tokens_except_for_the_bar_that_stands_for_a_space(gemma3: Transformer) -> None:
    tokenizer = gemma3.tokenizer
    for text in awkward_strings(tokenizer):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text.replace("▁", " "), repr(text)
        assert b"".join(map(tokenizer.token_bytes, ids)).decode() == text.replace("▁", " "), repr(text)


def test_a_prompt_has_the_prefixes_that_the_model_knows(gemma3: Transformer, published_tokenizer: Any) -> None:
    tokenizer = gemma3.tokenizer
    assert tokenizer.prompt_ids("Hi there") == published_tokenizer("Hi there").input_ids
    chat = "<bos><start_of_turn>user\nHi there<end_of_turn>\n<start_of_turn>model\n"
    assert tokenizer.prompt_ids("Hi there", "chat") == tokenizer.encode(chat)
    assert tokenizer.pad_id == 0
    assert {0, 1, 2, 105, 106} <= tokenizer.special_ids
    assert tokenizer.d_vocab == gemma3.config.d_vocab == 262_144
