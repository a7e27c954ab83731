"""Typed reading of a published configuration, which remembers what was read so that the rest can be refused."""

import fnmatch
from collections.abc import Iterable, Mapping
from typing import Any

from interp.errors import LoadError

_LARGEST = 3.4028234663852886e38
"""The largest number of float32. JSON's numbers have no bound."""


class Fields:
    """A published configuration. A field that is absent or null takes the default; without one it is an error."""

    def __init__(self, stated: Mapping[str, object], source: str) -> None:
        self._stated = {key: value for key, value in stated.items() if value is not None}
        self._unread = set(self._stated)
        self._null = {key for key, value in stated.items() if value is None}
        self.source = source

    def __contains__(self, key: str) -> bool:
        return key in self._stated

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number of at most 64 bits, so that sizes reckoned with it stay numbers."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
            raise self._wrong(key, value, "a whole number of at most 64 bits")
        return value

    def nullable(self, key: str, default: int | None) -> int | None:
        """A whole number, or None where null is stated: for the fields in which that is another answer than silence."""
        if key in self._null or (key not in self and default is None):
            return None
        return self.integer(key, default)

    def nullable_number(self, key: str, default: float | None) -> float | None:
        """A finite number, or None where null is stated."""
        if key in self._null or (key not in self and default is None):
            return None
        return self.number(key, default)

    def number(self, key: str, default: float | None = None) -> float:
        """A number that is finite in float32, in which it will be used."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
            raise self._wrong(key, value, "a finite number")
        return float(value)

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def word(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._take(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a string")
        return value

    def table(self, key: str) -> dict[str, object]:
        """A nested object; empty if absent."""
        value = self._take(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, value, "an object")
        return value

    def numbers(self, key: str) -> list[float]:
        """A list of finite numbers."""
        value = self._take(key, None)
        if not isinstance(value, list | tuple):
            raise self._wrong(key, value, "a list of numbers")
        return [Fields({key: each}, self.source).number(key) for each in value]

    def words(self, key: str, default: list[str] | None = None) -> list[str]:
        """A list of strings."""
        value = self._take(key, default)
        if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
            raise self._wrong(key, value, "a list of strings")
        return list(value)

    def listed(self, key: str, default: list[Any]) -> list[Any]:
        """A list of anything."""
        value = self._take(key, default)
        if not isinstance(value, list | tuple):
            raise self._wrong(key, value, "a list")
        return list(value)

    def same_in_all_layers(self, key: str, n_layers: int, default: int | None = None) -> int:
        """A whole number that may be stated once, or as a list with one entry a layer, all of them equal."""
        value = self._take(key, default)
        if isinstance(value, list) and len(value) == n_layers and all(each == value[0] for each in value):
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
            raise self._wrong(key, value, f"a whole number, or the same one for each of {n_layers} layers")
        return value

    def must_be(self, key: str, value: object) -> None:
        """Refuse a field that is stated and differs from the only value supported here."""
        stated = self._take(key, value)
        if stated != value:
            raise LoadError(f"{self.source}: {key} is {_short(stated)}; only {value!r} is supported here.")

    def refuse_others(self, harmless: Iterable[str]) -> None:
        """Refuse every field that nobody read and that is not known to leave the computation alone (shell patterns)."""
        patterns = list(harmless)
        others = sorted(key for key in self._unread if not any(fnmatch.fnmatchcase(key, p) for p in patterns))
        if others:
            shown = ", ".join(f"{key} = {_short(self._stated[key])}" for key in others)
            raise LoadError(
                f"{self.source} has fields that are not known here and might change what the model computes: {shown}. "
                "If they do not matter, remove them from a copy of the configuration."
            )

    def _take(self, key: str, default: object) -> object:
        self._unread.discard(key)
        if key in self._stated:
            return self._stated[key]
        if default is None:
            raise LoadError(f"{self.source} does not state {key}, which the model needs.")
        return default

    def _wrong(self, key: str, value: object, expected: str) -> LoadError:
        return LoadError(f"{self.source}: {key} is {_short(value)}; it must be {expected}.")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
