"""Packing changes no value; budgets hold; the operations that are announced are those that are done."""

import re

import pytest
from replays import FEW, MODEL, PATCHES, PROBES, SWEEPS, TOKENS, check, counted, slowly

from interp import edits
from interp.errors import BudgetError
from interp.models import replay_cost
from interp.models.replay import Replay, Sweep
from interp.models.replay_cost import flops


def test_it_makes_no_difference_how_cells_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FEW:
        sweep = SWEEPS[name]
        counts: list[int] = []
        for tokens in (2048, 50, 1):
            monkeypatch.setattr(replay_cost, "TOKENS_A_WALK", tokens)
            replay = Replay(MODEL, TOKENS, sweep, PROBES)
            counts.append(len(replay.walks))
            assert sorted(cell.index for walk in replay.walks for cell in walk) == [cell.index for cell in replay.cells]
            check(replay.run(), slowly(name), PROBES, sweep.shape, f"{name}, {tokens} tokens a walk")
        assert counts[0] == 1
        assert counts == sorted(counts)


def test_a_budget_splits_a_sweep_into_walks() -> None:
    whole = Replay(MODEL, TOKENS, PATCHES, PROBES)
    needed = whole.footprint.walk(whole.base, whole.cells)
    assert len(whole.walks) == 1
    seen = []
    for share in (1.0, 0.6, 0.3):
        replay = Replay(MODEL, TOKENS, PATCHES, PROBES, budget=int(share * needed))
        assert max(replay.footprint.walk(replay.base, walk) for walk in replay.walks) <= share * needed
        check(replay.run(), slowly("patches"), PROBES, PATCHES.shape, f"{share} of the bytes")
        seen.append(len(replay.walks))
    assert seen[0] == 1 < seen[1] < seen[2]


def test_axes_can_stand_in_any_order() -> None:
    turned = Sweep({"pos": range(7), "layer": range(3)}, PATCHES.edits)
    found, expected = (Replay(MODEL, TOKENS, sweep, PROBES).run() for sweep in (turned, PATCHES))
    for name in PROBES:
        difference = abs(found[name].values - expected[name].values.swapaxes(0, 1)).max()
        assert difference <= 1e-5 * MODEL(TOKENS).abs().max()


def test_a_cell_alone_is_what_it_is_among_others() -> None:
    together = Replay(MODEL, TOKENS, PATCHES, PROBES).run()
    for layer, pos in ((0, 0), (1, 4), (2, 6)):
        alone = Replay(MODEL, TOKENS, Sweep({"layer": [layer], "pos": [pos]}, PATCHES.edits), PROBES).run()
        for name in PROBES:
            difference = abs(alone[name].values[0, 0] - together[name].values[layer, pos]).max()
            assert difference <= 1e-5 * MODEL(TOKENS).abs().max()


@pytest.mark.parametrize("name", ["patches", "own functions", "knock-outs", "noise"])
def test_the_same_sweep_gives_the_same_bits(name: str) -> None:
    replay, again = (Replay(MODEL, TOKENS, SWEEPS[name], PROBES) for _ in range(2))
    first, second, third = replay.run(), replay.run(), again.run()
    for probe in PROBES:
        assert first[probe].identical(second[probe])
        assert first[probe].identical(third[probe])


# ------------------------------------------------------------------------------------------------------------ cost


@pytest.mark.parametrize("shortcuts", [True, False])
def test_a_budget_that_is_too_small_says_what_would_do(shortcuts: bool) -> None:
    sweep, budget, refused = Sweep({"one": [0]}, lambda one: [("hook_embed", edits.scale(1.1))]), 0, 0
    while True:
        try:
            replay = Replay(MODEL, TOKENS, sweep, PROBES, budget=budget, shortcuts=shortcuts)
            break
        except BudgetError as error:
            found = re.search(r"([\d,]+) bytes", str(error))
            assert found
            needed, refused = int(found[1].replace(",", "")), refused + 1
            assert needed > budget
            budget = needed
    assert 1 <= refused <= 2, "for the base run, and for a cell"
    assert replay.cost().bytes == budget
    check(replay.run(), [MODEL.run_with_hooks(TOKENS, sweep.edits(0))[:, -1:]], PROBES, (1,), "just enough")
    with pytest.raises(BudgetError, match=f"the budget is {budget - 1:,}"):
        Replay(MODEL, TOKENS, sweep, PROBES, budget=budget - 1, shortcuts=shortcuts)


@pytest.mark.parametrize("read", [-1, slice(None)], ids=["last column", "all columns"])
@pytest.mark.parametrize("shortcuts", [True, False])
def test_announced_operations_are_those_that_are_done(shortcuts: bool, read: int | slice) -> None:
    for name in FEW:
        replay = Replay(MODEL, TOKENS, SWEEPS[name], PROBES, shortcuts=shortcuts, read=read)
        announced = flops(MODEL, replay.base, replay.walks, replay.read, shortcuts=shortcuts)
        assert announced == counted(replay), name


def test_full_forward_passes_are_counted_for_all_cells() -> None:
    cost = Replay(MODEL, TOKENS, SWEEPS["knock-outs"], PROBES).cost()
    slow = Replay(MODEL, TOKENS, SWEEPS["knock-outs"], PROBES, shortcuts=False).cost()
    assert cost.full_flops == slow.full_flops == slow.flops > 2 * cost.flops
    assert (slow.cells, slow.rows) == (12, 24)
    assert cost.seconds > 0
    assert "24 rows" in str(slow)
