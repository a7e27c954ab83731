"""Paths between heads blocked: exact on a circuit written by hand, by the definition on random models, as published."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tiny import BASE, CONFIGS, tiny
from torch import Tensor

from interp import edits
from interp.analyses.components import Component
from interp.analyses.head_links import HeadLinks, head_links
from interp.analyses.induction import pattern_scores
from interp.errors import UsageError
from interp.hooks import HookPoint
from interp.models.circuits import InductionCircuit
from interp.models.constructed import induction_circuit
from interp.results import Result

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

LAYOUT = {"seq_len": 5, "repeats": 3, "prefix_len": 0}
SHORT = {"seq_len": 5, "repeats": 3, "n_seqs": 3, "controls": 2, "seed": 4, "prefix": "none"}
WORDS = len(InductionCircuit().words) + 2  # a separator and an unknown word
CERTAIN = math.log1p((WORDS - 1) * math.exp(-InductionCircuit().strength))


class TestOnACircuitWrittenByHand:
    @pytest.mark.parametrize("method", ["zero", "mean"])
    def test_without_its_key_the_induction_head_finds_nothing(self, method: str) -> None:
        """The mean over eight texts leaves an eighth of the key, and the head rests on the separator instead."""
        found = head_links(induction_circuit(), ["0.1"], ["1.2"], seq_len=12, method=method, seed=2)
        np.testing.assert_array_equal(found["prefix_matching_base"], 1)
        np.testing.assert_array_equal(found["prefix_matching"], 0)
        np.testing.assert_allclose(found["nll"], math.log(WORDS), atol=1e-5)
        np.testing.assert_allclose(found["nll_base"], CERTAIN, atol=1e-6)

    @pytest.mark.parametrize("path", ["q", "v"])
    def test_its_query_and_its_value_do_not_come_from_that_head(self, path: str) -> None:
        found = head_links(induction_circuit(), ["0.1"], ["1.2"], seq_len=12, n_seqs=2, path=path)
        np.testing.assert_array_equal(found["prefix_matching"], 1)
        np.testing.assert_array_equal(found["nll_effect"], 0)

    def test_other_heads_of_the_layer_change_nothing_and_their_number_is_stated(self) -> None:
        found = head_links(induction_circuit(), ["0.1"], ["1.2"], seq_len=12, n_seqs=2)
        assert list(found["control_components"][0]) == ["0.0", "0.2", "0.3"]
        np.testing.assert_array_equal(found["prefix_matching_control"], 1)
        np.testing.assert_array_equal(found["nll_control_effect"], 0)
        assert "(all 3 that exist)" in found.summary()[1]


def by_hooks(
    model: "Transformer", tokens: Tensor, sender: Component, receiver: Component, path: str, method: str
) -> tuple[np.ndarray, np.ndarray]:
    """Prefix matching and loss on the later repeats, [text], from one forward pass with a hook of its own."""
    _, clean = model.run_with_cache(tokens)
    z = clean["z", sender.layer][:, :, sender.index]
    written = z @ model.W_O[sender.layer, sender.index]
    place = receiver.index if path == "q" else receiver.index // model.config.queries_per_kv

    def block(value: Tensor, _: HookPoint) -> Tensor:
        value[:, :, place] -= written - (written.mean(0) if method == "mean" else 0)
        return value

    with model.hooks([(f"blocks.{receiver.layer}.hook_{path}_input", block)]):
        logits, cache = model.run_with_cache(tokens)
    matching = pattern_scores(cache["pattern", receiver.layer], **LAYOUT)["prefix_matching"][:, receiver.index]
    losses = -logits.log_softmax(-1)[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0]
    return matching.numpy(), torch.cat([losses[:, 5:9], losses[:, 10:14]], 1).mean(1).numpy()


class TestOnRandomModels:
    @pytest.mark.parametrize("config", ["grouped_query", "multi_head", "biases", "parallel", "alibi", "moe_top2"])
    @pytest.mark.parametrize(("path", "method"), [("k", "mean"), ("q", "zero"), ("v", "mean")])
    def test_every_number_is_that_of_a_forward_pass(self, config: str, path: str, method: str) -> None:
        model = tiny(CONFIGS[config])
        found = head_links(model, ["0.1", "1.4"], ["2.1", "2.5"], path=path, method=method, **SHORT)
        tokens = torch.tensor(found["tokens"])
        for place, sender in enumerate(found.axes["sender"]):
            for at, receiver in enumerate(found.axes["receiver"]):
                ends = Component.parse(str(sender)), Component.parse(str(receiver))
                matching, loss = by_hooks(model, tokens, *ends, path, method)
                np.testing.assert_allclose(found["prefix_matching"][place, at], matching, atol=1e-5)
                np.testing.assert_allclose(found["nll"][place, at], loss, atol=2e-5)
        control = Component.parse(found["control_components"][1, 1]), Component("head", 2, 1)
        matching, loss = by_hooks(model, tokens, *control, path, method)
        np.testing.assert_allclose(found["prefix_matching_control"][1, 1, 0], matching, atol=1e-5)
        np.testing.assert_allclose(found["nll_control"][1, 1, 0], loss, atol=2e-5)

    def test_heads_that_share_keys_share_the_loss_and_not_the_pattern(self) -> None:
        found = head_links(tiny(), ["0.1"], ["2.0", "2.2", "2.3"], **SHORT)
        assert list(found["kv_head"]) == [0, 0, 1]
        np.testing.assert_array_equal(found["nll"][0, 0], found["nll"][0, 1])
        assert np.abs(found["prefix_matching"][0, 0] - found["prefix_matching"][0, 1]).min() > 1e-4
        assert np.abs(found["nll"][0, 0] - found["nll"][0, 2]).min() > 1e-5
        assert list(head_links(tiny(), ["0.1"], ["2.0", "2.3"], path="q", **SHORT)["kv_head"]) == [-1, -1]

    def test_texts_leave_out_what_is_to_be_left_out(self) -> None:
        found = head_links(tiny(), ["0.1"], ["1.2"], exclude_least=50, counts=67 - np.arange(67.0), **SHORT)
        assert found["tokens"].max() < 17
        assert found.settings["exclude_least"] == 50

    def test_controls_are_of_the_senders_layer_and_none_of_the_senders(self) -> None:
        found = head_links(tiny(), ["0.1", "0.4", "1.0"], ["2.1"], **{**SHORT, "controls": 20})
        assert list(found["controls"]) == [4, 4, 5]
        assert list(found["control_components"][0][:4]) == ["0.0", "0.2", "0.3", "0.5"]
        assert set(found["control_components"][2]) == {f"1.{head}" for head in range(1, 6)}

    def test_hooks_of_a_context_act_in_both_runs(self) -> None:
        model = tiny()
        with model.hooks(
            [("blocks.0.attn.hook_z", edits.scale(1.5, heads=1)), ("ln_final.hook_scale", edits.scale(2))]
        ):
            found = head_links(model, ["0.1"], ["1.2"], **SHORT)
            tokens = torch.tensor(found["tokens"])
            ends = Component("head", 0, 1), Component("head", 1, 2)
            matching, loss = by_hooks(model, tokens, *ends, "k", "mean")
        np.testing.assert_allclose(found["prefix_matching"][0, 0], matching, atol=1e-5)
        np.testing.assert_allclose(found["nll"][0, 0], loss, atol=2e-5)

    def test_the_table_the_figure_and_the_saved_copy_hold(self, tmp_path: Path) -> None:
        seen: list[tuple[int, int]] = []
        found = head_links(tiny(), [(0, 1), (1, 2)], [(2, 3), (2, 5)], **SHORT, progress=lambda *at: seen.append(at))
        frame = found.to_frame()
        assert list(zip(frame["sender"], frame["receiver"], strict=True))[1] == ("0.1", "2.5")
        assert list(found.figure("nll").data[0].x) == list(found["nll_effect"].ravel())
        assert f"{found['prefix_matching_effect'][1, 0]:+.3f}" in found.summary()[5]
        assert seen[-1] == (2 * 3 * 2 * 3, 2 * 3 * 2 * 3)
        found.save(tmp_path / "links")
        loaded = Result.load(tmp_path / "links")
        assert isinstance(loaded, HeadLinks)
        assert loaded.identical(found)


@pytest.mark.parametrize(
    ("senders", "receivers", "settings", "message"),
    [
        (["1.1"], ["1.2"], {}, "receiver 1.2 does not lie behind the sender 1.1"),
        (["0.1", "2.1"], ["1.2"], {}, "receiver 1.2 does not lie behind the sender 2.1"),
        (["0.6"], ["1.2"], {}, "an index from 0 to 5"),
        (["0.1"], ["3.0"], {}, "layers go from 0 to 2"),
        ([], ["1.2"], {}, "each once"),
        (["0.1"], [], {}, "each once"),
        (["0.1"], ["mlp 1"], {}, "'mlp 1' is none"),
        (["0.1"], ["1.2"], {"path": "z"}, "path='z'"),
        (["0.1"], ["1.2"], {"method": "resample"}, "method='resample'"),
        (["0.1"], ["1.2"], {"n_seqs": 1}, "the mean over one text"),
        (["0.1"], ["1.2"], {"controls": -1}, "controls=-1"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_what_is_no_path_is_refused(
    senders: list[str], receivers: list[str], settings: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        head_links(tiny(), senders, receivers, **{**SHORT, **settings})


@pytest.mark.parametrize("norms", ["post", "output", "sandwich"])
def test_models_that_normalise_what_heads_write_are_refused_with_what_to_do(norms: str) -> None:
    with pytest.raises(UsageError, match="normalises what its sublayers write.*ablate_heads"):
        head_links(tiny(replace(BASE, norms=norms)), ["0.1"], ["1.2"], **SHORT)


def test_the_best_induction_head_of_the_real_model_finds_its_key_through_one_head(smollm2: "Transformer") -> None:
    """Head 16.0 gives 0.92 of its attention to the token before."""
    found = head_links(smollm2, ["16.0"], ["18.6"], n_seqs=4, seq_len=20)
    assert found["prefix_matching_base"].mean() > 0.8
    assert found["prefix_matching"].mean() < 0.2
    assert found["controls_are_all"][0]
    assert np.abs(found["prefix_matching_control_effect"]).max() < 0.05
    assert found["nll_effect"][0, 0] > 10 * np.abs(found["nll_control_effect"]).max()
