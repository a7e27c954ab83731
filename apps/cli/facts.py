"""`interp facts`: which facts there are, and which of them a model knows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interp.apps.cli.options import Common, with_common

if TYPE_CHECKING:
    from rich.console import RenderableType

    from interp.analyses.fact_filter import KnownFacts
    from interp.facts import Fact

LIST_EPILOG = """\b
Examples:
  interp facts list
  interp facts list --relation capital --relation currency --json
  interp facts list --facts known_1000.json
"""
FILTER_EPILOG = """\b
Examples:
  interp facts filter --relation capital
  interp facts filter --facts my-facts.jsonl --json
  interp facts filter --out results
"""
STATS_EPILOG = """\b
Examples:
  interp facts stats
  interp facts stats --model gemma3-270m --out results
"""
FILES = """

A file (.json, .jsonl, .csv, .parquet) has the columns subject, relation, template, object and, if you like,
paraphrases, counterfactual and id. known_1000.json and counterfact.json of ROME are read as they are.
"""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

File = Annotated[
    Path | None, typer.Option("--facts", metavar="FILE", help="A file of facts.", show_default="those that come along")
]
Relations = Annotated[
    list[str] | None,
    typer.Option("--relation", metavar="NAME", help="Only this relation; may be given again.", show_default=False),
]


@app.command("list", epilog=LIST_EPILOG + FILES, short_help="Facts, without asking a model.")
def list_facts(
    file: File = None,
    relation: Relations = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else.")] = False,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,
) -> None:
    """List facts: subject, sentence and object. No model is loaded."""
    from dataclasses import asdict

    from interp.apps.cli.output import show, table, write_json

    facts = facts_of(file, relation)
    if as_json:
        write_json({"facts": [asdict(fact) for fact in facts]})
        return
    rows = [(fact.relation, fact.prompt, fact.object) for fact in facts]
    show(table(["relation", "prompt", "object"], rows))


@app.command("filter", epilog=FILTER_EPILOG + FILES, short_help="Does the model know them? Fact by fact.")
@with_common("seed")
def filter_known(file: File = None, relation: Relations = None, *, common: Common) -> None:
    """Ask the model for each fact: is the most likely next token the first of the object?

    Shown are what the model says, and probability and rank of the fact's own answer.
    """
    from interp.apps.cli.output import show_token, table
    from interp.apps.cli.session import deliver

    result = _filtered(file, relation, common)
    frame = result.to_frame()
    rows = [
        (
            "yes" if row["known"] else "no",
            row["prompt"],
            row["object"],
            show_token(row["said"]),
            f"{row['probability']:.3f}",
            str(row["rank"]),
            str(row["subject_tokens"]),
            str(row["answer_tokens"]),
        )
        for row in frame.to_dict(orient="records")
    ]
    columns = ["known", "prompt", "object", "model says", "p(answer)>", "rank>", "subject tokens>", "answer tokens>"]
    deliver(result, frame, [table(columns, rows), *_notes(result)], common, "facts")


@app.command("stats", epilog=STATS_EPILOG + FILES, short_help="How many of them does the model know? By relation.")
@with_common("seed")
def stats(file: File = None, relation: Relations = None, *, common: Common) -> None:
    """Count the facts that the model knows, relation by relation, with 95 % intervals."""
    from interp.apps.cli.output import table
    from interp.apps.cli.session import deliver

    result = _filtered(file, relation, common)
    frame = result.to_frame(("relation",))
    rows = [
        (row["relation"], str(row["count"]), str(row["known_count"]), *_shares(row))
        for row in frame.to_dict(orient="records")
    ]
    columns = ["relation", "facts>", "known>", "share>", "95 % interval>", "mean p(answer)>", "subject tokens>"]
    deliver(result, frame, [table([*columns, "answer tokens>"], rows), *_notes(result)], common, "facts")


def _shares(row: dict[str, Any]) -> tuple[str, ...]:
    """What is known of a relation of which at least one fact was measured."""
    if not row["count"]:
        return ("–",) * 5
    return (
        f"{row['known_share']:.0%}",
        f"{row['share_low']:.0%} to {row['share_high']:.0%}",
        f"{row['mean_probability']:.2f}",
        f"{row['mean_subject_tokens']:.1f}",
        f"{row['mean_answer_tokens']:.1f}",
    )


def facts_of(file: Path | None, relations: list[str] | None) -> "tuple[Fact, ...]":
    """Those of the file, or those that come along; all relations, or the ones named."""
    from interp.analyses.fact_data import bundled_facts
    from interp.fact_files import read_facts
    from interp.facts import of_relations

    facts = bundled_facts() if file is None else read_facts(file)
    return of_relations(facts, relations) if relations else facts


def _filtered(file: Path | None, relations: list[str] | None, common: Common) -> "KnownFacts":
    from interp.apps.cli.session import load_model, working

    facts = facts_of(file, relations)  # answers before torch is imported
    model = load_model(common)
    from interp.analyses.fact_filter import filter_facts

    with working("Asking the model", common) as progress:
        return filter_facts(model, facts, prefix=common.prefix, progress=progress)


def _notes(result: "KnownFacts") -> "list[RenderableType]":
    """The total, what was skipped, and the caution."""
    skipped = [f"Skipped {name}: {reason}" for name, reason in result.skipped.items()]
    return [f"\n{result.summary()[0]}", *skipped, f"\n{result.caution}"]
