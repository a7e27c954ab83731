"""Causal tracing: the reference algorithm run by run, numbers of `transformers`, and what two known facts show."""

import functools
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from published import small_tokenizer
from tiny import CONFIGS, reference, tiny

from interp import edits
from interp.analyses.subjects import bundled_subjects, embedding_spread
from interp.analyses.trace_settings import SAID, window_of
from interp.analyses.tracing import CausalTrace, Trace, causal_trace, plan_trace
from interp.errors import BudgetError, UsageError
from interp.hooks import HookPoint
from interp.models.loading import from_transformers
from interp.models.replay import Replay, Sweep, Swept
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

STATES = {"resid": "hook_resid_post", "mlp": "hook_mlp_out", "attn": "hook_attn_out"}
KINDS = tuple(STATES)
PROMPT = "of the tower of the city"
"""What tiny models read: behind the separator " the tower" stands at positions 2 and 3."""
BEFORE = [0, 1]
SHORT = "I think that the Louvre is in"
"""What the default model reads where the fact does not matter: " the Louvre" stands at positions 4 to 6."""
PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "causal_trace_eiffel.json").read_text())


@functools.cache
def reads_text(name: str = "grouped_query", **changes: int) -> "Transformer":
    """A tiny model with a tokenizer of 300 tokens."""
    model = tiny(replace(CONFIGS[name], d_vocab=300, **changes))
    return from_transformers(reference(model), small_tokenizer(), device="cpu")


def tiny_trace(name: str = "grouped_query", **settings: object) -> CausalTrace:
    return causal_trace(reads_text(name), PROMPT, "the tower", **{"samples": 4, "window": 2, **settings})


@pytest.fixture(scope="module")
def traced() -> CausalTrace:
    return tiny_trace()


@pytest.fixture(scope="module")
def short_plan(smollm2: "Transformer") -> Trace:
    return plan_trace(smollm2, SHORT, "the Louvre", samples=2, seed=3)


@pytest.fixture(scope="module")
def short(short_plan: Trace) -> CausalTrace:
    return short_plan.run()


@pytest.fixture(scope="module")
def eiffel(smollm2: "Transformer") -> CausalTrace:
    """The fact whose numbers were published, in their settings."""
    asked = {name: PUBLISHED[name] for name in ("prompt", "subject", "prefix", "noise", "seed", "samples", "window")}
    return causal_trace(smollm2, kinds=("resid", "mlp"), **asked)


@pytest.fixture(scope="module")
def louvre(smollm2: "Transformer") -> CausalTrace:
    """A fact in the settings of the paper, but for the number of samples."""
    return causal_trace(smollm2, "The Louvre is located in the city of", "The Louvre", kinds=("resid",), samples=4)


# ------------------------------------------------------------------------------------ the reference algorithm


