"""Hand-written models do exactly what is written in them, and patching finds the parts that were written, no others."""

from collections.abc import Callable

import pytest
import torch
from identities import check_identities
from torch import Tensor

from interp import edits, metrics
from interp.analyses import induction
from interp.errors import UsageError
from interp.models.circuits import Circuit, Head, InductionCircuit, Neuron, OneFact
from interp.models.constructed import induction_circuit, one_fact_memory
from interp.models.replay import Replay, Sweep
from interp.models.transformer import Transformer

INDUCTION: dict[str, InductionCircuit] = {
    "default": InductionCircuit(),
    "three_layers": InductionCircuit(n_layers=3, previous=Head(1, 0), induction=Head(2, 3)),
    "grouped_query": InductionCircuit(n_heads=6, n_kv_heads=2, previous=Head(0, 4), induction=Head(1, 2)),
    "suppressed": InductionCircuit(suppressor=Head(1, 3), suppression=4.0),
    "suppressed_in_a_shared_group": InductionCircuit(n_kv_heads=2, suppressor=Head(1, 3)),
    "small": InductionCircuit(words=("x", "y", "z"), n_ctx=40),
}
FACTS: dict[str, OneFact] = {
    "default": OneFact(),
    "one_token": OneFact(subject=("Tower",), gatherers=()),
    "three_tokens": OneFact(subject=("The", "Eiffel", "Tower"), gatherers=(Head(0, 3), Head(0, 0))),
    "grouped_query": OneFact(
        n_layers=4, n_heads=6, n_kv_heads=2, subject=("The", "Eiffel", "Tower"),
        gatherers=(Head(0, 2), Head(1, 1)), neuron=Neuron(2, 7), extractor=Head(3, 5),
    ),
    "suppressed": OneFact(n_layers=3, suppressor=Head(2, 0), suppression=3.0),
}  # fmt: skip
CLEAN, CORRUPTED = "C A B D E A", "C F B D E A"
"""What follows A is read at position 3, behind the separator, C and A; the corrupted text has no earlier A."""
FACT_CLEAN, FACT_CORRUPTED = "The Eiffel Tower is in", "The Eiffel Needle is in"


def said(circuit: Circuit) -> float:
    """The logit of an answer that the whole circuit gives."""
    return circuit.strength - (circuit.suppression if circuit.suppressor else 0)


def random_texts(circuit: Circuit, words: tuple[str, ...], count: int, length: int, seed: int) -> Tensor:
    """Separators, each with random ones of these words behind it."""
    ids = torch.tensor([circuit.token(word) for word in words])
    chosen = torch.randint(len(words), (count, length), generator=torch.Generator().manual_seed(seed))
    return torch.cat([torch.zeros(count, 1, dtype=torch.long), ids[chosen]], 1)


def expected_next(circuit: InductionCircuit, tokens: list[int]) -> Tensor:
    """Logits [pos, d_vocab] by looking up, position by position, what followed before."""
    logits = torch.zeros(len(tokens), len(circuit.vocabulary))
    for query in range(1, len(tokens)):
        keys = circuit.keys(tokens, query)
        for key in keys:
            logits[query, tokens[key]] += said(circuit) / len(keys)
    return logits


def effects(
    model: Transformer, base: str, source: str, point: str, metric: metrics.Metric, unit: str | None = None
) -> dict[tuple[int, ...], float]:
    """Every (layer, [unit,] position) at which a value of `source`, put into `base`, changes anything: by how much.

    `unit`: "heads" or "neurons", which are then patched one by one.
    """
    tokens, (_, cache) = model.to_tokens(base), model.run_with_cache(model.to_tokens(source))
    units = range(cache[point, 0].shape[2] if unit else 1)
    axes = {"layer": range(model.config.n_layers), "index": units, "pos": range(tokens.shape[1])}

    def change(layer: int, index: int, pos: int) -> list[tuple[str, edits.Edit]]:
        value, where = cache[point, layer][:, [pos]], {unit: [index]} if unit else {}
        new = value[:, :, [index]] if unit else value
        return [(cache.points.full_name((point, layer)), edits.replace(new, positions=pos, **where))]

    swept = Replay(model, tokens, Sweep(axes, change), metric).run()
    changes = torch.tensor(swept[metric.name].values - swept.base[metric.name].values)[..., 0]
    found = {tuple(place): float(changes[tuple(place)]) for place in changes.nonzero().tolist()}
    return found if unit else {(layer, pos): change for (layer, _, pos), change in found.items()}


