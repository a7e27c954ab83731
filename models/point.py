"""Hook points by full name: `hook_point("blocks.3.attn.hook_q")` finds its entry in the registry."""

from interp.hooks import HookPoint
from interp.points import REGISTRY

_BY_NAME = {(point.per_layer, point.name): point for point in REGISTRY}


def hook_point(name: str) -> HookPoint:
    """The hook point of that full name; a name that the registry does not know is a `KeyError`."""
    per_layer = name.startswith("blocks.")
    return HookPoint(name, _BY_NAME[per_layer, name.split(".", 2)[2] if per_layer else name])
