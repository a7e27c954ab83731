"""Figures say what they show: titles, axes, colours that suit the values, and every token in its own place."""

from typing import TYPE_CHECKING

import numpy as np
import pytest

from interp import plots
from interp.errors import UsageError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

TOKENS = ["<|im_end|>", "The", " cat", " cat"]


def titles(figure: "Figure") -> tuple[str, str, str]:
    layout = figure.layout
    return layout.title.text, layout.xaxis.title.text, layout.yaxis.title.text


class TestHeadHeatmap:
    def test_it_names_its_axes_and_heads(self) -> None:
        figure = plots.head_heatmap(np.arange(6).reshape(3, 2), title="Scores", metric="matching", layers=[4, 5, 6])
        assert titles(figure) == ("Scores", "head", "layer")
        heatmap = figure.data[0]
        assert heatmap.z.tolist() == [[0, 1], [2, 3], [4, 5]]
        assert heatmap.customdata[2][1] == "6.1"
        assert figure.layout.yaxis.ticktext == ("4", "5", "6")
        assert heatmap.colorbar.title.text == "matching"
        assert "matching" in heatmap.hovertemplate

    def test_layer_zero_is_at_the_bottom(self) -> None:
        figure = plots.head_heatmap(np.ones((3, 2)), title="", metric="")
        assert figure.layout.yaxis.autorange != "reversed"

    def test_signed_values_get_colours_that_part_at_zero(self) -> None:
        heatmap = plots.head_heatmap([[-1.0, 3.0]], title="", metric="").data[0]
        assert (heatmap.zmin, heatmap.zmid, heatmap.zmax) == (-3, 0, 3)
        positive = plots.head_heatmap([[1.0, 3.0]], title="", metric="").data[0]
        assert (positive.zmin, positive.zmax) == (0, 3)
        assert positive.colorscale != heatmap.colorscale
        assert plots.head_heatmap([[1.0, 3.0]], title="", metric="", signed=True).data[0].zmin == -3

    @pytest.mark.parametrize("values", [[[0.0, 0.0]], [[np.nan, np.nan]]])
    def test_a_table_without_any_value_has_a_scale_all_the_same(self, values: list[list[float]]) -> None:
        heatmap = plots.head_heatmap(values, title="", metric="").data[0]
        assert heatmap.zmax > heatmap.zmin

    @pytest.mark.parametrize("values", [np.zeros(3), np.zeros((0, 2)), np.zeros((2, 2, 2))])
    def test_what_is_no_table_is_refused_with_its_shape(self, values: np.ndarray) -> None:
        with pytest.raises(UsageError, match=r"two axes .* got shape"):
            plots.head_heatmap(values, title="", metric="")


class TestLensHeatmap:
    def figure(self, positions: int = 4) -> "Figure":
        tokens = (TOKENS * positions)[:positions]
        text = np.array([tokens, tokens], dtype=object)
        values = np.full((2, positions), 0.5)
        return plots.lens_heatmap(values, text, title="Lens", metric="p", layers=["embed", "0"], tokens=tokens)

    def test_a_token_that_occurs_twice_stays_in_two_places(self) -> None:
        figure = self.figure()
        assert figure.layout.xaxis.ticktext == ("&lt;|im_end|&gt; 0", "The 1", "·cat 2", "·cat 3")
        assert figure.layout.xaxis.tickvals == (0, 1, 2, 3)
        assert figure.data[0].x is None, "cells lie at their index, not at a label that may repeat"

    def test_markers_are_shown_and_not_taken_for_markup(self) -> None:
        heatmap = self.figure().data[0]
        assert heatmap.text[0][0] == "&lt;|im_end|&gt;"
        assert "&lt;|im_end|&gt;" in heatmap.customdata[0][0]

    def test_probabilities_are_coloured_from_zero_to_one(self) -> None:
        heatmap = self.figure().data[0]
        assert (heatmap.zmin, heatmap.zmax) == (0, 1)
        assert titles(self.figure()) == ("Lens", "position (token read)", "layer")

    def test_big_tables_show_their_words_on_hovering_only(self) -> None:
        assert self.figure().data[0].texttemplate == "%{text}"
        assert self.figure(1000).data[0].texttemplate is None
        assert len(self.figure(1000).layout.xaxis.tickvals) <= plots.MOST_TICKS


