"""`interp points`: the hook points of a model, from the registry."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from interp.apps.cli.options import Common, with_common

EPILOG = """\b
Examples:
  interp points                          every hook point of the default model
  interp points "blocks.0.*"             those of the first block
  interp points "*.attn.hook_pattern"    one point in every layer
"""


@with_common("device", "dtype", "prefix", "seed", "out")
def points(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Exact names or globs; without one, all points.", show_default=False),
    ] = None,
    *,
    common: Common,
) -> None:
    """List the hook points that a model has, with their shapes and equations.

    Points marked "on demand" are computed only while something listens to them.
    """
    from interp.apps.cli.output import show, table, write_json
    from interp.apps.cli.session import points_of

    known = points_of(common)
    found = [(name, known[name]) for name in (known.resolve(names) if names else known)]
    if common.as_json:
        rows = [
            {"name": name, "axes": point.axes, "equation": point.equation, "on_demand": point.on_demand}
            for name, point in found
        ]
        write_json({"model": common.model, "sizes": known.sizes, "points": rows})
        return
    cells = [
        (name, _shape(point.axes, known.sizes), point.equation, "on demand" if point.on_demand else "")
        for name, point in found
    ]
    show(table(["point", "shape", "equation", ""], cells))


def _shape(axes: Sequence[str], sizes: Mapping[str, int]) -> str:
    """Axis names, with their lengths where the model fixes them: `batch pos head=9 d_head=64`."""
    return " ".join(f"{axis}={sizes[axis]}" if axis in sizes else axis for axis in axes)
