"""The lens on parts: every boundary, sublayer and head is read by the definition, whatever the architecture."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tiny import BASE, CONFIGS, random_tokens, reference, tiny

from interp.analyses.lens import logit_lens
from interp.analyses.lens_parts import PartLens, lens_parts
from interp.analyses.projection import project
from interp.errors import PointError, UsageError
from interp.models.circuits import OneFact
from interp.models.config import ModelConfig
from interp.models.constructed import one_fact_memory
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

POINTS = {"stream": ("resid_mid", "resid_post"), "sublayer": ("attn_out", "mlp_out"), "head": ("result",)}


def read(model: "Transformer", vectors: torch.Tensor) -> np.ndarray:
    """Log-probabilities of the definition."""
    return model.unembed_residual(vectors).log_softmax(-1).numpy()


def expected_parts(model: "Transformer", tokens: torch.Tensor, of: str, layer: int) -> torch.Tensor:
    """The vectors of one layer at the last position, from their own hook points."""
    names = [f"blocks.{layer}.{'attn.' * (of == 'head')}hook_{name}" for name in POINTS[of]]
    _, cache = model.run_with_cache(tokens, names)
    return torch.cat([cache[name][0, -1].reshape(-1, model.config.d_model) for name in names])


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_part_is_read_by_the_definition(config: ModelConfig) -> None:
    model, tokens, layer = tiny(config), random_tokens(config, 1, 7), config.n_layers // 2
    ways = [*(["stream"] if not config.parallel else []), "sublayer"]
    if config.norms in ("pre", "post"):  # elsewhere a norm stands between a head and the stream
        ways.append("head")
    for of in ways:
        expected = read(model, expected_parts(model, tokens, of, layer))
        found = lens_parts(model, tokens, of=of, answers=[7])
        chosen = found["part_layer"] == layer
        np.testing.assert_allclose(found["answer_log_probability"][chosen, 0, 0], expected[:, 7], atol=1e-4)
        np.testing.assert_allclose(found["entropy"][chosen, 0], -(np.exp(expected) * expected).sum(-1), atol=1e-4)
        assert found["prediction"][chosen, 0].tolist() == [str(token) for token in expected.argmax(-1)]


@pytest.mark.parametrize("name", ["sandwich_norm", "output_norm"])
def test_a_head_is_read_behind_the_norm_on_its_sublayer(name: str) -> None:
    model, tokens = tiny(CONFIGS[name]), random_tokens(BASE, 1, 7)
    _, cache = model.run_with_cache(tokens, ["blocks.1.ln1_post.hook_scale", "blocks.1.hook_attn_out"])
    behind = expected_parts(model, tokens, "head", 1) / cache["blocks.1.ln1_post.hook_scale"][0, -1]
    behind = behind * model.weights()["blocks.1.ln1_post.w"]
    torch.testing.assert_close(behind.sum(0), cache["attn_out", 1][0, -1])  # the parts are those of what is added
    found = lens_parts(model, tokens, of="head", answers=[7])
    chosen = found["part_layer"] == 1
    np.testing.assert_allclose(found["answer_log_probability"][chosen, 0, 0], read(model, behind)[:, 7], atol=1e-4)


def test_the_boundaries_behind_whole_layers_are_those_of_the_logit_lens() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 7)
    lens, parts = (
        logit_lens(model, tokens, answers=[7]),
        lens_parts(model, tokens, of="stream", answers=[7], positions=None),
    )
    whole = [place for place, part in enumerate(parts.axes["part"]) if part == "embed" or part.endswith(".post")]
    for name in ("entropy", "kl_to_final", "answer_rank", "final_log_probability", "top_id"):
        np.testing.assert_allclose(parts[name][whole], lens[name], atol=1e-5)
    assert (parts["kl_to_final"][-1] == 0).all()


def test_the_last_hidden_state_of_transformers_is_normed_already_and_ours_is_not() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 7)
    with torch.no_grad():
        run = reference(model)(tokens, output_hidden_states=True)
    lens, states = logit_lens(model, tokens, answers=[7]), run.hidden_states
    assert len(states) == BASE.n_layers + 1  # state ℓ is what enters layer ℓ, the first of them the embedding
    for layer, state in enumerate(states[:-1], start=-1):
        found = lens.at("answer_log_probability", layer=layer, answer="7")
        np.testing.assert_allclose(found, read(model, state[0])[:, 7], atol=1e-4)
    last = lens.at("answer_log_probability", layer=BASE.n_layers - 1, answer="7")
    np.testing.assert_allclose(last, (states[-1][0] @ model.W_U).log_softmax(-1)[:, 7], atol=1e-4)
    assert np.abs(last - read(model, states[-1][0])[:, 7]).max() > 0.1


def test_the_projection_of_a_whole_vector_ranks_tokens_as_the_lens_on_it_does() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 7)
    found = lens_parts(model, tokens, of="head", top_k=4, answers=[7])
    heads = torch.cat([expected_parts(model, tokens, "head", layer) for layer in range(BASE.n_layers)])
    projected = project(model, heads, top_k=4, tracked=[7], final_norm="full")
    assert found["top_id"][:, 0].tolist() == projected.top_id.tolist()
    assert found["answer_rank"][:, 0, 0].tolist() == projected.tracked_rank[:, 0].tolist()


def test_a_cache_and_its_tokens_give_the_same_parts() -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 7)
    names = ["blocks.*.hook_resid_*", "blocks.*.hook_attn_out", "blocks.*.hook_mlp_out", "blocks.*.attn.hook_z"]
    _, cache = model.run_with_cache(tokens, names)
    for of in ("stream", "sublayer", "head"):
        assert lens_parts(model, cache, of=of).identical(lens_parts(model, tokens, of=of))
    _, little = model.run_with_cache(tokens, ["blocks.*.hook_resid_post"])
    with pytest.raises(PointError, match=r"blocks\.0\.attn\.hook_z"):
        lens_parts(model, little, of="head")


def test_the_extractor_of_a_model_made_by_hand_is_the_head_that_says_the_answer() -> None:
    circuit = OneFact()
    lens = lens_parts(one_fact_memory(circuit), "The Eiffel Tower is in", of="head", answers=["Paris"])
    head = circuit.extractor
    probability = lens["answer_probability"][:, 0, 0]
    assert lens.axes["part"][int(probability.argmax())] == f"L{head.layer}.H{head.head}"
    assert np.sort(probability)[-2] == pytest.approx(1 / len(circuit.vocabulary))


def test_parallel_blocks_have_no_boundary_between_their_sublayers() -> None:
    with pytest.raises(UsageError, match="no residual stream between them"):
        lens_parts(tiny(CONFIGS["parallel"]), random_tokens(BASE, 1, 7), of="stream")


def test_the_figures_the_summary_and_the_saved_copy_hold(tmp_path: Path) -> None:
    model, tokens = tiny(), random_tokens(BASE, 1, 7)
    heads = lens_parts(model, tokens, of="head", answers=[7])
    assert heads.figure().data[0].z[1, 4] == 1 / heads.at("answer_rank", part="L1.H4")[0, 0]
    assert heads.summary()[2].split(": rank ")[0].strip() == heads.axes["part"][heads["answer_rank"][:, 0, 0].argmin()]
    sublayers = lens_parts(model, tokens, positions=None)
    assert sublayers.figure().data[0].z.shape == (6, 7)
    sublayers.save(tmp_path / "lens")
    assert Result.load(tmp_path / "lens").identical(sublayers)
    assert PartLens.load(tmp_path / "lens").summary() == sublayers.summary()


def test_on_a_real_model_one_attention_sublayer_points_at_paris(smollm2: "Transformer") -> None:
    lens = lens_parts(smollm2, "The Eiffel Tower is located in the city of", answers=[" Paris"])
    rank = lens["answer_rank"][:, 0, 0]
    assert lens.axes["part"][int(rank.argmin())] == "L23.attn"
    assert rank.min() < 20
    assert np.sort(rank)[1] > 3 * rank.min()
