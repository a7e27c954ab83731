"""Replay gives every cell what a forward pass of its own would: on tiny models, whatever is edited."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from replays import (
    FEW,
    HOOKS,
    LEFT,
    MODEL,
    OTHER,
    PATCHES,
    PROBES,
    SWEEPS,
    TOKENS,
    agree,
    at,
    check,
    ends,
    slowly,
    some_sweeps,
)
from tiny import BASE, CONFIGS, random_tokens, tiny

from interp import edits, metrics
from interp.cache import ActivationCache
from interp.errors import Cancelled, HookError, PointError, UsageError
from interp.hooks import HookFn, HookPoint, Hooks, active_edits, recorders_active
from interp.models import replay_cost
from interp.models.replay import Metric, Replay, Sweep, Swept
from interp.models.transformer import Transformer

# ---------------------------------------------------------------------------------------------------------- every point


def edits_at(name: str, other: ActivationCache) -> dict[str, HookFn]:
    """Some edits of each kind that make sense at a point."""
    whole = name.endswith("hook_expert_indices")  # 1.3 times an expert is none
    found: dict[str, HookFn] = {} if whole else {"scale": edits.scale(1.3)}
    for pos in (0, 3):
        found[f"patch {pos}"] = edits.replace(at(other, name, pos), positions=pos)
    if {"head", "kv_head"} & set(other.points[name].axes):
        found["zero a head"] = edits.zero(heads=-1)
    if name.endswith("scores"):
        found["knock out"] = edits.knock_out(keys=2, queries=[3, 5], heads=1)
    return found


def all_edits(model: Transformer, other: ActivationCache, points: list[str]) -> Sweep:
    """One axis of all edits at the first and at the last of each of these points."""
    last = model.config.n_layers - 1
    kinds = [(name, edit) for name in points for edit in edits_at(name, other).values()]
    kinds = [(name, edit) for name, edit in kinds if not 0 < int(name.split(".")[1] if "blocks" in name else 0) < last]
    return Sweep({"kind": range(len(kinds))}, lambda kind: [kinds[kind]])


@pytest.mark.parametrize("name", CONFIGS)
def test_every_point_can_be_swept_in_every_model(name: str) -> None:
    """Two sweeps, since edits of the attention's square values switch to another kernel."""
    model, tokens = tiny(CONFIGS[name]), random_tokens(BASE, 2, 6)
    _, other = model.run_with_cache(random_tokens(BASE, 2, 6, seed=5), "*")
    square = [point for point, spec in model.points().items() if "key_pos" in spec.axes]
    rest = [point for point in model.points() if point not in square]
    assert {"hook_embed", "blocks.0.hook_q_input", "blocks.0.attn.hook_result"} <= set(rest)
    agree(model, tokens, all_edits(model, other, square), f"square values of {name}")
    replay = agree(model, tokens, all_edits(model, other, rest), f"points of {name}")
    assert len(replay.walks) < 5


@pytest.mark.parametrize("kind", sorted({point.name for point in MODEL.points().values()}))
def test_every_point_can_be_swept_alone(kind: str) -> None:
    agree(MODEL, TOKENS, all_edits(MODEL, OTHER, [name for name in MODEL.points() if name.endswith(kind)]), kind)


# ----------------------------------------------------------------------------------------------------------- every kind


@pytest.mark.parametrize("name", SWEEPS)
def test_every_kind_of_sweep_gives_what_forward_passes_give(name: str) -> None:
    agree(MODEL, TOKENS, SWEEPS[name], name)


@pytest.mark.parametrize("name", SWEEPS)
def test_every_kind_of_sweep_can_be_done_on_texts_of_unequal_length(name: str) -> None:
    agree(MODEL, TOKENS, SWEEPS[name], name, mask=LEFT)


def test_examples_are_resampled_as_one_batch() -> None:
    tokens = random_tokens(BASE, 5, 6)
    sweep = Sweep(
        {"seed": range(3), "layer": range(3)},
        lambda seed, layer: [(f"blocks.{layer}.attn.hook_z", edits.resample(seed, positions=[2, 4], heads=0))],
    )
    agree(MODEL, tokens, sweep)


