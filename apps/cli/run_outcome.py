"""How a run ended: counts, what each job found in a few lines, which items failed and why, where everything is."""

from typing import TYPE_CHECKING

from interp.apps.cli.options import RunOptions

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from interp.analyses.study import Outcome
    from interp.runs import Run

SHOWN = 5  # failed items that are named; --verbose and --json name all


def show_outcome(outcome: "Outcome", again: str, options: RunOptions) -> None:
    """Print it: as one JSON document with --json, else in words; advice goes to stderr."""
    import interp
    from interp.apps.cli.output import show, write_json, write_message

    run = interp.open_run(outcome.folder)
    if options.as_json:
        write_json(document(run, outcome))
        return
    show(*_parts(run, outcome, options.verbose))
    if options.quiet:
        return
    if outcome.failed:
        write_message(f"To try the failed items once more: {again} --retry-failed")
    write_message(f"Run: {outcome.folder}")


def document(run: "Run", outcome: "Outcome") -> dict[str, object]:
    """Counts, the lines of every job and all failures, as plain values."""
    return {
        "kind": "run",
        "folder": outcome.folder,
        "state": run.status().state,
        "total": outcome.total,
        "done": outcome.done,
        "failed": outcome.failed,
        "resumed": outcome.resumed,
        "summary": run.summary(),
        "errors": run.errors().to_dict(orient="records"),
    }


def _parts(run: "Run", outcome: "Outcome", everything: bool) -> "list[RenderableType]":
    from interp.apps.run_summary import summary_lines

    parts: list[RenderableType] = []
    for job, lines in summary_lines(run).items():
        parts += [job, *(f"  {line}" for line in lines), ""]
    parts.append(_counts(outcome))
    if outcome.failed:
        errors = run.errors()
        parts += failure_lines(errors, len(errors) if everything else SHOWN)
    return parts


def _counts(outcome: "Outcome") -> str:
    earlier = f", {outcome.resumed} of them earlier" if outcome.resumed else ""
    failed = f", {outcome.failed} failed" if outcome.failed else ""
    return f"{outcome.done} of {outcome.total} items done{earlier}{failed}."


def failure_lines(errors: "pd.DataFrame", shown: int) -> list[str]:
    """The first failed items, each with its cause, and how many more there are."""
    rows = errors.to_dict(orient="records")
    lines = [f"Failed {row['job']} · {row['item']}: {row['message']}" for row in rows[:shown]]
    more = len(rows) - shown
    return [*lines, *([f"… and {more} more; --verbose and --json name all"] if more > 0 else [])]
