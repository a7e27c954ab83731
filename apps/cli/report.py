"""`interp report`: a run as one page that opens anywhere, with its tables as CSV."""

from pathlib import Path
from typing import Annotated

import typer

from interp.apps.cli.options import Debug, Quiet

EPILOG = """\b
Examples:
  interp report runs/first
  interp report runs/first --out first-report

\b
The folder (DIR/report unless --out names another) holds afterwards:
  report.html           what was run, how it ended, what each job found, failures, provenance; needs no network
  JOB.csv               every row of every item of a job
  JOB.summary.csv       the table of the page: means over items
"""


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write it.", show_default="DIR/report")
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write a report of a run, finished or not: one self-contained page, and a CSV file for every table."""
    import interp
    from interp.apps.cli.output import staged, write_data, write_message
    from interp.apps.cli.progress import step
    from interp.apps.run_report import PAGE, write

    run = interp.open_run(folder)
    target = out or folder / "report"
    with staged(target) as stage, step("Writing the report", quiet):
        write(run, stage)
    write_data(str(target / PAGE))
    if not quiet:
        write_message(f"Report: {(target / PAGE).resolve().as_uri()}")
