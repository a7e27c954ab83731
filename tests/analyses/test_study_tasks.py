"""Every task: a batch asked together says of each item what that item says alone, under columns that never change."""

import numpy as np
import pytest
from traced_facts import known_facts, speaker

from interp.analyses.lens import logit_lens
from interp.analyses.patching import sweep
from interp.analyses.study import tasks
from interp.analyses.study.batches import compute
from interp.analyses.study.data import items_of
from interp.analyses.study.file import DataSpec
from interp.analyses.study.prompts import PromptItem
from interp.analyses.study.task import LEFT_OUT, Item, Work
from interp.analyses.trace_facts import trace_facts
from interp.facts import Fact
from interp.models.transformer import Transformer
from interp.pairs import align

FACTS = [
    Fact("France", "capital", "The capital of {} is the city of", "Paris"),
    Fact("Japan", "capital", "The capital of {} is", "Tokyo"),
    Fact("France", "colour", "The colour of {} is", "xylophone", id="unknown"),
]
UNKNOWN = Fact("city", "colour", "the {} of a city", "xylophone", id="unknown")
SETTINGS: dict[str, dict[str, object]] = {
    "lens": {"positions": [-1, 1], "top_k": 2},
    "lens-parts": {"of": "stream"},
    "in-context": {"early": 4, "late": 9},
    "induction": {"seq_len": 4},
    "repeat-loss": {"seq_len": 4},
    "tracing": {"samples": 1, "kinds": ["mlp"], "window": 3},
    "knockout": {"layers": [10], "draws": 1},
    "sublayer-knockout": {"layers": [20], "methods": ["zero"]},
    "memories": {"layer": [9], "top_k": 3},
    "knowledge-neurons": {"steps": 1, "layers": [29]},
    "patching": {"site": "attn_out", "layers": [15]},
    "attribution-patching": {"site": "z", "layers": [15]},
}


def items(kind: str, model: Transformer) -> list[Item]:
    if kind == "facts":
        return [Item(fact.id, fact) for fact in FACTS]
    if kind == "prompts":
        return [Item("a", PromptItem("The capital of France is", " Paris", " Rome")), Item("b", PromptItem("One two"))]
    builder = "ioi" if kind == "pairs" else None
    return items_of(DataSpec(name="d", kind=kind, builder=builder, count=3), model.tokenizer, 0)


MANY = [name for name, task in tasks().items() if task.kinds[0] != "model"]


@pytest.mark.parametrize("name", MANY)
def test_a_batch_says_of_each_item_what_it_says_alone(name: str, smollm2: Transformer) -> None:
    """Ranks are told by the lens of facts: among tens of thousands of tokens rounding moves one, among 300 none."""
    task = tasks()[name]
    small = name == "fact-lens"
    work = Work(speaker() if small else smollm2, task.settings.model_validate(SETTINGS.get(name, {})), "doc", 0)
    asked = [Item(fact.id, fact) for fact in [*known_facts()[1:3], UNKNOWN]] if small else items(task.kinds[0], smollm2)
    together = compute(task, work, asked)
    assert together.failures == ()
    assert list(together.tables) == [item.id for item in asked]
    schemas = {table.schema for table in together.tables.values()}
    assert len(schemas) == 1, "an item that was left out has the columns of all others"
    for item in asked[-2:]:
        ours, theirs = together.tables[item.id], compute(task, work, [item]).tables[item.id]
        assert ours.schema == theirs.schema
        for column in ours.column_names:
            first, second = ours.column(column).to_pylist(), theirs.column(column).to_pylist()
            if isinstance(first[0], float):
                percent = 100 if column.startswith("change") else 1  # changes of probability are told in percent
                np.testing.assert_allclose(first, second, atol=1e-4 * percent, rtol=0, err_msg=column)
            else:
                assert first == second, column


def test_facts_that_are_not_known_are_left_out_with_the_reason(smollm2: Transformer) -> None:
    task = tasks()["knockout"]
    work = Work(smollm2, task.settings.model_validate(SETTINGS["knockout"]), "doc", 0)
    damaged = Fact("Ja", "capital", "The capital of {}pan is", "Tokyo", id="damaged")
    found = compute(task, work, [*items("facts", smollm2), Item("damaged", damaged)])
    rows = found.tables["unknown"].to_pylist()
    assert len(rows) == 1
    assert rows[0][LEFT_OUT].startswith("unknown: the model says")
    assert rows[0]["layer"] == -1
    assert np.isnan(rows[0]["probability"])
    (failure,) = found.failures
    assert (failure.item, failure.error) == ("damaged", "UsageError")
    assert "shares a token" in failure.message