class TestRankedBars:
    def test_the_first_is_on_top_and_every_series_has_a_bar(self) -> None:
        figure = plots.ranked_bars(
            ["18.6", "17.3"],
            {"matching": [0.9, 0.7], "sink": [0.1, 0.2]},
            title="Heads",
            metric="attention",
            errors={"matching": [0.01, 0.02]},
            baseline=("uniform", 0.05),
        )
        assert titles(figure) == ("Heads", "attention", "head")
        assert figure.layout.yaxis.autorange == "reversed"
        assert figure.layout.yaxis.ticktext == ("18.6", "17.3")
        matching, sink = figure.data
        assert matching.x.tolist() == [0.9, 0.7]
        assert matching.error_x.array.tolist() == [0.01, 0.02]
        assert sink.error_x.array is None
        assert matching.marker.color != sink.marker.color
        assert figure.layout.shapes[0].x0 == 0.05
        assert figure.layout.annotations[0].text == "uniform"


class TestCurves:
    def test_lines_run_over_labelled_steps(self) -> None:
        figure = plots.curves(
            ["embed", 0, 1], {" Paris": [0, 0.2, 0.9]}, title="Paris", x_title="layer", y_title="p", bounds=(0, 1)
        )
        assert titles(figure) == ("Paris", "layer", "p")
        assert figure.layout.xaxis.ticktext == ("embed", "0", "1")
        assert figure.data[0].name == "·Paris"
        assert figure.data[0].y.tolist() == [0, 0.2, 0.9]
        assert figure.layout.yaxis.range == (0, 1)


class TestAttentionPattern:
    def test_queries_run_downwards_and_cells_name_both_tokens(self) -> None:
        figure = plots.attention_pattern(np.eye(4), TOKENS, title="Head 18.6")
        assert titles(figure) == ("Head 18.6", "key (looked at)", "query (looking)")
        assert figure.layout.yaxis.autorange == "reversed"
        assert figure.data[0].customdata[3][2] == "·cat 3 → ·cat 2"
        assert (figure.data[0].zmin, figure.data[0].zmax) == (0, 1)

    def test_a_pattern_of_another_length_than_its_tokens_is_refused(self) -> None:
        with pytest.raises(UsageError, match=r"shape \[3, 3\] came with 4 tokens"):
            plots.attention_pattern(np.eye(3), TOKENS, title="")


