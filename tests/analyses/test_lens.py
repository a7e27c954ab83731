"""The logit lens: the last layer is the model, every other is read through its own norm statistics."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tiny import BASE, CONFIGS, random_tokens, tiny

from interp.analyses.lens import LensResult, logit_lens
from interp.errors import PointError, UsageError
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

STREAM = ["hook_embed", "blocks.*.hook_resid_post"]


def by_hand(model: "Transformer", tokens: torch.Tensor, layer: int) -> np.ndarray:
    """Log-probabilities [position, vocabulary] after one layer, in numpy and double precision; −1 is the embedding."""
    _, cache = model.run_with_cache(tokens, STREAM)
    stream = cache["hook_embed"] if layer < 0 else cache["resid_post", layer]
    h = stream[0].numpy().astype(np.float64)
    w = {name: weight.numpy().astype(np.float64) for name, weight in model.weights().items() if "blocks" not in name}
    normalized = h / np.sqrt((h**2).mean(-1, keepdims=True) + model.config.norm_eps) * w["ln_final.w"]
    logits = normalized @ (w["embed.W_E"].T if model.config.tied_embeddings else w["unembed.W_U"])
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_lens_at_the_last_layer_is_the_model(config: "object") -> None:
    model = tiny(config)
    tokens = random_tokens(config, 1, 9)
    lens = logit_lens(model, tokens, top_k=config.d_vocab)
    order = torch.tensor(lens["top_id"][-1])
    expected = model(tokens)[0].softmax(-1).gather(-1, order)
    np.testing.assert_allclose(lens["top_probability"][-1], expected.numpy(), atol=1e-6)
    assert (lens["kl_to_final"][-1] == 0).all()
    assert (lens["final_rank"][-1] == 1).all()


@pytest.mark.parametrize("layer", range(-1, BASE.n_layers))
def test_every_value_is_that_of_the_definition(layer: int) -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 9)
    lens = logit_lens(model, tokens, answers=[3, 60])
    found, final = by_hand(model, tokens, layer), by_hand(model, tokens, BASE.n_layers - 1)

    def close(name: str, expected: np.ndarray, **where: str) -> None:
        np.testing.assert_allclose(lens.at(name, layer=layer, **where), expected, atol=2e-5)

    close("entropy", -(np.exp(found) * found).sum(-1))
    close("kl_to_final", (np.exp(final) * (final - found)).sum(-1))
    close("final_log_probability", found[range(9), final.argmax(-1)])
    close("answer_log_probability", found[:, 60], answer="60")
    close("answer_probability", np.exp(found[:, 3]), answer="3")
    close("answer_rank", 1 + (found > found[:, [3]]).sum(-1), answer="3")
    close("top_probability", -np.sort(-np.exp(found), -1)[:, :5])
    assert (lens.at("top_id", layer=layer)[:, 0] == found.argmax(-1)).all()


def test_a_layer_is_read_through_its_own_statistics_not_the_final_ones() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 9)
    _, cache = model.run_with_cache(tokens, [*STREAM, "ln_final.hook_scale"])
    with_final_scale = cache["hook_embed"] / cache["ln_final.hook_scale"] * model.weights()["ln_final.w"] @ model.W_U
    wrong = with_final_scale[0].softmax(-1).max(-1).values.numpy()
    assert np.abs(logit_lens(model, tokens).at("prediction_probability", layer=-1) - wrong).max() > 0.01


def test_a_cache_and_its_tokens_give_the_same_lens() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 9)
    _, cache = model.run_with_cache(tokens, STREAM)
    assert logit_lens(model, cache).identical(logit_lens(model, tokens))


def test_blocks_of_positions_change_nothing() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 9)
    whole, pieces = logit_lens(model, tokens), logit_lens(model, tokens, max_bytes=1)
    for name in ("entropy", "kl_to_final", "top_probability", "final_log_probability"):
        np.testing.assert_allclose(whole[name], pieces[name], atol=1e-5)


def test_progress_is_told_after_every_block_of_positions() -> None:
    told: list[tuple[int, int]] = []
    logit_lens(tiny(), random_tokens(BASE, 1, 3), max_bytes=1, progress=lambda *said: told.append(said))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_positions_are_named_by_their_place_in_the_text() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 9)
    some, every = logit_lens(model, tokens, positions=[-1, 2]), logit_lens(model, tokens)
    assert some.axes["position"] == (8, 2)
    assert some["token_id"].tolist() == [tokens[0, 8], tokens[0, 2]]
    for position in (8, 2):
        found, expected = (lens.at("entropy", position=position) for lens in (some, every))
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_cache_of_some_positions_is_read_at_those() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 9)
    _, cache = model.run_with_cache(tokens, STREAM, positions=[4, 7])
    assert logit_lens(model, cache).axes["position"] == (4, 7)
    with pytest.raises(UsageError, match="position 5 was not recorded"):
        logit_lens(model, cache, positions=[5])


def test_a_row_of_a_batch_is_read_as_if_it_were_alone() -> None:
    model, tokens = tiny(), random_tokens(BASE, 3, 9)
    of_batch, alone = logit_lens(model, tokens, row=1), logit_lens(model, tokens[1:2])
    np.testing.assert_allclose(of_batch["entropy"], alone["entropy"], atol=1e-5)
    with pytest.raises(UsageError, match="batch of 3"):
        logit_lens(model, tokens)
    with pytest.raises(UsageError, match="no row 3"):
        logit_lens(model, tokens, row=3)


def test_padding_is_left_out() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 9)
    mask = torch.tensor([[False, False, *[True] * 7]])
    _, cache = model.run_with_cache(tokens, STREAM, mask=mask)
    lens = logit_lens(model, cache)
    assert lens.axes["position"] == tuple(range(2, 9))
    np.testing.assert_allclose(lens["entropy"], logit_lens(model, tokens[:, 2:])["entropy"], atol=1e-5)


def test_the_embedding_is_layer_minus_one() -> None:
    lens = logit_lens(tiny(), random_tokens(BASE, 1, 4))
    assert lens.axes["layer"] == (-1, 0, 1, 2)
    assert lens.layer_names == ["embed", "0", "1", "2"]
    assert lens.figure().layout.yaxis.ticktext == ("embed", "0", "1", "2")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"answers": [67]}, "67 is no token id"),
        ({"answers": [5, 3, 5]}, "The answer 5 is named twice"),
        ({"top_k": 0}, "top_k is 0"),
        ({"top_k": 68}, "top_k is 68"),
        ({"positions": [9]}, "9 lies outside"),
        ({"positions": [1, -8]}, "named twice"),
    ],
)
def test_what_cannot_be_read_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        logit_lens(tiny(), random_tokens(BASE, 1, 9), **wrong)


def test_a_cache_without_the_residual_stream_is_refused_by_name() -> None:
    _, cache = tiny().run_with_cache(random_tokens(BASE, 1, 9), "hook_embed")
    with pytest.raises(PointError, match=r"blocks\.0\.hook_resid_post"):
        logit_lens(tiny(), cache)


def test_the_table_the_figures_and_the_saved_copy_hold(tmp_path: Path) -> None:
    lens = logit_lens(tiny(), random_tokens(BASE, 1, 9), answers=[5])
    frame = lens.to_frame()
    assert len(frame) == 4 * 9
    assert {"layer", "position", "token", "prediction", "prediction_probability", "final_rank"} <= set(frame.columns)
    assert len(lens.to_frame(("layer", "position", "rank"))) == 4 * 9 * 5
    assert lens.answer_figure().data[0].name == "5"
    assert lens.figure("entropy").data[0].z.shape == (4, 9)
    lens.save(tmp_path / "lens")
    assert Result.load(tmp_path / "lens").identical(lens)
    assert LensResult.load(tmp_path / "lens").summary() == lens.summary()


@pytest.fixture(scope="module")
def eiffel(smollm2: "Transformer") -> LensResult:
    return logit_lens(smollm2, "The Eiffel Tower is located in the city of", answers=[" Paris", " London"])


class TestSmolLM2:
    def test_paris_appears_late_and_stays(self, eiffel: LensResult) -> None:
        last = eiffel.axes["position"][-1]
        assert eiffel.at("final_token", position=last) == " Paris"
        probability = eiffel.at("answer_probability", position=last, answer=" Paris")
        assert probability[-1] == pytest.approx(0.75, abs=0.01)
        assert probability[:20].max() < 0.05
        assert eiffel.at("answer_rank", position=last, answer=" London")[-1] > 1
        assert "' Paris': first on top after 27" in "\n".join(eiffel.summary())

    def test_the_text_stands_behind_the_document_separator(self, eiffel: LensResult) -> None:
        assert eiffel["token"][0] == "<|endoftext|>"
        assert eiffel.provenance["prefix"] == "doc"
        assert eiffel.figure().layout.xaxis.ticktext[0] == "&lt;|endoftext… 0"

    def test_without_a_prefix_the_answer_is_less_certain(self, smollm2: "Transformer") -> None:
        lens = logit_lens(smollm2, "The Eiffel Tower is located in the city of", prefix="none", positions=[-1])
        assert lens["final_token"].tolist() == [" Paris"]
        assert lens["final_probability"][-1, 0] == pytest.approx(0.70, abs=0.01)

    def test_one_answer_may_be_given_as_plain_text(self, smollm2: "Transformer") -> None:
        lens = logit_lens(smollm2, "Who is", answers="he")
        assert lens.axes["answer"] == ("he",)
        assert lens["answer_probability"].shape[-1] == 1

    def test_an_answer_that_is_named_as_text_and_as_id_is_named_twice(self, smollm2: "Transformer") -> None:
        with pytest.raises(UsageError, match="named twice"):
            logit_lens(smollm2, "Who is", answers=["he", smollm2.to_single_token("he")])

    def test_an_answer_of_several_tokens_is_refused(self, smollm2: "Transformer") -> None:
        with pytest.raises(UsageError, match="Seattlexyz"):
            logit_lens(smollm2, "The Space Needle is in", answers=[" Seattlexyz"])
