"""Sequences that are said again: drawn by seed from what may be drawn, or given, each behind the prefix."""

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tiny import tiny

from interp.analyses.repeated import RepeatedText, ordinary_tokens, repeated_sequences, repeated_text, repeated_tokens
from interp.errors import UsageError
from interp.models.batching import pad
from interp.models.constructed import induction_circuit

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


class TestRepeatedTexts:
    def test_a_text_is_a_prefix_and_the_same_different_tokens_again_and_again(self) -> None:
        tokens = repeated_tokens(range(10, 60), seq_len=20, repeats=3, n_seqs=4, seed=5, prefix=[7])
        assert (tokens[:, 0] == 7).all()
        first, second, third = tokens[:, 1:].unflatten(1, (3, 20)).unbind(1)
        assert torch.equal(first, second)
        assert torch.equal(first, third)
        assert all(len(set(row.tolist())) == 20 for row in first)
        assert first.min() >= 10

    def test_a_text_depends_on_its_own_number_and_the_seed_only(self) -> None:
        def drawn(n_seqs: int, seed: int) -> torch.Tensor:
            return repeated_tokens(range(500), seq_len=9, repeats=2, n_seqs=n_seqs, seed=seed)

        assert torch.equal(drawn(3, 0), drawn(8, 0)[:3])
        assert not torch.equal(drawn(3, 0), drawn(3, 1))

    def test_special_tokens_are_never_drawn(self, smollm2: "Transformer") -> None:
        ids = ordinary_tokens(smollm2)
        assert set(range(smollm2.config.d_vocab)) - set(ids.tolist()) == set(smollm2.tokenizer.special_ids)
        assert min(ids) == 17

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"seq_len": 1}, "seq_len"),
            ({"seq_len": 6.0}, "seq_len is 6.0; expected a whole number"),
            ({"repeats": True}, "repeats is True; expected a whole number"),
            ({"repeats": 1}, "repeats"),
            ({"n_seqs": 0}, "n_seqs"),
            ({"seed": -1}, "seed"),
            ({"seq_len": 68}, "too small to draw 68 tokens without replacement: 67 are left"),
            ({"repeats": 3000}, "context is 8192"),
        ],
    )
    @pytest.mark.usefixtures("shapes_unchecked")
    def test_what_cannot_be_drawn_is_refused(self, wrong: dict[str, int], message: str) -> None:
        settings = {"seq_len": 5, "repeats": 2, "n_seqs": 2, "seed": 0, **wrong}
        with pytest.raises(UsageError, match=message):
            repeated_text(tiny(), prefix="none", **settings)

    def test_a_prefix_needs_a_tokenizer(self) -> None:
        with pytest.raises(UsageError, match="tokenizer"):
            repeated_text(tiny(), seq_len=5, repeats=2, n_seqs=2, seed=0, prefix="doc")


