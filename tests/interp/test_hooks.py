"""Hooks change exactly what they are told to, in their own context only, and leave nothing behind."""

import threading

import pytest
import torch
from tiny import BASE, CONFIGS, random_tokens, tiny

from interp import edits
from interp.errors import HookError, PointError, UsageError
from interp.hooks import HookPoint

TOKENS = random_tokens(BASE, 2, 6)
POINT = "blocks.1.hook_resid_pre"


def test_recording_outside_attention_changes_no_bit_of_the_logits() -> None:
    model = tiny()
    outside = [name for name in model.points() if not name.endswith(("hook_attn_scores", "hook_pattern"))]
    logits, cache = model.run_with_cache(TOKENS, outside)
    assert len(cache) == len(outside)
    assert torch.equal(logits, model(TOKENS))


@pytest.mark.parametrize("name", CONFIGS)
def test_explicit_attention_equals_the_fused_kernel(name: str) -> None:
    model = tiny(CONFIGS[name])
    logits, _ = model.run_with_cache(TOKENS, "*")
    torch.testing.assert_close(logits, model(TOKENS), rtol=0, atol=1e-5 * float(logits.abs().max()))


@pytest.mark.parametrize("point", [name for name in tiny().points() if ".0." in name or "blocks" not in name])
def test_what_a_hook_returns_is_what_the_model_uses(point: str) -> None:
    """At every point: an edit changes the logits, a look does not, and the cache holds the edited value."""
    model = tiny()
    plain, _ = model.run_with_cache(TOKENS, point)

    def shift(value: torch.Tensor, hook: HookPoint) -> torch.Tensor:
        return value + torch.linspace(0.2, 0.9, value.numel()).view(value.shape)

    with model.hooks([(point, shift)]):
        edited, cache = model.run_with_cache(TOKENS, point)
    torch.testing.assert_close(
        model.run_with_hooks(TOKENS, [(point, lambda value, hook: None)]), plain, rtol=0, atol=1e-4
    )
    _, before = model.run_with_cache(TOKENS, point)
    torch.testing.assert_close(
        cache[point],
        shift(before[point], None),
        rtol=0,
        atol=1e-5 * float(before[point].nan_to_num(neginf=0).abs().max()),
    )
    assert (edited - plain).abs().max() > 1e-3


def test_hooks_see_their_point_its_layer_and_its_rows() -> None:
    model, seen = tiny(), []

    def look(value: torch.Tensor, point: HookPoint) -> None:
        seen.append((point.name, point.layer, point.rows.start, point.rows.positions[0].tolist()))

    mask = torch.tensor([[False, True, True, True, True, True], [True] * 6])
    with model.hooks([([POINT, "hook_embed"], look)]):
        model(TOKENS, mask)
    assert seen == [("hook_embed", None, 0, [0, 0, 1, 2, 3, 4]), (POINT, 1, 0, [0, 0, 1, 2, 3, 4])]


def test_contexts_nest_outer_edits_first() -> None:
    model, order = tiny(), []
    with model.hooks([(POINT, lambda value, point: order.append("outer"))]):
        with model.hooks([(POINT, lambda value, point: order.append("inner"))]):
            model(TOKENS)
        model(TOKENS)
    model(TOKENS)
    assert order == ["outer", "inner", "outer"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, HookError])
def test_a_hook_that_raises_leaves_no_residue(error: type[BaseException]) -> None:
    model = tiny()
    plain = model(TOKENS)

    def fail(value: torch.Tensor, point: HookPoint) -> None:
        raise error("from the hook")

    with pytest.raises(error, match="from the hook"), model.hooks([("blocks.*.hook_resid_post", edits.scale(2.0))]):
        model.run_with_hooks(TOKENS, [(POINT, fail)])
    with pytest.raises(error, match="from the hook"), model.hooks([(POINT, fail)]):
        model.run_with_cache(TOKENS, "*")
    assert torch.equal(model(TOKENS), plain)


def test_an_interrupt_from_outside_a_hook_leaves_no_residue() -> None:
    """Ctrl-C arrives anywhere: here in the middle of a forward pass, between two points."""
    import signal

    model = tiny()
    plain = model(TOKENS)
    with pytest.raises(KeyboardInterrupt):
        model.run_with_hooks(TOKENS, [(POINT, lambda value, point: signal.raise_signal(signal.SIGINT))])
    assert torch.equal(model(TOKENS), plain)


