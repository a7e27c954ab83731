"""What commands on facts share: which facts are meant, and whether they or one prompt are asked about."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interp.apps.cli.options import name_of, refuse

if TYPE_CHECKING:
    from interp.facts import Fact

BUNDLED = "bundled"  # the word that means the facts that come along
FILES = """

A file (.json, .jsonl, .csv, .parquet) has the columns subject, relation, template, object and, if you like,
paraphrases, counterfactual and id. known_1000.json and counterfact.json of ROME are read as they are.
"""

Facts = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help=f"Facts in place of a prompt: a file, or {BUNDLED}. Those that the model does not know are left out.",
        show_default=False,
    ),
]
Relations = Annotated[
    list[str] | None,
    typer.Option("--relation", metavar="NAME", help="Only this relation; may be given again.", show_default=False),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", metavar="N", min=1, help="At most N of these facts, evenly spread, known or not.", show_default=False
    ),
]


def chosen_facts(file: Path | str | None, relations: list[str] | None, limit: int | None = None) -> "tuple[Fact, ...]":
    """Those of the file, or for None and "bundled" those that come along: of all relations or some, at most `limit`."""
    from interp.analyses.fact_data import bundled_facts
    from interp.fact_files import read_facts
    from interp.facts import of_relations, spread

    facts = bundled_facts() if file is None or str(file) == BUNDLED else read_facts(file)
    return spread(of_relations(facts, relations) if relations else facts, limit)


def about_facts(
    context: typer.Context,
    *,
    prompt_only: Sequence[str] = (),
    facts_only: Sequence[str] = (),
    others: Sequence[str] = (),
) -> bool:
    """Whether a command was asked about facts, in place of its prompt, or of `others`, which are further ways.

    Raises `UsageError` unless one of the ways was taken, for parameters that belong to the other one of prompt and
    facts, and for an empty prompt: what no model could answer.
    """
    from interp.apps.cli.session import check_text
    from interp.errors import UsageError

    argument = next(each for each in context.command.params if each.param_type_name == "argument")
    said = {str(argument.name): f"a {name_of(argument)}", "facts": f"--facts with a file or the word {BUNDLED}"}
    ways = [*said, *others]
    if sum(context.params[way] is not None for way in ways) != 1:
        told = [*said.values(), *(f"--{way}" for way in others)]
        raise UsageError(f"Give {', or '.join(told)}: one of the {'two' if len(ways) == 2 else 'three'}.")
    if context.params["facts"] is not None:
        refuse(context, said[str(argument.name)], *prompt_only)
        return True
    refuse(context, "--facts", "relation", "limit", *facts_only)
    if (text := context.params[str(argument.name)]) is not None:
        check_text(text)
    return False


def check_subject(subject: str | None) -> None:
    """Raises `UsageError` where a prompt came without its subject."""
    from interp.errors import UsageError

    if not subject:
        raise UsageError("Give --subject the words of the prompt that name what it is about.")