def restored_layers(kind: str, layer: int, window: int, count: int) -> range:
    """The window as the reference code writes it."""
    if kind == "resid":
        return range(layer, layer + 1)
    return range(max(0, layer - window // 2), min(count, layer - (-window // 2)))


def drawn(model: "Transformer", trace: CausalTrace) -> torch.Tensor:
    """The noise of every sample, [sample, subject position, d_model]."""
    asked = trace.settings
    shape = asked["samples"], len(asked["subject_positions"]), model.config.d_model
    generator = np.random.RandomState(trace.provenance["seed"])
    numbers = generator.uniform(-1, 1, shape) if asked["noise_shape"] == "uniform" else generator.randn(*shape)
    return (asked["noise_level"] * torch.from_numpy(numbers)).float()


def by_one_pass(model: "Transformer", trace: CausalTrace, kind: str, place: int, layer: int) -> np.ndarray:
    """One cell's probabilities, [sample]: row 0 stays clean, the others are corrupted and take its state."""
    asked, noise = trace.settings, drawn(model, trace)
    tokens = model.to_tokens(asked["prompt"], prefix=trace.provenance["prefix"])

    def corrupt(value: torch.Tensor, point: HookPoint) -> torch.Tensor:
        value[1:, list(asked["subject_positions"])] += noise
        return value

    def restore(value: torch.Tensor, point: HookPoint) -> torch.Tensor:
        value[1:, place] = value[0, place]
        return value

    layers = restored_layers(kind, layer, asked["window"], model.config.n_layers)
    hooks = [("hook_embed", corrupt), *((f"blocks.{each}.{STATES[kind]}", restore) for each in layers)]
    last = model.run_with_hooks(tokens.expand(1 + len(noise), -1), hooks)[:, -1].softmax(-1)
    return last[1:, last[0].argmax()].numpy()


def some_cells(trace: CausalTrace, count: int, *, seed: int) -> Iterator[tuple[str, int, int]]:
    """Cells of all kinds by turns, seeded, not before the subject."""
    generator = np.random.default_rng(seed)
    first = trace.settings["subject_positions"][0]
    for number in range(count):
        place = int(generator.integers(first, len(trace.axes["position"])))
        yield KINDS[number % 3], place, int(generator.integers(len(trace.axes["layer"])))


@pytest.mark.parametrize(
    ("name", "window", "noise"),
    [
        ("grouped_query", 1, "s3"),
        ("multi_head", 2, "u0.5"),
        ("biases", 3, "us3"),
        ("gelu_one_layer", 10, 0.4),
    ],
)
def test_every_cell_is_that_of_the_reference_algorithm(name: str, window: int, noise: str | float) -> None:
    trace, model = tiny_trace(name, window=window, noise=noise), reads_text(name)
    for kind in KINDS:
        for place, layer in np.ndindex(len(trace.axes["position"]), model.config.n_layers):
            expected = by_one_pass(model, trace, kind, place, layer)
            found = trace.at("sample_probability", kind=kind, position=place, layer=layer)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5, err_msg=f"{kind} {place} {layer}")


def test_cells_of_the_default_model_are_those_of_the_reference_algorithm(
    smollm2: "Transformer", short: CausalTrace
) -> None:
    moved = []
    for kind, place, layer in some_cells(short, 24, seed=0):
        expected = by_one_pass(smollm2, short, kind, place, layer)
        found = short.at("sample_probability", kind=kind, position=place, layer=layer)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5, err_msg=f"{kind} {place} {layer}")
        moved.append(abs(short.at("effect", kind=kind, position=place, layer=layer)))
    assert max(moved) > 0.05, "some of these cells bring the answer back"


def by_transformers(hf: torch.nn.Module, model: "Transformer", trace: CausalTrace, cell: tuple[str, int, int]) -> float:
    """The same pass with forward hooks on the modules of `transformers`."""
    kind, place, layer = cell
    asked, noise = trace.settings, drawn(model, trace)
    tokens = model.to_tokens(asked["prompt"], prefix=trace.provenance["prefix"])

    def corrupt(_: object, __: object, output: torch.Tensor) -> torch.Tensor:
        output[1:, list(asked["subject_positions"])] += noise
        return output

    def restore(_: object, __: object, output: "torch.Tensor | tuple[torch.Tensor, ...]") -> object:
        state = output[0] if isinstance(output, tuple) else output
        state[1:, place] = state[0, place]
        return output

    blocks, handles = hf.model.layers, [hf.model.embed_tokens.register_forward_hook(corrupt)]
    for each in restored_layers(kind, layer, asked["window"], len(blocks)):
        module = {"resid": blocks[each], "mlp": blocks[each].mlp, "attn": blocks[each].self_attn}[kind]
        handles.append(module.register_forward_hook(restore))
    try:
        last = hf(tokens.expand(1 + len(noise), -1), use_cache=False).logits[:, -1].softmax(-1)
    finally:
        for handle in handles:
            handle.remove()
    return last[1:, last[0].argmax()].mean().item()


def test_cells_of_the_default_model_are_those_of_transformers(smollm2: "Transformer", short: CausalTrace) -> None:
    hf = reference(smollm2)
    strongest = [(kind, *short.peak(kind)[:2]) for kind in KINDS]
    for cell in [*strongest, *some_cells(short, 6, seed=1)]:
        found = short.at("probability", kind=cell[0], position=cell[1], layer=cell[2])
        assert found == pytest.approx(by_transformers(hf, smollm2, short, cell), abs=1e-5), cell


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["resid", "mlp"])
def test_the_published_numbers_come_out(eiffel: CausalTrace, kind: str) -> None:
    """Every token and layer of a whole trace."""
    assert eiffel.at("probability", kind=kind).shape == (10, 30)
    np.testing.assert_allclose(eiffel.at("probability", kind=kind), PUBLISHED[kind], rtol=0, atol=1e-4)


# --------------------------------------------------------------------------------------------- nothing, everything