def test_eight_threads_share_one_model_and_never_see_each_others_hooks() -> None:
    model = tiny()
    expected = {i: model.run_with_hooks(TOKENS, [(POINT, edits.scale(1.0 + i))]) for i in range(8)}
    barrier, wrong = threading.Barrier(8), []

    def work(index: int) -> None:
        with model.hooks([(POINT, edits.scale(1.0 + index))]):
            barrier.wait()
            for _ in range(20):
                logits, cache = model.run_with_cache(TOKENS, POINT)
                if not torch.equal(logits, expected[index]) or len(cache) != 1:
                    wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (lambda value: value[:, :-1], "was expected"),
        (lambda value: value.double(), "float64"),
        (lambda value: "not a tensor", "returned str"),
        (lambda value: value.sum(), r"\(\)"),
    ],
)
def test_a_hook_that_returns_what_cannot_stand_there_is_refused(returned: object, says: str) -> None:
    with pytest.raises(HookError, match=says) as refused:
        tiny().run_with_hooks(TOKENS, [(POINT, lambda value, point: returned(value))])
    assert POINT in str(refused.value)


def test_editing_a_receiver_changes_that_receiver_alone() -> None:
    """A residual written for one query head changes its q and no other's, and no key."""
    model = tiny()
    _, plain = model.run_with_cache(TOKENS)
    with model.hooks([("blocks.1.hook_q_input", edits.scale(0.0, heads=2))]):
        _, cache = model.run_with_cache(TOKENS)
    change = (cache["q", 1] - plain["q", 1]).abs().amax((0, 1, 3))
    assert change[2] > 0.1
    assert change[[0, 1, 3, 4, 5]].max() < 1e-5
    assert torch.equal(cache["k", 1], plain["k", 1])
    with model.hooks([("blocks.1.hook_k_input", edits.scale(0.0, heads=1))]):
        _, cache = model.run_with_cache(TOKENS)
    change = (cache["k", 1] - plain["k", 1]).abs().amax((0, 1, 3))
    assert change[1] > 0.1
    assert change[0] < 1e-5


def test_a_receiver_and_its_shared_norm_cannot_both_be_edited() -> None:
    hooks = [("blocks.1.hook_v_input", edits.scale(2.0)), ("blocks.1.ln1.hook_normalized", edits.scale(2.0))]
    with pytest.raises(HookError, match="Use one of the two"):
        tiny().run_with_hooks(TOKENS, hooks)


def test_zeroing_one_kv_heads_values_silences_exactly_its_query_heads() -> None:
    model = tiny()
    with model.hooks([("blocks.0.attn.hook_v", edits.zero(heads=1))]):
        _, cache = model.run_with_cache(TOKENS, "blocks.0.attn.hook_z")
    silent = cache["z", 0].abs().amax((0, 1, 3)) == 0
    assert silent.tolist() == [False, False, False, True, True, True]


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        (torch.tensor([[1, BASE.d_vocab]]), "out of range"),
        (torch.tensor([[-1, 2]]), "Token id -1"),
        (torch.zeros(1, 0, dtype=torch.long), "no tokens"),
        (torch.zeros(1, BASE.n_ctx + 1, dtype=torch.long), "context holds"),
        (torch.tensor([1, 2]), r"\[batch, pos\]"),
        (torch.tensor([[1.0]]), "integer tensor"),
        ("text", "to_tokens"),
    ],
)
def test_tokens_that_the_model_cannot_read_are_refused(tokens: object, says: str) -> None:
    model = tiny()
    for run in (model, model.run_with_cache):
        with pytest.raises(UsageError, match=says):
            run(tokens)


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(
    "mask", [torch.ones(2, 5, dtype=torch.bool), torch.ones(2, 6), torch.tensor([[True] * 6, [False] * 6])]
)
def test_masks_that_do_not_fit_are_refused(mask: torch.Tensor) -> None:
    with pytest.raises(UsageError, match="mask"):
        tiny()(TOKENS, mask)


@pytest.mark.parametrize(
    "scores", [lambda value: value.nan_to_num(neginf=0.0), lambda value: -value, lambda value: value - torch.inf]
)
def test_a_hook_that_breaks_the_mask_is_refused(scores: object) -> None:
    """Neither a look ahead nor a query without keys nor a NaN gets through in silence."""
    hook = ("blocks.1.attn.hook_attn_scores", lambda value, point: scores(value))
    with pytest.raises(HookError, match="attn_scores"):
        tiny().run_with_hooks(TOKENS, [hook])


def test_an_edit_that_the_run_never_reaches_is_refused() -> None:
    model = tiny()
    with model.hooks([("blocks.2.attn.hook_z", edits.zero())]):
        model.run_with_cache(TOKENS, "hook_embed", stop_at_layer=3)
        with pytest.raises(PointError, match="blocks.2.attn.hook_z.*cannot fire"):
            model.run_with_cache(TOKENS, "hook_embed", stop_at_layer=1)
