"""Write the pages that come from the code: `docs/hook-points.md` from the registry of hook points."""

from pathlib import Path

from interp.points import markdown_table

HERE = Path(__file__).resolve().parent

HOOK_POINTS = """\
# Hook points

A name is a promise: one shape and one equation, on every architecture. The table is written from the registry in
`interp/points.py` by `make docs`; `interp points` prints the points of one model, with their sizes.

`model.run_with_cache(tokens, names)` records values, `model.run_with_hooks(tokens, [(names, edit)])` reads or
replaces them. A selection is an exact name, a glob (`"blocks.*.attn.hook_pattern"`), a predicate, or a list of those; a
name that matches nothing is an error. Points *on demand* are computed only while somebody listens, and are recorded
only when they are asked for by name.

Axes: `head` counts query heads and `kv_head` key-value heads, never expanded; `query_pos` is the position that looks
and `key_pos` the one looked at; `d_mlp` counts neurons.

"""


def hook_points() -> str:
    """The whole page."""
    return HOOK_POINTS + markdown_table()


if __name__ == "__main__":
    (HERE / "hook-points.md").write_text(hook_points(), encoding="utf-8")
