"""Trigger examples: against a search by brute force, in batches of any size, and of a neuron written by hand."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tiny import CONFIGS, tiny

from interp.analyses.documents import Document
from interp.analyses.extremes import FIRST, Extremes
from interp.analyses.neurons import memory_count
from interp.analyses.pieces import Batch, pieces_of
from interp.analyses.trigger_search import Search, search_bytes
from interp.analyses.triggers import Triggers, find_triggers
from interp.errors import BudgetError, UsageError
from interp.models.circuits import Neuron, OneFact
from interp.models.config import ModelConfig
from interp.models.constructed import one_fact_memory
from interp.results import Result

if TYPE_CHECKING:
    from pathlib import Path

    from interp.models.transformer import Transformer

RAW = {"prefix": "none", "length": 20}


def texts(config: ModelConfig, lengths: Sequence[int] = (31, 7, 20, 45)) -> list[list[int]]:
    generator = torch.Generator().manual_seed(
        6
    )  # no two pieces begin alike, where equal values would be a matter of bits
    return [torch.randint(0, config.d_vocab, (length,), generator=generator).tolist() for length in lengths]


def coefficients(model: "Transformer", rows: list[list[int]], layer: int, length: int) -> torch.Tensor:
    """By hand: one piece at a time, all coefficients of all tokens [token, memory]; NaN where no expert was asked."""
    found = []
    for row in rows:
        count = -(-len(row) // length)
        cuts = [part * len(row) // count for part in range(count + 1)]
        for start, stop in pairwise(cuts):
            _, cache = model.run_with_cache(torch.tensor([row[start:stop]]), "blocks.*.mlp.*")
            post = cache["mlp.post", layer][0]
            if post.dim() == 3:
                assert model.config.moe is not None
                every = post.new_full((len(post), model.config.moe.n_experts, post.shape[-1]), torch.nan)
                chosen = cache["mlp.expert_indices", layer][0]
                every[torch.arange(len(post))[:, None], chosen] = post
                post = every.flatten(1)
                if model.config.moe.d_shared is not None:
                    post = torch.cat([post, cache[f"blocks.{layer}.mlp.shared.hook_post"][0]], 1)
            found.append(post)
    return torch.cat(found)


@pytest.mark.parametrize("name", ["grouped_query", "ungated", "relu", "moe_top2", "moe_shared_gated", "sandwich_norm"])
def test_the_places_are_those_of_a_search_by_brute_force(name: str) -> None:
    model = tiny(CONFIGS[name], dtype=torch.float64)
    rows = texts(model.config)
    found = find_triggers(model, rows, layers=[0, 2], top_k=6, **RAW)
    stream = np.concatenate(rows)
    starts = np.cumsum([0, *map(len, rows)])
    for layer in (0, 2):
        by_hand = coefficients(model, rows, layer, 20)
        for end, sign in (("largest", -1), ("smallest", 1)):
            order = (sign * by_hand).nan_to_num(torch.inf).argsort(dim=0, stable=True)[:6].T
            expected = by_hand.T.gather(1, order).numpy()
            cells = {"layer": layer, "end": end}
            np.testing.assert_allclose(found.at("coefficient", **cells), expected, rtol=1e-9)
            places = starts[found.at("in_document", **cells)] + found.at("at_token", **cells)
            there = ~np.isnan(expected)
            assert (places[there] == order.numpy()[there]).all()
            assert (found.at("in_document", **cells)[~there] == -1).all()
            assert (found.context_ids(**cells)[..., -1][there] == stream[places[there]]).all()
            assert (found.context_ids(**cells)[~there] == -1).all()
            assert (found.next_ids(**cells)[~there] == -1).all()


def test_both_signs_are_triggers_of_a_gated_neuron_and_the_gate_alone_would_miss_them() -> None:
    model = tiny(CONFIGS["grouped_query"], dtype=torch.float64)
    rows = texts(model.config)
    found = find_triggers(model, rows, layers=1, top_k=1, **RAW)
    assert (found.at("coefficient", end="largest") > 0).mean() > 0.9
    assert (found.at("coefficient", end="smallest") < 0).mean() > 0.9
    gates = torch.cat([model.run_with_cache(torch.tensor([row]))[1]["mlp.pre", 1][0] for row in rows])
    by_gate = torch.nn.functional.silu(gates).argmax(0).numpy()
    starts = np.cumsum([0, *map(len, rows)])
    places = (starts[found["in_document"]] + found["at_token"])[0, :, 0, 0]
    assert (by_gate != places).mean() > 0.3


def test_the_size_of_a_batch_changes_nothing() -> None:
    model = tiny(CONFIGS["grouped_query"], dtype=torch.float64)
    alone, together = (
        find_triggers(model, texts(model.config), layers=[0, 1], top_k=5, max_bytes=size, **RAW) for size in (1, 2**28)
    )
    for name in ("in_document", "at_token"):
        assert np.array_equal(alone[name], together[name])
    np.testing.assert_allclose(alone["coefficient"], together["coefficient"], rtol=1e-9)


def test_chosen_neurons_are_those_of_the_whole_search() -> None:
    for name, chosen in (("grouped_query", [40, 3]), ("moe_top2", [153, 0, 22]), ("moe_shared_gated", [179, 0, 154])):
        model = tiny(CONFIGS[name])
        rows = texts(model.config)
        some, every = (find_triggers(model, rows, layers=2, neurons=which, **RAW) for which in (chosen, None))
        np.testing.assert_allclose(some["coefficient"], every["coefficient"][:, chosen], rtol=1e-5, atol=1e-6)
        assert some["memory"].tolist() == chosen
    assert some.axes["neuron"] == ("shared.25", "0.0", "shared.0")


class TestExtremes:
    def search(self, values: torch.Tensor, pieces: Sequence[int], top_k: int = 4) -> Extremes:
        best = Extremes(values.shape[1], top_k, dtype=values.dtype, device=values.device)
        rows = torch.arange(len(values))
        for part, where in zip(values.split(list(pieces)), rows.split(list(pieces)), strict=True):
            best.add(part, where)
        return best

    def test_of_equal_values_the_earlier_ones_stay(self) -> None:
        values = torch.tensor([0.0, 1, 0, 1, 1, 0, 1, 1, 0, 0])[:, None]
        for pieces in ([10], [1] * 10, [3, 7]):
            best = self.search(values, pieces)
            assert best.rows[:, 0].tolist() == [[1, 3, 4, 6], [0, 2, 5, 8]]

    def test_pieces_of_any_size_find_what_sorting_finds(self) -> None:
        values = torch.randn(5 * FIRST, 7, generator=torch.Generator().manual_seed(0)).round(decimals=1)
        for pieces in ([5 * FIRST], [FIRST, 4 * FIRST], [7] * (5 * FIRST // 7) + [5 * FIRST % 7]):
            best = self.search(values, pieces)
            for end, signed in enumerate((values, -values)):
                order = signed.argsort(dim=0, descending=True, stable=True)[:4]
                assert torch.equal(best.rows[end], order.T)
                assert torch.equal(best.values[end], signed.gather(0, order).T)

    def test_fewer_rows_than_ranks_leave_places_empty(self) -> None:
        best = self.search(torch.tensor([[2.0], [3.0]]), [2])
        assert best.rows.tolist() == [[[1, 0, -1, -1]], [[0, 1, -1, -1]]]
        assert best.values[0, 0].tolist() == [3, 2, -torch.inf, -torch.inf]


class TestAFactWrittenByHand:
    FACT = OneFact(neuron=Neuron(0, 5))
    DOCUMENTS = (
        Document("one", "The Eiffel Tower is in The Tower Eiffel Eiffel Tower"),
        Document("none", "The Space Needle is in Tower"),
        Document("two", "Eiffel Tower Paris Tower The Eiffel Tower"),
    )

    def search(self, **settings: object) -> "Triggers":
        return find_triggers(one_fact_memory(self.FACT), self.DOCUMENTS, layers=0, **{"length": 31, **settings})

    def test_its_triggers_are_the_ends_of_the_subject_and_no_others(self) -> None:
        found = self.search(top_k=6, context=2)
        assert found.at("coefficient", layer=0, neuron=5, end="largest").tolist() == [1, 1, 1, 1, 0, 0]
        where = zip(found["in_document"][0, 5, 0], found["at_token"][0, 5, 0], strict=True)
        assert list(where)[:4] == [(0, 2), (0, 9), (2, 1), (2, 6)]
        assert {text.strip() for text in found.context(0, 5)[:4]} == {"Eiffel Tower"}
        assert [text.strip() for text in found.following(0, 5)[:4]] == ["is", "", "Paris", ""]

    def test_other_neurons_fire_for_nothing(self) -> None:
        found = self.search(top_k=1)
        assert not found["coefficient"][0, [0, 1, 2, 3, 4, 6, 7]].any()

    def test_a_piece_does_not_see_what_stood_before_it(self) -> None:
        found = self.search(top_k=3, length=2)  # The Eiffel | Tower is | …, and Eiffel | Tower Paris | …
        assert found.at("coefficient", layer=0, neuron=5, end="largest").tolist() == [1, 1, 0]
        assert list(found["at_token"][0, 5, 0, :2]) == [9, 6]
        assert (found.context_ids()[..., :-2] == -1).all()

    def test_the_prefix_is_no_place(self) -> None:
        model = one_fact_memory(self.FACT)
        model.weights()["blocks.0.mlp.W_in"][self.FACT.spaces["token"].start + 0, 5] = 9  # fires at the separator
        found = find_triggers(model, self.DOCUMENTS, layers=0, top_k=3, length=31)
        assert found["coefficient"].max() == 1
        assert (found.context_ids() != 0).all()

    def test_a_document_that_opens_with_the_separator_gets_no_second_one(self) -> None:
        opened = [Document(each.name, "<|endoftext|>" + each.text) for each in self.DOCUMENTS]
        found = find_triggers(one_fact_memory(self.FACT), opened, layers=0, length=31)
        assert np.array_equal(found["at_token"], self.search()["at_token"])


def test_what_is_found_so_far_is_what_the_texts_read_by_then_have() -> None:
    model, handed = tiny(), []
    rows = texts(model.config)
    found = find_triggers(model, rows, layers=1, top_k=3, max_bytes=1, so_far=lambda make: handed.append(make()), **RAW)
    cuts = [0, 15, 31, 38, 58, 73, 88]
    assert [int(each["searched"]) for each in handed] == cuts[1:]
    whole = find_triggers(model, rows[:2], layers=1, top_k=3, max_bytes=1, **RAW)
    for name in ("coefficient", "in_document", "at_token"):
        np.testing.assert_array_equal(handed[2][name], whole[name])
    assert found.identical(find_triggers(model, rows, layers=1, top_k=3, max_bytes=1, **RAW))


class TestPieces:
    MODEL = tiny()

    def test_texts_are_cut_into_nearly_equal_pieces_that_hold_every_token_once(self) -> None:
        rows = texts(self.MODEL.config, (31, 7, 20, 45))
        pieces = pieces_of(self.MODEL, rows, length=20, prefix="none")
        assert pieces.cuts.tolist() == [0, 15, 31, 38, 58, 73, 88, 103]
        for size in (1, 3, 100):
            batches = list(pieces.batches(size))
            assert (
                torch.cat([batch.tokens.flatten()[batch.rows] for batch in batches]).tolist()
                == np.concatenate(rows).tolist()
            )
            assert torch.cat([batch.places for batch in batches]).tolist() == list(range(103))

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [([], "none came"), ([[1, 2], []], "'1' has no tokens"), ([Document("a", "x"), Document("a", "y")], "several")],
    )
    def test_texts_that_cannot_be_read_are_refused(self, wrong: list[object], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            pieces_of(self.MODEL, wrong, length=20, prefix="none")

    def test_a_short_context_shortens_the_pieces(self) -> None:
        model = tiny(replace(CONFIGS["grouped_query"], n_ctx=16))
        assert find_triggers(model, texts(model.config), prefix="none", top_k=1).settings["length"] == 16
        assert find_triggers(self.MODEL, texts(model.config), prefix="none", top_k=1).settings["length"] == min(
            512, self.MODEL.config.n_ctx
        )

    def test_a_piece_longer_than_the_context_is_refused(self) -> None:
        model = tiny(replace(CONFIGS["grouped_query"], n_ctx=16))
        with pytest.raises(UsageError, match="expected 1 to 16 tokens"):
            pieces_of(model, [[1, 2]], length=17, prefix="none")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"layers": 3}, "3 lies outside"),
        ({"neurons": [44]}, "44 lies outside"),
        ({"top_k": 0}, "top_k is 0"),
        ({"context": 0}, "context 0"),
    ],
)
def test_what_does_not_exist_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_triggers(tiny(), [[1, 2, 3]], **{"layers": 0, **RAW, **wrong})


def test_layers_of_different_widths_are_searched_apart() -> None:
    model = tiny(CONFIGS["moe_mixed_layers"])
    with pytest.raises(UsageError, match="one kind at a time"):
        find_triggers(model, texts(model.config), **RAW)
    assert find_triggers(model, texts(model.config), layers=[0, 2], **RAW)["coefficient"].shape == (2, 44, 2, 20)


@pytest.mark.parametrize(("name", "layers"), [("grouped_query", [0, 2]), ("moe_shared_gated", [1])])
def test_what_a_search_holds_is_known_beforehand_and_does_not_grow_with_the_corpus(
    name: str, layers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Places and values, nothing of the contexts, of however many tokens: counted on the arrays themselves."""
    model, held = tiny(CONFIGS[name]), []
    read = Search.read

    def counted(search: Search, batch: Batch) -> None:
        read(search, batch)
        held.append(search.nbytes)

    monkeypatch.setattr(Search, "read", counted)
    for lengths in ((31, 7), (31, 7, 20, 45, 60, 200)):
        found = find_triggers(
            model, texts(model.config, lengths), layers=layers, top_k=5, context=12, max_bytes=1, **RAW
        )
        cells = found["coefficient"].size
        assert set(held) == {12 * cells}
        stated = search_bytes(model, len(layers), memory_count(model.config, layers[0]), 5)
        back = sum(found[each].nbytes for each in found.arrays if "rank" in found.named(each).axes)
        assert 12 * cells + back == stated == found.settings["bytes_held"]


