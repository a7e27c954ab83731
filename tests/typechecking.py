"""The type checker that jaxtyping's import hook puts around every annotated function while the tests run."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # as type checkers do: an int is a fine float
