"""One readable example: a list of words said twice, and where the best induction heads look while reading it again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from interp.analyses.components import Head, named
from interp.models.prompt_formats import PrefixPolicy

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from interp.models.transformer import Transformer

WORDS = (" lamp", " river", " seven", " cloud", " green", " table", " north", " music", " paper", " window")


@dataclass(frozen=True)
class WordList:
    """What was read, every head's pattern [query, key] by name, and where each head looked at each second reading."""

    text: str
    tokens: list[str]
    start: int
    size: int
    patterns: "dict[str, Tensor]"
    looked: "pd.DataFrame"

    def hits(self, head: str) -> tuple[int, int]:
        """In how many of the second readings the head looked most at the word that came next the first time."""
        rows = self.looked[self.looked["head"] == head]
        return int(rows["as_induction"].sum()), len(rows)


@torch.no_grad()
def read_words(model: "Transformer", heads: Sequence[Head], prefix: PrefixPolicy) -> WordList:
    """Run the words through the model and note the strongest edge, the first position aside, of every head and row."""
    text = "".join(WORDS) * 2
    tokens = model.to_tokens(text, prefix=prefix)
    start, size = _layout(model, prefix)
    layers = sorted({layer for layer, _ in heads})
    _, cache = model.run_with_cache(tokens, [f"blocks.{layer}.attn.hook_pattern" for layer in layers])
    patterns = {named((layer, head)): cache["pattern", layer][0, head].float().cpu() for layer, head in heads}
    words = model.to_str_tokens(tokens)
    return WordList(text, words, start, size, patterns, _looked(patterns, words, start, size))


def _layout(model: "Transformer", prefix: PrefixPolicy) -> tuple[int, int]:
    """Where the list starts, and how many tokens it has in this vocabulary."""
    return len(model.tokenizer.prefix_ids(prefix)), len(model.tokenizer.encode("".join(WORDS)))


def _looked(patterns: "dict[str, Tensor]", words: list[str], start: int, size: int) -> "pd.DataFrame":
    import pandas as pd

    rows = []
    for head, pattern in patterns.items():
        for query in range(start + size, start + 2 * size - 1):
            key = int(pattern[query, 1:].argmax()) + 1
            rows.append(
                {
                    "head": head,
                    "position": query,
                    "reading": words[query],
                    "looks_at": words[key],
                    "looks_at_position": key,
                    "attention": float(pattern[query, key]),
                    "attention_to_first": float(pattern[query, 0]),
                    "as_induction": key == query - size + 1,
                }
            )
    return pd.DataFrame(rows)
