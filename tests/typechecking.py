"""What jaxtyping's import hook puts around every function while the tests run: a check of the shapes it states.

Only annotations that name an array are checked. The rest is the type checker's business: beartype would stumble over
`Self` in a method that it sees without its class, and over protocols.
"""

from collections.abc import Callable
from typing import get_args

from beartype import beartype
from jaxtyping import AbstractArray


def names_an_array(hint: object) -> bool:
    """Whether `Float[Tensor, "…"]` or its like stands anywhere in the annotation."""
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(names_an_array(part) for part in get_args(hint))


def check(function: Callable[..., object]) -> Callable[..., object]:
    """The function, whose arrays are checked on the way in and out.

    jaxtyping hands over a function that it has made for the purpose, so taking annotations off it harms nobody.
    """
    function.__annotations__ = {name: hint for name, hint in function.__annotations__.items() if names_an_array(hint)}
    return beartype(function)
