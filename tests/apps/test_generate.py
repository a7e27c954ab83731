"""`interp generate`: a continuation alone on stdout, as it is written."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
import torch

from interp.apps.cli.generate import pieces

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Run = Callable[..., tuple[int, str, str]]
TOWER = "The Eiffel Tower is located in the city of"
BROKEN = "\N{REPLACEMENT CHARACTER}"


@pytest.mark.usefixtures("loaded")
def test_the_continuation_is_the_only_thing_on_stdout(run: Run) -> None:
    code, printed, logged = run("generate", TOWER, "--max-new-tokens", "4")
    assert code == 0
    assert printed.startswith(" Paris")
    assert TOWER not in printed
    assert logged == "Loading smollm2-135m …\n"
    assert run("generate", TOWER, "--max-new-tokens", "4", "--quiet") == (0, printed, "")


def test_the_document_holds_the_continuation_as_text_and_as_tokens(run: Run, loaded: "Transformer") -> None:
    code, printed, logged = run("generate", TOWER, "--max-new-tokens", "4", "--json", "--quiet")
    document = json.loads(printed)
    assert (code, logged) == (0, "")
    assert document["prompt"] == TOWER
    assert document["continuation"].startswith(" Paris")
    assert len(document["token_ids"]) == 4
    assert loaded.tokenizer.decode(document["token_ids"]) == document["continuation"]
    assert document["settings"]["max_new_tokens"] == 4
    assert document["provenance"]["model"] == "smollm2-135m"
    assert run("generate", TOWER, "--max-new-tokens", "4", "-q")[1] == document["continuation"] + "\n"


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--temperature", "-1", "temperature must be 0"),
        ("--top-k", "0", "top_k must be at least 1"),
        ("--top-p", "1.5", "top_p must lie above 0"),
        ("--repetition-penalty", "0", "repetition_penalty must be above 0"),
        ("--stop", "", "empty string stops everywhere"),
    ],
)
def test_an_option_out_of_range_ends_with_2_and_one_line(run: Run, option: str, value: str, said: str) -> None:
    code, printed, complaint = run("generate", TOWER, option, value, "--quiet")
    assert (code, printed) == (2, "")
    assert said in complaint
    assert len(complaint.splitlines()) == 1


@pytest.mark.usefixtures("loaded")
def test_a_stop_text_ends_the_continuation_behind_it(run: Run) -> None:
    whole = run("generate", TOWER, "--max-new-tokens", "8", "-q")[1]
    stop = whole[len(" Paris") : len(" Paris") + 3]
    code, printed, _ = run("generate", TOWER, "--max-new-tokens", "8", "--stop", stop, "-q")
    assert code == 0
    assert whole.startswith(printed.removesuffix("\n"))
    assert stop in printed
    assert len(printed) < len(whole)


@pytest.mark.usefixtures("loaded")
def test_the_same_seed_writes_the_same_text(run: Run) -> None:
    sampled = ["generate", "Once upon a time", "--max-new-tokens", "12", "--temperature", "1", "-q"]
    first, again, other = (run(*sampled, "--seed", seed)[1] for seed in ("1", "1", "2"))
    assert first == again
    assert first != other


def written(model: "Transformer", ids: list[int]) -> list[str]:
    """What the terminal gets, piece by piece."""
    return list(pieces(model, iter(torch.tensor([[index]]) for index in ids)))


def test_a_character_of_several_tokens_is_held_back_until_it_is_whole(smollm2: "Transformer") -> None:
    text = "a 🦜 and 漢字"
    ids = smollm2.tokenizer.encode(text)
    assert any(BROKEN in smollm2.tokenizer.decode([index]) for index in ids), "no character is made of several tokens"
    found = written(smollm2, ids)
    assert "".join(found) == text
    assert [piece for piece in found if BROKEN in piece] == []
    assert len([piece for piece in found if piece]) > 3


def test_a_character_that_never_becomes_whole_is_shown_as_broken_at_the_end(smollm2: "Transformer") -> None:
    ids = smollm2.tokenizer.encode("a 🦜")[:-1]
    found = written(smollm2, ids)
    assert "".join(found) == smollm2.tokenizer.decode(ids)
    assert found[-1].endswith(BROKEN)


@pytest.fixture
def under_way(smollm2: "Transformer") -> Iterator["subprocess.Popen[bytes]"]:
    """`interp generate` as its own process, which has written its first letter."""
    command = [sys.executable, "-m", "interp", "generate", TOWER, "--max-new-tokens", "5000", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b" "
        yield process
        process.kill()


def test_ctrl_c_ends_it_with_130_and_what_was_written(under_way: "subprocess.Popen[bytes]") -> None:
    under_way.send_signal(signal.SIGINT)
    printed, complaint = under_way.communicate(timeout=60)
    assert under_way.returncode == 130
    assert printed.startswith(b"Paris")
    assert complaint == b"Interrupted.\n"


def test_a_reader_that_leaves_early_ends_it_with_141(under_way: "subprocess.Popen[bytes]") -> None:
    assert under_way.stdout is not None
    assert under_way.stderr is not None
    under_way.stdout.close()
    assert under_way.wait(timeout=60) == 141
    assert under_way.stderr.read() == b""
