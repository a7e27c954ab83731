"""Traces of many facts: against each fact alone, on models whose recall is known, and on facts of the default model."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from traced_facts import known_facts, speaker

from interp.analyses import trace_facts as module
from interp.analyses.fact_data import bundled_facts
from interp.analyses.fact_traces import FactTraces
from interp.analyses.trace_facts import trace_facts
from interp.analyses.trace_roles import ROLES, role_positions
from interp.analyses.tracing import causal_trace, plan_trace
from interp.errors import UsageError
from interp.facts import Fact, fill
from interp.models.circuits import Head, Neuron, OneFact
from interp.models.constructed import one_fact_memory
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

EIFFEL = Fact(subject="Eiffel Tower", relation="city", template="{} is in", object="Paris")
NEEDLE = Fact(subject="Space Needle", relation="city", template="{} is in", object="Seattle")


@pytest.fixture(scope="module")
def traced() -> FactTraces:
    """All facts of the tiny model."""
    return trace_facts(speaker(), known_facts(), samples=3, window=2, severed="mlp", seed=4)


@pytest.fixture(scope="module")
def recalled(smollm2: "Transformer") -> FactTraces:
    """Landmarks that the default model knows, with subjects of several tokens."""
    names = [f"landmark city/{subject}" for subject in ("Louvre", "Kremlin")]
    chosen = [fact for fact in bundled_facts() if fact.id in names]
    return trace_facts(smollm2, chosen, kinds=("resid",), samples=2)


# ----------------------------------------------------------------------------------------------------- single facts


def test_every_fact_is_what_its_own_trace_finds(traced: FactTraces) -> None:
    assert traced["subject_tokens"].tolist() == [1, 1, 2, 2, 3, 4] * 2
    for place, fact in enumerate(known_facts()):
        options = {"answer": fact.answer, "samples": 3, "window": 2, "severed": "mlp", "seed": 4}
        earlier = fact.prompt[: fact.template.index("{}")].count(fact.subject)
        alone = causal_trace(speaker(), fact.prompt, fact.subject, occurrence=earlier, **options)
        assert traced["total_effect"][place] == pytest.approx(alone.total_effect, abs=1e-6)
        span = plan_trace(speaker(), fact.prompt, fact.subject, occurrence=earlier, **options).span
        for role, positions in role_positions(span, len(alone.axes["position"])).items():
            found = traced.at("fact_effect", fact=fact.id, role=role)
            if positions:
                np.testing.assert_allclose(found, alone["effect"][:, positions].mean(1), atol=1e-6, err_msg=role)
            else:
                assert np.isnan(found).all()


def test_the_subject_is_the_one_in_the_slot_and_the_answer_begins_with_its_first_token() -> None:
    """The subject's letters stand before the slot too, and of the answer's two tokens the model says the first."""
    model, template = speaker(), "the city of {} of a"
    said = model.tokenizer.str_tokens([int(model(model.to_tokens(fill(template, "city")))[0, -1].argmax())])[0]
    fact = Fact(subject="city", relation="streets", template=template, object=f"{said.strip()} a")
    found = trace_facts(model, [fact], kinds=("resid",), samples=2)
    alone = causal_trace(model, fact.prompt, "city", occurrence=1, answer=said, kinds=("resid",), samples=2)
    assert np.flatnonzero(alone["in_subject"]).tolist() == [4]
    assert found["answer_token"].tolist() == [said]
    assert found["total_effect"][0] == pytest.approx(alone.total_effect, abs=1e-6)
    np.testing.assert_allclose(found.at("effect", role="last subject"), alone.at("effect", position=4), atol=1e-6)


def test_neither_the_order_of_facts_nor_their_number_matters(traced: FactTraces) -> None:
    some = [known_facts()[place] for place in (10, 3, 8, 2)]
    other = trace_facts(speaker(), some, samples=3, window=2, severed="mlp", seed=4)
    assert list(other.axes["fact"]) == [fact.id for fact in some]
    for fact in some:
        for name in ("fact_effect", "fact_logit_effect", "clean_probability", "corrupted_probability"):
            np.testing.assert_allclose(other.at(name, fact=fact.id), traced.at(name, fact=fact.id), atol=1e-5)


def test_facts_are_split_where_a_sweep_is_full(traced: FactTraces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cases_at_once", lambda *_: 1)
    told: list[tuple[int, int]] = []
    single = trace_facts(
        speaker(), known_facts(), samples=3, window=2, severed="mlp", seed=4, progress=lambda *done: told.append(done)
    )
    assert told == [(done, 12) for done in range(1, 13)]
    np.testing.assert_allclose(single["fact_effect"], traced["fact_effect"], atol=1e-6)


# --------------------------------------------------------------------------------------------------------- averages


def test_averages_are_over_the_facts_that_have_a_role(traced: FactTraces) -> None:
    assert dict(zip(ROLES, traced["count"].tolist(), strict=True)) == {
        "first subject": 12,
        "middle subject": 4,
        "last subject": 12,
        "first after": 12,
        "further": 12,
        "last": 12,
    }
    np.testing.assert_allclose(traced["effect"], np.nanmean(traced["fact_effect"], 0), atol=1e-7)
    np.testing.assert_allclose(traced["logit_effect"], np.nanmean(traced["fact_logit_effect"], 0), atol=1e-6)
    assert float(traced["mean_total_effect"]) == pytest.approx(traced["total_effect"].mean())
    assert (traced["effect"] < 0).any(), "nothing is clipped"
    inside = (traced["effect_low"] <= traced["effect"]) & (traced["effect"] <= traced["effect_high"])
    assert inside.all()


def test_relations_are_averaged_by_themselves(traced: FactTraces) -> None:
    assert list(traced.axes["relation"]) == ["streets", "towers"]
    assert traced["relation_count"].tolist() == [6, 6]
    assert traced["relation_role_count"].tolist() == [[6, 2, 6, 6, 6, 6]] * 2
    for place, relation in enumerate(traced.axes["relation"]):
        own = traced["relation_name"] == relation
        expected = np.nanmean(traced["fact_effect"][own], 0)
        np.testing.assert_allclose(traced.at("relation_effect", relation=relation), expected, atol=1e-7)
        assert traced["relation_total_effect"][place] == pytest.approx(traced["total_effect"][own].mean())


def test_what_the_model_does_not_know_is_listed_and_not_averaged() -> None:
    wrong = replace(NEEDLE, object="Paris", id="wrong")
    cut = Fact(subject="Tow", relation="city", template="{}er is in", object="Paris")
    model = one_fact_memory()
    found = trace_facts(model, [EIFFEL, wrong, cut], kinds=("resid",), noise=0.5, samples=2)
    assert list(found.axes["fact"]) == [EIFFEL.id]
    assert found["count"].tolist() == [1, 0, 1, 1, 0, 1]
    assert found["relation_count"].tolist() == [1]
    assert dict(zip(found.axes["left_out"], found["left_out_as"], strict=True)) == {
        wrong.id: "unknown",
        cut.id: "error",
    }
    assert found.left_out[wrong.id] == "the model says ' Seattle'"
    assert "shares a token" in found.left_out[cut.id]
    assert np.isnan(found["mean_total_effect_low"])
    said = "\n".join(found.summary())
    assert "1 known (1 unknown and 1 that cannot be traced left out), total effect" in said
    assert "nan" not in said, "one fact has no interval"
    assert f"left out {wrong.id}: the model says ' Seattle'" in said


# ------------------------------------------------------------------------------------------------------------ recall


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_fact_written_into_one_neuron_is_found_there(layer: int) -> None:
    """At its layer and the subject's last token, and on its way out where the extractor reads it."""
    circuit = OneFact(n_layers=4, gatherers=(Head(0, 1),), neuron=Neuron(layer, 5), extractor=Head(3, 2))
    options = {"corruption": "replace", "window": 1, "kinds": ("mlp", "attn")}
    found = trace_facts(one_fact_memory(circuit), [EIFFEL, NEEDLE], **options)
    assert found["replaced_by"].tolist() == [NEEDLE.subject, EIFFEL.subject]
    total = found.at("total_effect", fact=EIFFEL.id)
    expected = np.zeros((2, len(ROLES), 4))
    expected[0, ROLES.index("last subject"), layer] = total
    expected[1, ROLES.index("last"), 3] = total
    expected[:, [ROLES.index("middle subject"), ROLES.index("further")]] = np.nan
    assert total > 0.9
    np.testing.assert_allclose(found.at("fact_effect", fact=EIFFEL.id), expected, atol=1e-6)


