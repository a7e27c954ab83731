"""Generation writes what full forward passes would, whatever the batch, the hooks and the cache."""

import pytest
import torch
from published import greedy
from tiny import BASE, CONFIGS, random_tokens, tiny

from interp import edits
from interp.errors import UsageError
from interp.models.kv_cache import KVCache
from interp.models.sampling import Sampling
from interp.models.transformer import Transformer


def slowly(model: Transformer, tokens: torch.Tensor, count: int) -> torch.Tensor:
    """Greedy continuation by full forward passes."""
    for _ in range(count):
        tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], 1)
    return tokens


@pytest.mark.parametrize("name", CONFIGS)
def test_greedy_generation_equals_full_forward_passes(name: str, device: str) -> None:
    model = tiny(CONFIGS[name]).to(device)
    tokens = random_tokens(model.config, 3, 5).to(device)
    assert torch.equal(model.generate(tokens, 12), slowly(model, tokens, 12))
    assert torch.equal(torch.stack(list(model.stream(tokens, 12)), 1), model.generate(tokens, 12)[:, 5:])


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_batch_of_unequal_prompts_writes_what_each_would_alone(side: str) -> None:
    """Also after rows have ended: each row stops at its own stop token and is padded from there on."""
    model = tiny()
    rows = [random_tokens(BASE, 1, length, seed=length) for length in (3, 7, 5)]
    alone = [model.generate(row, 20)[0, row.shape[1] :] for row in rows]
    stop = [int(alone[0][4]), int(alone[2][9])]
    expected = []
    for text in alone:
        ends = [int((text == token).nonzero()[0]) for token in stop if bool((text == token).any())]
        expected.append(text[: min(ends) + 1] if ends else text)
    assert len({len(text) for text in expected}) > 1, "rows must end at different times for this test to say anything"
    tokens, mask = torch.zeros(3, 7, dtype=torch.long), torch.zeros(3, 7, dtype=torch.bool)
    for index, row in enumerate(rows):
        place = slice(7 - row.shape[1], None) if side == "left" else slice(row.shape[1])
        tokens[index, place], mask[index, place] = row[0], True
    written, cache = model.generate(tokens, 20, mask=mask, stop=stop, return_cache=True, names="hook_embed")
    assert cache.mask is not None
    for index, text in enumerate(expected):
        assert torch.equal(written[index, 7 : 7 + len(text)], text)
        assert not cache.mask[index, 7 + len(text) :].any()


def test_the_stitched_cache_is_that_of_a_full_forward_with_the_same_edits() -> None:
    model, tokens = tiny(), random_tokens(BASE, 2, 5)
    hooks = [
        ("blocks.0.hook_resid_post", edits.scale(1.2)),
        ("blocks.1.attn.hook_z", edits.zero(heads=3)),
        ("blocks.2.hook_resid_pre", edits.steer(torch.ones(BASE.d_model), positions=7)),
    ]
    with model.hooks(hooks):
        written, stitched = model.generate(tokens, 6, return_cache=True, names="*")
        _, whole = model.run_with_cache(written, "*")
    assert list(stitched) == list(whole)
    for name, value in whole.items():
        finite = value.isfinite()
        assert torch.equal(stitched[name].isfinite(), finite), name
        scale = float(value[finite].abs().max())
        torch.testing.assert_close(stitched[name][finite], value[finite], rtol=0, atol=1e-5 * scale, msg=name)
    assert not torch.equal(written, model.generate(tokens, 6)), "the edits must matter"


def test_hooks_meet_values_that_can_have_gradients_and_tokens_are_the_same_without_them() -> None:
    model, tokens = tiny(), random_tokens(BASE, 2, 5)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[0, 3:] = False
    met = []
    with model.hooks([("blocks.1.hook_resid_post", lambda value, point: met.append(value.is_inference()))]):
        listened = model.generate(tokens, 4, mask=mask)
    assert met == [False] * 4
    written = model.requires_grad_(True).generate(tokens, 4, mask=mask)
    assert torch.equal(written, listened)
    assert not written.is_inference()


def test_a_conversation_goes_on_from_its_cache() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 4)
    cache = KVCache.for_model(model, batch=1)
    first = model.generate(tokens, 5, kv_cache=cache)
    assert cache.length == 8, "all but the last token, which nobody has read yet"
    more = torch.cat([first[:, -1:], random_tokens(BASE, 1, 3, seed=5)], 1)
    second = model.generate(more, 5, kv_cache=cache)
    together = torch.cat([first[:, :-1], more], 1)
    assert torch.equal(torch.cat([first[:, :-1], second], 1), slowly(model, together, 5))


