"""`interp facts show`: facts with their sentences, and which other subject can take each one's place."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interp.apps.cli.fact_options import Limit, Relations, chosen_facts
from interp.apps.cli.options import Common, with_common

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.fact_partners import Partners
    from interp.facts import Fact
    from interp.models.tokenizer import Tokenizer

SHOW_EPILOG = """\b
Examples:
  interp facts show capital/France
  interp facts show --relation capital
  interp facts show --facts my-facts.jsonl --seed 1 --json
"""


@with_common("device", "dtype", "out")
def show_facts(
    name: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="One fact, by its id.", show_default="all of them")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--facts", metavar="FILE", help="A file of facts.", show_default="those that come along"),
    ] = None,
    relation: Relations = None,
    limit: Limit = None,
    *,
    common: Common,
) -> None:
    """Show facts: their sentences, paraphrases and objects, and the partner of each.

    A partner is another subject of the relation that takes the fact's place token for token, with another object: what
    `interp trace --corruption replace` hides a subject by. It depends on the tokenizer of --model, whose weights are
    not read, and is drawn by --seed.
    """
    from interp.apps.cli.output import show, write_json
    from interp.apps.cli.session import MOST, tokenizer_of
    from interp.fact_partners import partners
    from interp.facts import spread

    facts = chosen_facts(file, relation)
    chosen = spread(facts, limit) if name is None else (_named(facts, name),)
    tokenizer = tokenizer_of(common)
    relations = {fact.relation for fact in chosen}
    alike = [fact for fact in facts if fact.relation in relations]  # a partner has the same
    found = partners(tokenizer, alike, seed=common.seed, prefix=common.prefix)
    without = {fact.id: found.without[fact.id] for fact in chosen if fact.id in found.without}
    if common.as_json:
        told = [_told(tokenizer, fact, found) for fact in chosen]
        settings = {"model": common.model, "prefix": common.prefix, "seed": common.seed}
        write_json({"settings": settings, "facts": told, "without_partner": without})
        return
    lines = [f"No partner for {each}: {reason}" for each, reason in list(without.items())[:MOST]]
    more = [f"… and {len(without) - MOST} more; --json names all"] if len(without) > MOST else []
    total = f"{len(chosen)} fact{'s' * (len(chosen) > 1)}, {len(without)} of them without a partner"
    show(*_drawn(tokenizer, chosen, found), total, *lines, *more)


def _named(facts: "tuple[Fact, ...]", name: str) -> "Fact":
    """The fact of an id. Raises `UsageError` with the nearest ids where there is none."""
    from interp.errors import UsageError, nearest

    for fact in facts:
        if fact.id == name:
            return fact
    raise UsageError(f"No fact has the id {name!r}.{nearest(name, (fact.id for fact in facts))} Ids: relation/subject.")


def _told(tokenizer: "Tokenizer", fact: "Fact", found: "Partners") -> dict[str, object]:
    """A fact as a record: what its file says, its partner, and how many tokens its answer has."""
    partner = _partner(found, fact)
    return {
        **asdict(fact),
        "prompt": fact.prompt,
        "answer_tokens": _answer_tokens(tokenizer, fact),
        "partner": None if partner is None else partner.subject,
        "partner_object": None if partner is None else partner.object,
    }


def _drawn(tokenizer: "Tokenizer", facts: "tuple[Fact, ...]", found: "Partners") -> "list[RenderableType]":
    """Facts that share their sentences together: the sentences, then a row for each subject."""
    from interp.apps.cli.output import table

    alike: dict[tuple[str, str, tuple[str, ...]], list[Fact]] = {}
    for fact in facts:
        alike.setdefault((fact.relation, fact.template, fact.paraphrases), []).append(fact)
    parts: list[RenderableType] = []
    for (relation, template, paraphrases), group in alike.items():
        rows = [_row(tokenizer, fact, found) for fact in group]
        columns = ["subject", "object", "answer tokens>", "partner", "its object"]
        parts += [f"{relation}: {template}", *(f"  or: {each}" for each in paraphrases), "", table(columns, rows), ""]
    return parts


def _row(tokenizer: "Tokenizer", fact: "Fact", found: "Partners") -> tuple[str, ...]:
    partner, count = _partner(found, fact), _answer_tokens(tokenizer, fact)
    other = ("–", "–") if partner is None else (partner.subject, partner.object)
    return (fact.subject, fact.object, "–" if count is None else str(count), *other)


def _partner(found: "Partners", fact: "Fact") -> "Fact | None":
    return next((partner for each, partner in found.pairs if each.id == fact.id), None)


def _answer_tokens(tokenizer: "Tokenizer", fact: "Fact") -> int | None:
    """How many tokens the object has behind the prompt; None where it begins inside one."""
    from interp.errors import UsageError
    from interp.facts import answer_ids

    try:
        return len(answer_ids(tokenizer, fact.prompt, fact.answer))
    except UsageError:
        return None