def logits_behind(model: Transformer, text: str) -> dict[str, float]:
    """The logits behind a text that are not 0, by word."""
    logits = model(model.to_tokens(text))[0, -1]
    return {model.to_string([token]).strip(): float(logits[token]) for token in logits.nonzero().flatten().tolist()}


class TestInduction:
    @pytest.mark.parametrize("name", INDUCTION)
    def test_it_says_what_followed_before_and_nothing_else(self, name: str) -> None:
        circuit = INDUCTION[name]
        tokens = random_texts(circuit, circuit.words, count=40, length=30, seed=3)
        expected = torch.stack([expected_next(circuit, row) for row in tokens.tolist()])
        torch.testing.assert_close(induction_circuit(circuit)(tokens), expected, rtol=0, atol=1e-5)

    @pytest.mark.parametrize("text", ["A B C A", "A B A", "A A", "C A B D A"])
    def test_a_separator_in_front_is_not_needed_where_the_token_was_read_before(self, text: str) -> None:
        model = induction_circuit()
        answer = text.split()[text.split().index("A") + 1]
        logits = model(model.to_tokens(text, prefix="none"))[0, -1]
        assert logits.nonzero().flatten().tolist() == [model.to_single_token(answer)]

    def test_a_word_that_is_not_known_is_one_token_as_any_other(self) -> None:
        assert logits_behind(induction_circuit(), "A B somewhere C elsewhere") == {"C": 16.0}

    @pytest.mark.parametrize("name", ["default", "three_layers", "grouped_query"])
    def test_the_heads_look_where_they_were_told_to(self, name: str) -> None:
        """The previous-token head scores 1, the induction head matches prefixes with 1, all others look evenly."""
        circuit = INDUCTION[name]
        scores = induction.score_heads(induction_circuit(circuit), seq_len=25, repeats=2, n_seqs=4, seed=0)
        for (layer, head), previous, matching in (
            (circuit.previous, 1.0, 0.0),
            (circuit.induction, 0.0, 1.0),
        ):
            assert scores.at("previous_token", layer=layer, head=head) == pytest.approx(previous, abs=1e-6)
            assert scores.at("prefix_matching", layer=layer, head=head) == pytest.approx(matching, abs=1e-6)
        idle = {(layer, head) for layer in range(circuit.n_layers) for head in range(circuit.n_heads)}
        for layer, head in idle - set(circuit.heads.values()):
            assert scores.at("prefix_matching", layer=layer, head=head) < 0.05

    def test_each_row_of_both_patterns_is_as_written(self) -> None:
        circuit, model = InductionCircuit(), induction_circuit()
        tokens = model.to_tokens(CLEAN)
        _, cache = model.run_with_cache(tokens, "blocks.*.attn.hook_pattern")
        previous, matching = cache["pattern", 0][0, 1], cache["pattern", 1][0, 2]
        assert torch.equal(previous.argmax(-1), torch.tensor([0, 0, 1, 2, 3, 4, 5]))
        assert torch.equal(matching.argmax(-1), torch.tensor([0, 0, 0, 0, 0, 0, 3]))
        assert torch.equal(previous.amax(-1), torch.ones(7))
        assert torch.equal(matching.amax(-1), torch.ones(7))
        assert circuit.keys(tokens[0].tolist()) == [3]

    @pytest.mark.parametrize(("base", "source", "sign"), [(CORRUPTED, CLEAN, 1), (CLEAN, CORRUPTED, -1)])
    def test_patching_finds_both_heads_at_their_positions_and_no_others(
        self, base: str, source: str, sign: int
    ) -> None:
        model = induction_circuit()
        metric = metrics.logit(model.to_single_token(" B"))
        assert effects(model, base, source, "z", metric, "heads") == {(0, 1, 3): 16 * sign, (1, 2, 6): 16 * sign}

    @pytest.mark.parametrize(("base", "source", "sign"), [(CORRUPTED, CLEAN, 1), (CLEAN, CORRUPTED, -1)])
    def test_patching_the_residual_stream_follows_the_circuit(self, base: str, source: str, sign: int) -> None:
        """In front of the previous-token head the token itself matters, behind it the position that has copied it."""
        model = induction_circuit()
        metric = metrics.logit(model.to_single_token(" B"))
        assert effects(model, base, source, "resid_pre", metric) == {(0, 2): 16 * sign, (1, 3): 16 * sign}
        assert effects(model, base, source, "mlp_out", metric) == {}

    def test_patching_a_suppressor_lowers_the_answer_by_the_stated_amount(self) -> None:
        model = induction_circuit(INDUCTION["suppressed"])
        metric = metrics.logit(model.to_single_token(" B"))
        found = effects(model, CORRUPTED, CLEAN, "z", metric, "heads")
        assert found == {(0, 1, 3): 12, (1, 2, 6): 16, (1, 3, 6): -4}

    @pytest.mark.parametrize("part", ["previous", "induction"])
    def test_without_either_head_nothing_is_said(self, part: str) -> None:
        circuit, model = InductionCircuit(), induction_circuit()
        layer, head = circuit.heads[part]
        hooks = [(f"blocks.{layer}.attn.hook_z", edits.zero(heads=head))]
        assert logits_behind(model, CLEAN) == {"B": 16}
        with model.hooks(hooks):
            assert logits_behind(model, CLEAN) == {}


