"""Our forward pass computes what `transformers` computes, from the same weights."""

import copy

import pytest
import torch
from published import greedy
from tiny import CONFIGS, LLAMA_CONFIGS, random_tokens, reference, tiny

from interp.models.transformer import Transformer

named_configs = pytest.mark.parametrize("name", LLAMA_CONFIGS)


def assert_logits_agree(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Within 1e-5 of the largest logit (2e-5 beyond 1,000 tokens); same argmax wherever it is not a near tie."""
    ours, theirs = ours.double().cpu(), theirs.double().cpu()
    tolerance = (2e-5 if ours.shape[1] > 1000 else 1e-5) * theirs.abs().max()
    assert (ours - theirs).abs().max() <= tolerance
    top = theirs.topk(2, -1).values
    clear = top[..., 0] - top[..., 1] > 2 * tolerance
    assert torch.equal(ours.argmax(-1)[clear], theirs.argmax(-1)[clear])


@named_configs
@pytest.mark.parametrize("length", [1, 7, 130])
def test_tiny_models_give_the_reference_logits(name: str, length: int, device: str) -> None:
    model = tiny(CONFIGS[name])
    tokens = random_tokens(model.config, 2, length)
    assert_logits_agree(model.to(device)(tokens), reference(tiny(CONFIGS[name]))(tokens, use_cache=False).logits)


@named_configs
def test_positions_stay_exact_over_thousands_of_tokens(name: str) -> None:
    model = tiny(CONFIGS[name])
    tokens = random_tokens(model.config, 1, 4200)
    assert_logits_agree(model(tokens), reference(model, "sdpa")(tokens, use_cache=False).logits)


@named_configs
def test_recorded_patterns_and_residuals_are_the_references(name: str) -> None:
    model = tiny(CONFIGS[name])
    tokens = random_tokens(model.config, 2, 11)
    _, cache = model.run_with_cache(tokens)
    theirs = reference(model)(tokens, use_cache=False, output_hidden_states=True, output_attentions=True)
    for layer in range(model.config.n_layers):
        torch.testing.assert_close(cache["pattern", layer], theirs.attentions[layer], rtol=0, atol=1e-5)
        scale = theirs.hidden_states[layer].abs().max()
        torch.testing.assert_close(cache["resid_pre", layer], theirs.hidden_states[layer], rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", CONFIGS)
def test_padding_changes_nothing_for_real_tokens(name: str, side: str) -> None:
    """A padded row of a batch gives what the text gives alone, on fused and on explicit attention."""
    model = tiny(CONFIGS[name])
    lengths, longest = [9, 1, 14], 14
    rows = [random_tokens(model.config, 1, length, seed=length)[0] for length in lengths]
    tokens, mask = torch.zeros(3, longest, dtype=torch.long), torch.zeros(3, longest, dtype=torch.bool)
    for index, row in enumerate(rows):
        place = slice(longest - len(row), None) if side == "left" else slice(len(row))
        tokens[index, place], mask[index, place] = row, True
    explicit, cache = model.run_with_cache(tokens, "blocks.*.attn.hook_pattern", mask=mask)
    fused = model(tokens, mask)
    assert fused.isfinite().all()
    torch.testing.assert_close(explicit, fused, rtol=0, atol=1e-5 * float(fused.abs().max()))
    for index, row in enumerate(rows):
        alone = model(row[None])
        assert_logits_agree(fused[index, mask[index]][None], alone)
        pattern = cache["pattern", 0][index]
        assert (pattern[:, ~mask[index]] == 0).all(), "rows of padded queries are zero"
        assert (pattern[:, :, ~mask[index]] == 0).all(), "padding is never read"
        torch.testing.assert_close(pattern[:, mask[index]].sum(-1), torch.ones(pattern.shape[0], len(row)))


def test_gradients_through_padded_rows_are_finite() -> None:
    model = tiny()
    tokens = random_tokens(model.config, 2, 6)
    mask = torch.tensor([[False, False, True, True, True, True], [True] * 6])
    _, cache = model.run_with_cache(tokens, mask=mask, gradients_of=lambda logits: logits[:, -1].sum())
    assert cache.gradients is not None
    assert all(gradient.isfinite().all() for gradient in cache.gradients.values())


def test_bfloat16_is_as_accurate_as_the_references() -> None:
    """RMS error against float32 at most 1.1 times that of `transformers` in bfloat16, over several models."""
    ours, theirs = [], []
    for seed in range(6):
        model = tiny(seed=seed)
        tokens = random_tokens(model.config, 4, 60, seed=seed)
        exact = model(tokens)
        ours.append((tiny(seed=seed, dtype=torch.bfloat16)(tokens).float() - exact).square().mean())
        hf = reference(model).to(torch.bfloat16)
        theirs.append((hf(tokens, use_cache=False).logits.float() - exact).square().mean())
    assert torch.stack(ours).mean().sqrt() <= 1.1 * torch.stack(theirs).mean().sqrt()


TEXTS = (
    "The Eiffel Tower is located in the city of",
    "When Mary and John went to the store, John gave a drink to",
    "In 1997, 3 of the 12 planets were renamed; π ≈ 3.14159 and 東京 is a city. 🙂",
)


def long_text(smollm2: Transformer, length: int) -> str:
    """Natural English of about that many tokens: this very project's licence."""
    from pathlib import Path

    licence = (Path(__file__).parents[2] / "LICENSE").read_text()
    ids = smollm2.tokenizer.encode(licence)[:length]
    return smollm2.tokenizer.decode(ids)


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads")
def test_the_default_model_gives_the_reference_logits(smollm2: Transformer, published_smollm2: torch.nn.Module) -> None:
    """Within 2e-4 on five natural texts of 8 to 1,000 tokens, one by one and in padded batches.

    The longest is padded on the left alone, where padding moves positions: it takes as long as all the others.

    Like is compared with like: the reference's own logits move by 2.7e-4 between a text alone and in a batch.
    """
    texts = [*TEXTS, long_text(smollm2, 150), long_text(smollm2, 1000)]
    alone = {text: smollm2(smollm2.to_tokens(text)) for text in texts}
    for text, logits in alone.items():
        theirs = published_smollm2(smollm2.to_tokens(text), use_cache=False).logits
        assert (logits - theirs).abs().max() < 2e-4
    batches = [(texts[:4], "left"), (texts[:4], "right"), ([texts[0], texts[4]], "left")]
    for batch, side in batches:
        tokens, mask = smollm2.to_batch(batch, side=side)
        positions = (mask.long().cumsum(-1) - 1).clamp(min=0)
        theirs = published_smollm2(tokens, attention_mask=mask.long(), position_ids=positions, use_cache=False).logits
        logits = smollm2(tokens, mask)
        assert (logits - theirs)[mask].abs().max() < 2e-4
        for index, text in enumerate(batch):
            assert (logits[index, mask[index]] - alone[text][0]).abs().max() < 2e-4


def test_short_and_long_texts_lose_no_more_than_the_reference_does(
    smollm2: Transformer, published_smollm2: torch.nn.Module
) -> None:
    """Against our own float64 run, whatever form of the matrix product the number of rows brings with it."""
    tokens, exact = smollm2.to_tokens(long_text(smollm2, 150)), copy.deepcopy(smollm2).double()
    for length in (1, 2, 3, 5, 8, 11, 20, 60, 150):
        truth = exact(tokens[:, :length])
        ours, theirs = smollm2(tokens[:, :length]), published_smollm2(tokens[:, :length], use_cache=False).logits
        off, usual = (float((logits - truth).abs().max()) for logits in (ours, theirs))
        assert off <= 1.5 * usual, f"{length} tokens: {off:.1e}, the reference {usual:.1e}"


@pytest.mark.slow
def test_greedy_continuations_are_the_references(smollm2: Transformer, published_smollm2: torch.nn.Module) -> None:
    """Twenty tokens by full forward passes, on three prompts, token for token."""
    for text in TEXTS:
        tokens = smollm2.to_tokens(text)
        for _ in range(20):
            tokens = torch.cat([tokens, smollm2(tokens)[:, -1:].argmax(-1)], -1)
        assert torch.equal(tokens[:, -20:], greedy(published_smollm2, tokens, 20))


@pytest.mark.parametrize(
    ("prompt", "answer", "none", "doc"), [(TEXTS[0], " Paris", 0.70, 0.75), (TEXTS[1], " Mary", 0.92, 0.80)]
)
def test_known_answers_have_their_known_probabilities(
    smollm2: Transformer, prompt: str, answer: str, none: float, doc: float
) -> None:
    for prefix, expected in (("none", none), ("doc", doc)):
        logits = smollm2(smollm2.to_tokens(prompt, prefix=prefix))[0, -1]
        assert logits.softmax(-1)[smollm2.to_single_token(answer)].item() == pytest.approx(expected, abs=0.01)