def replayed(trace: Trace, sweep: Sweep, *, shortcuts: bool) -> Swept:
    """Another sweep over the same corrupted run."""
    whole = trace.replay
    hooks = [(name, edit) for name, acting in whole.base.edits.items() for edit in acting]
    return Replay(trace.model, whole.base.tokens, sweep, whole.metrics, hooks=hooks, shortcuts=shortcuts).run()


@pytest.mark.parametrize("shortcuts", [True, False])
def test_restoring_nothing_is_the_corrupted_run_bit_for_bit(short_plan: Trace, shortcuts: bool) -> None:
    swept = replayed(short_plan, Sweep({"nothing": [0]}, lambda nothing: []), shortcuts=shortcuts)
    whole = short_plan.replay
    noisy = short_plan.model.run_with_hooks(whole.base.tokens, [("hook_embed", whole.base.edits["hook_embed"][0])])
    for name, metric in whole.metrics.items():
        assert np.array_equal(swept[name].values[0], swept.base[name].values)
        expected = metric(noisy[:, [-1]]).numpy()
        if not shortcuts:
            assert np.array_equal(swept[name].values[0], expected)
        # with shortcuts one product is of another shape, the unembedding of the last position alone
        np.testing.assert_allclose(swept[name].values[0], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shortcuts", [True, False])
def test_restoring_the_embeddings_of_the_whole_subject_is_the_clean_run(short_plan: Trace, shortcuts: bool) -> None:
    model, subject = short_plan.model, short_plan.span.positions
    clean = model.W_E[short_plan.tokens][:, subject]
    everything = Sweep({"one": [0]}, lambda one: [("hook_embed", edits.replace(clean, positions=subject))])
    swept = replayed(short_plan, everything, shortcuts=shortcuts)
    assert swept.base["probability"].values.max() < 0.1
    assert float(short_plan.restoring.clean["probability"][0]) > 0.25
    np.testing.assert_allclose(
        swept["probability"].values[0], float(short_plan.restoring.clean["probability"][0]), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_lies_before_the_subject_has_no_effect_at_all(short: CausalTrace, kind: str) -> None:
    before = range(short.settings["subject_positions"][0])
    assert [str(short["token"][place]) for place in before] == ["<|endoftext|>", "I", " think", " that"]
    for place in before:
        assert (short.at("effect", kind=kind, position=place) == 0).all()
        assert (short.at("logit_effect", kind=kind, position=place) == 0).all()
    assert (short.at("effect", kind=kind) != 0).any()


def test_without_shortcuts_what_lies_before_the_subject_has_next_to_none(short_plan: Trace) -> None:
    some = Sweep({"kind": KINDS, "position": [0, 3], "layer": [2, 20]}, short_plan.replay.sweep.edits)
    swept = replayed(short_plan, some, shortcuts=False)
    effect = swept["probability"].values - swept.base["probability"].values
    assert effect.shape == (3, 2, 2, 2)
    assert np.abs(effect).max() < 1e-5


def test_shortcuts_change_nothing_but_rounding(traced: CausalTrace) -> None:
    slow = tiny_trace(shortcuts=False)
    for name in ("sample_probability", "effect", "clean_probability", "corrupted_sample_probability"):
        np.testing.assert_allclose(slow[name], traced[name], rtol=0, atol=1e-5)
    np.testing.assert_allclose(slow["sample_logit"], traced["sample_logit"], rtol=0, atol=1e-4)
    assert traced.settings["shortcuts"], "it says how it was computed"
    assert not slow.settings["shortcuts"]
    plan = plan_trace(reads_text(), PROMPT, "the tower", samples=1, shortcuts=False)
    assert plan.replay.rows == 3 * 7 * 3, "nothing is taken as known"


# ------------------------------------------------------------------------------------------------------------ noise


def noise_in(trace: Trace) -> torch.Tensor:
    """What the corrupted run adds to the embeddings, [sample, position, d_model]."""
    base = trace.replay.base
    with trace.model.hooks([("hook_embed", edit) for edit in base.edits["hook_embed"]]):
        _, cache = trace.model.run_with_cache(base.tokens, "hook_embed")
    return cache["hook_embed"] - trace.model.W_E[base.tokens]


@pytest.mark.parametrize("noise", [0.7, "0.7", "s3", "s0.5"])
def test_the_noise_has_its_level_on_the_subject_and_is_none_elsewhere(noise: str | float) -> None:
    trace = plan_trace(reads_text(), PROMPT, "the tower", noise=noise, samples=200)
    added, subject = noise_in(trace), trace.span.positions
    spread = embedding_spread(reads_text(), bundled_subjects())
    level = {0.7: 0.7, "0.7": 0.7, "s3": 3 * spread, "s0.5": 0.5 * spread}[noise]
    assert subject == [2, 3]
    assert added[:, subject].std().item() == pytest.approx(level, rel=0.03)
    assert abs(added[:, subject].mean().item()) < 0.03 * level
    others = [place for place in range(added.shape[1]) if place not in subject]
    assert (added[:, others] == 0).all()


def test_the_noise_of_the_default_model_is_three_spreads_of_its_subjects(short_plan: Trace) -> None:
    level = 3 * embedding_spread(short_plan.model, bundled_subjects())
    assert noise_in(short_plan)[:, short_plan.span.positions].std().item() == pytest.approx(level, rel=0.03)


def test_a_seed_fixes_each_sample_however_many_there_are() -> None:
    def noise(seed: int, samples: int) -> torch.Tensor:
        return noise_in(plan_trace(reads_text(), PROMPT, "the tower", seed=seed, samples=samples))

    assert torch.equal(noise(5, 4), noise(5, 4))
    assert torch.equal(noise(5, 4)[:2], noise(5, 2))
    assert not torch.equal(noise(5, 4), noise(6, 4))
    assert not torch.equal(noise(5, 4)[0], noise(5, 4)[1])


def test_all_kinds_see_the_same_noise(traced: CausalTrace) -> None:
    alone = tiny_trace(kinds=("attn",))
    np.testing.assert_array_equal(alone["corrupted_sample_probability"], traced["corrupted_sample_probability"])
    np.testing.assert_allclose(
        alone.at("sample_probability", kind="attn"), traced.at("sample_probability", kind="attn"), rtol=0, atol=1e-6
    )


def test_another_subject_can_hide_this_one_in_a_single_run() -> None:
    trace = tiny_trace(replacement="the city", severed="attn")
    model = reads_text()
    other = model(model.to_tokens("of the city of the city"))[0, -1].softmax(-1)
    own = int(model(model.to_tokens(PROMPT))[0, -1].argmax())
    assert float(trace["corrupted_probability"]) == pytest.approx(other[own].item(), abs=1e-6)
    assert (trace.settings["corruption"], trace.settings["samples"]) == ("replace", 1)
    assert np.isnan(trace["effect_error"]).all()
    assert "with 'the city' for 'the tower'" in trace.summary()[0]
    restored = trace.at("effect", kind="resid", position=3)
    assert restored[0] != 0
    assert (trace["effect"][:, :3] == 0).all(), "the prompts part at position 3"


# ------------------------------------------------------------------------------------------------------------ facts


@pytest.mark.slow
def test_a_museum_is_recalled_at_its_last_token_early_and_at_the_last_token_late(louvre: CausalTrace) -> None:
    """The two sites of Meng et al. 2022: the end of the subject in early layers, the end of the text in late ones."""
    inside, end = np.flatnonzero(louvre["in_subject"]), louvre.last_subject_position
    early, late = louvre.peak("resid", position=end), louvre.peak("resid", position=9)
    strongest = {int(place): louvre.peak("resid", position=int(place))[2] for place in inside}
    assert [str(louvre["token"][place]) for place in inside] == ["The", " Lou", "vre"]
    assert louvre.settings["answer"] == " Paris"
    assert louvre.total_effect > 0.5
    assert max(strongest, key=strongest.__getitem__) == end
    assert all(early[2] > effect + 0.3 for place, effect in strongest.items() if place != end)
    assert early[1] < 20
    assert late[1] > early[1] + 10
    assert min(early[2], late[2]) > 0.45


@pytest.mark.slow
def test_the_tower_is_recalled_where_its_name_can_be_told(eiffel: CausalTrace) -> None:
    """At "iffel", not at " Tower", which any tower has; FFN outputs show the same place."""
    assert eiffel["clean_probability"] == pytest.approx(0.70, abs=0.01)
    assert eiffel.total_effect > 0.6
    for kind, margin in (("resid", 0.5), ("mlp", 0.4)):
        strongest = [eiffel.peak(kind, position=int(place)) for place in np.flatnonzero(eiffel["in_subject"])]
        place, layer, effect = max(strongest, key=lambda cell: cell[2])
        assert eiffel["token"][place] == "iffel"
        assert layer < 10
        assert all(effect > other + margin for at, _, other in strongest if at != place)


# ---------------------------------------------------------------------------------------------------------- windows


@pytest.mark.parametrize(
    ("window", "first", "last"),
    [
        (1, [0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7]),
        (4, [0, 0, 0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6, 7, 7]),
        (5, [0, 0, 0, 1, 2, 3, 4, 5], [2, 3, 4, 5, 6, 7, 7, 7]),
        (10, [0, 0, 0, 0, 0, 0, 1, 2], [4, 5, 6, 7, 7, 7, 7, 7]),
    ],
)
def test_the_layers_of_a_window_are_said(window: int, first: list[int], last: list[int]) -> None:
    model = reads_text(n_layers=8)
    trace = causal_trace(model, PROMPT, "the tower", window=window, samples=1, noise=0.5)
    for kind in ("mlp", "attn"):
        assert trace.at("first_layer", kind=kind).tolist() == first
        assert trace.at("last_layer", kind=kind).tolist() == last
    assert trace.at("first_layer", kind="resid").tolist() == trace.at("last_layer", kind="resid").tolist()
    assert trace.at("first_layer", kind="resid").tolist() == list(range(8))


def test_a_window_of_even_width_reaches_one_layer_further_down() -> None:
    assert window_of("mlp", 15, 10, 30) == range(10, 20)
    assert window_of("attn", 15, 5, 30) == range(13, 18)
    assert window_of("resid", 15, 10, 30) == range(15, 16)


# ---------------------------------------------------------------------------------------------------------- results


def test_an_effect_is_the_mean_over_samples_of_what_restoring_brings_back(traced: CausalTrace) -> None:
    for name, prefix in (("probability", ""), ("logit", "logit_")):
        each = traced[f"sample_{name}"] - traced[f"corrupted_sample_{name}"]
        np.testing.assert_allclose(traced[f"{prefix}effect"], each.mean(-1), atol=1e-6)
        np.testing.assert_allclose(traced[name], traced[f"sample_{name}"].mean(-1), atol=1e-6)
    error = (traced["sample_probability"] - traced["corrupted_sample_probability"]).std(-1, ddof=1) / math.sqrt(4)
    np.testing.assert_allclose(traced["effect_error"], error, atol=1e-7)
    assert traced.total_effect == pytest.approx(
        traced["clean_probability"] - traced["corrupted_sample_probability"].mean(), abs=1e-6
    )


def test_the_answer_is_the_models_own_unless_one_is_given(traced: CausalTrace) -> None:
    model = reads_text()
    clean = model(model.to_tokens(PROMPT))[0, -1]
    own = int(clean.argmax())
    assert traced.settings["answer"] == traced.settings["prediction"] == model.tokenizer.str_tokens([own])[0]
    assert traced["clean_probability"] == pytest.approx(clean.softmax(-1)[own].item(), abs=1e-6)
    assert "own answer" not in "\n".join(traced.summary())
    other = model.to_single_token(" city")
    for given in (" city", other):
        trace = tiny_trace(answer=given)
        assert trace["clean_probability"] == pytest.approx(clean.softmax(-1)[other].item(), abs=1e-6)
        assert trace["clean_logit"] == pytest.approx(clean[other].item(), abs=1e-4)
        assert trace.settings["answer"] == " city"
        assert not trace.settings["answer_is_prediction"]
        assert f"own answer is {traced.settings['prediction']!r}" in "\n".join(trace.summary())
        assert not np.allclose(trace["effect"], traced["effect"], atol=1e-4)


def test_the_saved_copy_is_the_same(traced: CausalTrace, tmp_path: Path) -> None:
    traced.save(tmp_path / "trace")
    loaded = CausalTrace.load(tmp_path / "trace")
    assert loaded.identical(traced)
    assert loaded.summary() == traced.summary()
    assert isinstance(Result.load(tmp_path / "trace"), CausalTrace)


def test_the_table_has_a_row_for_every_cell(traced: CausalTrace) -> None:
    frame = traced.to_frame()
    cells = frame[["kind", "position", "layer"]].drop_duplicates()
    assert len(frame) == len(cells) == 3 * 7 * 3
    metrics = {"probability", "logit", "effect", "logit_effect", "effect_error"}
    assert metrics | {"token", "in_subject", "first_layer", "last_layer"} <= set(frame.columns)
    one = frame[(frame.kind == "mlp") & (frame.position == 3) & (frame.layer == 1)].iloc[0]
    assert one.effect == traced.at("effect", kind="mlp", position=3, layer=1)
    assert (one.token, one.in_subject) == (" tower", True)
    assert len(traced.to_frame((*CausalTrace.grid, "sample"))) == 3 * 7 * 3 * 4


def test_settings_say_what_the_noise_was_and_where_it_came_from(traced: CausalTrace) -> None:
    asked, spread = traced.settings, embedding_spread(reads_text(), bundled_subjects())
    assert (asked["noise"], asked["samples"], asked["window"]) == ("s3", 4, 2)
    assert asked["embedding_spread"] == spread
    assert asked["noise_level"] == 3 * spread
    assert asked["noise_subjects"] == f"all {len(bundled_subjects())} of the bundled facts"
    assert (asked["prompt"], asked["subject"]) == (PROMPT, "the tower")
    assert tuple(asked["subject_positions"]) == (2, 3)
    assert (traced.provenance["prefix"], traced.provenance["seed"]) == ("doc", 0)
    by_level = tiny_trace(noise=0.25).settings
    assert (by_level["noise"], by_level["noise_level"]) == ("0.25", 0.25)
    assert by_level["embedding_spread"] is by_level["noise_subjects"] is None


def test_the_peak_is_the_strongest_cell(traced: CausalTrace) -> None:
    for kind in KINDS:
        effect = traced.at("effect", kind=kind)
        place, layer, strongest = traced.peak(kind)
        assert strongest == effect.max() == effect[place, layer]
        for each in traced.axes["position"]:
            assert traced.peak(kind, position=each) == (each, int(effect[each].argmax()), effect[each].max())
    with pytest.raises(UsageError, match="no coordinate 99"):
        traced.peak("resid", position=99)
    with pytest.raises(UsageError, match="no coordinate 'head'"):
        traced.peak("head")


def test_the_summary_names_runs_kinds_and_places(traced: CausalTrace) -> None:
    said = "\n".join(traced.summary())
    assert f"{traced['clean_probability']:.3f}" in said
    assert f"{float(traced['corrupted_probability']):.3f}" in said
    assert "on 'the tower', 4 samples" in said
    assert all(f"{words}" in said for words in SAID.values())
    assert "FFN outputs, 2 layers" in said
    assert traced.caution in said
    place, layer, effect = traced.peak("mlp", position=traced.last_subject_position)
    assert f"{effect:+.3f}  at layer {layer} of {str(traced['token'][place])!r}" in said


def test_the_figure_has_a_panel_for_each_kind_and_marks_the_subject(traced: CausalTrace) -> None:
    figure = traced.figure()
    assert [panel.text for panel in figure.layout.annotations] == [traced.panel(kind) for kind in KINDS]
    for kind, heatmap in zip(KINDS, figure.data, strict=True):
        np.testing.assert_array_equal(heatmap.z, traced.at("effect", kind=kind))
    marked = [text.endswith("*") for text in figure.layout.yaxis.ticktext]
    assert marked == [False, False, True, True, False, False, False]
    assert PROMPT in figure.layout.title.text


@pytest.mark.parametrize(("asked", "position"), [(None, 3), (5, 5)])
def test_the_severed_figure_has_bars_for_the_whole_stream_and_for_each_sublayer(
    asked: int | None, position: int
) -> None:
    trace = tiny_trace(severed=("mlp", "attn"))
    bars = trace.severed_figure(asked).data
    assert [bar.name for bar in bars] == [trace.panel(kind) for kind in ("resid", "severed_mlp", "severed_attn")]
    for kind, bar in zip(("resid", "severed_mlp", "severed_attn"), bars, strict=True):
        np.testing.assert_array_equal(bar.y, trace.at("effect", kind=kind, position=position))


def test_without_severed_runs_there_is_no_severed_figure(traced: CausalTrace) -> None:
    with pytest.raises(UsageError, match="Nothing was severed"):
        traced.severed_figure()


# --------------------------------------------------------------------------------------------------------- the plan


def test_a_plan_says_what_is_about_to_be_spent() -> None:
    trace = plan_trace(reads_text(), PROMPT, "the tower", samples=10)
    cost, known = trace.cost(), trace.replay.known
    assert len(known) >= 3 * len(BEFORE) * 3, "cells before the subject"
    assert cost.cells == 3 * 7 * 3 - len(known)
    assert cost.rows == 10 * cost.cells
    assert 0 < cost.flops < cost.full_flops
    assert cost.bytes > 0


def test_progress_is_told_up_to_the_last_row() -> None:
    told: list[tuple[int, int]] = []
    trace = plan_trace(reads_text(), PROMPT, "the tower", samples=10)
    trace.run(progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (trace.replay.rows, trace.replay.rows)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


# -------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("budget", [1000, 40_000])
def test_a_budget_that_is_too_small_is_refused_before_the_sweep(budget: int) -> None:
    with pytest.raises(BudgetError, match=rf"[\d,]+ bytes .*budget is {budget:,}"):
        plan_trace(reads_text(), PROMPT, "the tower", samples=4, budget=budget)


def test_a_subject_that_stands_twice_is_chosen_by_occurrence() -> None:
    with pytest.raises(UsageError, match="'of' stands 2 times"):
        plan_trace(reads_text(), PROMPT, "of")
    spans = [plan_trace(reads_text(), PROMPT, "of", occurrence=which, samples=1).span.positions for which in (0, 1)]
    assert spans == [[1], [4]]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"subject": "bridge"}, "'bridge' does not stand in"),
        ({"subject": ""}, "The subject is ''"),
        ({"subject": "tow"}, r"'tow' begins or ends inside a token: it lies in \[' tower'\]"),
        ({"occurrence": 3}, "no occurrence 3 of 'the tower'"),
        ({"prompt": "a", "subject": "a"}, "'a' is one token"),
        ({"prompt": "", "subject": "a"}, "empty"),
        ({"answer": " tower of"}, r"' tower of' is 2 tokens, not one: \[' tower', ' of'\]"),
        ({"answer": 300}, "300 is no token id"),
        ({"noise": 0}, "noise is 0;"),
        ({"noise": -1.0}, "noise is -1.0;"),
        ({"noise": math.nan}, "noise is nan;"),
        ({"noise": math.inf}, "noise is inf;"),
        ({"noise": True}, "noise is True;"),
        ({"noise": "x3"}, "noise is 'x3';"),
        ({"noise": "s0"}, "noise is 's0';"),
        ({"noise": "s"}, "noise is 's';"),
        ({"noise": "snan"}, "noise is 'snan';"),
        ({"replacement": "tower"}, "'the tower' token for token"),
        ({"severed": "resid"}, "severs some of mlp, attn"),
        ({"kinds": ()}, r"each once, not \(\)"),
        ({"kinds": ("resid", "head")}, r"resid, mlp, attn, each once, not \('resid', 'head'\)"),
        ({"kinds": ("mlp", "mlp")}, r"each once, not \('mlp', 'mlp'\)"),
        ({"kinds": "resid"}, "each once, not 'resid'"),
        ({"samples": 0}, "samples is 0; a whole number from 1 on"),
        ({"samples": 2.5}, "samples is 2.5; a whole number from 1 on"),
        ({"samples": True}, "samples is True;"),
        ({"window": 0}, "window is 0; a whole number from 1 on"),
        ({"seed": -1}, "seed is -1; a whole number from 0"),
        ({"seed": 2**32}, r"seed is 4294967296; .* below 2\*\*32"),
    ],
)
def test_what_cannot_be_traced_is_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan_trace(reads_text(), **{"prompt": PROMPT, "subject": "the tower", **settings})


def test_the_subject_is_found_behind_every_prefix() -> None:
    model = reads_text()
    for prefix in ("none", "doc", "chat"):
        trace = plan_trace(model, PROMPT, "the tower", prefix=prefix, samples=1)
        pieces = model.tokenizer.str_tokens(trace.tokens[0, trace.span.positions].tolist())
        assert pieces == [" the", " tower"], prefix


def test_the_pieces_of_a_subject_that_is_cut_are_shown(smollm2: "Transformer") -> None:
    with pytest.raises(UsageError, match=r"'fel Tow' begins or ends inside a token: it lies in \['iffel', ' Tower'\]"):
        plan_trace(smollm2, "The Eiffel Tower is in", "fel Tow")


def test_a_model_without_a_tokenizer_has_no_prompt_to_trace() -> None:
    with pytest.raises(UsageError, match="without a tokenizer"):
        causal_trace(tiny(), PROMPT, "the tower")
