"""The options that all model commands share, declared once, and those of commands that run a study.

A command asks for them with one parameter, `common: Common`; `with_common` spells them out for typer. What is not
given on the command line comes from the environment, where the option names a variable.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

DEFAULT_MODEL = "smollm2-135m"

Prefix = Literal["doc", "none", "chat"]
Dtype = Literal["float32", "bfloat16", "float16", "float64"]
ProgressMode = Literal["auto", "json", "plain", "none"]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else, to stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no messages, errors only.")]
Debug = Annotated[bool, typer.Option("--debug", hidden=True)]

Occurrence = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Which one, from 0, if the prompt names the subject several times; -1 is the last.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Common:
    """What every model command can be told."""

    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="A known name, a folder, a .gguf file or a Hugging Face Hub id.",
            envvar="INTERP_MODEL",
        ),
    ] = DEFAULT_MODEL
    revision: Annotated[
        str | None,
        typer.Option(help="Branch, tag or commit of a Hub id, such as step1000 of Pythia.", show_default="main"),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda, cuda:1 or mps; without it, the best that is there.",
            show_default=False,
            envvar="INTERP_DEVICE",
        ),
    ] = None
    dtype: Annotated[
        Dtype | None,
        typer.Option(help="Number format of the weights.", show_default="float32", envvar="INTERP_DTYPE"),
    ] = None
    prefix: Annotated[
        Prefix,
        typer.Option(
            help="What stands before the text: the document separator, nothing, or the chat opening.",
            envvar="INTERP_PREFIX",
        ),
    ] = "doc"
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.", envvar="INTERP_SEED")] = 0
    as_json: AsJson = False
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the run: results, tables, figures, provenance.", show_default=False, envvar="INTERP_OUT"
        ),
    ] = None
    quiet: Quiet = False
    debug: Debug = False


@dataclass(frozen=True)
class RunOptions:
    """What every command that runs a study, or goes on with one, can be told."""

    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Processes that work at the same time.", show_default="1")
    ] = None
    max_failures: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Stop with code 6 when more items fail.", show_default="no limit"),
    ] = None
    allow_failures: Annotated[bool, typer.Option("--allow-failures", help="End with code 0 even if items failed.")] = (
        False
    )
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try the items that failed before once more.")
    ] = False
    progress: Annotated[
        ProgressMode,
        typer.Option(
            help="On stderr: bars on a terminal and lines elsewhere, lines, one JSON object a line, or nothing.",
            envvar="INTERP_PROGRESS",
        ),
    ] = "auto"
    as_json: AsJson = False
    quiet: Quiet = False
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="A line for every batch.")] = False
    debug: Debug = False


def with_common(*leave_out: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn `command(..., common: Common)` into a command with one option for every field of `Common`.

    Fields in `leave_out` get no option, for commands on which they would have no effect, and keep their default.
    """
    return with_options(Common, "common", *leave_out)


def with_options(kind: type, keyword: str, *leave_out: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn `command(..., keyword: kind)` into a command with one option for every field of a dataclass."""

    def spell_out(command: Callable[..., None]) -> Callable[..., None]:
        parameters = [*_own_parameters(command, keyword), *_shared_parameters(kind, leave_out)]
        shared = {field.name for field in fields(kind)}

        @functools.wraps(command)
        def spelled_out(**given: object) -> None:
            own = {name: value for name, value in given.items() if name not in shared}
            chosen = {name: value for name, value in given.items() if name in shared}
            command(**own, **{keyword: kind(**chosen)})

        spelled_out.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        spelled_out.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return spelled_out

    return spell_out


def refuse(context: typer.Context, of: str, *names: str) -> None:
    """Raise `UsageError` for the first of these parameters that was given, though it belongs to something else.

    `of` says to what: another way to call the command, on which alone they have an effect.
    """
    from interp.errors import UsageError

    for parameter in context.command.params:
        if parameter.name in names and was_typed(context, str(parameter.name)):
            raise UsageError(f"{name_of(parameter)} belongs to {of}; leave it out.")


def names_in(flag: str, text: str, known: Sequence[str], *, required: bool = True) -> list[str]:
    """The names that stand in a list, parted by commas, each of them once. Raises `UsageError` for others.

    An empty text is an empty list, unless a name is `required`.
    """
    from interp.errors import UsageError, nearest

    chosen = [name.strip() for name in text.split(",")] if text or required else []
    for place, name in enumerate(chosen):
        if name not in known:
            raise UsageError(f"{flag} names {name!r}; expected some of {','.join(known)}.{nearest(name, known)}")
        if name in chosen[:place]:
            raise UsageError(f"{flag} names {name!r} twice. Name each once.")
    return chosen


def was_typed(context: typer.Context, name: str) -> bool:
    """Whether this parameter stands in the command itself: what an environment sets for all commands is no request."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def name_of(parameter: Any) -> str:
    """What a user calls a parameter: --option, or ARGUMENT."""
    return str(parameter.opts[0] if parameter.param_type_name == "option" else parameter.name.upper())


def _own_parameters(command: Callable[..., None], keyword: str) -> list[inspect.Parameter]:
    hints = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters.values()
    own = [parameter for parameter in parameters if parameter.name != keyword]
    return [parameter.replace(annotation=hints[parameter.name], kind=parameter.KEYWORD_ONLY) for parameter in own]


def _shared_parameters(shared: type, leave_out: tuple[str, ...]) -> list[inspect.Parameter]:
    hints = get_type_hints(shared, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(field.name, kind, default=field.default, annotation=hints[field.name])
        for field in fields(shared)
        if field.name not in leave_out
    ]
