"""Every edit changes the cells it names, by the rule it names, and refuses what cannot be meant."""

import pytest
import torch
from tiny import BASE, random_tokens, tiny

from interp import edits
from interp.errors import UsageError
from interp.hooks import HookFn

MODEL = tiny()
TOKENS = random_tokens(BASE, 3, 6)
Z = "blocks.1.attn.hook_z"
SCORES, PATTERN = "blocks.1.attn.hook_attn_scores", "blocks.1.attn.hook_pattern"


def before_and_after(edit: HookFn, point: str = Z) -> tuple[torch.Tensor, torch.Tensor]:
    _, before = MODEL.run_with_cache(TOKENS, point)
    with MODEL.hooks([(point, edit)]):
        _, after = MODEL.run_with_cache(TOKENS, point)
    return before[point], after[point]


def test_a_selection_touches_its_cells_and_no_other() -> None:
    before, after = before_and_after(edits.zero(batch=[0, 2], positions=-1, heads=slice(2, 4)))
    touched = before != after
    expected = torch.zeros_like(touched)
    for row in (0, 2):
        expected[row, 5, 2:4] = True
    assert torch.equal(touched, expected)
    assert (after[expected] == 0).all()


def test_kv_heads_and_neurons_are_selected_on_their_own_axes() -> None:
    before, after = before_and_after(edits.scale(3.0, heads=1), "blocks.1.attn.hook_k")
    assert torch.equal(after[:, :, 0], before[:, :, 0])
    torch.testing.assert_close(after[:, :, 1], 3 * before[:, :, 1])
    before, after = before_and_after(edits.replace(2.5, neurons=[7, 9]), "blocks.1.mlp.hook_post")
    assert (after[..., [7, 9]] == 2.5).all()
    assert torch.equal(after[..., 8], before[..., 8])


def test_replacing_copies_from_another_run() -> None:
    _, source = MODEL.run_with_cache(random_tokens(BASE, 3, 6, seed=9), Z)
    _, after = before_and_after(edits.replace(source[Z]))
    assert torch.equal(after, source[Z])
    _, after = before_and_after(edits.replace(source[Z][:, 2:3], positions=2))
    assert torch.equal(after[:, 2], source[Z][:, 2])


def test_means_are_over_the_named_axes() -> None:
    before, after = before_and_after(edits.mean("batch", heads=0))
    torch.testing.assert_close(after[:, :, 0], before[:, :, 0].mean(0, keepdim=True).expand(3, -1, -1))
    before, after = before_and_after(edits.mean(["batch", "pos"]))
    torch.testing.assert_close(after, before.mean((0, 1), keepdim=True).expand_as(after))


def test_resampling_never_keeps_an_example_and_is_seeded() -> None:
    before, after = before_and_after(edits.resample(seed=3))
    for row in range(3):
        sources = [other for other in range(3) if torch.equal(after[row], before[other])]
        assert len(sources) == 1
        assert sources != [row]
    assert torch.equal(before_and_after(edits.resample(seed=3))[1], after)


def test_noise_has_the_stated_spread_and_repeats_with_its_seed() -> None:
    before, after = before_and_after(edits.add_noise(0.5, seed=1), "blocks.1.mlp.hook_post")
    noise = after - before
    assert noise.std().item() == pytest.approx(0.5, rel=0.1)
    assert torch.equal(before_and_after(edits.add_noise(0.5, seed=1), "blocks.1.mlp.hook_post")[1], after)
    assert not torch.equal(before_and_after(edits.add_noise(0.5, seed=2), "blocks.1.mlp.hook_post")[1], after)


def test_steering_adds_a_direction() -> None:
    direction = torch.randn(BASE.d_model, generator=torch.Generator().manual_seed(0))
    before, after = before_and_after(edits.steer(direction, 2.0, positions=[1, 2]), "blocks.1.hook_resid_mid")
    torch.testing.assert_close(after[:, 1:3] - before[:, 1:3], (2 * direction).expand(3, 2, -1), rtol=0, atol=1e-5)
    assert torch.equal(after[:, 3:], before[:, 3:])


def test_knocked_out_edges_are_zero_and_the_rest_keeps_its_ratios() -> None:
    edit = edits.knock_out(queries=[4, 5], keys=[0, 2], heads=3)
    _, plain = MODEL.run_with_cache(TOKENS, PATTERN)
    with MODEL.hooks([(SCORES, edit)]):
        _, cache = MODEL.run_with_cache(TOKENS, PATTERN)
    before, after = plain[PATTERN], cache[PATTERN]
    assert (after[:, 3, 4:, [0, 2]] == 0).all()
    torch.testing.assert_close(after.sum(-1), torch.ones(3, 6, 6))
    ratio = after[:, 3, 5, [1, 3, 4, 5]] / before[:, 3, 5, [1, 3, 4, 5]]
    torch.testing.assert_close(ratio, ratio[:, :1].expand_as(ratio), rtol=1e-4, atol=0)
    others = [head for head in range(6) if head != 3]
    assert torch.equal(after[:, others], before[:, others])