class TestOneFact:
    @pytest.mark.parametrize("name", FACTS)
    def test_the_whole_subject_before_the_relation_is_answered_and_nothing_else(self, name: str) -> None:
        """Against a search for the subject in random texts, at every position."""
        circuit = FACTS[name]
        words = (*circuit.subject, circuit.relation, "Needle")
        tokens = random_texts(circuit, words, count=600, length=12, seed=5)
        expected = torch.zeros(*tokens.shape, len(circuit.vocabulary))
        relation = circuit.token(circuit.relation)
        for row, ids in enumerate(tokens.tolist()):
            for place in [place for place, token in enumerate(ids) if token == relation]:
                expected[row, place, circuit.token(circuit.foil)] = circuit.prior
                if circuit.subject_ends(ids[: place + 1]):
                    expected[row, place, circuit.token(circuit.answer)] = said(circuit)
        answered = (expected[..., circuit.token(circuit.answer)] != 0).sum()
        assert answered > 20, "the texts must hold the subject now and then"
        torch.testing.assert_close(one_fact_memory(circuit)(tokens), expected, rtol=0, atol=1e-5)

    def test_the_neuron_alone_turns_the_foil_into_the_answer(self) -> None:
        model = one_fact_memory()
        assert logits_behind(model, FACT_CLEAN) == {"Paris": 16, "Seattle": 8}
        assert logits_behind(model, FACT_CORRUPTED) == {"Seattle": 8}

    @pytest.mark.parametrize(
        ("base", "source", "sign"), [(FACT_CORRUPTED, FACT_CLEAN, 1), (FACT_CLEAN, FACT_CORRUPTED, -1)]
    )
    def test_patching_finds_the_neuron_and_the_path_behind_it(self, base: str, source: str, sign: int) -> None:
        """The texts differ at position 3, the last of the subject; the relation stands at 5."""
        model, full = one_fact_memory(), 16 * sign
        metric = metrics.logit_difference(model.to_single_token(" Paris"), model.to_single_token(" Seattle"))
        assert effects(model, base, source, "mlp.post", metric, "neurons") == {(0, 5, 3): full}
        assert effects(model, base, source, "z", metric, "heads") == {(1, 2, 5): full}
        assert effects(model, base, source, "resid_pre", metric) == {(0, 3): full, (1, 3): full}

    def test_a_subject_of_two_tokens_is_needed_whole(self) -> None:
        """Restoring one of two wrong tokens does nothing in front of the neuron; taking one away undoes everything."""
        model, wrong = one_fact_memory(), "The Space Needle is in"
        metric = metrics.logit_difference(model.to_single_token(" Paris"), model.to_single_token(" Seattle"))
        assert effects(model, wrong, FACT_CLEAN, "resid_pre", metric) == {(1, 3): 16}
        assert effects(model, FACT_CLEAN, wrong, "resid_pre", metric) == {(0, 2): -16, (0, 3): -16, (1, 3): -16}

    def test_patching_a_suppressor_lowers_the_answer_by_the_stated_amount(self) -> None:
        model = one_fact_memory(FACTS["suppressed"])
        metric = metrics.logit(model.to_single_token(" Paris"))
        found = effects(model, FACT_CORRUPTED, FACT_CLEAN, "z", metric, "heads")
        assert found == {(1, 2, 5): 16, (2, 0, 5): -3}

    def test_without_the_neuron_the_foil_is_said_and_without_any_other_nothing_changes(self) -> None:
        model = one_fact_memory()
        for layer in range(2):
            for neuron in range(model.config.d_mlp):
                with model.hooks([(f"blocks.{layer}.mlp.hook_post", edits.zero(neurons=neuron))]):
                    answer = {} if (layer, neuron) == (0, 5) else {"Paris": 16}
                    assert logits_behind(model, FACT_CLEAN) == {**answer, "Seattle": 8}


