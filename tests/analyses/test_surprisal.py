"""Surprisal: minus the log-probability that the model itself gives to the token that came."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tiny import CONFIGS, random_tokens, tiny

from interp.analyses.losses import token_losses
from interp.analyses.surprisal import Surprisal, surprisal
from interp.errors import UsageError

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_each_token_has_the_loss_and_rank_that_the_logits_give_it(config: "object") -> None:
    model = tiny(config)
    tokens = random_tokens(config, 1, 9)
    found = surprisal(model, tokens, top_k=3)
    logs = model(tokens)[0].log_softmax(-1).numpy()
    for place in range(1, 9):
        came = int(tokens[0, place])
        assert found["surprisal"][place] == pytest.approx(-logs[place - 1, came], abs=1e-4)
        assert found["rank"][place] == 1 + int((logs[place - 1] > logs[place - 1, came]).sum())
        assert found["next_id"][place - 1].tolist() == np.argsort(-logs[place - 1], kind="stable")[:3].tolist()


def test_the_first_token_is_predicted_by_nothing() -> None:
    found = surprisal(tiny(), random_tokens(tiny().config, 1, 5))
    assert np.isnan(found["surprisal"][0])
    assert np.isnan(found["expected_entropy"][0])
    assert found["rank"][0] == 0
    assert np.isfinite(found["surprisal"][1:]).all()


def test_it_is_the_loss_in_blocks_of_any_size() -> None:
    model = tiny()
    tokens = random_tokens(model.config, 1, 17)
    whole = surprisal(model, tokens)["surprisal"]
    np.testing.assert_allclose(whole, token_losses(model, tokens)[0].numpy(), atol=1e-5)
    np.testing.assert_allclose(whole, surprisal(model, tokens, max_bytes=1)["surprisal"], atol=1e-5)


def test_a_text_is_read_behind_its_prefix(smollm2: "Transformer") -> None:
    text = "The capital of France is Paris"
    found = surprisal(smollm2, text)
    assert list(found["token"]) == ["<|endoftext|>", "The", " capital", " of", " France", " is", " Paris"]
    assert found["rank"][-1] < 10
    assert found["surprisal"][3] < 1 < found["surprisal"][2], "' of' follows ' capital', which nothing announced"
    assert surprisal(smollm2, text, prefix="none")["token"][0] == "The"


def test_a_text_of_one_token_has_no_mean(tmp_path: Path) -> None:
    found = surprisal(tiny(), random_tokens(tiny().config, 1, 1))
    assert np.isnan(found.mean)
    assert "most surprising: none" in "\n".join(found.summary())
    assert Surprisal.load(found.save(tmp_path / "kept")).identical(found)
    found.figure()


def test_more_likeliest_tokens_than_there_are_is_an_error() -> None:
    with pytest.raises(UsageError, match="top_k is 99"):
        surprisal(tiny(), random_tokens(tiny().config, 1, 3), top_k=99)
