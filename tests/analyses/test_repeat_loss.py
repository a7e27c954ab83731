"""The loss by repeat: that of the full logits, exact on a model written by hand, and much lower on the real one."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tiny import tiny

from interp.analyses.intervals import mean_interval
from interp.analyses.repeat_loss import RepeatLoss, repeat_loss
from interp.models.circuits import InductionCircuit
from interp.models.constructed import induction_circuit

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


class TestRepeatLoss:
    def test_it_is_the_loss_of_the_full_logits(self) -> None:
        model = tiny()
        loss = repeat_loss(model, seq_len=6, repeats=3, n_seqs=2, prefix="none")
        tokens = torch.tensor(loss["tokens"])
        expected = -model(tokens).log_softmax(-1)[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0]
        found = loss["nll"].reshape(2, 18)
        assert np.isnan(found[:, 0]).all()
        np.testing.assert_allclose(found[:, 1:], expected.numpy(), atol=1e-5)
        means = loss["nll"][:, :, 1:].mean((0, 2))
        np.testing.assert_allclose(loss["mean"], means, rtol=1e-6)
        assert loss.drop == pytest.approx(means[0] - means[1])

    def test_blocks_change_nothing(self) -> None:
        whole, pieces = (repeat_loss(tiny(), seq_len=6, n_seqs=3, prefix="none", max_bytes=size) for size in (10**9, 1))
        np.testing.assert_allclose(whole["nll"], pieces["nll"], atol=1e-5)

    def test_the_saved_copy_and_the_figure_hold(self, tmp_path: Path) -> None:
        loss = repeat_loss(tiny(), seq_len=6, n_seqs=3, prefix="none")
        loss.save(tmp_path / "loss")
        assert RepeatLoss.load(tmp_path / "loss").identical(loss)
        assert [line.name for line in loss.figure().data] == ["repeat 1", "repeat 2"]
        assert f"{loss.drop:.2f}" in loss.summary()[2]

    def test_intervals_are_over_texts_and_a_gain_is_resampled_as_one(self) -> None:
        loss = repeat_loss(tiny(), seq_len=6, repeats=3, n_seqs=5, seed=2, prefix="none")
        by_text = loss["nll"][:, :, 1:].astype(float).mean(-1).T
        gain = by_text[0] - by_text
        for name, values in (("mean", by_text), ("gain", gain)):
            np.testing.assert_allclose(loss[name], values.mean(-1))
            np.testing.assert_allclose((loss[f"{name}_low"], loss[f"{name}_high"]), mean_interval(values, seed=2))
        assert (loss["gain"][0], loss["gain_low"][0], loss["gain_high"][0]) == (0, 0, 0)

    def test_one_text_has_no_interval(self) -> None:
        loss = repeat_loss(tiny(), seq_len=6, n_seqs=1, prefix="none")
        assert np.isnan([loss["mean_low"], loss["mean_high"], loss["mean_se"]]).all()
        assert "[" not in "".join(loss.summary())


@pytest.mark.parametrize("repeats", [2, 4])
def test_a_circuit_made_by_hand_guesses_at_first_and_is_certain_in_every_later_repeat(repeats: int) -> None:
    """54 tokens: all logits 0, then 16 for what followed the token before."""
    circuit = InductionCircuit()
    loss = repeat_loss(induction_circuit(circuit), seq_len=20, repeats=repeats, n_seqs=3)
    guessed, known = np.log(54), np.log1p(53 * np.exp(-circuit.strength))
    np.testing.assert_allclose(loss["mean"], [guessed, *[known] * (repeats - 1)], atol=1e-5)
    np.testing.assert_allclose(loss["gain"][1:], guessed - known, atol=1e-5)


def test_the_real_model_is_much_better_in_every_later_repeat(smollm2: "Transformer") -> None:
    """More repeats do not help every time: the fourth is a little worse than the third."""
    loss = repeat_loss(smollm2, seq_len=25, repeats=4, n_seqs=8)
    assert (loss["gain_low"][1:] > 4).all()