def test_known_facts_are_forgotten_and_recalled_at_the_end_of_their_subject(recalled: FactTraces) -> None:
    assert len(recalled.axes["fact"]) == 2
    assert float(recalled["mean_total_effect_low"]) > 0.4
    early, late = recalled.peak("resid", "last subject"), recalled.peak("resid", "last")
    assert early[1] < 20 < late[1]
    others = [role for role in ROLES if role not in ("last subject", "last") and recalled.at("count", role=role) > 0]
    assert min(early[2], late[2]) > 0.2 + max(recalled.peak("resid", role)[2] for role in others)


# ---------------------------------------------------------------------------------------------------------- results


def test_settings_say_how_subjects_were_hidden(traced: FactTraces) -> None:
    assert traced.settings["corruption"] == "noise"
    assert (traced.settings["noise"], traced.settings["samples"], traced.settings["facts"]) == ("s3", 3, 12)
    assert (traced.provenance["prefix"], traced.provenance["seed"]) == ("doc", 4)
    replaced = trace_facts(one_fact_memory(), [EIFFEL, NEEDLE], corruption="replace", kinds=("resid",))
    assert (replaced.settings["corruption"], replaced.settings["samples"]) == ("replace", 1)
    assert "noise" not in replaced.settings


def test_the_saved_copy_is_the_same(traced: FactTraces, tmp_path: Path) -> None:
    traced.save(tmp_path / "traces")
    loaded = Result.load(tmp_path / "traces")
    assert isinstance(loaded, FactTraces)
    assert loaded.identical(traced)
    assert loaded.summary() == traced.summary()


