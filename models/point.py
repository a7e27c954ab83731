"""Hook points by full name: `hook_point("blocks.3.attn.hook_q")` finds its entry in the registry."""

from interp.hooks import HookPoint
from interp.points import REGISTRY, Feature, Point


def hook_point(name: str, feature: Feature | None = None) -> HookPoint:
    """The hook point of that full name; `feature` says which is meant where two layouts share a name.

    A name that the registry does not know is a `KeyError`.
    """
    per_layer = name.startswith("blocks.")
    found = _BY_NAME[per_layer, name.split(".", 2)[2] if per_layer else name]
    return HookPoint(name, next(point for point in found if feature is None or feature in point.needs))


def _by_name() -> dict[tuple[bool, str], list[Point]]:
    found: dict[tuple[bool, str], list[Point]] = {}
    for point in REGISTRY:
        found.setdefault((point.per_layer, point.name), []).append(point)
    return found


_BY_NAME = _by_name()