def test_single_texts_of_the_batch_can_be_edited() -> None:
    sweep = Sweep(
        {"text": range(2), "pos": (1, 6)},
        lambda text, pos: [("blocks.1.attn.hook_q", edits.zero(batch=text, positions=pos))],
    )
    replay = agree(MODEL, TOKENS, sweep)
    found = replay.run()["logit of 3"].values
    base = replay.run().base["logit of 3"].values
    assert (found[0, 1, 0], found[1, 1, 1]) != (base[0], base[1])
    assert abs(found[0, 1, 1] - base[1]) <= 1e-5 * abs(base).max()


# ----------------------------------------------------------------------------------------------------------- base hooks


@pytest.mark.parametrize("context", [False, True], ids=["as argument", "as context"])
@pytest.mark.parametrize("name", [name for name in HOOKS if name != "none"])
def test_base_hooks_act_in_every_cell(name: str, context: bool) -> None:
    for kind in FEW:
        with MODEL.hooks(HOOKS[name] if context else []):
            inner = [] if context else HOOKS[name]
            how = (True,) if context else (True, False)
            both = [Replay(MODEL, TOKENS, SWEEPS[kind], PROBES, hooks=inner, shortcuts=on) for on in how]
        for replay in both:
            check(replay.run(), slowly(kind, name), PROBES, SWEEPS[kind].shape, f"{kind} over {name}")
    assert not torch.equal(MODEL.run_with_hooks(TOKENS, HOOKS[name])[:, -1], MODEL(TOKENS)[:, -1])


def test_hooks_of_a_context_come_before_those_of_the_call() -> None:
    outer: Hooks = [("blocks.1.hook_resid_pre", edits.scale(2.0, positions=4))]
    inner: Hooks = [("blocks.1.hook_resid_pre", edits.steer(torch.ones(BASE.d_model), positions=4))]
    with MODEL.hooks(outer):
        replay = Replay(MODEL, TOKENS, PATCHES, PROBES, hooks=inner)
    check(replay.run(), ends(MODEL, TOKENS, PATCHES, hooks=[*outer, *inner]), PROBES, PATCHES.shape, "context")


def test_whoever_listens_outside_sees_nothing_of_a_sweep() -> None:
    seen = []

    def record(value: torch.Tensor, point: HookPoint) -> torch.Tensor:
        seen.append(point.name)
        return value

    with recorders_active(record, list(MODEL.points())), MODEL.hooks(HOOKS["one position"]):
        before = active_edits()
        replay = Replay(MODEL, TOKENS, PATCHES, PROBES)
        replay.cost()
        replay.run()
        assert active_edits() == before
        assert seen == []
        MODEL(TOKENS)
    assert seen, "the recorder must be one that hears something"


# --------------------------------------------------------------------------------------------- dtypes, devices, threads


def test_in_float64_values_agree_to_twelve_digits() -> None:
    model = tiny(dtype=torch.float64)
    _, own = model.run_with_cache(TOKENS)
    _, other = model.run_with_cache(OTHER.tokens, "*")
    sweeps = some_sweeps(own, other)
    for name in FEW:
        sweep = sweeps[name]
        agree(model, TOKENS, sweep, name)


def test_in_bfloat16_a_replay_is_as_near_to_the_truth_as_forward_passes_are() -> None:
    """The truth: the same weights and patches in float32. Errors are averaged over all cells."""
    model = tiny(dtype=torch.bfloat16)
    exact = tiny(dtype=torch.bfloat16).to(torch.float32)
    _, own = model.run_with_cache(TOKENS)
    _, other = model.run_with_cache(OTHER.tokens, "*")
    errors: dict[str, list[torch.Tensor]] = {"naive": [], "with": [], "without": []}
    sweeps = some_sweeps(own, other)
    for name in FEW:
        sweep = sweeps[name]
        truth, slow = ends(exact, TOKENS, sweep), ends(model, TOKENS, sweep)
        swept = {
            how: Replay(model, TOKENS, sweep, PROBES, shortcuts=how == "with").run() for how in ("with", "without")
        }
        for probe, metric in PROBES.items():
            right = torch.stack([metric(each) for each in truth]).flatten()
            errors["naive"].append(torch.stack([metric(each) for each in slow]).flatten() - right)
            for how, each in swept.items():
                errors[how].append(torch.tensor(each[probe].values).flatten() - right)
                assert each[probe].values.dtype == "float32", name
    size = {how: float(torch.cat(each).square().mean().sqrt()) for how, each in errors.items()}
    assert size["naive"] > 1e-3, "bfloat16 must show"
    assert size["with"] <= 1.1 * size["naive"]
    assert size["without"] <= 1.1 * size["naive"]