def test_more_places_than_the_budget_has_room_for_are_refused_before_anything_runs() -> None:
    model = tiny()
    needed = search_bytes(model, 3, 44, 20)
    rows = texts(model.config)
    assert find_triggers(model, rows, budget=needed, **RAW)["coefficient"].shape == (3, 44, 2, 20)
    with pytest.raises(BudgetError, match=f"The 40 places of 132 neurons take {needed:,} bytes"):
        find_triggers(model, [[10**6]], budget=needed - 1, **RAW)  # no such token: it is never read


def test_contexts_of_a_saved_result_are_cut_from_the_texts_that_it_holds(tmp_path: "Path") -> None:
    model = tiny()
    rows = texts(model.config, (31, 7, 5000))
    found = find_triggers(model, rows, layers=1, top_k=3, context=4, **RAW)
    assert found["token_id"].shape == (2, 4096)
    again = Triggers.load(found.save(tmp_path / "it"))
    assert np.array_equal(again.context_ids(), found.context_ids())
    assert again.context(1, 5) == found.context(1, 5)
    document, place = int(found["in_document"][0, 5, 0, 0]), int(found["at_token"][0, 5, 0, 0])
    assert found.context(1, 5)[0].endswith(str(rows[document][place]))
    assert found.following(1, 5)[0] == "".join(map(str, rows[document][place + 1 : place + 2]))


def test_progress_counts_tokens_and_a_result_is_saved_and_shown(tmp_path: "Path") -> None:
    model, steps = tiny(), []
    rows = texts(model.config)
    found = find_triggers(
        model, rows, layers=[1], top_k=3, max_bytes=1, progress=lambda *step: steps.append(step), **RAW
    )
    assert steps[-1] == (103, 103)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert Result.load(found.save(tmp_path / "it")).identical(found)
    assert len(found.figure().data[0].x) == 6
    assert found.summary()[-1].strip() == found.caution