class TestTraceHeatmaps:
    def figure(self, low: float = 0.0) -> "Figure":
        streams, ffn = np.full((4, 3), 0.5), np.array([[0.0, low, 0.2]] * 4)
        return plots.trace_heatmaps(
            {"residual <stream>": streams, "FFN outputs, 10 layers": ffn},
            title="Trace of '<b>'",
            metric="effect",
            tokens=["<|im_end|>", "The*", " cat*", " cat"],
        )

    def test_panels_stand_under_their_names_in_order(self) -> None:
        figure = self.figure()
        upper, lower = figure.layout.annotations
        assert (upper.text, lower.text) == ("residual &lt;stream&gt;", "FFN outputs, 10 layers")
        assert upper.y > lower.y
        assert [heatmap.z.tolist()[0] for heatmap in figure.data] == [[0.5, 0.5, 0.5], [0.0, 0.0, 0.2]]
        assert figure.layout.title.text == "Trace of '&lt;b&gt;'"

    def test_the_first_token_is_on_top_and_layers_run_to_the_right(self) -> None:
        layout = self.figure().layout
        for axis in (layout.yaxis, layout.yaxis2):
            assert axis.autorange == "reversed"
            assert axis.ticktext == ("&lt;|im_end|&gt;", "The*", "·cat*", "·cat")
        assert layout.xaxis2.ticktext == ("0", "1", "2")
        assert (layout.xaxis.title.text, layout.xaxis2.title.text) == ("", "layer")

    def test_one_scale_of_colours_serves_all_panels_and_is_drawn_once(self) -> None:
        upper, lower = self.figure().data
        assert (upper.zmin, upper.zmax) == (lower.zmin, lower.zmax) == (0, 0.5)
        assert [heatmap.showscale for heatmap in (upper, lower)] == [True, False]

    def test_a_negative_value_in_one_panel_parts_the_colours_of_all_at_zero(self) -> None:
        scales = {(heatmap.zmin, heatmap.zmid, heatmap.zmax) for heatmap in self.figure(low=-0.75).data}
        assert scales == {(-0.75, 0, 0.75)}
        assert self.figure(low=-0.75).data[1].z[0][1] == -0.75

    def test_hovering_names_token_layer_and_value(self) -> None:
        heatmap = self.figure().data[1]
        assert heatmap.customdata[2][1] == "·cat* (position 2), layer 1"
        assert heatmap.hovertemplate == "%{customdata}<br>effect %{z:.4f}<extra></extra>"

    def test_the_star_of_a_long_token_survives_its_cut(self) -> None:
        figure = plots.trace_heatmaps({"a": [[1.0]]}, title="", metric="", tokens=["x" * 40 + "*"])
        assert figure.layout.yaxis.ticktext == ("x" * 13 + "…*",)
        alone = plots.trace_heatmaps({"a": [[1.0]]}, title="", metric="", tokens=["*"])
        assert alone.layout.yaxis.ticktext == ("*",)

    def test_the_names_of_roles_stand_whole_and_have_no_position(self) -> None:
        figure = plots.trace_heatmaps({"a": [[1.0]]}, title="", metric="", tokens=["middle subject (152)"], roles=True)
        assert figure.layout.yaxis.ticktext == ("middle subject (152)",)
        assert figure.data[0].customdata[0][0] == "middle subject (152), layer 0"

    @pytest.mark.parametrize(
        "panels", [{}, {"a": np.ones((3, 2))}, {"a": np.ones((4, 2)), "b": np.ones((4, 3))}], ids=len
    )
    def test_panels_that_do_not_fit_the_tokens_are_refused(self, panels: dict[str, np.ndarray]) -> None:
        with pytest.raises(UsageError, match="came with 4 tokens"):
            plots.trace_heatmaps(panels, title="", metric="", tokens=TOKENS)


@pytest.mark.parametrize(
    ("token", "shown"),
    [(" a", "·a"), ("\n\n", "↵↵"), ("\t", "⇥"), ("<b>", "&lt;b&gt;"), ("", "∅"), ("abcdefgh", "abcd…"), ("&", "&amp;")],
)
def test_a_token_is_made_visible(token: str, shown: str) -> None:
    assert plots.visible(token, 5) == shown


def test_every_figure_can_be_written_as_json() -> None:
    figure = plots.head_heatmap([[float("nan"), 1.0]], title="Scores", metric="m")
    assert '"Scores"' in figure.to_json()


class TestBesideCheck:
    def test_estimates_stand_over_exact_values_beside_the_map(self) -> None:
        heatmap = plots.effect_heatmap(
            [[1.0, -2.0]], title="Map", metric="m", x="head", y="layer", columns=[0, 1], rows=[0]
        )
        figure = plots.beside_check(heatmap, {"top": (["layer 0, head 1"], [-1.5], [-2.0]), "random": ([], [], [])})
        assert figure.layout.title.text == "Map"
        assert figure.data[0].z.tolist() == [[1, -2]]
        assert (figure.layout.xaxis.title.text, figure.layout.xaxis2.title.text) == ("head", "exact effect")
        top, empty, diagonal = figure.data[1:]
        assert (list(top.x), list(top.y), list(top.customdata)) == ([-1.5], [-2.0], ["layer 0, head 1"])
        assert len(empty.x) == 0
        assert list(diagonal.x) == list(diagonal.y) == [-2, 0]
        assert figure.layout.xaxis.domain[1] < figure.layout.xaxis2.domain[0]