def test_a_metric_may_give_numbers_in_the_dtype_of_the_logits() -> None:
    model = tiny(dtype=torch.bfloat16)
    swept = Replay(model, TOKENS, SWEEPS["heads"], lambda logits: logits[:, -1, 0]).run()
    expected = [logits[:, -1, 0].float() for logits in ends(model, TOKENS, SWEEPS["heads"])]
    torch.testing.assert_close(
        torch.tensor(swept["metric"].values).flatten(0, 1), torch.stack(expected), rtol=0, atol=0.2
    )


def test_sweeps_run_on_every_device(device: str) -> None:
    model = tiny().to(device)
    _, own = model.run_with_cache(TOKENS.to(device))
    _, other = model.run_with_cache(OTHER.tokens.to(device), "*")
    sweeps = some_sweeps(own, other)
    for name in FEW:
        sweep = sweeps[name]
        agree(model, TOKENS.to(device), sweep, name, mask=LEFT.to(device))
    check(
        Replay(model, TOKENS, PATCHES, PROBES).run(),
        ends(MODEL, TOKENS, PATCHES),
        PROBES,
        PATCHES.shape,
        "from the CPU",
    )


def test_threads_that_share_a_model_do_not_disturb_each_other() -> None:
    work = {"heads": "none", "own functions": "an own function", "noise": "one position", "knock-outs": "none"}
    expected = {kind: slowly(kind, hooks) for kind, hooks in work.items()}
    together = threading.Barrier(len(work))

    def sweep(kind: str, hooks: str) -> None:
        together.wait(timeout=120)
        for _ in range(3):
            with MODEL.hooks(HOOKS[hooks]):
                swept = Replay(MODEL, TOKENS, SWEEPS[kind], PROBES).run()
            check(swept, expected[kind], PROBES, SWEEPS[kind].shape, kind)

    with ThreadPoolExecutor(len(work)) as pool:
        for done in [pool.submit(sweep, kind, hooks) for kind, hooks in work.items()]:
            done.result()


def test_no_graph_is_built_for_weights_that_want_gradients() -> None:
    model = tiny().requires_grad_(True)
    wanted = []

    def metric(logits: torch.Tensor) -> torch.Tensor:
        wanted.append(logits.requires_grad)
        return logits[:, -1, 3]

    replay = Replay(model, TOKENS, PATCHES, metric)
    check(replay.run(), ends(MODEL, TOKENS, PATCHES), {"metric": metrics.logit(3)}, PATCHES.shape, "trainable")
    assert wanted
    assert not any(wanted)
    held = [replay.base.boundaries, replay.base.keys, replay.base.values]
    assert not any(tensor.requires_grad for kind in held for tensor in kind.values())


# ------------------------------------------------------------------------------------------------------ what is refused


def one_cell(*hooks: tuple[str, HookFn], metric: Metric | None = None, **options: object) -> Replay:
    return Replay(MODEL, TOKENS, Sweep({"one": [0]}, lambda one: list(hooks)), metric or PROBES, **options)  # type: ignore[arg-type]


def test_edits_that_cannot_be_meant_are_refused_before_anything_is_swept() -> None:
    out = "blocks.1.hook_mlp_out"
    refused: list[tuple[str, str, HookFn]] = [
        ("touches no cell.*7 lies outside", out, edits.zero(positions=7)),
        ("7 lies outside", "ln_final.hook_normalized", edits.zero(positions=7)),
        ("no axis to select heads on", out, edits.zero(heads=1)),
        ("has no axis 'head'", out, edits.mean("head")),
        (r"shape \(3,\) does not fit", out, edits.replace(torch.zeros(3))),
        ("blocks nothing", "blocks.1.attn.hook_attn_scores", edits.knock_out(keys=5, queries=2)),
    ]
    for message, point, edit in refused:
        with pytest.raises(UsageError, match=message):
            one_cell((point, edit))
    for shortcuts in (True, False):
        with pytest.raises(PointError, match="layers 0 to 2"):
            one_cell(("blocks.7.hook_mlp_out", edits.zero()), shortcuts=shortcuts)
    with pytest.raises(UsageError, match="7 lies outside"):
        one_cell((out, edits.zero(positions=7)), shortcuts=False).run()


