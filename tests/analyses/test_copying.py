"""Copying scores: equal to dense and slow computations, known on models made by hand, and what they find in SmolLM2."""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tiny import BASE, CONFIGS, tiny

from interp.analyses.copying import SCORES, CopyingScores, copying_scores
from interp.analyses.folded import embeddings
from interp.analyses.head_circuits import full_ov
from interp.errors import UsageError
from interp.models.circuits import Head, InductionCircuit
from interp.models.constructed import induction_circuit
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

MODELS = {
    "llama": BASE,
    "gpt2": replace(
        BASE, norm="layer", n_kv_heads=6, rotary=None, learned_positions=True, n_ctx=64, gated=False,
        activation="gelu", qkv_bias=True, o_bias=True, mlp_bias=True,
    ),
    "gemma2": replace(
        BASE, norms="sandwich", norm_offset=True, embed_scale=30**0.5, score_cap=2.0, logit_cap=3.0, n_kv_heads=3
    ),
    "norms on outputs": CONFIGS["output_norm"],
    "parallel": CONFIGS["parallel"],
    "bloom": replace(CONFIGS["alibi"], norm="layer", embed_norm=True, qkv_bias=True),
    "untied, scaled, with a bias": CONFIGS["logit_scale_and_bias"],
    "experts": CONFIGS["moe_top2"],
}  # fmt: skip
SEQ_LEN, N_SEQS, NAMED = 7, 3, [3, 60, 11, 25, 42, 8, 19]
HEADS = [(layer, head) for layer in range(BASE.n_layers) for head in range(BASE.n_heads)]
CIRCUIT = InductionCircuit(suppressor=Head(1, 3))
SPEAKERS = {CIRCUIT.induction: (1, CIRCUIT.strength), CIRCUIT.suppressor: (-1, -CIRCUIT.suppression)}
ABOVE_MEAN = 1 - 1 / len(CIRCUIT.vocabulary)


def scored(model: "Transformer", **settings: object) -> CopyingScores:
    asked = {"seq_len": SEQ_LEN, "n_seqs": N_SEQS, "tokens": NAMED, "prefix": "none", "seed": 4}
    return copying_scores(model, **(asked | settings))


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> "Transformer":
    return tiny(MODELS[request.param])


@pytest.fixture(scope="module")
def scores(model: "Transformer") -> CopyingScores:
    return scored(model)


def alone(model: "Transformer", point: str, tokens: Iterable[int]) -> torch.Tensor:
    """A value of block 0 or before, [token, d_model], where each token is a text of its own."""
    texts = torch.tensor([[token] for token in tokens])
    return model.run_with_cache(texts, [point], stop_at_layer=1)[1][point][:, 0]


def folded(norm: torch.nn.Module | None) -> np.ndarray:
    """What a norm does to a row but for dividing it and adding a bias, as a [d_model, d_model] matrix."""
    centring = np.eye(BASE.d_model)
    if norm is None:
        return centring
    if norm.b is not None:
        centring = centring - 1 / BASE.d_model
    return centring * (norm.w.numpy().astype(np.float64) + float(norm.offset))