def test_a_query_left_without_keys_is_refused() -> None:
    with pytest.raises(UsageError, match="no key to read"):
        MODEL.run_with_hooks(TOKENS, [(SCORES, edits.knock_out(keys=0))])  # position 0 reads nothing else
    with pytest.raises(UsageError, match="no key to read"):
        MODEL.run_with_hooks(TOKENS, [(SCORES, edits.knock_out(queries=3, keys=slice(None)))])
    with pytest.raises(UsageError, match="before the softmax"):
        MODEL.run_with_hooks(TOKENS, [(PATTERN, edits.knock_out(queries=3, keys=0))])


def test_no_edit_lets_a_query_read_ahead() -> None:
    """Masked scores stay masked: what follows a position does not change what it sees."""
    other = TOKENS.clone()
    other[:, 5] = (other[:, 5] + 1) % BASE.d_vocab
    for edit in (edits.zero(heads=0), edits.scale(-1.0), edits.replace(0.3), edits.add_noise(1.0, seed=0)):
        one, two = (MODEL.run_with_hooks(tokens, [(SCORES, edit)]) for tokens in (TOKENS, other))
        assert one.isfinite().all()
        assert (one - two)[:, :5].abs().max() < 1e-5


def test_knocking_out_an_edge_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="blocks nothing"):
        MODEL.run_with_hooks(TOKENS, [(SCORES, edits.knock_out(queries=2, keys=4))])


@pytest.mark.parametrize("over", ["batch", "pos", ["batch", "pos"]])
def test_padding_stays_out_of_means(over: str | list[str]) -> None:
    mask = torch.tensor([[True] * 6, [False, False, True, True, True, True], [True, True, True, True, True, False]])
    other = torch.where(mask, TOKENS, (TOKENS + 1) % BASE.d_vocab)
    hooks = [("blocks.1.hook_resid_mid", edits.mean(over)), ("blocks.0.attn.hook_v", edits.mean(over, heads=1))]
    one, two = (MODEL.run_with_hooks(tokens, hooks, mask=mask) for tokens in (TOKENS, other))
    torch.testing.assert_close(one[mask], two[mask], rtol=0, atol=1e-5)
    assert (one - MODEL(TOKENS, mask))[mask].abs().max() > 1e-2
    with pytest.raises(UsageError, match="padding in place of tokens"):
        MODEL.run_with_hooks(TOKENS, [(Z, edits.resample(seed=0))], mask=mask)


def test_edits_compose_in_order() -> None:
    before, after = before_and_after(
        edits.compose(edits.scale(2.0), edits.steer(torch.ones(BASE.d_head)), edits.zero(heads=0))
    )
    torch.testing.assert_close(after[:, :, 1:], 2 * before[:, :, 1:] + 1)
    assert (after[:, :, 0] == 0).all()


def test_an_edit_with_another_runs_values_keeps_gradients_exact() -> None:
    """In-place selection does not break differentiation: the untouched head still carries its gradient."""
    with MODEL.hooks([(Z, edits.zero(heads=0))]):
        _, cache = MODEL.run_with_cache(
            TOKENS, "blocks.0.hook_resid_pre", gradients_of=lambda logits: logits[:, -1, 0].sum()
        )
    assert cache.gradients is not None
    assert cache.gradients["resid_pre", 0].abs().max() > 0


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda: edits.zero(positions=6), "touches no cell.*0 to 5"),
        (lambda: edits.zero(positions=[]), "touches no cell.*nothing is selected"),
        (lambda: edits.zero(heads=-7), "0 to 5"),
        (lambda: edits.zero(neurons=1), "no axis to select neurons"),
        (lambda: edits.zero(layers=1), "not by 'layers'"),
        (lambda: edits.replace(torch.zeros(4)), "does not fit"),
        (lambda: edits.steer(torch.zeros(4)), "does not fit"),
        (lambda: edits.replace("x"), "not 'x'"),
        (lambda: edits.compose(lambda value, point: 3.0), "returned float"),
        (lambda: edits.zero(positions=torch.tensor([True, False])), "list of indices"),
        (lambda: edits.zero(positions=[1.7]), "list of indices"),
        (lambda: edits.mean("d_mlp"), "no axis 'd_mlp'"),
        (lambda: edits.resample(0, batch=0), "at least two"),
        (lambda: edits.add_noise(0.0, seed=0), "positive standard deviation"),
    ],
)
def test_edits_that_cannot_be_meant_are_refused(edit: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        MODEL.run_with_hooks(TOKENS, [(Z, edit())])
