"""The matrices of a head give what the model computes: its scores at any distance, what it writes, what it says."""

from dataclasses import replace
from pathlib import Path
from string import ascii_letters

import numpy as np
import pytest
import torch
from tiny import BASE, CONFIGS, random_tokens, tiny
from torch import Tensor

from interp.analyses import folded as folded_module
from interp.analyses.head_circuits import HeadCircuit, full_ov, full_qk, head_circuit, ov_circuit, qk_circuit
from interp.errors import UsageError
from interp.models.config import ModelConfig, RotaryConfig
from interp.models.constructed import induction_circuit
from interp.models.positions import alibi_slopes
from interp.models.processing import process
from interp.models.prompt_formats import PrefixPolicy
from interp.models.transformer import Transformer
from interp.results import Result

LAYER, HEAD = 1, 4
OFFSETS = (0, 1, 7, 100)

_YARN = RotaryConfig(theta=500.0, scaling="yarn", factor=4.0, original_context=64)
_LONG = RotaryConfig(
    theta=500.0, scaling="longrope", factor=4.0, original_context=64, rotated=6,
    short_factor=(1.0, 1.1, 1.3), long_factor=(1.5, 2.5, 4.0),
)  # fmt: skip
SCORED: dict[str, ModelConfig] = {
    **{name: CONFIGS[name] for name in ("grouped_query", "multi_head", "multi_query", "rotary_llama3", "biases")},
    **{name: CONFIGS[name] for name in ("partial_rotary", "adjacent_pairs", "no_positions_on_some_layers", "alibi")},
    **{name: CONFIGS[name] for name in ("layer_norm", "custom_scale", "norm_offset", "post_norm", "parallel")},
    "learned_positions": replace(CONFIGS["learned_positions"], n_ctx=128),
    "yarn": replace(BASE, rotary=_YARN),
    "longrope": replace(BASE, rotary=_LONG),
    "dynamic": replace(BASE, rotary=RotaryConfig(scaling="dynamic", factor=2.0, original_context=64)),
    "sandwich_norm": CONFIGS["sandwich_norm"],
}
"""Attention of all kinds whose scores are products of query and key."""
SCORED["norm_offset"] = replace(SCORED["norm_offset"], qk_norm="none")
FOLDED = {
    name: CONFIGS[name]
    for name in ("grouped_query", "layer_norm", "norm_offset", "sandwich_norm", "embed_norm_and_scale", "untied")
}


