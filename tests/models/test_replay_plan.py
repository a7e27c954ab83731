"""What a sweep reads and what it never computes: the columns asked for, and cells that are known beforehand."""

import pytest
import torch
from replays import HOOKS, LEFT, MODEL, OTHER, PATCHES, PROBES, SWEEPS, TOKENS, agree, at, check, ends, one_logit
from tiny import BASE, random_tokens

from interp import edits, metrics
from interp.cache import ActivationCache
from interp.hooks import Hooks
from interp.models.replay import Replay, Sweep
from interp.models.transformer import Transformer


@pytest.mark.parametrize(
    ("read", "columns"),
    [(-1, [6]), (2, [2]), ([5, 1, 3], [5, 1, 3]), (slice(None), range(7)), (slice(2, -1), range(2, 6))],
)
def test_any_columns_can_be_read(read: int | slice | list[int], columns: list[int] | range) -> None:
    probes = {f"at {place} of those read": one_logit(3, place) for place in range(len(columns))}
    for name in ("several points", "own functions behind the layers", "knock-outs", "noise"):
        sweep = SWEEPS[name]
        logits = ends(MODEL, TOKENS, sweep, read=columns)
        for shortcuts in (True, False):
            found = Replay(MODEL, TOKENS, sweep, probes, read=read, shortcuts=shortcuts).run()
            check(found, logits, probes, sweep.shape, f"{name} read at {read}, shortcuts {shortcuts}")


def test_the_loss_of_a_text_is_read_at_all_columns() -> None:
    metric = metrics.loss(TOKENS[:, 1:])
    logits = ends(MODEL, TOKENS, PATCHES, read=range(6))
    found = Replay(MODEL, TOKENS, PATCHES, metric, read=slice(6)).run()
    check(found, logits, {"loss": metric}, PATCHES.shape, "loss")


def test_cells_that_begin_behind_what_is_read_are_known() -> None:
    replay = agree(MODEL, TOKENS, PATCHES, read=[2])
    assert replay.known == [layer * 7 + pos for layer in range(3) for pos in (3, 4, 5, 6)]
    swept = replay.run()
    for name in PROBES:
        assert (swept[name].values[:, 3:] == swept.base[name].values).all()


def test_metrics_are_measured_together_and_named() -> None:
    answers = metrics.logit_difference(3, [5, 6])
    swept = Replay(MODEL, TOKENS, PATCHES, {"difference": answers, "p": metrics.probability(3)}).run()
    assert list(swept.values) == ["difference", "p"]
    assert swept["p"].identical(Replay(MODEL, TOKENS, PATCHES, metrics.probability(3)).run()["probability"])
    assert list(Replay(MODEL, TOKENS, PATCHES, lambda logits: logits[:, -1, 0]).run().values) == ["metric"]


def test_axes_are_those_of_the_sweep_and_then_of_the_texts() -> None:
    tokens = random_tokens(BASE, 6, 7)
    plain = Replay(MODEL, tokens, SWEEPS["neurons"], PROBES).run()
    assert plain["logit of 3"].axes == ("neuron", "layer", "batch")
    assert plain["logit of 3"].values.shape == (3, 3, 6)
    assert (plain.base["logit of 3"].axes, plain.base["logit of 3"].values.shape) == (("batch",), (6,))
    swept = Replay(MODEL, tokens, SWEEPS["neurons"], PROBES, texts={"prompt": 2, "sample": 3}).run()
    assert swept["logit of 3"].axes == ("neuron", "layer", "prompt", "sample")
    assert (swept["logit of 3"].values == plain["logit of 3"].values.reshape(3, 3, 2, 3)).all()
    assert swept.base["logit of 3"].values.shape == (2, 3)
    expected = MODEL(tokens)[:, -1, 3]
    torch.testing.assert_close(torch.tensor(plain.base["logit of 3"].values), expected, rtol=0, atol=1e-4)


def test_a_sweep_without_axes_is_one_cell() -> None:
    sweep = Sweep({}, lambda: [("blocks.1.attn.hook_z", edits.zero())])
    agree(MODEL, TOKENS, sweep)
    assert Replay(MODEL, TOKENS, sweep, metrics.logit(3)).run()["logit"].axes == ("batch",)


def test_padding_on_the_right_can_be_swept_where_real_tokens_are_read() -> None:
    agree(MODEL, TOKENS, PATCHES, mask=LEFT.flip(1), read=[2, 4])


# ------------------------------------------------------------------------------------------------- what is not computed