EVERY = {f"induction {name}": induction_circuit(circuit) for name, circuit in INDUCTION.items()} | {
    f"fact {name}": one_fact_memory(circuit) for name, circuit in FACTS.items()
}


class TestBoth:
    @pytest.mark.parametrize("name", EVERY)
    def test_every_equation_of_the_registry_holds(self, name: str) -> None:
        model = EVERY[name]
        tokens = torch.randint(0, model.config.d_vocab, (3, 20), generator=torch.Generator().manual_seed(8))
        check_identities(model, tokens)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    def test_norms_return_what_they_read(self, dtype: torch.dtype) -> None:
        model = one_fact_memory(dtype=dtype)
        _, cache = model.run_with_cache(model.to_tokens(FACT_CLEAN))
        for layer in range(2):
            assert torch.equal(cache["ln1.normalized", layer], cache["resid_pre", layer])
            assert torch.equal(cache["ln2.normalized", layer], cache["resid_mid", layer])
        assert torch.equal(cache["ln_final.normalized"], cache["resid_post", -1])

    @pytest.mark.parametrize("name", EVERY)
    def test_gradients_are_finite(self, name: str) -> None:
        model = EVERY[name]
        tokens = torch.randint(0, model.config.d_vocab, (2, 12), generator=torch.Generator().manual_seed(9))
        _, cache = model.run_with_cache(tokens, gradients_of=lambda logits: logits[:, -1].square().sum())
        assert cache.gradients is not None
        assert all(bool(gradient.isfinite().all()) for gradient in cache.gradients.values())

    def test_gradients_pass_soft_patterns_only(self) -> None:
        """Of the answer's logit with respect to what the previous-token head has copied."""

        def largest(sharpness: float) -> float:
            model = induction_circuit(InductionCircuit(sharpness=sharpness))
            answer = model.to_single_token(" B")
            tokens = model.to_tokens(CLEAN)
            _, cache = model.run_with_cache(tokens, gradients_of=lambda logits: logits[0, -1, answer])
            assert cache.gradients is not None
            return float(cache.gradients["z", 0][0, 3, 1].abs().max())

        assert largest(1024.0) < 1e-15  # what is left comes from the norms
        assert largest(8.0) > 0.1

    def test_spaces_fill_the_residual_stream_without_a_gap(self) -> None:
        for circuit in (*INDUCTION.values(), *FACTS.values()):
            spaces = list(circuit.spaces.values())
            assert [space.start for space in spaces] == [0, *(space.stop for space in spaces[:-1])]

    def test_padding_on_the_left_changes_nothing(self) -> None:
        model = one_fact_memory()
        tokens, mask = model.to_batch([FACT_CLEAN, "Eiffel Tower in"], side="left")
        logits = model(tokens, mask)[:, -1]
        assert torch.equal(logits[0], logits[1])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: InductionCircuit(induction=Head(0, 2)), "later layer"),
        (lambda: InductionCircuit(previous=Head(0, 4)), "counted from 0"),
        (lambda: InductionCircuit(induction=Head(2, 0)), "counted from 0"),
        (lambda: InductionCircuit(suppressor=Head(1, 2)), "one thing"),
        (lambda: InductionCircuit(suppressor=Head(0, 2)), "later layer"),
        (lambda: InductionCircuit(words=("A", "A")), "differ"),
        (lambda: InductionCircuit(words=("A", "two words")), "without spaces"),
        (lambda: OneFact(subject=("Eiffel", "Towr")), "Did you mean 'Tower'"),
        (lambda: OneFact(subject=("Eiffel", "Eiffel")), "twice"),
        (lambda: OneFact(subject=("Tower",)), "each word but the last"),
        (lambda: OneFact(foil="Paris"), "must differ"),
        (lambda: OneFact(neuron=Neuron(0, 8)), "counted from 0"),
        (lambda: OneFact(neuron=Neuron(1, 0)), "later layer"),
        (lambda: OneFact(gatherers=(Head(1, 0),)), "comes behind"),
    ],
)
def test_what_cannot_work_is_refused(wrong: Callable[[], Circuit], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wrong()
