"""The `interp` command: its groups, its version, and the one place where errors become exit codes.

Only typer is imported here and in the modules of the commands; torch, pandas, plotly and rich come in when a
command starts to work, so that `interp --help` answers at once.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

import interp
from interp.apps.cli import (
    attention,
    attribute,
    dashboard,
    demo,
    facts,
    generate,
    heads,
    induction,
    knockout,
    lens,
    memories,
    models,
    neurons,
    patch,
    plan,
    points,
    trace,
)
from interp.apps.cli.output import write_error
from interp.errors import InterpError, PointError

INTERRUPTED = 130

EPILOG = """\b
Examples:
  interp demo                                            a first result, with a report to open in a browser
  interp dashboard                                       pages to look inside a model without writing code
  interp lens "The Eiffel Tower is located in the city of" --answer " Paris"
  interp generate "Once upon a time" --max-new-tokens 40
  interp induction --top 5 --json
  interp heads --sort agreement
  interp attention "The Eiffel Tower is located in the city of" --head 23.4
  interp trace "The Eiffel Tower is located in the city of" --subject "The Eiffel Tower"
  interp attribute "The capital of France is" --answer " Paris" --foil " London"
  interp memories "The capital of France is" --top 5
  interp knockout --facts bundled --relation capital
  interp facts stats
  interp neurons "The capital of France is" --answer " Paris"
  interp patch --pairs ioi --site z
  interp points "blocks.0.attn.*"
  interp plan llama-3.1-8b --context 32768 --users 16 --on h200

\b
Data goes to stdout, progress and messages to stderr.

\b
Exit codes:
  0    done
  1    internal error (run again with --debug to see where)
  2    usage: an argument or an input cannot be used as given
  4    the model or the data could not be loaded
  130  interrupted (Ctrl-C); nothing half-written is left behind
  141  whoever read the output stopped reading (as in `interp points | head`)
"""

app = typer.Typer(
    name="interp",
    help="Run, read and edit a transformer in which every intermediate value has a name.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: rich alone would double the time that --help takes
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 110},
)
app.command("demo", epilog=demo.EPILOG, short_help="A first result from a real model, as a report.")(demo.demo)
app.command("dashboard", epilog=dashboard.EPILOG, short_help="Look inside a model in a browser.")(dashboard.dashboard)
app.command("generate", epilog=generate.EPILOG, short_help="A continuation of a text, as it is written.")(
    generate.generate
)
app.command("lens", epilog=lens.EPILOG, short_help="What each layer would say next.")(lens.lens)
app.command("induction", epilog=induction.EPILOG, short_help="Induction heads, and what they cause.")(
    induction.induction
)
app.command("heads", epilog=heads.EPILOG, short_help="What every attention head looks at.")(heads.heads)
app.command("attention", epilog=attention.EPILOG, short_help="Where heads look in a text, and what they do there.")(
    attention.attention
)
app.command("attribute", epilog=attribute.EPILOG, short_help="What every part wrote for an answer.")(
    attribute.attribute
)
app.command("memories", epilog=memories.EPILOG, short_help="The FFN's neurons, in words and in texts.")(
    memories.memories
)
app.command("trace", epilog=trace.EPILOG, short_help="Where restoring one state brings a fact back.")(trace.trace)
app.command("knockout", epilog=knockout.EPILOG, short_help="What a fact loses when its subject is not read.")(
    knockout.knockout
)
app.command("neurons", epilog=neurons.EPILOG, short_help="Which neurons carry a fact, and what it is without them.")(
    neurons.neurons
)
app.command("patch", epilog=patch.EPILOG, short_help="What one value of another run would change.")(patch.patch)
app.command("points", epilog=points.EPILOG, short_help="The hook points of a model.")(points.points)
app.command("plan", epilog=plan.EPILOG, short_help="What a model or an analysis will take, before it is loaded.")(
    plan.plan
)
app.add_typer(facts.app, name="facts", help="Facts, and which of them a model knows.")
app.add_typer(models.app, name="models", help="List, fetch and describe models.")


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"interp {interp.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error (or INTERP_DEBUG=1).")] = False,
) -> None:
    """Options that stand before the command; `main` reads --debug itself, wherever it stands."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; the console script and `python -m interp` exit with it."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a token that the terminal cannot write is no reason to stop
    debug = "--debug" in arguments or os.environ.get("INTERP_DEBUG", "0") not in ("", "0")
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return _interrupted()
    except InterpError as error:
        if debug:
            traceback.print_exc()
        write_error(f"{error}{_hint(error)}")
        return error.exit_code
    except Exception as error:  # noqa: BLE001  the last stop: whatever it is, the user gets a sentence and a code
        return _internal(error, debug)


def _run(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        command.main(args=arguments, prog_name="interp")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return _interrupted() if code == INTERRUPTED else code
    return 0


def _hint(error: InterpError) -> str:
    """What a message that speaks of Python leaves open on the command line."""
    return " On the command line, `interp points` lists them." if isinstance(error, PointError) else ""


def _interrupted() -> int:
    write_error("Interrupted.", label="")
    return INTERRUPTED


def _internal(error: Exception, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    first_line = (str(error).strip().splitlines() or ["no message"])[0]
    advice = "" if debug else " Run the same command with --debug (or INTERP_DEBUG=1) to see where."
    write_error(f"{type(error).__name__}: {first_line}\nThis is a fault in interp.{advice}", label="Internal error: ")
    return 1
