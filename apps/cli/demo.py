"""`interp demo`: a first real result, in the terminal and as a report."""

from pathlib import Path

from interp.apps.cli.options import Common, with_common

DEFAULT_FOLDER = Path("interp-demo")

EPILOG = """\b
Examples:
  interp demo
  interp demo --out results/first --prefix none
  interp demo --model path/to/model.gguf --json

\b
--out defaults to ./interp-demo. It holds afterwards:
  report.html     one page with everything in it; opens from disk, needs no network
  tables/         a Parquet file for every table of the page
  results/        what the analyses returned (interp.results.Result.load)
  summary.json    the numbers of the page in one document
"""


@with_common()
def demo(*, common: Common) -> None:
    """Put four questions to a real model and write a report about the answers.

    Where does " Paris" appear in "The Eiffel Tower is located in the city of"? Who gets the drink, Mary or John? Which
    attention heads repeat what they have seen, and what happens without them? If the subject is hidden, which restored
    state brings " Paris" back?
    """
    from interp.apps.cli.output import show, staged, write_json, write_message
    from interp.apps.cli.session import load_model, working
    from interp.apps.demo.files import PAGE, write
    from interp.apps.demo.questions import ask
    from interp.apps.demo.summary import document, parts
    from interp.apps.demo.tables import frames

    folder = common.out or DEFAULT_FOLDER
    with staged(folder) as stage:
        model = load_model(common)
        findings = ask(model, prefix=common.prefix, seed=common.seed, working=lambda label: working(label, common))
        with working("Writing the report", common):
            tables = frames(findings)
            write(findings, tables, stage)
    if common.as_json:
        write_json({**document(findings, tables), "saved": folder})
    else:
        show(*parts(findings, tables))
    if not common.quiet:
        write_message(f"Report: {(folder / PAGE).resolve().as_uri()}")
