"""Pairs of prompts on a page: from its values to aligned tokens, and how those are drawn."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from interp.apps.dashboard.parameters import Values

if TYPE_CHECKING:
    from interp.models.transformer import Transformer
    from interp.pairs import Pairs
    from interp.prompt_pairs import PromptPair

TYPED = "typed"
PAIRS = {
    TYPED: "the two prompts above",
    "ioi": "indirect objects",
    "greater-than": "greater than",
    "capitals": "capitals",
    "country-swap": "countries swapped",
    "agreement": "subject and verb",
    "gender": "gender",
}
"""The pair that is typed, and the sets that come along."""
MOST_SHOWN = 4


def typed(values: Values) -> bool:
    """Whether the pair is the one that is typed."""
    return bool(values["pairs"] == TYPED)


def pairs_of(model: "Transformer", values: Values) -> "Pairs":
    """The pairs of these values, aligned; those that are shorter than most left out, since positions are swept.

    Raises `UsageError` where they do not fit each other, saying where they part.
    """
    from interp.pair_builders import BUILDERS
    from interp.pairs import align
    from interp.prompt_pairs import PromptPair

    if typed(values):
        given = [PromptPair(values["clean"], values["corrupted"], values["answer"], values["foil"] or None)]
    else:
        given = BUILDERS[values["pairs"]](model.tokenizer, n=values["count"], seed=values["seed"])
    return align(model.tokenizer, given, prefix=values["prefix"]).of_one_length()


def changed(pairs: "Pairs") -> list[list[int]]:
    """Of every pair the columns in which its two prompts differ."""
    return [row.nonzero()[:, 0].tolist() for row in pairs.clean != pairs.corrupted]


def draw(model: "Transformer", pairs: "Pairs") -> None:
    """The first pairs as tokens under each other, those that differ marked, and what follows."""
    columns = changed(pairs)
    for number, pair in enumerate(pairs.prompts[:MOST_SHOWN]):
        rows = [model.tokenizer.str_tokens(each[number].tolist()) for each in (pairs.clean, pairs.corrupted)]
        st.html(_aligned(rows, columns[number], pair))
    more = len(pairs) - MOST_SHOWN
    shown = f" {more} more {'is' if more == 1 else 'are'} not shown." if more > 0 else ""
    differ = sorted({len(each) for each in columns})
    span = f"{differ[0]}" if len(differ) == 1 else f"{differ[0]} to {differ[-1]}"
    count = len(pairs)
    st.caption(
        f"{count} pair{'s' * (count != 1)} of {pairs.clean.shape[1]} tokens; {span} of them "
        f"{'differs' if span == '1' else 'differ'} and {'is' if span == '1' else 'are'} marked.{shown}"
    )


def _aligned(rows: Sequence[Sequence[str]], marked: Sequence[int], pair: "PromptPair") -> str:
    """A table of two rows, a column a position."""
    from interp.apps.dashboard.look import chip, plain
    from interp.plots import visible

    ends = (chip(pair.answer), "" if pair.foil is None else chip(pair.foil))
    lines = []
    for name, tokens, end in zip(("clean", "corrupted"), rows, ends, strict=True):
        cells = "".join(
            f'<td{" class=marked" if place in marked else ""} title="position {place}">{visible(token)}</td>'
            for place, token in enumerate(tokens)
        )
        follows = f"<td class=follows>→ {end}</td>" if end else "<td></td>"
        lines.append(f"<tr><th scope=row>{plain(name)}</th>{cells}{follows}</tr>")
    return f'<div class="interp-pair"><table>{"".join(lines)}</table></div>'
