"""Work that is no longer wanted stops within a layer, whatever it is, and leaves nothing behind."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tiny import random_tokens, tiny

from interp.errors import Cancelled
from interp.hooks import active_edits
from interp.stopping import check_wanted, stopping

MODEL = tiny()
TOKENS = random_tokens(MODEL.config, 2, 6)
LOGITS = MODEL(TOKENS)


def test_a_forward_pass_ends_in_the_layer_in_which_it_is_stopped() -> None:
    reached: list[str] = []

    def note(value: torch.Tensor, point: object) -> None:
        reached.append(str(point))

    before = MODEL(TOKENS)
    with (
        pytest.raises(Cancelled, match="stopped before its end"),
        stopping(lambda: bool(reached)),
        MODEL.hooks([("blocks.*.hook_resid_post", note)]),
    ):
        MODEL(TOKENS)
    assert len(reached) == 1 < MODEL.config.n_layers
    assert active_edits() == {}
    assert torch.equal(MODEL(TOKENS), before)


def test_an_outer_question_is_still_asked_inside_and_no_longer_outside() -> None:
    with stopping(lambda: True):
        for inner in (None, lambda: False):
            with pytest.raises(Cancelled), stopping(inner):
                check_wanted()
    check_wanted()


def test_other_threads_are_not_stopped() -> None:
    with ThreadPoolExecutor(1) as pool, stopping(lambda: True):
        assert torch.equal(pool.submit(MODEL, TOKENS).result(), LOGITS)