def test_the_lens_of_a_study_is_the_lens(smollm2: Transformer) -> None:
    task = tasks()["lens"]
    work = Work(smollm2, task.settings.model_validate({"top_k": 3}), "doc", 0)
    found = compute(task, work, items("prompts", smollm2)).tables["a"].to_pandas()
    lens = logit_lens(smollm2, "The capital of France is", answers=[" Paris"], positions=[-1], top_k=3)
    first = found[found["rank"] == 1]
    assert list(first["layer"]) == list(lens.axes["layer"])
    np.testing.assert_allclose(first["answer_log_probability"], lens["answer_log_probability"][:, 0, 0], atol=1e-4)
    np.testing.assert_allclose(first["kl_to_final"], lens["kl_to_final"][:, 0], atol=1e-4)
    assert list(found["top_token"]) == list(lens["top_token"][:, 0].reshape(-1))
    assert set(first["answer_token"]) == {" Paris"}


def test_the_patching_of_a_study_is_patching(smollm2: Transformer) -> None:
    task = tasks()["patching"]
    asked = items("pairs", smollm2)
    work = Work(smollm2, task.settings.model_validate(SETTINGS["patching"]), "doc", 0)
    found = compute(task, work, asked)
    for item in asked:
        table = found.tables[item.id].to_pandas()
        pairs = align(smollm2.tokenizer, [item.value])
        alone = sweep(smollm2, pairs, site="attn_out", layers=[15])
        np.testing.assert_allclose(table["patched"], alone["logit_difference"].reshape(-1), atol=1e-4)
        assert list(table["token"]) == list(alone["token"])
        assert table.set_index("pos").loc[pairs.roles["S2"][0], "pos_role"] == "S2"


def test_the_tracing_of_a_study_is_tracing(smollm2: Transformer) -> None:
    task = tasks()["tracing"]
    work = Work(smollm2, task.settings.model_validate(SETTINGS["tracing"]), "doc", 5)
    table = compute(task, work, items("facts", smollm2)).tables["capital/Japan"].to_pandas()
    alone = trace_facts(smollm2, FACTS[1:2], samples=1, kinds=("mlp",), window=3, seed=5)
    for role in alone.axes["role"]:
        effect = alone.at("fact_effect", fact="capital/Japan", kind="mlp", role=role)
        own = table[table["role"] == role]["effect"]
        assert len(own) == (0 if np.isnan(effect).any() else smollm2.config.n_layers)
        if len(own):
            np.testing.assert_allclose(own, effect, atol=1e-5)


def test_whole_models_are_items_too(smollm2: Transformer) -> None:
    task = tasks()["composition"]
    work = Work(smollm2, task.settings.model_validate({"layers": [0, 1], "baseline_draws": 2}), "doc", 0)
    found = compute(task, work, [Item("model", None)])
    assert found.tables["model"].num_rows == 81, "nine heads of each of two layers"
    assert set(found.results) == {"model"}


def test_an_analysis_that_breaks_on_one_item_goes_on_with_the_others(smollm2: Transformer) -> None:
    task = tasks()["lens"]
    work = Work(smollm2, task.settings.model_validate({}), "doc", 0)
    bad = Item("empty", PromptItem(""))
    found = compute(task, work, [bad, *items("prompts", smollm2)])
    assert [failure.item for failure in found.failures] == ["empty"]
    assert "is empty: it has no tokens" in found.failures[0].message
    assert list(found.tables) == ["a", "b"]


def test_random_sequences_depend_on_seed_and_item_alone(smollm2: Transformer) -> None:
    task = tasks()["repeat-loss"]
    work = Work(smollm2, task.settings.model_validate({"seq_len": 4}), "doc", 0)
    found = [
        compute(task, work, [Item("x", (seed, index))]).tables["x"].column("nll").to_numpy()
        for seed, index in ((0, 1), (0, 1), (1, 1), (0, 2))
    ]
    assert np.array_equal(found[0], found[1], equal_nan=True)
    assert not np.allclose(found[0], found[2], equal_nan=True)
    assert not np.allclose(found[0], found[3], equal_nan=True)