def dense_score(model: "Transformer", layer: int, head: int, embedding: np.ndarray, unembedding: np.ndarray) -> float:
    """Σλ / Σ|λ| from the whole [V, V] matrix."""
    block, shared = model.layers[layer], model.config.queries_per_kv
    value, output = (
        weight.numpy().astype(np.float64) for weight in (model.W_V[layer, head // shared], model.W_O[layer, head])
    )
    circuit = embedding @ folded(block.ln1) @ value @ output @ folded(block.ln1_post) @ folded(model.ln_final)
    eigenvalues = np.linalg.eigvals(circuit @ unembedding)
    return eigenvalues.sum().real / np.abs(eigenvalues).sum()


def normalised(norm: torch.nn.Module | None, rows: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Rows through a norm with the divisor of another; a bias left out."""
    if norm is None:
        return rows
    centred = rows if norm.b is None else rows - rows.mean(-1, keepdim=True)
    return centred / scale * (norm.w + float(norm.offset))


def direct_logits(model: "Transformer", tokens: torch.Tensor) -> torch.Tensor:
    """What each head brings to the logits in a full run, before a cap: [layer, text, position, head, token]."""
    post = [f"blocks.{layer}.ln1_post.hook_scale" for layer in range(BASE.n_layers) if model.layers[layer].ln1_post]
    _, cache = model.run_with_cache(tokens, ["*hook_result", "ln_final.hook_scale", *post])
    found = []
    for layer, block in enumerate(model.layers):
        added = cache["attn.result", layer]
        if post:
            added = normalised(block.ln1_post, added, cache[post[layer]][:, :, None])
        found.append(normalised(model.ln_final, added, cache["ln_final.hook_scale"][:, :, None]) @ model.W_U)
    return torch.stack(found) * model.config.logit_scale


def behavioural_slowly(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Row by row of the second repeat, what followed the first time against the mean: [layer, head, text]."""
    rows = range(SEQ_LEN, 2 * SEQ_LEN)
    text = torch.arange(len(tokens))
    above = [logits[:, text, row, :, tokens[:, row - SEQ_LEN + 1]].transpose(0, 1) for row in rows]
    means = [logits[:, :, row].mean(-1) for row in rows]
    return torch.stack([high - mean for high, mean in zip(above, means, strict=True)]).mean(0).mT


def raised_slowly(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Of all that is raised in the first repeat, the share of tokens read so far, from −1 to 1: [layer, head, text]."""
    raised = (logits - logits.mean(-1, keepdim=True)).relu()
    shares = []
    for text, ids in enumerate(tokens):
        read = sum(raised[:, text, row, :, ids[: row + 1]].sum(-1) for row in range(SEQ_LEN))
        shares.append(read / raised[:, text, :SEQ_LEN].sum((1, 3)))
    return 2 * torch.stack(shares, -1) - 1


def copied_slowly(model: "Transformer", layer: int, head: int, sign: int) -> list[bool]:
    """Of each token: is it among the five highest logits of what the head adds, read by the model's own end?"""
    block, shared = model.layers[layer], head // model.config.queries_per_kv
    streams = alone(model, "blocks.0.hook_resid_post", NAMED)
    values = (block.ln1.normalize(streams) if block.ln1 else streams) @ model.W_V[layer, shared]
    if model.config.qkv_bias:
        values = values + model.weights()[f"blocks.{layer}.attn.b_V"][shared]
    added = values @ model.W_O[layer, head]
    added = block.ln1_post.normalize(added) if block.ln1_post else added
    highest = model.unembed_residual(sign * added).topk(5).indices
    return [token in row for token, row in zip(NAMED, highest, strict=True)]


class TestAgainstTheDefinitions:
    @pytest.mark.parametrize("embedding", ["tokens", "block_0"])
    def test_the_eigenvalue_score_is_that_of_the_whole_matrix(self, model: "Transformer", embedding: str) -> None:
        found = scored(model, which=["ov_eigenvalue"], embedding=embedding)
        point = "hook_embed" if embedding == "tokens" else "blocks.0.hook_resid_post"
        rows = alone(model, point, range(BASE.d_vocab)).numpy().astype(np.float64)
        unembedding = model.W_U.numpy().astype(np.float64)
        centred = unembedding - unembedding.mean(-1, keepdims=True)
        first = int(embedding == "block_0")
        assert np.isnan(found["ov_eigenvalue"][:first]).all()  # layer 0 reads nothing from behind block 0
        for layer, head in HEADS[first * BASE.n_heads :]:
            for name, columns in (("ov_eigenvalue", unembedding), ("ov_eigenvalue_centred", centred)):
                expected = dense_score(model, layer, head, rows, columns)
                assert found[name][layer, head] == pytest.approx(expected, abs=1e-5)

    def test_the_direct_scores_are_those_of_all_logits_of_all_heads(
        self, model: "Transformer", scores: CopyingScores
    ) -> None:
        tokens = torch.tensor(scores["tokens"])
        logits = direct_logits(model, tokens)
        np.testing.assert_allclose(scores["behavioural_by_text"], behavioural_slowly(logits, tokens), atol=1e-5)
        np.testing.assert_allclose(scores["raised_share_by_text"], raised_slowly(logits, tokens), atol=1e-5)

    def test_a_token_is_copied_if_it_is_among_the_highest_logits(
        self, model: "Transformer", scores: CopyingScores
    ) -> None:
        for layer, head in HEADS[BASE.n_heads :]:
            assert scores["copied"][layer, head].tolist() == copied_slowly(model, layer, head, 1)
            assert scores["suppressed"][layer, head].tolist() == copied_slowly(model, layer, head, -1)
        assert np.isnan(scores["ioi_copy"][0]).all()
        np.testing.assert_allclose(scores["ioi_copy"][1:], scores["copied"][1:].mean(-1))

    def test_the_weights_keep_their_bytes_and_a_second_run_its_bits(
        self, model: "Transformer", scores: CopyingScores
    ) -> None:
        fresh = tiny(model.config).weights()
        again = scored(model)
        assert all(torch.equal(weight, fresh[name]) for name, weight in model.weights().items())
        assert again.identical(scores)

    def test_memory_for_next_to_nothing_changes_no_score(self, model: "Transformer", scores: CopyingScores) -> None:
        narrow = scored(model, max_bytes=1)
        for name in scores.metrics:
            np.testing.assert_allclose(narrow[name], scores[name], atol=1e-5)


def test_every_device_finds_the_same(device: str) -> None:
    here, there = scored(tiny()), scored(tiny(device=device))
    for name in here.metrics:
        np.testing.assert_allclose(there[name], here[name], atol=1e-4)


def test_half_precision_has_the_eigenvalues_of_its_rounded_weights(device: str) -> None:
    half = tiny(dtype=torch.bfloat16, device=device)
    same = deepcopy(half).float()
    found, expected = (scored(each, which=["ov_eigenvalue"])["ov_eigenvalue"] for each in (half, same))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.isfinite(scored(half)["behavioural"]).all()


@pytest.mark.parametrize(("name", "centred"), [("ov_eigenvalue", False), ("ov_eigenvalue_centred", True)])
def test_the_eigenvalues_are_those_of_the_full_ov_circuit(name: str, centred: bool) -> None:
    model = tiny()
    eigenvalues = full_ov(model, 1, 4, centred=centred).eigenvalues()
    expected = float(eigenvalues.real.sum() / eigenvalues.abs().sum())
    assert scored(model, which=["ov_eigenvalue"])[name][1, 4] == pytest.approx(expected, abs=1e-5)


def test_what_block_0_makes_of_a_token_is_read_behind_the_prefix() -> None:
    model, tokens = induction_circuit(CIRCUIT), torch.tensor([[0, 20], [0, 21]])
    _, cache = model.run_with_cache(tokens, ["blocks.0.hook_resid_post"])
    (states,) = embeddings(model, tokens[:, 1], embedding="block_0", prefix="doc")
    torch.testing.assert_close(states, cache["resid_post", 0][:, 1], rtol=0, atol=0)


def test_the_same_added_to_all_logits_moves_only_the_score_that_is_not_centred() -> None:
    model, shifted = (tiny(CONFIGS["untied"]) for _ in range(2))
    shifted.weights()["unembed.W_U"].add_(torch.randn(BASE.d_model, 1, generator=torch.Generator().manual_seed(0)))
    before, after = (scored(each, which=["ov_eigenvalue"]) for each in (model, shifted))
    np.testing.assert_allclose(after["ov_eigenvalue_centred"], before["ov_eigenvalue_centred"], atol=1e-5)
    assert np.abs(after["ov_eigenvalue"] - before["ov_eigenvalue"]).max() > 0.1


@pytest.fixture(scope="module")
def by_hand() -> CopyingScores:
    return copying_scores(induction_circuit(CIRCUIT), seq_len=9, n_seqs=4)


class TestTheHandWrittenInductionCircuit:
    def test_the_induction_head_copies_and_the_suppressor_does_the_reverse(self, by_hand: CopyingScores) -> None:
        for head, (sign, logit) in SPEAKERS.items():
            assert by_hand["ov_eigenvalue"][head] == pytest.approx(sign)
            assert by_hand["ov_eigenvalue_centred"][head] == pytest.approx(sign)
            assert by_hand["behavioural"][head] == pytest.approx(logit * ABOVE_MEAN, rel=1e-6)
            assert by_hand["ioi_copy"][head] == (sign > 0)
            assert by_hand["ioi_copy_negative"][head] == (sign < 0)

    def test_heads_that_say_nothing_have_no_share_and_copy_nothing(self, by_hand: CopyingScores) -> None:
        silent = [head for head in np.ndindex(2, 4) if Head(*head) not in SPEAKERS]
        for head in silent:
            assert np.isnan([by_hand["ov_eigenvalue"][head], by_hand["raised_share"][head]]).all()
            assert by_hand["behavioural"][head] == 0
            assert not by_hand["copied"][head].any()
            assert not by_hand["suppressed"][head].any()

    def test_a_head_that_looks_everywhere_raises_what_it_has_read_and_nothing_else(self) -> None:
        model = induction_circuit(CIRCUIT)
        model.W_Q[1].zero_()
        scores = copying_scores(model, which=["raised_share"], seq_len=9, n_seqs=4)
        assert scores["raised_share"][CIRCUIT.induction] == pytest.approx(1, abs=1e-6)
        assert scores["raised_share"][CIRCUIT.suppressor] == pytest.approx(-1, abs=1e-6)


@pytest.fixture(scope="module")
def llama() -> CopyingScores:
    return scored(tiny())


def test_means_lie_in_their_intervals_and_one_text_has_none(llama: CopyingScores) -> None:
    for name in ("behavioural", "raised_share", "ioi_copy", "ioi_copy_negative"):
        low, mean, high = (llama[name + end][1:] for end in ("_low", "", "_high"))
        assert (low <= mean + 1e-12).all()
        assert (mean <= high + 1e-12).all()
        assert (low < high).any()
    assert np.isnan(scored(tiny(), which=["behavioural"], n_seqs=1)["behavioural_low"]).all()


def test_only_what_was_asked_for_is_computed(llama: CopyingScores) -> None:
    for score in SCORES:
        one = scored(tiny(), which=[score])
        assert one.metrics == [name for name in llama.metrics if name.startswith(score)]
        for name in one.metrics:
            np.testing.assert_array_equal(one[name], llama[name])


def test_a_result_is_drawn_told_and_saved(llama: CopyingScores, tmp_path: Path) -> None:
    for metric in llama.metrics:
        np.testing.assert_array_equal(llama.figure(metric).data[0].z, llama[metric])
    told = llama.summary()
    assert told[-1].strip() == llama.caution
    layer, head = np.unravel_index(llama["behavioural"].argmax(), llama["behavioural"].shape)
    assert any(f"highest {layer}.{head} {llama['behavioural'].max():+.4f}" in line for line in told)
    assert Result.load(llama.save(tmp_path / "copying")).identical(llama)


def test_a_model_of_one_layer_is_scored_as_far_as_it_goes() -> None:
    scores = scored(tiny(CONFIGS["gelu_one_layer"]))
    assert np.isfinite(scores["ov_eigenvalue"]).all()
    assert any("share of tokens copied: no head has one" in line for line in scores.summary())


def test_texts_leave_out_what_is_to_be_left_out_and_say_so() -> None:
    scores = scored(tiny(), which=["behavioural"], exclude_least=50, counts=-np.arange(67.0) + 67)
    assert scores["tokens"].max() < 67 - 50
    assert scores.settings["exclude_least"] == 50


def test_intervals_follow_the_seed_on_the_same_tokens() -> None:
    first, second = (scored(tiny(), which=["ioi_copy"], top_k=30, seed=seed) for seed in (0, 1))
    np.testing.assert_array_equal(first["ioi_copy"], second["ioi_copy"])
    assert not np.array_equal(first["ioi_copy_low"], second["ioi_copy_low"], equal_nan=True)


def test_progress_counts_up_to_its_total() -> None:
    calls: list[tuple[int, int]] = []
    scored(tiny(), max_bytes=1, progress=lambda done, total: calls.append((done, total)))
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1][0] == calls[-1][1]


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        ("post_norm", {}, "direct path"),
        ("grouped_query", {"which": []}, "a list of scores"),
        ("grouped_query", {"which": ["copying"]}, "a list of scores"),
        ("grouped_query", {"embedding": "block_1"}, "tokens, block_0"),
        ("grouped_query", {"top_k": 0}, "1 to 67"),
        ("grouped_query", {"tokens": [3, 3]}, "each once"),
        ("grouped_query", {"tokens": [67]}, "0 to 66"),
        ("grouped_query", {"seq_len": 5000}, "context is 8192"),
        ("grouped_query", {"seq_len": 68}, "too small to draw 68"),
    ],
)
def test_what_cannot_be_scored_is_refused_with_the_reason(
    config: str, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        scored(tiny(CONFIGS[config]), **settings)


NAMES = [" Mary", " John", " Sarah", " David", " Paul", " Emily", " George", " Alice"]
COPIES, INDUCES, SUPPRESSES, SUPPRESSES_NAMES = (23, 2), (18, 6), (24, 4), (23, 3)


@pytest.fixture(scope="module")
def real(smollm2: "Transformer") -> CopyingScores:
    return copying_scores(smollm2, which=["ov_eigenvalue", "behavioural", "ioi_copy"], n_seqs=4, tokens=NAMES)


class TestSmolLM2:
    def test_a_copying_and_an_induction_head_raise_what_comes_next_and_another_lowers_it(
        self, real: CopyingScores
    ) -> None:
        assert real["behavioural"][COPIES] > 0.5
        assert real["behavioural_low"][INDUCES] > 0
        assert real["behavioural_high"][SUPPRESSES] < -0.3

    def test_few_heads_copy_names_and_one_suppresses_them_all(self, real: CopyingScores) -> None:
        assert real["ioi_copy"][COPIES] > 0.7
        assert real["ioi_copy_negative"][SUPPRESSES_NAMES] > 0.8
        assert np.nanmean(real["ioi_copy"]) < 0.1

    def test_more_heads_have_a_positive_eigenvalue_score_than_a_negative_one(self, real: CopyingScores) -> None:
        for name in ("ov_eigenvalue", "ov_eigenvalue_centred"):
            assert np.abs(real[name]).max() <= 1
            assert 0.55 < (real[name] > 0).mean() < 0.75