def self_patching(model: Transformer, source: ActivationCache, hooks: Hooks = ()) -> Replay:
    sites = ["hook_resid_pre", "attn.hook_q", "attn.hook_v", "attn.hook_z", "mlp.hook_post", "hook_mlp_out"]
    sweep = Sweep(
        {"layer": range(3), "site": sites, "pos": range(7)},
        lambda layer, site, pos: [
            (f"blocks.{layer}.{site}", edits.replace(at(source, f"blocks.{layer}.{site}", pos), positions=pos))
        ],
    )
    return Replay(model, TOKENS, sweep, PROBES, hooks=hooks)


@pytest.mark.parametrize("name", [None, "one position", "an own function", "the final norm"])
def test_patching_a_run_with_itself_computes_nothing(name: str | None) -> None:
    hooks = HOOKS[name] if name else []
    with MODEL.hooks(hooks):
        _, source = MODEL.run_with_cache(TOKENS, lambda name: "scores" not in name and "pattern" not in name)
    replay = self_patching(MODEL, source, hooks)
    assert replay.cells == []
    assert replay.known == list(range(3 * 6 * 7))
    assert (replay.rows, replay.cost().flops) == (0, 0)
    swept = replay.run(progress=lambda done, total: pytest.fail("nothing is done"))
    for probe in PROBES:
        assert (swept[probe].values == swept.base[probe].values).all()


def test_cells_are_known_where_source_and_base_agree() -> None:
    tokens = TOKENS.clone()
    tokens[:, 4] = (tokens[:, 4] + 1) % BASE.d_vocab
    _, source = MODEL.run_with_cache(tokens, ["blocks.*.hook_resid_pre"])
    sweep = Sweep(
        PATCHES.axes,
        lambda layer, pos: [
            (f"blocks.{layer}.hook_resid_pre", edits.replace(source["resid_pre", layer][:, [pos]], positions=pos))
        ],
    )
    replay = agree(MODEL, TOKENS, sweep)
    first = [cell for cell in range(21) if cell % 7 < 4 or cell in (5, 6)]
    assert replay.known == first, "behind column 4 the embeddings are those of the base run"
    swept = replay.run()
    for probe in PROBES:
        assert (swept[probe].values[:, :4] == swept.base[probe].values).all()
        assert (swept[probe].values[:, 4] != swept.base[probe].values).all()


@pytest.mark.parametrize("masked", [False, True])
def test_without_shortcuts_an_unedited_cell_is_the_forward_pass_to_the_bit(masked: bool) -> None:
    mask = LEFT if masked else None
    replay = Replay(MODEL, TOKENS, Sweep({"one": [0]}, lambda one: []), PROBES, mask=mask, shortcuts=False)
    logits, swept = MODEL(TOKENS, mask), replay.run()
    for probe, metric in PROBES.items():
        assert torch.equal(torch.tensor(swept[probe].values[0]), metric(logits))
        assert torch.equal(torch.tensor(swept.base[probe].values), metric(logits))


def test_patching_every_embedding_makes_the_other_run() -> None:
    sweep = Sweep({"one": [0]}, lambda one: [("hook_embed", edits.replace(OTHER["embed"]))])
    expected = MODEL(OTHER.tokens)
    swept = Replay(MODEL, TOKENS, sweep, PROBES, shortcuts=False).run()
    for probe, metric in PROBES.items():
        assert torch.equal(torch.tensor(swept[probe].values[0]), metric(expected))
    check(Replay(MODEL, TOKENS, sweep, PROBES).run(), [expected], PROBES, (1,), "embeddings")


def test_cells_join_and_start_where_they_part_from_the_base_run() -> None:
    patched = Replay(MODEL, TOKENS, PATCHES, PROBES)
    places = [(layer, pos) for layer in range(3) for pos in range(7)]
    assert [(cell.join, cell.start) for cell in patched.cells] == places
    windows = Replay(MODEL, TOKENS, SWEEPS["windows"], PROBES)
    places = [(first + 1, pos) for first in range(2) for pos in (0, 3, 6)]
    assert [(cell.join, cell.start) for cell in windows.cells if cell.join < 3] == places
    own = Replay(MODEL, TOKENS, SWEEPS["own functions"], PROBES)
    assert {cell.start for cell in own.cells} == {0}
    full = Replay(MODEL, TOKENS, PATCHES, PROBES, shortcuts=False)
    assert {(cell.join, cell.start) for cell in full.cells} == {(0, 0)}
    assert full.known == []