def test_chance_is_seeded_by_row() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 4)
    options = {"temperature": 1.5, "top_p": 0.95}
    once = model.generate(tokens, 10, seed=3, **options)
    assert torch.equal(model.generate(tokens, 10, seed=3, **options), once)
    assert not torch.equal(model.generate(tokens, 10, seed=4, **options), once)
    batch = model.generate(tokens.expand(3, -1), 10, seed=3, **options)
    assert torch.equal(batch[:1], once)
    assert not torch.equal(batch[1], batch[2])


def test_cuts_are_those_of_transformers() -> None:
    """Penalty, temperature, top-k and top-p leave the reference's probabilities."""
    from transformers.generation import logits_process as reference

    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(4, 50, generator=generator)
    ids = torch.randint(0, 50, (4, 9), generator=generator)
    seen = torch.zeros(4, 50, dtype=torch.bool).scatter(1, ids, True)
    theirs = reference.RepetitionPenaltyLogitsProcessor(1.7)(ids, logits)
    penalised = torch.where(seen, torch.where(logits > 0, logits / 1.7, logits * 1.7), logits)
    torch.testing.assert_close(penalised, theirs)
    assert torch.equal(Sampling(repetition_penalty=1.7).choose(logits, seen, []), theirs.argmax(-1))
    for k, p in ((5, None), (None, 0.6), (7, 0.8), (None, 1.0), (1, None), (None, 0.01)):
        expected = logits / 0.7
        if k is not None:
            expected = reference.TopKLogitsWarper(k)(ids, expected)
        if p is not None and p < 1:
            expected = reference.TopPLogitsWarper(p)(ids, expected)
        found = Sampling(temperature=0.7, top_k=k, top_p=p)._cut(logits / 0.7)
        torch.testing.assert_close(found.softmax(-1), expected.softmax(-1))


def test_sampling_draws_in_proportion() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]]).expand(4000, -1)
    rule = Sampling(temperature=1.0, seed=1)
    drawn = rule.choose(logits, torch.zeros(4000, 4, dtype=torch.bool), rule.generators(4000))
    shares = torch.bincount(drawn, minlength=4) / 4000
    torch.testing.assert_close(shares, logits[0].softmax(-1), rtol=0, atol=0.03)


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}, {"repetition_penalty": 0.0}, {"seed": -1}],
)
def test_rules_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        tiny().generate(random_tokens(BASE, 1, 3), 2, **wrong)


def test_requests_that_cannot_be_met_are_refused() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 3)
    with pytest.raises(UsageError, match="At least one new token"):
        model.generate(tokens, 0)
    with pytest.raises(UsageError, match="exceed the context"):
        model.generate(tokens, BASE.n_ctx)
    with pytest.raises(UsageError, match="stops everywhere"):
        model.generate(tokens, 2, stop=[""])


def test_a_text_can_be_a_stop(smollm2: Transformer) -> None:
    tokens = smollm2.to_tokens("The Eiffel Tower is located in the city of")
    written = smollm2.to_string(smollm2.generate(tokens, 30, stop=["France"])[:, tokens.shape[1] :])
    assert written.startswith(" Paris")
    assert written.endswith("France")


@pytest.mark.slow
def test_the_real_model_writes_what_transformers_writes(
    smollm2: Transformer, published_smollm2: torch.nn.Module
) -> None:
    """Greedy, 64 tokens, five prompts, token for token; alone and as one batch."""
    prompts = [
        "The Eiffel Tower is located in the city of",
        "When Mary and John went to the store, John gave a drink to",
        "def fibonacci(n):\n",
        "Once upon a time, in a small village by the sea,",
        "The three largest countries in the world are",
    ]
    tokens, mask = smollm2.to_batch(prompts, side="left")
    together = smollm2.generate(tokens, 64, mask=mask)[:, tokens.shape[1] :]
    for prompt, row in zip(prompts, together, strict=True):
        alone = smollm2.generate(smollm2.to_tokens(prompt), 64)
        assert torch.equal(alone[:, -64:], greedy(published_smollm2, alone, 64))
        assert torch.equal(row, alone[0, -64:])