def test_the_tables_have_a_row_a_cell_a_fact_and_a_relation(traced: FactTraces) -> None:
    assert len(traced.to_frame()) == 4 * 6 * 3
    facts, relations = traced.to_frame(("fact",)), traced.to_frame(("relation",))
    assert {"subject", "prompt", "total_effect", "clean_probability"} <= set(facts.columns)
    assert relations["relation_count"].tolist() == [6, 6]


def test_the_figures_show_every_kind_and_role(traced: FactTraces) -> None:
    figure = traced.figure()
    assert [panel.text for panel in figure.layout.annotations] == [traced.panel(str(k)) for k in traced.axes["kind"]]
    np.testing.assert_array_equal(figure.data[0].z, traced.at("effect", kind="resid"))
    curves = traced.severed_figure().data
    assert [curve.name for curve in curves] == ["residual stream", "residual stream, FFN severed"]
    np.testing.assert_array_equal(curves[1].y, traced.at("effect", kind="severed_mlp", role="last subject"))


# -------------------------------------------------------------------------------------------------------- bad input


def test_no_partner_of_as_many_tokens_is_a_reason_to_leave_a_fact_out() -> None:
    alone = Fact(subject="The Eiffel Tower", relation="city", template="{} is in", object="Paris")
    found = trace_facts(one_fact_memory(), [EIFFEL, NEEDLE, alone], corruption="replace", kinds=("resid",))
    assert "none of 1 other subjects fits" in found.left_out[alone.id]
    assert len(found.axes["fact"]) == 2


@pytest.mark.parametrize(
    ("facts", "options", "says"),
    [
        ([], {}, "no facts"),
        ([replace(NEEDLE, object="Paris")], {}, "None of the 1 facts is left to trace; .* says ' Seattle'"),
        ([EIFFEL], {"corruption": "replace"}, "no other fact"),
        ([EIFFEL], {"corruption": "swap"}, "'swap'; expected 'noise' or 'replace'"),
        ([EIFFEL, EIFFEL], {}, "Two facts have the id"),
        ([EIFFEL], {"samples": 0}, "samples is 0"),
    ],
)
def test_what_cannot_be_traced_at_all_is_refused(facts: list[Fact], options: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        trace_facts(one_fact_memory(), facts, **options)  # type: ignore[arg-type]  # wrong on purpose
