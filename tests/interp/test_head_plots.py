"""The map of heads: every cell once, in the colour of its role, with letters for those who tell no colours."""

import numpy as np
import pytest

from interp.errors import UsageError
from interp.head_plots import ROLE_COLOURS, role_map

ROLES = np.array([["looks back", "rests"], ["nothing", "finds <x>"]], dtype=object)
STRENGTH = [[0.9, 0.05], [0.02, -0.5]]
ACTIVE, IDLE = ("finds <x>", "looks back", "counts"), ("rests", "nothing")


def drawn(**settings: object):  # noqa: ANN201  a figure, which plotly need not be imported for
    return role_map(ROLES, STRENGTH, title="Roles", active=ACTIVE, idle=IDLE, **settings)  # type: ignore[arg-type]


def test_every_head_is_drawn_once_in_the_colour_of_its_role() -> None:
    maps = {trace.name: trace for trace in drawn().data if trace.type == "heatmap"}
    assert set(maps) == {"looks back", "rests", "nothing", "finds <x>"}
    assert (np.sum([np.isfinite(trace.z) for trace in maps.values()], 0) == 1).all()
    assert maps["looks back"].z[0][0] == 0.9
    assert maps["looks back"].colorscale[-1][1] == ROLE_COLOURS[1]
    assert maps["finds <x>"].z[1][1] == 0, "below nought there is no paler shade"


def test_a_role_keeps_its_colour_whichever_others_occur() -> None:
    alone = role_map(ROLES[:1], STRENGTH[:1], title="", active=ACTIVE, idle=IDLE)
    colours = {trace.name: trace.colorscale for trace in alone.data if trace.type == "heatmap"}
    assert colours["looks back"][-1][1] == ROLE_COLOURS[1]


def test_active_roles_have_letters_and_shades_and_idle_ones_neither() -> None:
    maps = {trace.name: trace for trace in drawn().data if trace.type == "heatmap"}
    assert maps["looks back"].text[0][0] == "loo"
    assert maps["looks back"].texttemplate == "%{text}"
    assert maps["rests"].texttemplate is None
    assert maps["rests"].colorscale[0][1] == maps["rests"].colorscale[1][1]


def test_hovering_names_the_head_its_role_and_its_details() -> None:
    figure = drawn(details={(1, 1): ["score 0.100"]}, layers=[4, 5])
    assert figure.data[0].customdata[1][1] == "<b>head 5.1: finds &lt;x&gt;</b><br>score 0.100"
    assert figure.data[0].customdata[0][0] == "<b>head 4.0: looks back</b>"


def test_groups_are_parted_and_named() -> None:
    figure = drawn(groups=[0, 1])
    assert len(figure.layout.shapes) == 0, "every head has a group of its own"
    figure = drawn(groups=[7, 7])
    assert [note.text for note in figure.layout.annotations] == ["KV 7"]
    four = role_map(
        np.tile(ROLES, 2), np.tile(STRENGTH, 2), title="", active=ACTIVE, idle=IDLE, groups=np.array([0, 0, 1, 1])
    )
    assert [shape.x0 for shape in four.layout.shapes] == [1.5]
    assert [(note.text, note.x) for note in four.layout.annotations] == [("KV 0", 0.5), ("KV 1", 2.5)]


def test_the_legend_has_one_square_for_each_role_that_occurs() -> None:
    keys = [trace.name for trace in drawn().data if trace.type == "scatter" and trace.showlegend]
    assert keys == ["finds <x>", "looks back", "rests", "nothing"]


def test_roles_without_a_colour_are_refused() -> None:
    with pytest.raises(UsageError, match="'nothing' has no colour"):
        role_map(ROLES, STRENGTH, title="", active=ACTIVE, idle=("rests",))
    with pytest.raises(UsageError, match="9 roles"):
        role_map(ROLES, STRENGTH, title="", active=[str(number) for number in range(9)])
