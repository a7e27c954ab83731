"""`interp run`, `interp validate` and `interp resume`: studies, from the file to a run that is finished."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interp.apps.cli.options import AsJson, Debug, Quiet, RunOptions, refuse, with_options

if TYPE_CHECKING:
    from interp.analyses.study import Outcome, Study

RUN_EPILOG = """\b
Examples:
  interp run study.toml --out runs/first
  interp run study.toml --dry-run                        what would be done, and what it costs
  interp run induction --set run.batch_size=8 --limit 20
  interp run study.toml --shard 2/3 --out runs/part-2    then `interp merge`

\b
The same command again goes on where the run stopped, and does nothing where it is finished; `interp resume` does so
from the folder alone. Ready studies, by name: {ready}.
"""
VALIDATE_EPILOG = """\b
Examples:
  interp validate study.toml
  interp validate induction --json
"""
RESUME_EPILOG = """\b
Examples:
  interp resume runs/first
  interp resume runs/first --retry-failed
"""

READY = ("head-atlas", "induction", "induction-families", "ioi-patching", "recall")  # held against the files by a test
FAILED_ITEMS = 3
SHOWN = 5  # failed items that are named at the end; --verbose names all

StudyArgument = Annotated[
    str, typer.Argument(metavar="STUDY", help="A .toml file, or the name of a ready study.", show_default=False)
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one key of the study; repeatable.", show_default=False),
]
Limit = Annotated[int | None, typer.Option(metavar="N", min=1, help="Only the first N items of every job.")]
ShardOption = Annotated[
    str | None, typer.Option(metavar="I/N", help="Only this part of the batches: 1/3, 2/3 or 3/3.", show_default=False)
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.", show_default=False)]

RUN_EPILOG = RUN_EPILOG.format(ready=", ".join(READY))


@with_options(RunOptions, "options")
def run(
    context: typer.Context,
    study: StudyArgument,
    changes: Changes = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan, say what it costs, and write nothing.")] = False,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="ACCELERATOR", help="With --dry-run: seconds on this one.", show_default="this machine, timed"
        ),
    ] = None,
    limit: Limit = None,
    shard: ShardOption = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder of the run.", show_default="the study's, or runs/NAME"),
    ] = None,
    *,
    options: RunOptions,
) -> None:
    """Run a study: models × analyses × data, item by item, into a folder that survives being killed.

    What is planned is written first, every batch as soon as it is there. Whatever ends the run, the same command
    finishes it, with the same packing and the same result.
    """
    part = _shard(shard)
    if not dry_run:
        refuse(context, "--dry-run", "on")
    read = _read(study, changes)
    folder = out or _folder(read)
    if dry_run:
        from interp.analyses.study import plan_study
        from interp.apps.cli.run_cost import show_plan

        plan = plan_study(read, limit=limit, shard=part)
        show_plan(plan, folder, on, as_json=options.as_json, quiet=options.quiet)
        return
    from interp.analyses.study import run_study

    again = f"interp resume {shlex.quote(str(folder))}"
    _carry_out(
        lambda **how: run_study(read, folder, limit=limit, shard=part, **how), f"Running {read.name}", again, options
    )


@with_options(RunOptions, "options")
def resume(folder: Folder, *, options: RunOptions) -> None:
    """Go on with a run from its folder alone: the study, its packing and its shard stand in there.

    Refused, with the difference shown, where a model, the data or the code are no longer what they were.
    """
    from interp.analyses.study import resume_study

    again = f"interp resume {shlex.quote(str(folder))}"
    _carry_out(lambda **how: resume_study(folder, **how), f"Resuming {folder}", again, options)


def validate(
    study: StudyArgument,
    changes: Changes = None,
    limit: Limit = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Check all of a study that can be known without running a model: keys, data, spans, lengths, layers, cost.

    Ends with 2 if something is wrong. No weights are read and nothing is written.
    """
    read = _read(study, changes)
    from interp.apps.cli.run_cost import show_validation

    if not show_validation(read, limit, as_json=as_json, quiet=quiet):
        raise typer.Exit(2)


def _read(study: str, changes: list[str] | None) -> "Study":
    from interp.analyses.study import load_study

    return load_study(study, changes or (), os.environ)


def _folder(study: "Study") -> Path:
    return Path(study.outputs.folder or Path("runs") / study.name)


def _shard(text: str | None) -> tuple[int, int] | None:
    """`2/3` as numbers."""
    from interp.errors import UsageError

    if text is None:
        return None
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise UsageError(f"--shard is {text!r}; expected I/N with I from 1 to N, such as 1/3, 2/3 and 3/3.")
    return int(part), int(parts)


def _carry_out(work: "Callable[..., Outcome]", label: str, again: str, options: RunOptions) -> None:
    """Run it with progress, show how it ended, and end with its code; whatever stops it, say how to go on."""
    from interp.apps.cli.output import write_message
    from interp.apps.cli.run_outcome import show_outcome
    from interp.apps.cli.run_progress import reporting
    from interp.errors import FailuresError

    try:
        with reporting(label, options) as progress:
            outcome = work(progress=progress, **_how(options))
    except (KeyboardInterrupt, FailuresError):
        if not options.quiet:
            write_message(f"What is finished is kept. To go on: {again}")
        raise
    show_outcome(outcome, again, options)
    if outcome.failed and not options.allow_failures:
        raise typer.Exit(FAILED_ITEMS)


def _how(options: RunOptions) -> dict[str, Any]:
    """What the study is told only where it was said on the command line."""
    given = {"workers": options.workers, "max_failures": options.max_failures}
    return {"retry_failed": options.retry_failed} | {name: one for name, one in given.items() if one is not None}