def test_sweeps_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(UsageError, match=r"does not take the axes \['layers'\]"):
        Sweep({"layers": range(3)}, lambda layer: [])
    with pytest.raises(UsageError, match=r"no places: its shape is \(3, 0\)"):
        Replay(MODEL, TOKENS, Sweep({"a": range(3), "b": []}, lambda a, b: []), PROBES)
    with pytest.raises(UsageError, match="product is the batch of 2"):
        one_cell(texts={"prompt": 3})
    with pytest.raises(UsageError, match="other names than the sweep's"):
        one_cell(texts={"one": 2})
    with pytest.raises(UsageError, match="7 lies outside"):
        one_cell(read=[0, 7])
    with pytest.raises(UsageError, match="padding in some text"):
        one_cell(mask=LEFT.flip(1))
    with pytest.raises(UsageError, match="Token id 67 is out of range"):
        Replay(MODEL, torch.full((1, 3), 67), PATCHES, PROBES)
    with pytest.raises(UsageError, match="no metric"):
        Replay(MODEL, TOKENS, PATCHES, {})


@pytest.mark.parametrize("shortcuts", [True, False])
def test_metrics_give_one_number_a_text(shortcuts: bool) -> None:
    wrong: list[tuple[str, Metric]] = [
        (r"returned \(\); .*\(2,\), was expected", lambda logits: logits.mean()),
        (r"returned \(2, 67\)", lambda logits: logits[:, -1]),
        ("returned list", lambda logits: logits[:, -1, 0].tolist()),  # type: ignore[list-item, return-value]
    ]
    for message, metric in wrong:
        with pytest.raises(UsageError, match=message):
            one_cell(metric=metric, shortcuts=shortcuts).run()


def test_a_hook_that_fails_leaves_nothing_behind() -> None:
    def fails(value: torch.Tensor, point: HookPoint) -> torch.Tensor:
        raise ArithmeticError(point.name)

    before = MODEL(TOKENS)
    with pytest.raises(ArithmeticError, match=r"blocks\.1\.hook_mlp_out"):
        one_cell(("blocks.1.hook_mlp_out", fails)).run()
    with pytest.raises(HookError, match=r"returned \(2, 1, 30\)"):
        one_cell(("blocks.1.hook_mlp_out", lambda value, point: value[:, :1])).run()
    assert active_edits() == {}
    assert torch.equal(MODEL(TOKENS), before)


def test_progress_is_told_and_a_sweep_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_cost, "TOKENS_A_WALK", 40)
    replay, told = Replay(MODEL, TOKENS, PATCHES, PROBES), list[tuple[int, int]]()
    replay.run(progress=lambda done, total: told.append((done, total)), cancelled=lambda: False)
    done = [each for each, _ in told]
    assert len(told) == len(replay.walks) > 3
    assert done == sorted(set(done))
    assert done[-1] == replay.rows == 42
    assert {total for _, total in told} == {42}
    told.clear()
    with pytest.raises(Cancelled, match=f"when {done[1]} of 42 rows"):
        replay.run(progress=lambda done, total: told.append((done, total)), cancelled=lambda: len(told) == 2)
    check(replay.run(), slowly("patches"), PROBES, PATCHES.shape, "run again after it was stopped")


def test_what_is_found_by_then_has_gaps_where_cells_are_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_cost, "TOKENS_A_WALK", 40)
    replay, told = Replay(MODEL, TOKENS, PATCHES, PROBES), list[Swept]()
    swept = replay.run(so_far=lambda found: told.append(found()))
    assert len(told) == len(replay.walks) > 3
    done = sum(map(len, replay.walks[:2]))
    for probe in PROBES:
        gaps = np.isnan(told[1][probe].values)
        assert gaps.any(-1).sum() == len(replay.cells) - done
        assert np.array_equal(told[1][probe].values[~gaps], swept[probe].values[~gaps])
        assert np.array_equal(told[-1][probe].values, swept[probe].values)
        assert not np.isnan(told[1].base[probe].values).any()
