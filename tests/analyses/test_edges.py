"""Blocked attention edges: exact at the pattern, the same run by run, and refused where nothing would be left."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import BASE, CONFIGS, random_tokens, tiny

from interp import edits, metrics
from interp.analyses.edges import EdgeKnockout, blocking, knock_out_edges
from interp.errors import UsageError
from interp.models.constructed import one_fact_memory
from interp.results import Result

EDGES = {"last to two": [(-1, [2, 3])], "several": [([4, 6], slice(1, 3)), (5, 0)]}
MECHANISMS = ["grouped_query", "multi_query", "biases", "alibi", "score_cap", "parallel", "qk_norm_head", "moe_top2"]


@pytest.mark.parametrize("name", [*MECHANISMS, "mixed_windows"])
def test_blocked_edges_are_nought_rows_sum_to_one_and_other_ratios_stay(name: str, device: str) -> None:
    model = tiny(CONFIGS[name], device=device)
    tokens = random_tokens(model.config, 2, 7).to(device)
    cut = torch.zeros(2, 7, 7, dtype=torch.bool)
    cut[0, 6, [2, 3, 5]] = cut[1, 6, 4] = cut[1, 5, [0, 1]] = True
    _, plain = model.run_with_cache(tokens, "blocks.*.attn.hook_pattern")
    with model.hooks(blocking(cut, range(1, 3))):
        _, cache = model.run_with_cache(tokens, "blocks.*.attn.hook_pattern")
    for layer in (1, 2):
        pattern = cache["pattern", layer]
        assert (pattern.masked_select(cut[:, None].to(device)) == 0).all()
        torch.testing.assert_close(pattern.sum(-1), torch.ones_like(pattern[..., 0]), rtol=0, atol=1e-6)
    left = plain["pattern", 1].masked_fill(cut[:, None].to(device), 0)
    torch.testing.assert_close(cache["pattern", 1], left / left.sum(-1, keepdim=True), rtol=1e-5, atol=1e-7)
    assert torch.equal(cache["pattern", 0], plain["pattern", 0])


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("shortcuts", [True, False])
def test_every_cell_is_a_forward_pass_with_the_edges_blocked(name: str, shortcuts: bool) -> None:
    model = tiny(CONFIGS[name])
    tokens = random_tokens(model.config, 2, 7)
    metric = metrics.log_probability([5, 9])
    found = knock_out_edges(model, tokens, EDGES, metric=metric, window=2, shortcuts=shortcuts)
    for place, edges in enumerate(EDGES.values()):
        for layer in range(3):
            hooks = [
                (f"blocks.{each}.attn.hook_attn_scores", edits.knock_out(queries=queries, keys=keys))
                for each in range(max(0, layer - 1), layer + 1)
                for queries, keys in edges
            ]
            expected = metric(model.run_with_hooks(tokens, hooks)[:, -1:])
            np.testing.assert_allclose(found["log_probability"][place, layer], expected, atol=2e-5)
    np.testing.assert_allclose(found["log_probability_base"], metric(model(tokens)[:, -1:]), atol=2e-5)
    moved = found["log_probability"] - found["log_probability_base"]
    np.testing.assert_allclose(found["log_probability_effect"], moved.mean(-1), atol=1e-6)
    assert np.abs(moved).max() > 1e-3


def test_each_text_has_edges_of_its_own_where_they_are_given_as_a_mask() -> None:
    model = tiny()
    tokens = random_tokens(BASE, 2, 6)
    cut = torch.zeros(2, 6, 6, dtype=torch.bool)
    cut[0, 5, 2] = cut[1, 5, 3] = True
    both = knock_out_edges(model, tokens, {"own": cut}, metric=metrics.logit(3))
    for row, key in enumerate((2, 3)):
        alone = knock_out_edges(model, tokens[[row]], {"own": [(5, key)]}, metric=metrics.logit(3))
        np.testing.assert_allclose(both["logit"][:, :, [row]], alone["logit"], atol=1e-5)


@pytest.mark.parametrize(
    ("window", "first", "last"),
    [
        (1, [0, 5, 11], [0, 5, 11]),
        (2, [0, 4, 10], [0, 5, 11]),
        (9, [0, 1, 7], [4, 9, 11]),
        (10, [0, 0, 6], [4, 9, 11]),
    ],
)
def test_the_layers_of_a_window_are_said_and_cut_at_both_ends(window: int, first: list[int], last: list[int]) -> None:
    model = tiny(replace(BASE, n_layers=12))
    found = knock_out_edges(
        model, random_tokens(BASE, 1, 4), {"edge": [(3, 1)]}, metric=metrics.logit(0), window=window, layers=[0, 5, 11]
    )
    assert found["first_layer"].tolist() == first
    assert found["last_layer"].tolist() == last
    assert found.axes["layer"] == (0, 5, 11)


def test_only_the_edge_by_which_the_fact_is_read_matters() -> None:
    """By hand: from "in", the extractor reads at "Tower"; "Eiffel" was gathered there before."""
    model = one_fact_memory()
    tokens = model.to_tokens("The Eiffel Tower is in")
    answer = metrics.logit(model.to_single_token(" Paris"))
    found = knock_out_edges(model, tokens, {str(key): [(-1, key)] for key in range(1, 6)}, metric=answer)
    lost = found["logit_effect"]
    assert lost[2, 1] == -16
    assert np.count_nonzero(lost) == 1
    gathered = knock_out_edges(model, tokens, {"within the subject": [(3, 2)]}, metric=answer)
    assert gathered["logit_effect"].tolist() == [[-16, 0]]


@pytest.mark.parametrize(
    ("edges", "settings", "says"),
    [
        ({}, {}, "no edges to block"),
        ({"ahead": [(1, 3)]}, {}, "they lie ahead of it"),
        ({"none": torch.zeros(1, 5, 5, dtype=torch.bool)}, {}, "No query can read"),
        ({"all": [(2, slice(0, 3))]}, {}, "a query would be left with no key"),
        ({"far": [(9, 0)]}, {}, "For the queries, 9 lies outside"),
        ({"far": [(4, 9)]}, {}, "For the keys, 9 lies outside"),
        ({"mask": torch.zeros(1, 4, 4, dtype=torch.bool)}, {}, r"has shape \(1, 5, 5\) here, not \(1, 4, 4\)"),
        ({"edge": [(4, 0)]}, {"window": 0}, "window is 0"),
        ({"edge": [(4, 0)]}, {"layers": [3]}, "For the layers, 3 lies outside"),
        ({"edge": [(4, 0)]}, {"layers": [1, 1]}, r"named twice among \[1, 1\]"),
    ],
)
def test_what_cannot_be_blocked_is_refused(edges: dict, settings: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        knock_out_edges(tiny(), random_tokens(BASE, 1, 5), edges, metric=metrics.logit(0), **settings)


def test_the_saved_copy_is_the_same_and_draws_its_blocks(tmp_path: Path) -> None:
    found = knock_out_edges(tiny(), random_tokens(BASE, 2, 7), EDGES, metric=metrics.logit(0), window=2)
    loaded = Result.load(found.save(tmp_path / "edges"))
    assert isinstance(loaded, EdgeKnockout)
    assert loaded.identical(found)
    assert [line.name for line in found.figure().data] == list(EDGES)
    place = int(np.abs(found["logit_effect"][0]).argmax())
    assert f"last to two  {found['logit_effect'][0, place]:+.3f} at layer {place}" in "\n".join(found.summary())
