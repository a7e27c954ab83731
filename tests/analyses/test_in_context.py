"""The in-context-learning score: by hand, as `transformers` has it, and on the real model."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from published import small_tokenizer
from tiny import BASE, reference, tiny

from interp.analyses.documents import Document, bundled, sha256_of
from interp.analyses.in_context import BEHIND, InContext, Places, documents_as_tokens, in_context_score, smooth
from interp.analyses.intervals import ratio_interval
from interp.analyses.losses import losses_by_text
from interp.errors import UsageError
from interp.models.loading import from_transformers

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

DOCUMENTS = bundled()[:5]
HF = reference(tiny(replace(BASE, d_vocab=311, n_ctx=600)))
MODEL = from_transformers(HF, small_tokenizer(), device="cpu")
SMALL = {"early": 7, "late": 40}


def by_transformers(hf: torch.nn.Module, tokens: np.ndarray) -> np.ndarray:
    """Its own loss of every token of one text but the first."""
    ids = torch.tensor(tokens)
    logits = hf(ids[None], use_cache=False).logits[0, :-1]
    return torch.nn.functional.cross_entropy(logits, ids[1:], reduction="none").numpy()


class TestPlaces:
    LOSSES = np.array([np.arange(1.0, 31.0), np.arange(1.0, 31.0) ** 2])

    def test_a_single_token_is_counted_from_one(self) -> None:
        early, late = Places(3, 20).means(self.LOSSES)
        assert (early.tolist(), late.tolist()) == ([3, 9], [20, 400])

    @pytest.mark.parametrize(("width", "around"), [(2, [9, 10]), (3, [9, 10, 11]), (6, [7, 8, 9, 10, 11, 12])])
    def test_a_window_lies_around_its_token(self, width: int, around: list[int]) -> None:
        _, late = Places(4, 10, width).means(self.LOSSES)
        assert late.tolist() == pytest.approx([np.mean(around), np.mean(np.square(around))])

    def test_the_published_places_need_documents_of_512_tokens(self) -> None:
        assert Places().length == 512
        assert Places(width=25).length == 512
        assert Places(width=49).length == 524

    @pytest.mark.parametrize(
        "places", [(0, 500, 1), (500, 50, 1), (50, 50, 1), (2, 500, 5), (50, 500, 0), (50, 54, 5), (50, 500, 500)]
    )
    def test_places_that_do_not_exist_or_overlap_are_refused(self, places: tuple[int, int, int]) -> None:
        with pytest.raises(UsageError, match=f"around early={places[0]}, none before token 1, .*late={places[1]}"):
            Places(*places)

    def test_windows_may_touch_each_other_and_the_beginning(self) -> None:
        early, late = Places(3, 8, 5).means(self.LOSSES)
        assert (early[0], late[0]) == (3, 8)


@pytest.fixture(scope="module")
def found() -> InContext:
    return in_context_score(MODEL, DOCUMENTS, **SMALL, seed=4)


class TestTheScoreOfARandomModel:
    def test_it_is_that_of_transformers(self, found: InContext) -> None:
        for place, tokens in enumerate(found["tokens"]):
            losses = by_transformers(HF, tokens)
            np.testing.assert_allclose(found["losses"][place], losses, atol=1e-4)
            assert found["score"][place] == pytest.approx(losses[39] - losses[6], abs=1e-4)

    def test_the_mean_and_its_interval_are_over_documents(self, found: InContext) -> None:
        score = found["late_loss"] - found["early_loss"]
        np.testing.assert_array_equal(found["score"], score)
        assert float(found["mean"]) == pytest.approx(score.mean())
        bounds = ratio_interval(score, np.ones(5), seed=4)
        assert (float(found["low"]), float(found["high"])) == (bounds[0], bounds[1])
        assert score.min() < found["low"] < found["mean"] < found["high"] < score.max()
        np.testing.assert_allclose(found["loss"], found["losses"].mean(0), rtol=1e-6)

    def test_the_prefix_is_read_and_not_counted(self, found: InContext) -> None:
        bare = in_context_score(MODEL, DOCUMENTS, **SMALL, prefix="none")
        assert (found["tokens"][:, 0] == MODEL.tokenizer.doc_separator_id).all()
        np.testing.assert_array_equal(found["tokens"][:, 1:], bare["tokens"])
        assert found.axes["place"] == bare.axes["place"] == tuple(range(1, 40 + BEHIND + 1))
        assert np.isnan(bare["losses"][:, 0]).all()
        assert not np.isnan(found["losses"]).any()
        np.testing.assert_allclose(bare["losses"][0, 1:], by_transformers(HF, bare["tokens"][0]), atol=1e-4)

    def test_batches_change_nothing(self, found: InContext) -> None:
        seen: list[tuple[int, int]] = []
        pieces = in_context_score(MODEL, DOCUMENTS, **SMALL, max_bytes=1, progress=lambda *at: seen.append(at))
        np.testing.assert_allclose(pieces["losses"], found["losses"], atol=1e-5)
        assert seen == [(done, 5) for done in range(1, 6)]

    def test_a_window_averages_the_same_losses(self, found: InContext) -> None:
        wide = in_context_score(MODEL, DOCUMENTS, **SMALL, width=3)
        np.testing.assert_allclose(wide["early_loss"], found["losses"][:, 5:8].mean(1), rtol=1e-6)
        np.testing.assert_allclose(wide["late_loss"], found["losses"][:, 38:41].mean(1), rtol=1e-6)
        assert "3 tokens around 40 against 7" in wide.summary()[0]

    def test_what_was_read_is_described(self, found: InContext) -> None:
        assert found.settings["documents_sha256"] == sha256_of(DOCUMENTS)
        assert found.axes["document"] == tuple(each.name for each in DOCUMENTS)
        assert [found.settings[name] for name in ("early", "late", "width", "prefix", "seed")] == [7, 40, 1, "doc", 4]
        assert found.provenance["tokens_shape"] == found["tokens"].shape

    def test_the_summary_the_figure_and_the_saved_copy_hold(self, found: InContext, tmp_path: Path) -> None:
        lines = found.summary()
        assert f"{float(found['mean']):+.3f} nats a token, token 40 against 7 of 5 documents" in lines[0]
        assert f"{float(found['low']):+.3f} to {float(found['high']):+.3f}" in lines[2]
        figure = found.figure()
        assert [line.name for line in figure.data] == ["mean over documents", "over 25 places"]
        np.testing.assert_array_equal(figure.data[0].y, found["loss"])
        assert [figure.data[0].customdata[line.x0] for line in figure.layout.shapes] == ["7", "40"]
        assert list(found.to_frame()["document"]) == list(found.axes["document"])
        found.save(tmp_path / "score")
        assert InContext.load(tmp_path / "score").identical(found)

    def test_one_document_has_a_score_and_no_interval(self) -> None:
        alone = in_context_score(MODEL, DOCUMENTS[:1], **SMALL)
        assert np.isnan([alone["low"], alone["high"]]).all()
        assert "of one document" in alone.summary()[0]
        assert not any("interval" in line for line in alone.summary())

    @pytest.mark.parametrize(("low", "high", "doubted"), [(-0.3, 0.1, True), (-0.3, -0.1, False), (0.1, 0.3, False)])
    def test_the_summary_says_where_the_sign_is_open(
        self, found: InContext, low: float, high: float, doubted: bool
    ) -> None:
        bounds = {"low": (np.array(low), ()), "high": (np.array(high), ())}
        moved = InContext(arrays={**found.arrays, **bounds}, axes=found.axes, settings=found.settings)
        assert ("too few tokens to tell the sign" in moved.summary()[2]) == doubted


class TestDocumentsAsTokens:
    def test_each_row_is_the_prefix_and_the_first_tokens(self) -> None:
        rows = documents_as_tokens(MODEL, DOCUMENTS, length=30, prefix="doc")
        for row, document in zip(rows, DOCUMENTS, strict=True):
            assert row.tolist() == [0, *MODEL.tokenizer.encode(document.text)[:30]]

    def test_a_chat_prefix_has_several_tokens_and_nothing_behind(self) -> None:
        before = MODEL.tokenizer.prefix_ids("chat")
        row = documents_as_tokens(MODEL, DOCUMENTS[:1], length=30, prefix="chat")[0].tolist()
        assert len(before) > 1
        assert row == before + MODEL.tokenizer.encode(DOCUMENTS[0].text)[:30]

    def test_a_document_that_opens_with_the_separator_gets_no_second_one(self) -> None:
        marked = Document("marked", "<|endoftext|>" + DOCUMENTS[0].text)
        both = documents_as_tokens(MODEL, [DOCUMENTS[0], marked], length=30, prefix="doc")
        assert torch.equal(both[0], both[1])

    def test_a_document_may_be_just_long_enough(self) -> None:
        words = Document("words", "a" * 20)
        length = len(MODEL.tokenizer.encode(words.text))
        assert documents_as_tokens(MODEL, [words], length=length, prefix="doc").shape == (1, length + 1)
        with pytest.raises(UsageError, match=f"'words' has {length} tokens, {length + 1} are needed"):
            documents_as_tokens(MODEL, [words], length=length + 1, prefix="doc")


@pytest.mark.parametrize(
    ("documents", "settings", "message"),
    [
        ([*DOCUMENTS, Document("note", "0" * 311)], {}, "'note' has 311 tokens, 512 are needed. Leave it out"),
        ([DOCUMENTS[0], DOCUMENTS[0]], SMALL, "'01-why-tides-are-late' names several"),
        ([], SMALL, "each with a name of its own: none came"),
        (DOCUMENTS, {"late": 588}, "600 tokens of each document and the prefix make 601, and the model's context is"),
        (DOCUMENTS, {"early": 2, "late": 40, "width": 3, "prefix": "none"}, "Nothing predicts token 1 without"),
    ],
    ids=["short", "twice", "none", "context", "first"],
)
def test_what_cannot_be_scored_is_refused(documents: list[Document], settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        in_context_score(MODEL, documents, **settings)


def test_a_model_without_a_tokenizer_is_told_so() -> None:
    with pytest.raises(UsageError, match="without a tokenizer"):
        in_context_score(tiny(), DOCUMENTS, **SMALL)


def test_the_smooth_curve_averages_what_is_known() -> None:
    values = np.array([np.nan, 2.0, 4.0, 9.0, 1.0])
    np.testing.assert_allclose(smooth(values, 3), [2, 3, 5, 14 / 3, 5])
    np.testing.assert_allclose(smooth(values, 1), values)
    np.testing.assert_allclose(smooth(values, 25), 4)


@pytest.fixture(scope="module")
def real(smollm2: "Transformer") -> InContext:
    return in_context_score(smollm2, DOCUMENTS[:2])


class TestTheRealModel:
    def test_its_losses_are_those_of_transformers(self, real: InContext, smollm2: "Transformer") -> None:
        losses = by_transformers(reference(smollm2), real["tokens"][0])
        np.testing.assert_allclose(real["losses"][0], losses, atol=1e-4)
        assert real["score"][0] == pytest.approx(losses[499] - losses[49], abs=1e-4)

    def test_it_predicts_a_document_better_once_it_has_read_some(self, real: InContext) -> None:
        """The first twenty tokens against the last hundred: single tokens, 500 against 50, would leave it to chance."""
        assert (real["losses"][:, :20].mean(1) - real["losses"][:, -100:].mean(1)).min() > 0.5

    def test_the_same_tokens_cost_more_where_reading_begins_later(
        self, real: InContext, smollm2: "Transformer"
    ) -> None:
        """Without the difference between early and late tokens themselves: the last 50 of 512, and 50 before them."""
        cut = torch.tensor(np.delete(real["tokens"], np.s_[1:413], axis=1))
        later = losses_by_text(smollm2, cut)[:, -50:].mean(1)
        assert (later - real["losses"][:, -50:].mean(1)).min() > 0.1
