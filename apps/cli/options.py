"""The options that all model commands share, declared once.

A command asks for them with one parameter, `common: Common`; `with_common` spells them out for typer.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

DEFAULT_MODEL = "smollm2-135m"

Prefix = Literal["doc", "none", "chat"]
Dtype = Literal["float32", "bfloat16", "float16", "float64"]

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
        str, typer.Option("--model", "-m", help="A known name, a folder, a .gguf file or a Hugging Face Hub id.")
    ] = DEFAULT_MODEL
    revision: Annotated[
        str | None,
        typer.Option(help="Branch, tag or commit of a Hub id, such as step1000 of Pythia.", show_default="main"),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(help="cpu, cuda, cuda:1 or mps; without it, the best that is there.", show_default=False),
    ] = None
    dtype: Annotated[Dtype | None, typer.Option(help="Number format of the weights.", show_default="float32")] = None
    prefix: Annotated[
        Prefix, typer.Option(help="What stands before the text: the document separator, nothing, or the chat opening.")
    ] = "doc"
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else, to stdout.")] = (
        False
    )
    out: Annotated[
        Path | None, typer.Option(help="Folder to save the result and its figure in.", show_default=False)
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no messages, errors only.")] = False
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False


def with_common(*leave_out: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn `command(..., common: Common)` into a command with one option for every field of `Common`.

    Fields in `leave_out` get no option, for commands on which they would have no effect, and keep their default.
    """

    def spell_out(command: Callable[..., None]) -> Callable[..., None]:
        parameters = [*_own_parameters(command), *_shared_parameters(leave_out)]
        shared = {field.name for field in fields(Common)}

        @functools.wraps(command)
        def spelled_out(**given: object) -> None:
            own = {name: value for name, value in given.items() if name not in shared}
            chosen = {name: value for name, value in given.items() if name in shared}
            command(**own, common=Common(**chosen))  # type: ignore[arg-type]

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
        source = context.get_parameter_source(str(parameter.name))
        if parameter.name in names and source is not None and source.name != "DEFAULT":
            raise UsageError(f"{name_of(parameter)} belongs to {of}; leave it out.")


def name_of(parameter: Any) -> str:
    """What a user calls a parameter: --option, or ARGUMENT."""
    return str(parameter.opts[0] if parameter.param_type_name == "option" else parameter.name.upper())


def _own_parameters(command: Callable[..., None]) -> list[inspect.Parameter]:
    hints = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters.values()
    own = [parameter for parameter in parameters if parameter.name != "common"]
    return [parameter.replace(annotation=hints[parameter.name], kind=parameter.KEYWORD_ONLY) for parameter in own]


def _shared_parameters(leave_out: tuple[str, ...]) -> list[inspect.Parameter]:
    hints = get_type_hints(Common, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(field.name, kind, default=field.default, annotation=hints[field.name])
        for field in fields(Common)
        if field.name not in leave_out
    ]
