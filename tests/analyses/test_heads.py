"""Heads taken away: exact on a machine made by hand, by the definition on a random model, plausible on the real one."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from machines import induction_machine
from tiny import BASE, tiny

from interp.analyses.heads import TOGETHER, HeadRemoval, planned, remove_heads
from interp.errors import UsageError
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

HEADS = [(2, 1), (1, 4), (1, 5)]


@pytest.fixture(scope="module")
def removal() -> HeadRemoval:
    return remove_heads(tiny(), HEADS, seq_len=6, repeats=3, n_seqs=4, controls=2, seed=3, prefix="none")


def loss_without(tokens: np.ndarray, heads: list[tuple[int, int]]) -> np.ndarray:
    """Loss by repeat [3] from full logits, heads replaced by their mean over texts in a hook of its own."""
    model = tiny()

    def replace(layer: int, z: torch.Tensor) -> torch.Tensor:
        edited = z.clone()
        for head in [head for where, head in heads if where == layer]:
            edited[:, :, head] = z[:, :, head].mean(0)
        return edited

    ids = torch.tensor(tokens)
    points = [f"blocks.{layer}.attn.hook_z" for layer in range(BASE.n_layers)]
    hooks = [(name, lambda z, point, layer=layer: replace(layer, z)) for layer, name in enumerate(points)]
    losses = -model.run_with_hooks(ids, hooks).log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    return torch.stack([losses[:, start : start + 5].mean() for start in (0, 6, 12)]).numpy()


def parsed(heads: str) -> list[tuple[int, int]]:
    return [(int(layer), int(head)) for layer, head in (name.split(".") for name in heads.split())]


class TestRemovalFromARandomModel:
    def test_every_loss_is_that_of_the_definition(self, removal: HeadRemoval) -> None:
        tokens = removal["tokens"]
        np.testing.assert_allclose(removal["loss_with_all"], loss_without(tokens, []), atol=1e-5)
        for place, label in enumerate(removal.axes["removed"]):
            expected = loss_without(tokens, parsed(removal["heads"][place]))
            np.testing.assert_allclose(removal.at("loss", removed=label), expected, atol=1e-5)
            for draw, heads in enumerate(removal["control_heads"][place]):
                expected = loss_without(tokens, parsed(heads))
                np.testing.assert_allclose(removal.at("control_loss", removed=label, draw=draw), expected, atol=1e-5)

    def test_the_increase_is_on_the_last_repeat_against_nothing_removed(self, removal: HeadRemoval) -> None:
        with_all = removal["loss_with_all"][-1]
        np.testing.assert_allclose(removal["increase"], removal["loss"][:, -1] - with_all)
        controls = removal["control_loss"][:, :, -1] - with_all
        np.testing.assert_allclose(removal["control_mean"], controls.mean(1))
        np.testing.assert_allclose(removal["control_lowest"], controls.min(1))
        np.testing.assert_allclose(removal["control_highest"], controls.max(1))

    def test_heads_are_taken_away_one_by_one_and_together(self, removal: HeadRemoval) -> None:
        assert removal.axes["removed"] == ("2.1", "1.4", "1.5", TOGETHER)
        assert list(removal["heads"]) == ["2.1", "1.4", "1.5", "2.1 1.4 1.5"]
        assert remove_heads(tiny(), HEADS[:1], seq_len=6, prefix="none").axes["removed"] == ("2.1",)

    def test_the_table_of_runs_starts_with_nothing_removed(self, removal: HeadRemoval) -> None:
        runs = removal.runs()
        assert list(runs["removed"][:4]) == ["nothing", "2.1", "2.1", "2.1"]
        assert list(runs["control"][:4]) == [False, False, True, True]
        assert len(runs) == 1 + 4 * 3
        assert list(runs["first_repeat_loss"][:2]) == [removal["loss_with_all"][0], removal["loss"][0, 0]]
        assert runs["increase"][0] == 0
        assert list(runs.loc[~runs["control"], "increase"][1:]) == list(removal["increase"])

    def test_the_table_the_figure_and_the_saved_copy_hold(self, removal: HeadRemoval, tmp_path: Path) -> None:
        frame = removal.to_frame()
        assert list(frame["removed"]) == ["2.1", "1.4", "1.5", TOGETHER]
        assert {"heads", "increase", "control_mean", "control_lowest", "control_highest"} <= set(frame.columns)
        assert len(removal.figure().data) == 3
        assert f"{removal['increase'][0]:+.3f}" in removal.summary()[1]
        assert removal.summary()[-1].strip() == removal.caution
        removal.save(tmp_path / "removal")
        assert Result.load(tmp_path / "removal").identical(removal)

    def test_the_run_is_described(self, removal: HeadRemoval) -> None:
        assert removal.settings["heads"] == tuple(HEADS)
        assert (removal.settings["seed"], removal.settings["controls"]) == (3, 2)
        assert removal.provenance["tokens_shape"] == removal["tokens"].shape

    def test_progress_counts_runs(self) -> None:
        seen: list[tuple[int, int]] = []
        settings = {"seq_len": 4, "n_seqs": 2, "controls": 1, "prefix": "none"}
        remove_heads(tiny(), HEADS[:1], **settings, progress=lambda *at: seen.append(at))
        assert seen == [(1, 3), (2, 3), (3, 3)]

    def test_blocks_of_logits_change_nothing(self, removal: HeadRemoval) -> None:
        settings = {"seq_len": 6, "repeats": 3, "n_seqs": 4, "controls": 2, "seed": 3, "prefix": "none"}
        pieces = remove_heads(tiny(), HEADS, **settings, max_bytes=1)
        np.testing.assert_allclose(pieces["loss"], removal["loss"], atol=1e-5)


@pytest.mark.parametrize(
    ("heads", "settings", "message"),
    [
        ([(3, 0)], {}, r"layers 0 to 2, heads 0 to 5: \(3, 0\) is none of them"),
        ([(0, -1)], {}, "none of them"),
        ([(0, 6)], {}, "none of them"),
        ([(0, 1), (0, 1)], {}, "named twice"),
        ([], {}, "none is named"),
        ([(0, 1)], {"controls": 0}, "controls=0"),
        ([(0, 1)], {"n_seqs": 1}, "n_seqs=1"),
    ],
)
def test_what_cannot_be_removed_or_compared_is_refused(
    heads: list[tuple[int, int]], settings: dict[str, int], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        remove_heads(tiny(), heads, seq_len=4, prefix="none", **settings)


@pytest.fixture(scope="module")
def machine() -> HeadRemoval:
    return remove_heads(induction_machine(), [(0, 0), (1, 0)], seq_len=10, prefix="none")


class TestTheMachineMadeByHand:
    def test_it_needs_both_of_its_heads(self, machine: HeadRemoval) -> None:
        assert machine["loss_with_all"][-1] < 1
        assert machine["increase"].min() > 5

    def test_its_idle_heads_cost_nothing(self, machine: HeadRemoval) -> None:
        assert list(machine["control_heads"][:, 0]) == ["0.1", "1.1", "0.1 1.1"]
        np.testing.assert_allclose(machine["control_increase"], 0, atol=1e-6)


class TestControls:
    def test_they_are_other_heads_of_the_same_layers_as_many_of_each(self) -> None:
        best = [(18, 6), (17, 3), (17, 4)]
        removals = planned(best, 9, controls=3, seed=0)
        assert [removal.heads for removal in removals] == [((18, 6),), ((17, 3),), ((17, 4),), tuple(best)]
        for removal in removals:
            assert len(set(removal.controls)) == 3
            for control in removal.controls:
                assert sorted(layer for layer, _ in control) == sorted(layer for layer, _ in removal.heads)
                assert not set(control) & set(best)

    def test_the_same_seed_draws_the_same(self) -> None:
        plans = [planned([(3, 1), (5, 0)], 9, controls=4, seed=seed) for seed in (7, 7, 8)]
        assert plans[0] == plans[1]
        assert plans[0] != plans[2]

    def test_a_layer_of_two_heads_that_are_both_named_still_has_some(self) -> None:
        removals = planned([(0, 0), (0, 1)], 2, controls=1, seed=0)
        assert all(control for removal in removals for control in removal.controls)


def test_the_best_induction_head_of_the_real_model_is_a_cause(smollm2: "Transformer") -> None:
    removal = remove_heads(smollm2, [(18, 6)], n_seqs=4, controls=2)
    assert removal["increase"][0] > 0.2
    assert removal["increase"][0] > 10 * removal["control_highest"][0]
    assert abs(removal["loss"][0, 0] - removal["loss_with_all"][0]) < 0.1
