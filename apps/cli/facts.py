"""`interp facts`: which facts there are, who can stand in for whom, and which of them a model knows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interp.apps.cli.fact_options import FILES, Limit, Relations, check_subject, chosen_facts
from interp.apps.cli.facts_show import SHOW_EPILOG, show_facts
from interp.apps.cli.options import Common, Occurrence, refuse, with_common

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
  interp facts filter "The capital of France is" --subject France --object Paris
  interp facts filter --facts my-facts.jsonl --json
  interp facts filter --out results
"""
STATS_EPILOG = """\b
Examples:
  interp facts stats
  interp facts stats --model gemma3-270m --out results
"""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

File = Annotated[
    Path | None, typer.Option("--facts", metavar="FILE", help="A file of facts.", show_default="those that come along")
]
app.command("show", epilog=SHOW_EPILOG + FILES, short_help="Their sentences and partners.")(show_facts)


@app.command("list", epilog=LIST_EPILOG + FILES, short_help="Facts, without asking a model.")
def list_facts(
    file: File = None,
    relation: Relations = None,
    limit: Limit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else.")] = False,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,
) -> None:
    """List facts: subject, sentence and object. No model is loaded."""
    from dataclasses import asdict

    from interp.apps.cli.output import show, table, write_json

    facts = chosen_facts(file, relation, limit)
    if as_json:
        write_json({"facts": [asdict(fact) for fact in facts]})
        return
    rows = [(fact.relation, fact.prompt, fact.object) for fact in facts]
    show(table(["relation", "prompt", "object"], rows))


@app.command("filter", epilog=FILTER_EPILOG + FILES, short_help="Does the model know them? Fact by fact.")
@with_common("seed")
def filter_known(
    context: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(metavar="[PROMPT]", help="One fact without its object.", show_default=False)
    ] = None,
    subject: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What it is about, as PROMPT names it.", show_default=False)
    ] = None,
    occurrence: Occurrence = None,
    object_: Annotated[
        str | None,
        typer.Option(
            "--object", metavar="TEXT", help="What should follow PROMPT; a space is added.", show_default=False
        ),
    ] = None,
    file: File = None,
    relation: Relations = None,
    limit: Limit = None,
    *,
    common: Common,
) -> None:
    """Ask the model for each fact: is the most likely next token the first of the object?

    Of PROMPT, or of all facts of a file. Shown are what the model says, and probability and rank of the fact's own
    answer.
    """
    from interp.apps.cli.output import show_token, table
    from interp.apps.cli.session import deliver

    if prompt is None:
        refuse(context, "a PROMPT", "subject", "occurrence", "object_")
        facts = chosen_facts(file, relation, limit)
    else:
        refuse(context, "facts of a file, in place of a PROMPT", "file", "relation", "limit")
        facts = (_fact(prompt, subject, occurrence, object_),)
    result = _filtered(facts, common)
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
def stats(file: File = None, relation: Relations = None, limit: Limit = None, *, common: Common) -> None:
    """Count the facts that the model knows, relation by relation, with 95 % intervals."""
    from interp.apps.cli.output import table
    from interp.apps.cli.session import deliver

    result = _filtered(chosen_facts(file, relation, limit), common)
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


def _fact(prompt: str, subject: str | None, occurrence: int | None, named: str | None) -> "Fact":
    """The fact that a prompt is. Raises `UsageError` for a subject that it does not name, and without an object."""
    from interp.apps.cli.session import check_text
    from interp.errors import UsageError
    from interp.facts import SLOT, Fact
    from interp.prompts import replaced

    check_text(prompt)
    check_subject(subject)
    if named is None or not named.strip():
        raise UsageError("Give --object what should follow the prompt, such as Paris.")
    template = replaced(prompt, str(subject), SLOT, occurrence=occurrence)
    return Fact(str(subject), "prompt", template, named.strip(), id="prompt")


def _filtered(facts: "tuple[Fact, ...]", common: Common) -> "KnownFacts":
    from interp.apps.cli.session import load_model, working

    model = load_model(common)
    from interp.analyses.fact_filter import filter_facts

    with working("Asking the model", common) as progress:
        return filter_facts(model, facts, prefix=common.prefix, progress=progress)


def _notes(result: "KnownFacts") -> "list[RenderableType]":
    """The total, what was skipped or measured in part, and the caution."""
    from interp.analyses.left_out import first_token_lines

    skipped = [f"Skipped {name}: {reason}" for name, reason in result.skipped.items()]
    total = f"\n{result.summary()[0]}"
    return [total, *map(str.strip, first_token_lines(result)), *skipped, f"\n{result.caution}"]
