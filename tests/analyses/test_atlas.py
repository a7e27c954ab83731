"""The head atlas: exact on a circuit written by hand, the attentions of the reference, plausible on a real model."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tiny import CONFIGS, reference, tiny

from interp.analyses import scored_texts
from interp.analyses.atlas import HeadAtlas, head_atlas
from interp.analyses.atlas_copying import COPYING, WHICH
from interp.analyses.copying import copying_scores
from interp.analyses.documents import Document, bundled
from interp.analyses.head_roles import ACTIVE, IDLE, labelled, strengths
from interp.analyses.induction import score_heads
from interp.analyses.role_scores import RANDOM, averaged, document_scores
from interp.errors import UsageError
from interp.models.circuits import InductionCircuit
from interp.models.constructed import induction_circuit
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


class TestRoles:
    def test_a_head_has_the_role_in_which_it_is_furthest_above_uniform(self) -> None:
        found = {role: np.array([[0.0, 0.0, 0.0, 0.0]]) for role in (*ACTIVE, "sink")}
        found["induction"] = np.array([[0.3, 0.09, 0.2, -0.1]])
        found["delimiter"] = np.array([[0.1, 0.02, 0.9, np.nan]])
        roles, strength = labelled(found, threshold=0.1)
        assert roles.tolist() == [["induction", "none", "delimiter", "none"]]
        assert strength.tolist() == [[0.3, 0.09, 0.9, 0.0]]

    def test_resting_is_a_role_only_where_there_is_no_other(self) -> None:
        found = {"induction": np.array([[0.2, 0.0, 0.0]]), "sink": np.array([[0.8, 0.8, 0.4]])}
        roles, strength = labelled(found, threshold=0.1)
        assert roles.tolist() == [["induction", "sink", "none"]]
        assert strength.tolist() == [[0.2, 0.0, 0.0]]

    def test_one_kind_of_text_is_enough_and_one_order_of_nouns_is_not(self) -> None:
        some, other = np.array([[0.5, 0.1]]), np.array([[-0.2, 0.3]])
        found = strengths({
            "previous_token": some, "random_previous_token": other,
            "agreement_written": some, "agreement_swapped": other,
        })  # fmt: skip
        assert found["previous token"].tolist() == [[0.5, 0.3]]
        assert found["agreement"].tolist() == [[-0.2, 0.1]]

    def test_without_ordinary_text_the_roles_of_random_text_remain(self) -> None:
        found = strengths({name: np.zeros((1, 1)) for name in RANDOM})
        assert list(found) == ["induction", "previous token", "current token", "same token", "sink"]


def test_a_text_without_a_value_counts_for_nothing() -> None:
    score = averaged(np.array([[[1.0, np.nan, 3.0], [np.nan] * 3]]), np.array([0.1, np.nan, 0.3]))
    assert score.mean[0, 0] == 2
    assert score.error[0, 0] == pytest.approx(np.std([1, 3], ddof=1) / np.sqrt(2))
    assert score.uniform == pytest.approx(0.2)
    assert np.isnan(score.mean[0, 1])
    assert np.isnan(averaged(np.ones((1, 1, 1)), np.ones(1)).error).all()


@pytest.fixture(scope="module")
def by_hand() -> HeadAtlas:
    return head_atlas(induction_circuit(), seq_len=20, n_seqs=3, n_documents=2, doc_len=64)


class TestTheCircuitWrittenByHand:
    def test_its_heads_have_the_roles_that_they_were_given(self, by_hand: HeadAtlas) -> None:
        circuit = InductionCircuit()
        for head, role in ((circuit.previous, "previous token"), (circuit.induction, "induction")):
            assert by_hand.at("role", layer=head.layer, head=head.head) == role
            assert by_hand.at("strength", layer=head.layer, head=head.head) == pytest.approx(1, abs=1e-5)

    def test_its_idle_heads_look_at_everything_alike_and_have_no_role(self, by_hand: HeadAtlas) -> None:
        assert (by_hand["role"] == "none").sum() == by_hand["role"].size - 2
        for name, uniform in zip(by_hand.scores, by_hand["uniform"], strict=True):
            assert by_hand.at(name, layer=0, head=0) == pytest.approx(uniform, rel=1e-4, abs=1e-6, nan_ok=True)

    def test_what_its_heads_copy_stands_beside_where_they_look(self, by_hand: HeadAtlas) -> None:
        alone = copying_scores(induction_circuit(), which=WHICH, seq_len=20, n_seqs=3)
        for name in COPYING:
            np.testing.assert_array_equal(by_hand[name], alone[name])
        best = by_hand.ranked(1, by="behavioural")
        assert (best["layer"][0], best["head"][0]) == InductionCircuit().induction
        assert best["ioi_copy"][0] == 1
        assert (
            f"logit of the next token above the mean {best['behavioural'][0]:+.3f}"
            in by_hand.figure().data[0].customdata[1][2]
        )
        assert "copying: from weights, on 3 random texts of 2 × 20 tokens" in "\n".join(by_hand.summary())

    def test_one_document_is_one_document(self) -> None:
        atlas = head_atlas(induction_circuit(), seq_len=9, n_seqs=1, n_documents=1, doc_len=64, copying=False)
        assert "1 random text of 2 × 9 tokens, 1 document of 64 tokens" in atlas.summary()[0]
        with pytest.raises(UsageError, match="they were not asked for"):
            atlas.ranked(by="ioi_copy")


def test_a_model_whose_heads_have_no_direct_path_has_no_copying_scores_and_says_why() -> None:
    seen: list[tuple[int, int]] = []
    asked = {"seq_len": 6, "n_seqs": 4, "prefix": "none"}
    atlas = head_atlas(tiny(CONFIGS["post_norm"]), **asked, progress=lambda *at: seen.append(at))
    assert not set(COPYING) & set(atlas.arrays)
    assert "no head has a direct path" in "\n".join(atlas.summary())
    assert seen[-1] == (8, 8)
    with pytest.raises(UsageError, match="no head has a direct path"):
        atlas.ranked(by="ov_eigenvalue")


@pytest.mark.parametrize("name", ["grouped_query", "gelu_one_layer"])
def test_a_model_without_a_tokenizer_is_given_random_text_alone(name: str, tmp_path: Path) -> None:
    model = tiny(CONFIGS[name])
    atlas = head_atlas(model, seq_len=6, repeats=3, n_seqs=4, prefix="none", seed=3)
    scores = score_heads(model, seq_len=6, repeats=3, n_seqs=4, prefix="none", seed=3)
    for ours, theirs in RANDOM.items():
        assert np.array_equal(atlas[ours], scores[theirs])
        assert np.array_equal(atlas[f"{ours}_se"], scores[f"{theirs}_se"])
    assert np.array_equal(atlas["prefix_matching_sink_free"], scores["prefix_matching_sink_free"])
    assert np.array_equal(atlas["random_tokens"], scores["tokens"])
    assert "entropy" not in atlas
    assert "no tokenizer" in "\n".join(atlas.summary())
    assert atlas["kv_head"].tolist() == [head // model.config.queries_per_kv for head in range(model.config.n_heads)]
    atlas.save(tmp_path / "atlas")
    assert Result.load(tmp_path / "atlas").identical(atlas)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"threshold": 0.0}, "threshold is 0.0"),
        ({"n_documents": 0}, "no document"),
        ({"documents": []}, "no document"),
        ({"doc_len": 1}, "doc_len is 1: expected 2 to 127"),
        ({"doc_len": 128}, "doc_len is 128: expected 2 to 127"),
        ({"documents": [Document("short", "A")]}, "'short' has one token"),
        ({"seq_len": 100}, "context"),
    ],
)
def test_what_cannot_be_read_is_refused(wrong: dict[str, object], message: str) -> None:
    settings = {"seq_len": 9, "n_seqs": 2, "doc_len": 40, **wrong}
    with pytest.raises(UsageError, match=message):
        head_atlas(induction_circuit(), **settings)  # type: ignore[arg-type]  # wrong on purpose


def test_documents_whose_patterns_would_fill_the_memory_are_refused_with_the_length_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert 4000 < scored_texts.longest_text(n_heads=9) < 5000
    monkeypatch.setattr(scored_texts, "LARGEST", 50**2 * 4 * (4 * 4 + scored_texts.WEIGHTS))
    with pytest.raises(UsageError, match="Read at most 49 tokens"):  # and one is the prefix
        head_atlas(induction_circuit(), seq_len=9, n_seqs=1, doc_len=50)


def test_documents_need_a_tokenizer() -> None:
    with pytest.raises(UsageError, match="without a tokenizer"):
        head_atlas(tiny(), prefix="none", documents=bundled())


LENGTH = 48


@pytest.fixture(scope="module")
def real(smollm2: "Transformer") -> HeadAtlas:
    seen: list[tuple[int, int]] = []
    atlas = head_atlas(
        smollm2, n_seqs=4, n_documents=3, doc_len=LENGTH, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == sorted(seen)
    assert seen[-1] == (4 + 4 + 3 + 2 * 48 + 2 * 40,) * 2
    return atlas


class TestSmolLM2:
    def test_scores_are_those_of_the_attentions_of_the_reference(self, real: HeadAtlas, smollm2: "Transformer") -> None:
        tokens = torch.tensor(real["document_tokens"])
        attentions = reference(smollm2)(tokens, output_attentions=True).attentions
        pattern = torch.stack(attentions).double().numpy()  # [layer, document, head, query, key]
        rows = np.arange(2, LENGTH + 1)
        entropy = -(pattern * np.log(np.maximum(pattern, 1e-300))).sum(-1)[..., rows]
        back = np.arange(LENGTH + 1)[:, None] - np.arange(LENGTH + 1)
        direct = {
            "previous_token": pattern[..., rows, rows - 1],
            "current_token": pattern[..., rows, rows],
            "sink": pattern[..., rows, 0],
            "distance": (pattern * back).sum(-1)[..., rows],
            "entropy": entropy,
            "evenness": entropy / np.log(rows + 1),
        }
        for name, values in direct.items():
            scale = 30 if name == "distance" else 1  # tokens back, where the others are shares
            np.testing.assert_allclose(real[name], values.mean((1, 3)), atol=1e-5 * scale, err_msg=name)
        free = (pattern * back)[..., rows, 1:].sum((-1, -2)) / (1 - pattern[..., rows, 0]).sum(-1)
        known = pattern[..., rows, 0].mean((1, 3)) < 0.99  # beyond that the share that is left is all rounding
        np.testing.assert_allclose(real["distance_sink_free"][known], free.mean(1)[known], rtol=1e-3)

    def test_same_tokens_are_found_as_by_a_loop(self, real: HeadAtlas, smollm2: "Transformer") -> None:
        tokens = torch.tensor(real["document_tokens"])
        _, cache = smollm2.run_with_cache(tokens, "blocks.8.attn.hook_pattern")
        means = []
        for ids, pattern in zip(tokens.tolist(), cache["pattern", 8].numpy(), strict=True):
            earlier = {q: [k for k in range(1, q) if ids[k] == ids[q]] for q in range(2, len(ids))}
            found = [pattern[:, q, keys].sum(-1) for q, keys in earlier.items() if keys and q - 1 not in keys]
            means.append(np.mean(found, 0))
        np.testing.assert_allclose(real.at("same_token", layer=8), np.mean(means, 0), atol=1e-5)

    def test_its_subjects_are_found_in_both_orders_by_the_same_head(self, real: HeadAtlas) -> None:
        best = real.ranked(1, role="agreement")
        assert (best["layer"][0], best["head"][0]) == (13, 8)
        assert best["agreement_written"][0] > 0.4
        assert best["agreement_swapped"][0] > 0.7
        assert best["agreement"][0] > 15 * best["agreement_se"][0]

    def test_a_head_that_takes_the_nearest_noun_for_the_subject_has_no_such_role(self, real: HeadAtlas) -> None:
        """Swapped, the subject stands next to the adverb: previous-token heads find it there, and there alone."""
        where = {"layer": 16, "head": 0}
        assert real.at("role", **where) == "previous token"
        assert real.at("agreement_swapped", **where) > 0.3
        assert abs(real.at("agreement", **where)) < 0.1

    def test_some_heads_find_antecedents(self, real: HeadAtlas) -> None:
        found = real.ranked(3, by="coreference")
        assert (found["coreference"] > 0.2).all()
        assert (found["coreference_written"] > 0).all()
        assert (found["coreference"] > 5 * found["coreference_se"]).all()
        assert real["coreference"].mean() < 0.05

    def test_roles_have_their_known_heads(self, real: HeadAtlas) -> None:
        known = {(18, 6): "induction", (17, 3): "induction", (16, 0): "previous token", (11, 6): "current token"}
        assert {head: real["role"][head] for head in known} == known
        assert (real["role"][0] != "induction").all()
        assert 20 < (real["role"] == "sink").sum() < 150

    def test_what_is_told_of_a_head_hangs_together(self, real: HeadAtlas) -> None:
        frame = real.to_frame()
        assert len(frame) == 270
        assert {"role", "strength", "kv_head", *real.scores, *(f"{name}_se" for name in real.scores)} <= set(
            frame.columns
        )
        assert frame["strength"][frame["role"].isin(IDLE)].max() < real.settings["threshold"]
        assert set(frame["role"]) <= {*ACTIVE, *IDLE}
        by_sentence = real["coreference_by_sentence"]
        np.testing.assert_allclose(real["coreference"], by_sentence.mean((-1, -2)), atol=1e-6)
        np.testing.assert_allclose(real["coreference_swapped"], by_sentence[..., 1].mean(-1), atol=1e-6)
        assert any("agreement" in line and "13.8" in line for line in real.summary())

    def test_heads_are_ranked_by_any_score_and_within_a_role(self, real: HeadAtlas) -> None:
        assert real.ranked(5, by="entropy")["entropy"].is_monotonic_decreasing
        assert set(real.ranked(300, role="delimiter")["role"]) == {"delimiter"}
        with pytest.raises(UsageError, match="Did you mean 'delimiter'"):
            real.ranked(3, role="delimeter")
        with pytest.raises(UsageError, match="Did you mean 'entropy'"):
            real.ranked(3, by="entropie")

    def test_the_picture_shows_every_head_once(self, real: HeadAtlas) -> None:
        figure = real.figure()
        maps = [np.isfinite(trace.z) for trace in figure.data if trace.type == "heatmap"]
        assert (np.sum(maps, 0) == 1).all()
        assert "head 13.8: agreement" in figure.data[0].customdata[13][8]
        assert [note.text for note in figure.layout.annotations] == ["KV 0", "KV 1", "KV 2"]

    def test_what_is_read_together_changes_nothing(self, real: HeadAtlas, smollm2: "Transformer") -> None:
        documents = bundled()[:3]
        alone = [
            document_scores(smollm2, [each], length=LENGTH, prefix="doc", max_bytes=1).scores for each in documents
        ]
        for name in ("previous_token", "delimiter", "entropy"):
            np.testing.assert_allclose(real[name], np.mean([each[name].mean for each in alone], 0), atol=1e-5)
        assert [each.name for each in documents] == list(real.settings["documents"])
