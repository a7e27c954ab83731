"""On the default model with its real weights a replay gives what forward passes give, and does what it announces."""

import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest
import torch
from replays import at, counted, ends, naive

from interp import edits, metrics
from interp.cache import ActivationCache
from interp.hooks import HookFn
from interp.models.replay import Replay, Sweep
from interp.models.replay_cost import flops
from interp.models.transformer import Transformer

SITES = (
    "hook_resid_pre",
    *(f"attn.hook_{short}" for short in ("q", "k", "v", "z", "pattern")),
    "mlp.hook_post",
    "hook_mlp_out",
)


class Pair(NamedTuple):
    """Two texts of 14 tokens that differ in one name."""

    tokens: torch.Tensor
    other: ActivationCache


@pytest.fixture(scope="module")
def pair(smollm2: Transformer) -> Pair:
    texts = [f"When Mary and John went to the store, {name} gave a drink to" for name in ("John", "Mary")]
    tokens, others = (smollm2.to_tokens(text, prefix="none") for text in texts)
    assert tokens.shape == others.shape == (1, 14)
    return Pair(tokens, smollm2.run_with_cache(others, [f"blocks.*.{site}" for site in SITES])[1])


def sample(model: Transformer, other: ActivationCache, site: str, count: int) -> Sweep:
    """A seeded sample of patches from the other text, at a layer and a position, of single heads or of some neurons."""
    draw, found = random.Random(site), list[tuple[str, HookFn]]()
    for layer in [0, model.config.n_layers - 1, *draw.sample(range(1, model.config.n_layers - 1), count - 2)]:
        name, pos = f"blocks.{layer}.{site}", draw.choice([9, 10, 11, 12, 13])
        new, where = at(other, name, pos), edits.Where(positions=pos)
        if "head" in other.points[name].axes:
            head, axis = draw.randrange(model.config.n_heads), other.points[name].axes.index("head")
            new, where["heads"] = new.narrow(axis, head, 1), head
        if site == "mlp.hook_post":
            neurons = draw.sample(range(model.config.d_mlp), 200)
            new, where["neurons"] = new[..., neurons], neurons
        found.append((name, edits.replace(new, **where)))
    return Sweep({"sample": range(count)}, lambda sample: [found[sample]])


@pytest.mark.parametrize("site", SITES)
def test_a_sample_of_every_site_gives_what_forward_passes_give(site: str, smollm2: Transformer, pair: Pair) -> None:
    """Within 1e-4 of a logit, with shortcuts and without."""
    sweep = sample(smollm2, pair.other, site, 5)
    answers = [smollm2.to_single_token(text) for text in (" Mary", " John", " the")]
    probes = {f"logit of {answer}": metrics.logit(answer) for answer in answers}
    logits = ends(smollm2, pair.tokens, sweep)
    assert max(float((each - logits[0]).abs().max()) for each in logits[1:]) > 1e-2, "patches must matter"
    for shortcuts in (True, False):
        swept = Replay(smollm2, pair.tokens, sweep, probes, shortcuts=shortcuts).run()
        for name, metric in probes.items():
            expected = naive(logits, metric, sweep.shape)
            torch.testing.assert_close(torch.tensor(swept[name].values), expected, rtol=0, atol=1e-4)


def kinds(model: Transformer, other: ActivationCache) -> Sequence[Sweep]:
    """Patches of the residual stream, ablated heads and knocked out edges, in some layers."""
    scores = "blocks.{}.attn.hook_attn_scores"
    return [
        Sweep(
            {"layer": (0, 20, 29), "pos": (9, 13)},
            lambda layer, pos: [
                (f"blocks.{layer}.hook_resid_pre", edits.replace(other["resid_pre", layer][:, [pos]], positions=pos))
            ],
        ),
        Sweep(
            {"layer": (20, 29), "head": (0, 8)},
            lambda layer, head: [(f"blocks.{layer}.attn.hook_z", edits.zero(heads=head))],
        ),
        Sweep({"layer": (20, 29)}, lambda layer: [(scores.format(layer), edits.knock_out(keys=1, queries=[9, 13]))]),
    ]


def test_announced_operations_are_those_that_are_done_on_the_real_model(smollm2: Transformer, pair: Pair) -> None:
    metric = metrics.logit(smollm2.to_single_token(" Mary"))
    for sweep in kinds(smollm2, pair.other):
        replay = Replay(smollm2, pair.tokens, sweep, metric)
        assert flops(smollm2, replay.base, replay.walks, replay.read, shortcuts=True) == counted(replay)


def test_patches_of_a_text_by_itself_are_known(smollm2: Transformer, pair: Pair) -> None:
    _, own = smollm2.run_with_cache(pair.tokens, "blocks.*.hook_resid_pre")
    sweep = Sweep(
        {"layer": range(30), "pos": range(14)},
        lambda layer, pos: [
            (f"blocks.{layer}.hook_resid_pre", edits.replace(own["resid_pre", layer][:, [pos]], positions=pos))
        ],
    )
    assert Replay(smollm2, pair.tokens, sweep, metrics.logit(0)).rows == 0