class TestFrequentAndRareTokens:
    def test_by_counts_the_highest_and_the_lowest_are_left_out(self) -> None:
        counts = np.arange(67) % 10
        left = ordinary_tokens(tiny(), exclude_most=6, exclude_least=7, counts=counts)
        assert left.tolist() == [i for i in range(67) if i % 10 not in (0, 9)]

    def test_among_equal_counts_lower_ids_are_the_more_frequent(self) -> None:
        assert ordinary_tokens(tiny(), exclude_most=2, counts=np.ones(67)).tolist() == list(range(2, 67))
        assert ordinary_tokens(tiny(), exclude_least=2, counts=np.ones(67)).tolist() == list(range(65))

    def test_ids_stand_for_frequency_where_they_follow_the_merges(self, smollm2: "Transformer") -> None:
        left = ordinary_tokens(smollm2, exclude_most=1000, exclude_least=5000)
        assert (left[0], left[-1], len(left)) == (17 + 1000, 49151 - 5000, 49152 - 17 - 6000)

    def test_the_ids_of_the_default_model_do_follow_its_merges(self, smollm2: "Transformer") -> None:
        model = json.loads(smollm2.tokenizer._backend.model.__getstate__())
        made = [model["vocab"]["".join(pair)] for pair in model["merges"]]
        assert len(made) > 48_000
        assert made == sorted(made)

    def test_texts_say_what_they_leave_out_and_by_which_order(self, smollm2: "Transformer") -> None:
        def drawn(**left_out: object) -> RepeatedText:
            return repeated_text(smollm2, seq_len=40, repeats=2, n_seqs=3, seed=0, prefix="doc", **left_out)

        text = drawn(exclude_most=500, exclude_least=40_000)
        assert 517 <= text.tokens[:, 1:].min() <= text.tokens.max() < 9152
        assert "merges" in text.settings["frequency"]
        assert "sha256" in drawn(exclude_most=5, counts=np.arange(49_152)).settings["frequency"]
        assert "frequency" not in drawn().settings

    @pytest.mark.parametrize(
        ("left_out", "message"),
        [
            ({"exclude_most": -1}, "numbers of tokens, not -1"),
            ({"exclude_most": 3}, "no BPE tokenizer.*Pass counts"),
            ({"exclude_most": 3, "counts": np.ones(66)}, r"each of 67 ids; an array of shape \[66\]"),
            ({"exclude_least": 3, "counts": -np.ones(67)}, "other values in it"),
            ({"exclude_least": 3, "counts": np.full(67, np.nan)}, "other values in it"),
            ({"exclude_most": 30, "exclude_least": 33, "counts": np.ones(67)}, "5 tokens without replacement: 4 are"),
            ({"exclude_most": 70, "counts": np.ones(67)}, "without replacement: 0 are left"),
        ],
    )
    def test_what_cannot_be_left_out_is_refused(self, left_out: dict[str, object], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            repeated_text(tiny(), seq_len=5, repeats=2, n_seqs=1, seed=0, prefix="none", **left_out)

    def test_a_vocabulary_of_whole_words_has_no_merges_to_go_by(self) -> None:
        with pytest.raises(UsageError, match="no BPE tokenizer"):
            ordinary_tokens(induction_circuit(), exclude_least=1)


class TestSequencesOfYourOwn:
    def test_texts_and_ids_are_repeated_behind_the_prefix_in_their_order(self, smollm2: "Transformer") -> None:
        one, two, three = (smollm2.tokenizer.encode(text) for text in (" red green", " blue white", " one two three"))
        found = repeated_sequences(smollm2, [" red green", two, " one two three", tuple(one)], repeats=3, prefix="doc")
        assert [text.tokens.tolist() for text in found] == [
            [[0, *one * 3], [0, *two * 3]],
            [[0, *three * 3]],
            [[0, *one * 3]],
        ]
        assert [text.layout for text in found] == [
            {"seq_len": length, "repeats": 3, "prefix_len": 1} for length in (2, 3, 2)
        ]

    @pytest.mark.parametrize("single", [" red green", [4, 5, 6]])
    def test_one_sequence_need_not_be_a_list(self, smollm2: "Transformer", single: str | list[int]) -> None:
        alone, listed = (repeated_sequences(smollm2, given, repeats=2, prefix="doc") for given in (single, [single]))
        assert torch.equal(alone[0].tokens, listed[0].tokens)

    @pytest.mark.parametrize("side", ["left", "right"])
    def test_padding_is_taken_off(self, side: str) -> None:
        rows = [[4, 5, 6], [7, 8]]
        tokens, mask = pad(rows, 0, side)
        padded = repeated_sequences(tiny(), tokens, repeats=2, prefix="none", mask=mask)
        listed = repeated_sequences(tiny(), rows, repeats=2, prefix="none")
        assert [text.tokens.tolist() for text in padded] == [text.tokens.tolist() for text in listed]

    @pytest.mark.parametrize(
        ("sequences", "more", "message"),
        [
            ([], {}, "no sequence"),
            ([[]], {}, "seq_len=0"),
            ([[3, 4], [5]], {}, "seq_len=1"),
            ([[3, 4]], {"repeats": 1}, "repeats=1"),
            ([list(range(60)) * 100], {}, "context is 8192"),
            ([3, [4, 5]], {}, "neither"),
            ([[3, 4.5]], {}, "the tokens of a sequence"),
            ([[3, 4]], {"mask": torch.ones(1, 2, dtype=torch.bool)}, "Leave the mask out"),
            (torch.tensor([[3, 4]]), {"mask": torch.ones(1, 3, dtype=torch.bool)}, r"shape \[1, 3\]"),
            (" red green", {}, "tokenizer"),
        ],
    )
    @pytest.mark.usefixtures("shapes_unchecked")
    def test_what_is_no_sequence_is_refused(self, sequences: object, more: dict[str, object], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            repeated_sequences(tiny(), sequences, **{"repeats": 2, "prefix": "none", **more})