def read_by(model: Transformer, tokens: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """What the heads of a layer read, [pos, d_model], and their scores, [head, query, key]."""
    reads = "ln1.hook_normalized" if model.config.norms in ("pre", "sandwich") else "hook_resid_pre"
    names = [f"blocks.{layer}.{reads}", f"blocks.{layer}.attn.hook_attn_scores"]
    _, cache = model.run_with_cache(tokens, names, stop_at_layer=layer + 1)
    return cache[names[0]][0], cache[names[1]][0]


class TestScores:
    @pytest.mark.parametrize("config", SCORED.values(), ids=SCORED)
    def test_they_are_the_models_at_every_distance(self, config: ModelConfig) -> None:
        model, length = tiny(config), 104
        x, scores = read_by(model, random_tokens(config, 1, length), LAYER)
        x = torch.cat([x, torch.ones(length, 1)], -1)
        if config.alibi:  # the model counts from the first key, not from the query
            scores = scores - alibi_slopes(config.n_heads)[:, None, None] * torch.arange(length)[:, None]
        for offset in OFFSETS:
            circuit = qk_circuit(model, LAYER, HEAD, offset=offset, length=length, constant=True).matrix()
            found = torch.einsum("qi,ij,qj->q", x[offset:], circuit, x[: length - offset])
            torch.testing.assert_close(found, scores[HEAD].diagonal(-offset), atol=1e-4, rtol=1e-5)

    @pytest.mark.parametrize("offset", OFFSETS)
    def test_they_are_the_models_for_residuals_with_a_single_one(self, offset: int) -> None:
        """Each entry of the matrix is the score of two directions of the residual stream, behind their norm."""
        model, directions, keys = tiny(), torch.eye(BASE.d_model), [0, 13, 29]
        reads = {"q": directions.repeat(len(keys), 1), "k": directions[keys].repeat_interleave(BASE.d_model, 0)}
        hooks = [
            (f"blocks.1.hook_{name}_input", lambda value, point, rows=rows: rows[:, None, None].expand_as(value))
            for name, rows in reads.items()
        ]
        tokens, name = torch.zeros(len(reads["q"]), offset + 1, dtype=torch.long), "blocks.1.attn.hook_attn_scores"
        with model.hooks(hooks):
            _, cache = model.run_with_cache(tokens, [name], stop_at_layer=2)
        found = cache[name][:, HEAD, -1, 0].view(len(keys), BASE.d_model).mT
        normed = model.layers[1].ln1.normalize(directions)
        expected = normed @ qk_circuit(model, 1, HEAD, offset=offset).matrix() @ normed[keys].mT
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)

    def test_a_soft_cap_comes_behind_them(self) -> None:
        model, cap = tiny(CONFIGS["score_cap"]), CONFIGS["score_cap"].score_cap
        x, scores = read_by(model, random_tokens(model.config, 1, 9), LAYER)
        found = torch.einsum("qi,ij,qj->q", x[2:], qk_circuit(model, LAYER, HEAD, offset=2).matrix(), x[:-2])
        torch.testing.assert_close(cap * torch.tanh(found / cap), scores[HEAD].diagonal(-2))

    def test_biases_stand_in_a_row_and_a_column_of_their_own(self) -> None:
        model = tiny(CONFIGS["biases"])
        plain, all_of_it = (qk_circuit(model, LAYER, HEAD, offset=3, constant=constant) for constant in (False, True))
        assert all_of_it.shape == (31, 31)
        torch.testing.assert_close(all_of_it.matrix()[:-1, :-1], plain.matrix())
        assert all_of_it.matrix()[-1].abs().min() > 0

    def test_where_nothing_turns_the_distance_changes_nothing(self) -> None:
        model = tiny(CONFIGS["no_positions_on_some_layers"])
        near, far = (qk_circuit(model, 1, HEAD, offset=offset).matrix() for offset in (0, 50))
        torch.testing.assert_close(near, far)
        assert not torch.allclose(qk_circuit(model, 0, HEAD).matrix(), qk_circuit(model, 0, HEAD, offset=50).matrix())

    def test_they_are_those_of_the_real_model_on_a_text(self, smollm2: Transformer) -> None:
        tokens = smollm2.to_tokens("The cat sat on the mat, and then the cat sat on the dog. " * 8)[:, :108]
        for layer, head in ((0, 2), (18, 6)):
            x, scores = read_by(smollm2, tokens, layer)
            for offset in OFFSETS:
                circuit = qk_circuit(smollm2, layer, head, offset=offset)
                found = ((x[offset:] @ circuit.left) * (x[: len(x) - offset] @ circuit.right.mT)).sum(-1)
                expected = scores[head].diagonal(-offset)
                assert float((found - expected).abs().max()) < 1e-5 * float(expected.abs().max())


class TestWhatAHeadWrites:
    @pytest.mark.parametrize("name", ["grouped_query", "biases", "layer_norm", "post_norm", "moe_top2"])
    def test_it_is_what_the_model_adds_for_a_text_of_one_token(self, name: str) -> None:
        """There the pattern is 1, so that a head's result is its OV circuit's, and its value bias's."""
        model = tiny(CONFIGS[name])
        tokens = random_tokens(model.config, 5, 1)
        reads = "hook_resid_pre" if name == "post_norm" else "ln1.hook_normalized"
        names = [f"blocks.{LAYER}.{reads}", f"blocks.{LAYER}.attn.hook_result"]
        _, cache = model.run_with_cache(tokens, names)
        x, result = (cache[each][:, 0] for each in names)
        added = x @ ov_circuit(model, LAYER, HEAD).matrix()
        if name == "biases":
            kv_head = HEAD // model.config.queries_per_kv
            added = added + model.weights()[f"blocks.{LAYER}.attn.b_V"][kv_head] @ model.W_O[LAYER, HEAD]
        torch.testing.assert_close(added, result[:, HEAD], atol=1e-5, rtol=1e-5)


