"""A check of the shapes that a function states, put around every function of `interp` while the tests run.

Only annotations that name an array are checked. The rest is the type checker's business: beartype would stumble over
`Self` in a method that it sees without its class, and over protocols. A function that names no array stays as it is.
jaxtyping has an import hook of its own, which wraps all functions, binds the arguments of each call and checks them
twice: sweeps of tiny models take nearly twice as long under it.
"""

import ast
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import TypeVar, get_args, get_type_hints

import jaxtyping
import numpy as np
from beartype import BeartypeConf, beartype
from beartype.door import is_bearable
from torch import Tensor

Made = TypeVar("Made", bound=Callable[..., object])

CONFIG = BeartypeConf(violation_type=jaxtyping.TypeCheckError)


def install() -> None:
    """From now on, modules of `interp` are imported with checks."""
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds what Python would find, and has it loaded with checks."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname.split(".")[0] == "interp" else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Always compiles: compiled modules on the disk are those without checks."""

    def get_code(self, fullname: str) -> CodeType:
        module = _Decorated().visit(ast.parse(self.get_data(self.path), self.path))
        return compile(module, self.path, "exec", dont_inherit=True)


class _Decorated(ast.NodeTransformer):
    """Puts `check` next to every function, and outside every class, whose other decorators make its `__init__`."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list.append(self.decorator(node))
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list.insert(0, self.decorator(node))
        return self.generic_visit(node)

    def decorator(self, node: ast.stmt) -> ast.expr:
        expression = ast.parse(f"__import__({__name__!r}).check", mode="eval").body
        for part in ast.walk(expression):
            ast.copy_location(part, node)
        return expression


def check(made: Made) -> Made:
    """The function, whose arrays are checked on the way in and out; or the class, checked where a dataclass is made."""
    if isinstance(made, type):
        if is_dataclass(made) and "__init__" in vars(made):
            made.__init__ = check(made.__init__)
        return made
    hints = arrays(made)
    return guarded(made, hints) if hints else made


def arrays(function: Callable[..., object]) -> dict[str, object]:
    """The annotations of a function that name an array."""
    hints = {name: read(hint, function.__globals__) for name, hint in function.__annotations__.items()}
    return {name: hint for name, hint in hints.items() if names_an_array(hint)}


def read(hint: object, names: dict[str, object]) -> object:
    """What an annotation in quotes stands for; itself where it names what is imported for the type checker only."""
    if not isinstance(hint, str):
        return hint
    try:
        return get_type_hints(SimpleNamespace(__annotations__={"it": hint}), names)["it"]
    except NameError:
        return hint


def names_an_array(hint: object) -> bool:
    """Whether `Float[Tensor, "…"]` or its like stands anywhere in the annotation."""
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(names_an_array(part) for part in get_args(hint))


def guarded(function: Callable[..., object], hints: dict[str, object]) -> Callable[..., object]:
    """The function behind a check of these hints, in which an axis has one size within one call."""
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__qualname__, copy.__kwdefaults__, copy.__annotations__ = function.__qualname__, function.__kwdefaults__, hints
    arguments = _arguments(function, hints)
    if inspect.isgeneratorfunction(function) or arguments is None:  # beartype alone would look at the first value asked
        return wraps(function)(jaxtyping.jaxtyped(copy, typechecker=beartype))
    checked, fine = beartype(copy, conf=CONFIG), set()  # what was found to be fine is not checked again

    @wraps(function)
    def guard(*args: object, **kwargs: object) -> object:
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        given = [args[place] if place < len(args) else kwargs.get(name, default) for name, place, default in arguments]
        seen = look(given)
        if known := seen in fine:
            result = function(*args, **kwargs)
        else:
            with jaxtyping.jaxtyped("context"):
                result = checked(*args, **kwargs)
        found = (seen, look(result))
        if found not in fine:
            if known and not _suits(result, given, [name for name, *_ in arguments], hints):
                raise jaxtyping.TypeCheckError(f"{function.__qualname__}() return {result!r} is no {hints['return']}")
            fine.update(() if None in found else (seen, found))
        return result

    return guard


def _suits(result: object, given: Sequence[object], names: Sequence[str], hints: dict[str, object]) -> bool:
    """Whether a result suits its hint beside arguments that suit theirs."""
    with jaxtyping.jaxtyped("context"):
        for name, value in zip(names, given, strict=True):
            is_bearable(value, hints[name])  # now its axes have their sizes
        return is_bearable(result, hints.get("return", object))


def _arguments(function: Callable[..., object], hints: dict[str, object]) -> list[tuple[str, float, object]] | None:
    """(name, place, default) of every parameter with a hint; without a place where it is given by name alone.

    None where one parameter takes many arguments.
    """
    found = []
    for place, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.name in hints:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                return None
            named = parameter.kind is parameter.KEYWORD_ONLY
            found.append((parameter.name, math.inf if named else place, parameter.default))
    return found


def look(value: object) -> object:
    """All that a check can see of arrays: where it is the same, so is the verdict. None where there is more to see."""
    if isinstance(value, Tensor | np.ndarray):
        return type(value), value.dtype, value.shape
    if isinstance(value, tuple | list):
        looks = tuple(map(look, value))
        return None if None in looks else (type(value), looks)
    return type(value) if value is None or isinstance(value, bool | int | float | str) else None
