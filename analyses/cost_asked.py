"""What a cost is asked for: the items by their lengths, and the settings of an analysis, read with their defaults."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from interp.analyses.cost_parts import Work
from interp.errors import UsageError
from interp.models.config import ModelConfig


@dataclass(frozen=True)
class Item:
    """One text, or one pair of texts."""

    length: int
    changed: tuple[int, ...]
    """The positions whose tokens differ between its two runs."""

    @property
    def first(self) -> int:
        """The first position that differs."""
        return self.changed[0]


@dataclass(frozen=True)
class Asked:
    """The items and the settings. `UsageError` for what no item or setting can be."""

    config: ModelConfig
    lengths: tuple[int, ...]
    settings: Mapping[str, object]

    def __post_init__(self) -> None:
        for length in self.lengths:
            if type(length) is not int or not 1 <= length <= self.config.n_ctx:
                raise UsageError(
                    f"A length is {length!r}; expected whole numbers of tokens from 1 to the model's context of "
                    f"{self.config.n_ctx:,}."
                )

    @property
    def items(self) -> list[Item]:
        """The items, each with where its two runs differ."""
        given = self.settings.get("changed")
        each = isinstance(given, Sequence) and len(given) > 0 and isinstance(given[0], Sequence)
        if each and len(given) != len(self.lengths):  # type: ignore[arg-type]  # a sequence, then
            raise UsageError(f"changed has {len(given)} lists; one for each of {len(self.lengths)} items was expected.")  # type: ignore[arg-type]
        return [
            Item(length, _changed(given[place] if each else given, length))  # type: ignore[index]
            for place, length in enumerate(self.lengths)
        ]

    def with_settings(self, settings: Mapping[str, object]) -> "Asked":
        """The same items with other settings."""
        return replace(self, settings=settings)

    def of_lengths(self, lengths: Sequence[int]) -> "Asked":
        """Other items with the same settings, each with its two runs differing behind the first token."""
        kept = {name: value for name, value in self.settings.items() if name != "changed"}
        return replace(self, lengths=tuple(lengths), settings=kept)

    def each(self, cost: Callable[[Item], Work]) -> Work:
        """The work on all items, one after the other; equal ones are counted once and taken as often."""
        total = Work()
        for item, times in Counter(self.items).items():
            total += cost(item) * times
        return total

    def batched(self, cost: Callable[[Item, int], Work], size: Callable[[int], int], *, sort: bool = False) -> Work:
        """The work on batches of items, padded on the left to the longest of each: `cost(padded, rows)`.

        `size(longest)`: how many fit into a batch; `sort`: whether items of like length share one.
        """
        items = sorted(self.items, key=lambda item: item.length) if sort else self.items
        fit = max(1, size(max((item.length for item in items), default=1)))
        total = Work()
        for start in range(0, len(items), fit):
            batch = items[start : start + fit]
            total += cost(_padded(batch), len(batch))
        return total

    def number(self, name: str, default: int, *, least: int = 0) -> int:
        """A whole number."""
        value = self.settings.get(name, default)
        if type(value) is not int or value < least:
            raise UsageError(f"{name} is {value!r}; expected a whole number from {least} on.")
        return value

    def word(self, name: str, default: str, known: Sequence[str]) -> str:
        """One of some words."""
        value = self.settings.get(name, default)
        if value not in known:
            raise UsageError(f"{name} is {value!r}; expected one of {', '.join(known)}.")
        return str(value)

    def words(self, name: str, default: Sequence[str], known: Sequence[str] | None = None) -> tuple[str, ...]:
        """Some words; one that stands alone need not be in a list, nothing is none of them."""
        value = self.settings.get(name, default)
        given = (value,) if isinstance(value, str) else tuple(value or ())  # type: ignore[arg-type]
        for word in given:
            if not isinstance(word, str) or (known is not None and word not in known):
                raise UsageError(f"{name} names {word!r}; expected some of {', '.join(known or ())}.")
        return given

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.settings.get(name, default)
        if not isinstance(value, bool):
            raise UsageError(f"{name} is {value!r}; expected true or false.")
        return value

    def count(self, name: str, default: int) -> int:
        """How many things a list names; `default` where there is none."""
        value = self.settings.get(name)
        return default if value is None else 1 if isinstance(value, int | str) else len(tuple(value))  # type: ignore[arg-type]

    def places(self, name: str, size: int) -> list[int]:
        """The places of an axis of some size that a setting names; all where it names none."""
        from interp.selection import indices

        value = self.settings.get(name)
        return indices(slice(None) if value is None else value, size, name)  # type: ignore[arg-type]


def _padded(items: Sequence[Item]) -> Item:
    """One item for a batch: as long as the longest, changed where any of them is."""
    longest = max(item.length for item in items)
    changed = {longest - item.length + place for item in items for place in item.changed}
    return Item(longest, tuple(sorted(changed)))


def _changed(given: object, length: int) -> tuple[int, ...]:
    """The positions that differ in a text of that length: by default all behind the first."""
    places = range(min(1, length - 1), length) if given is None else given
    if not isinstance(places, Sequence) or isinstance(places, str):
        raise UsageError(f"changed is {given!r}; expected positions, or a list of them for each item.")
    for place in places:
        if type(place) is not int or not -length <= place < length:
            raise UsageError(f"changed names position {place!r}; the text has {length}, from 0 to {length - 1}.")
    found = tuple(sorted({place % length for place in places}))
    if not found:
        raise UsageError("changed names no position; leave it out, or name those whose tokens differ.")
    return found