class TestTheFullCircuits:
    @pytest.mark.parametrize("config", FOLDED.values(), ids=FOLDED)
    def test_ov_is_the_dense_product_of_a_processed_model(self, config: ModelConfig) -> None:
        model = tiny(config)
        folded, _ = process(model, center_unembedding=False)
        tokens = torch.arange(config.d_vocab)[:, None]
        embedded = folded.run_with_cache(tokens, ["hook_embed"])[1]["hook_embed"][:, 0]
        w_v, w_o = folded.W_V[LAYER, HEAD // config.queries_per_kv], folded.W_O[LAYER, HEAD]
        if config.norms == "sandwich":  # which processing leaves as it is
            w_o = w_o * model.weights()[f"blocks.{LAYER}.ln1_post.w"]
        found = full_ov(model, LAYER, HEAD)
        expected = embedded @ w_v @ w_o @ folded.W_U
        torch.testing.assert_close(found.matrix(), expected, atol=1e-3, rtol=1e-4)
        assert found.rank == config.d_head
        expected -= expected.mean(-1, keepdim=True)
        torch.testing.assert_close(full_ov(model, LAYER, HEAD, centred=True).matrix(), expected, atol=1e-3, rtol=1e-4)

    @pytest.mark.parametrize("config", FOLDED.values(), ids=FOLDED)
    def test_qk_holds_the_scores_of_the_first_layer_but_for_divisions(self, config: ModelConfig) -> None:
        """There nothing but the embedding stands in the residual stream, and the norms' biases are all that is left."""
        model = tiny(replace(config, qk_norm="none"))
        if config.norm == "layer":
            model.weights()["blocks.0.ln1.b"].zero_()
        tokens = random_tokens(config, 1, 9)
        names = ["blocks.0.ln1.hook_scale", "blocks.0.attn.hook_attn_scores"]
        _, cache = model.run_with_cache(tokens, names)
        scale, scores = cache[names[0]][0, :, 0], cache[names[1]][0, HEAD]
        for offset in (0, 1, 7):
            q, k = torch.arange(offset, 9), torch.arange(9 - offset)
            circuit = full_qk(model, 0, HEAD, offset=offset).matrix()
            found = circuit[tokens[0, q], tokens[0, k]] / (scale[q] * scale[k])
            torch.testing.assert_close(found, scores[q, k], atol=1e-4, rtol=1e-5)

    @pytest.mark.parametrize("norm", ["head", "width"])
    def test_norms_of_queries_and_keys_give_their_gains(self, norm: str) -> None:
        """A norm of gain g is the same, divisions left out, as none behind matrices that hold g."""
        model = tiny(replace(BASE, qk_norm=norm))
        plain = Transformer(BASE)
        weights = model.weights()
        for name, weight in plain.weights().items():
            weight.copy_(weights[name])
        for letter, gain in (("Q", "q_norm.w"), ("K", "k_norm.w")):
            by_head = weights[f"blocks.1.attn.{gain}"].view(-1, 1, BASE.d_head)
            plain.weights()[f"blocks.1.attn.W_{letter}"].mul_(by_head)
        found, expected = (full_qk(each, 1, HEAD, offset=3).matrix() for each in (model, plain))
        torch.testing.assert_close(found, expected)

    @pytest.mark.parametrize("prefix", ["doc", "none"])
    def test_block_0_reads_each_token_alone_behind_the_prefix(
        self, prefix: PrefixPolicy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(folded_module, "TEXTS_AT_ONCE", 20)
        model, chosen = induction_circuit(), torch.tensor([0, 1, 19, 20, 53])
        before = torch.full((5, 1), model.tokenizer.doc_separator_id) if prefix == "doc" else torch.empty(5, 0).long()
        texts = torch.cat([before, chosen[:, None]], 1)
        alone = model.run_with_cache(texts, ["blocks.0.hook_resid_post"])[1]["resid_post", 0][:, -1]
        gain = model.weights()["blocks.1.ln1.w"] * model.weights()["ln_final.w"]
        expected = alone * gain @ model.W_V[1, 2] @ model.W_O[1, 2] @ model.W_U
        found = full_ov(model, 1, 2, embedding="block_0", prefix=prefix).rows(chosen)
        assert alone[2:].count_nonzero() > 3 * 2  # it holds more than token and position
        torch.testing.assert_close(found, expected)

    def test_the_induction_head_made_by_hand_says_what_it_reads(self) -> None:
        """It looks for keys whose previous token is the query, and says the token that stands there itself."""
        model = induction_circuit()
        said = full_ov(model, 1, 2).matrix()
        assert torch.equal(said, said.diagonal().diag_embed())
        assert torch.equal(said.diagonal() > 0, torch.arange(len(said)) > 0)  # all but the separator

    def test_the_model_stays_as_it_is(self) -> None:
        model = tiny(CONFIGS["norm_offset"])
        before = {name: weight.clone() for name, weight in model.weights().items()}
        full_ov(model, LAYER, HEAD, embedding="block_0", prefix="none").top_entries(3)
        full_qk(model, LAYER, HEAD, offset=2).eigenvalues()
        ov_circuit(model, LAYER, HEAD).svd()
        assert all(torch.equal(weight, before[name]) for name, weight in model.weights().items())

    def test_half_precision_is_computed_in_float32(self, device: str) -> None:
        model = tiny(dtype=torch.bfloat16, device=device)
        exact = tiny(device=device)
        for name, weight in exact.weights().items():
            weight.copy_(model.weights()[name])
        for circuit in (full_ov, full_qk):
            torch.testing.assert_close(circuit(model, LAYER, HEAD).matrix(), circuit(exact, LAYER, HEAD).matrix())


@pytest.fixture(scope="module")
def circuit() -> HeadCircuit:
    return head_circuit(tiny(), LAYER, HEAD, offset=3, top_k=4)


class TestTheResult:
    def test_pairs_are_the_largest_entries_of_the_full_circuits(self, circuit: HeadCircuit) -> None:
        scale = (tiny().W_E.square().mean(-1, keepdim=True) + BASE.norm_eps).sqrt()
        for names, full in (
            (("query_id", "key_id", "score"), full_qk(tiny(), LAYER, HEAD, offset=3).matrix() / scale / scale.T),
            (("read_id", "said_id", "logit"), full_ov(tiny(), LAYER, HEAD, centred=True).matrix() / scale),
        ):
            rows, columns, values = (circuit[name] for name in names)
            np.testing.assert_allclose(values, full.flatten().topk(4).values, rtol=1e-5)
            np.testing.assert_allclose(values, full.numpy()[rows, columns], rtol=1e-5)
        assert list(circuit["query"]) == [str(index) for index in circuit["query_id"]]  # for want of a tokenizer

    def test_spectra_are_those_of_the_folded_matrices(self, circuit: HeadCircuit) -> None:
        folded, _ = process(tiny())
        kv_head = HEAD // BASE.queries_per_kv
        dense = folded.W_V[LAYER, kv_head] @ folded.W_O[LAYER, HEAD]
        np.testing.assert_allclose(circuit["ov_singular"], torch.linalg.svdvals(dense)[:10], rtol=1e-4)
        alone = folded.W_E / (folded.W_E.square().mean(-1, keepdim=True) + BASE.norm_eps).sqrt()
        values = torch.linalg.eigvals(alone @ dense @ folded.W_U)
        values = values[values.abs().argsort(descending=True)][:10]
        np.testing.assert_allclose(circuit["ov_eigenvalue_real"], values.real, atol=1e-3, rtol=1e-3)
        np.testing.assert_allclose(np.abs(circuit["ov_eigenvalue_imaginary"]), values.imag.abs(), atol=1e-3, rtol=1e-3)
        turned = qk_circuit(process(tiny())[0], LAYER, HEAD, offset=3)
        np.testing.assert_allclose(circuit["qk_singular"], turned.svd().S, rtol=1e-4)

    def test_scores_of_the_first_layer_are_the_models_own(self) -> None:
        """A text of these two tokens: nothing but embeddings stands in the stream, and nothing is left out."""
        circuit = head_circuit(tiny(), 0, HEAD, offset=1, top_k=5)
        texts = torch.tensor(np.stack([circuit["key_id"], circuit["query_id"]], -1))
        _, cache = tiny().run_with_cache(texts, ["blocks.0.attn.hook_attn_scores"])
        np.testing.assert_allclose(circuit["score"], cache["attn_scores", 0][:, HEAD, 1, 0], rtol=1e-5)

    def test_it_names_words_where_there_is_a_tokenizer(self) -> None:
        circuit = head_circuit(induction_circuit(), 1, 2, top_k=3)
        assert list(circuit["read"]) == list(circuit["said"])
        assert set(circuit["read"]) <= {f" {letter}" for letter in ascii_letters} | {"<unk>"}

    def test_summary_and_figure_say_which_head_at_which_offset(self, circuit: HeadCircuit, tmp_path: Path) -> None:
        lines = circuit.summary()
        assert lines[0] == "Circuit of a head: 1.4 at offset 3"
        assert len(lines) == 1 + 5 + 5 + 1
        figure = circuit.figure()
        assert figure.layout.title.text == lines[0]
        assert [len(trace.x) for trace in figure.data] == [10, 10, 10]
        assert Result.load(circuit.save(tmp_path / "head")).identical(circuit)


class TestWhatIsRefused:
    @pytest.mark.parametrize("place", [(3, 0), (-1, 0), (0, 6), (0, -1)])
    def test_a_head_that_does_not_exist(self, place: tuple[int, int]) -> None:
        for circuit in (qk_circuit, ov_circuit, full_qk, full_ov):
            with pytest.raises(UsageError, match=rf"no component {place[0]}\.{place[1]}"):
                circuit(tiny(), *place)

    @pytest.mark.parametrize("offset", [-1, 8192])
    def test_an_offset_that_no_query_reaches(self, offset: int) -> None:
        for circuit in (qk_circuit, full_qk):
            with pytest.raises(UsageError, match="the keys 0 to 8191 positions before its own"):
                circuit(tiny(), 0, 0, offset=offset)

    def test_an_offset_beyond_the_window_of_the_layer(self) -> None:
        model = tiny(CONFIGS["mixed_windows"])
        with pytest.raises(UsageError, match="layer 0 reads the keys 0 to 2 "):
            qk_circuit(model, 0, 0, offset=3)
        assert qk_circuit(model, 1, 0, offset=3).shape == (30, 30)

    @pytest.mark.parametrize("length", [3, 8193])
    def test_a_text_that_holds_no_such_query(self, length: int) -> None:
        for circuit in (qk_circuit, full_qk, head_circuit):
            with pytest.raises(UsageError, match=f"length is {length}: a text .* has 4 to 8192"):
                circuit(tiny(), 0, 0, offset=3, length=length)

    def test_scores_of_queries_that_are_divided_by_their_size(self) -> None:
        with pytest.raises(UsageError, match="divides each query and key"):
            qk_circuit(tiny(CONFIGS["qk_norm_head"]), 0, 0)

    def test_folding_what_stands_in_the_residual_stream(self) -> None:
        with pytest.raises(UsageError, match="stand in the residual stream itself"):
            full_ov(tiny(CONFIGS["post_norm"]), 0, 0)

    @pytest.mark.usefixtures("shapes_unchecked")
    def test_an_embedding_that_is_none(self) -> None:
        with pytest.raises(UsageError, match="expected one of tokens, block_0"):
            full_ov(tiny(), 0, 0, embedding="words")
