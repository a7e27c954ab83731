"""What commands on facts or one prompt share: the choice of facts, the meaning of --limit, how bad input is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from interp.analyses.left_out import left_out
from interp.results import Result

Run = Callable[..., tuple[int, str, str]]
IN = {"relation": "place", "template": "The {} is in"}
TOWER, NEEDLE = (
    {"subject": "Eiffel Tower", "object": "Paris", **IN},
    {"subject": "Space Needle", "object": "Seattle", **IN},
)
PROMPT = "The Eiffel Tower is in"
SUBJECT = ("--subject", "Eiffel Tower")
QUICK = {
    "trace": ("--kinds", "resid", "--samples", "1"),
    "knockout": ("--window", "1"),
    "lens": (),
    "attribute": ("--by", "sublayer"),
    "memories": ("--top", "1"),
    "neurons": ("--steps", "2", "--controls", "1", "--position", "subject"),
}
ON_FACTS = pytest.mark.parametrize("command", QUICK)


@ON_FACTS
@pytest.mark.usefixtures("unloadable")
@pytest.mark.parametrize("words", [(), (PROMPT, "--facts", "bundled")], ids=["neither", "both"])
def test_a_prompt_or_facts_are_asked_about_not_both_and_not_neither(
    run: Run, command: str, words: tuple[str, ...]
) -> None:
    code, printed, complaint = run(command, *words)
    assert (code, printed) == (2, "")
    one = "a TEXT" if command == "lens" else "a PROMPT"
    assert f"Give {one}, or --facts with a file or the word bundled" in complaint


@ON_FACTS
@pytest.mark.usefixtures("unloadable")
@pytest.mark.parametrize("option", [("--relation", "capital"), ("--limit", "3")], ids=" ".join)
def test_what_chooses_among_facts_is_refused_for_a_prompt(run: Run, command: str, option: tuple[str, str]) -> None:
    code, printed, complaint = run(command, PROMPT, *option)
    assert (code, printed) == (2, "")
    assert complaint == f"Error: {option[0]} belongs to --facts; leave it out.\n"


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *((command, option) for command in ("trace", "knockout", "attribute", "lens", "neurons")
          for option in ("--answer", "--subject", "--occurrence")
          if option == "--answer" or command not in ("attribute", "lens")),
        ("attribute", "--foil"), ("attribute", "--position"), ("memories", "--position"), ("neurons", "--paraphrase"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("unloadable")
def test_what_belongs_to_a_prompt_is_refused_for_facts(run: Run, command: str, option: str) -> None:
    code, printed, complaint = run(command, "--facts", "bundled", option, "0")
    assert (code, printed) == (2, "")
    assert f"{option} belongs to" in complaint


@ON_FACTS
@pytest.mark.usefixtures("memory")
def test_a_limit_spreads_evenly_over_the_facts_known_or_not(run: Run, tmp_path: Path, command: str) -> None:
    facts = [{**(TOWER if place % 2 else NEEDLE), "id": str(place)} for place in range(5)]
    facts[2]["object"] = "Tower"
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    words = (*QUICK[command], *(("--foils", "none") if command == "attribute" else ()))
    code, _, complaint = run(
        command, "--facts", str(tmp_path / "facts.json"), "--limit", "3", *words, "-q", "--out", str(tmp_path / "out")
    )
    assert code == 0, complaint
    result = Result.load(tmp_path / "out")
    axis = "prompt" if command == "attribute" else "fact"
    kept = set(result["fact_id"]) if command == "neurons" else set(result.axes[axis])
    assert kept | set(left_out(result)) == {"0", "1", "3"}


def test_every_help_says_the_same_of_a_limit(run: Run) -> None:
    said = [" ".join(run(command, "--help")[1].partition("--limit N")[2].split())[:60] for command in QUICK]
    said += [" ".join(run("facts", each, "--help")[1].partition("--limit N")[2].split())[:60]
             for each in ("list", "show", "filter", "stats")]  # fmt: skip
    assert set(said) == {"At most N of these facts, evenly spread, known or not. [x>=1]"[:60]}


# ----------------------------------------------------------------------------------------------------- bad input

WITH_SUBJECT = pytest.mark.parametrize(
    "words",
    [
        ("trace", *QUICK["trace"]),
        ("knockout", "--window", "1"),
        ("knockout", "--extraction"),
        ("knockout", "--sublayer", "mlp"),
        ("neurons", "--steps", "2"),
        ("facts", "filter", "--object", "Paris"),
    ],
    ids=lambda words: " ".join(words[:2]),
)


@WITH_SUBJECT
@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    ("prompt", "subject", "said"),
    [
        (PROMPT, "Space Needle", "The subject 'Space Needle' does not stand in 'The Eiffel Tower is in'."),
        (PROMPT, "eiffel", "It contains 'Eiffel' in other letters."),
        ("The Tower is Tower in", "Tower", "stands 2 times in the text. Say which by its occurrence: 0 to 1"),
        (PROMPT, "iffel Tower", "iffel Tower"),
    ],
    ids=["absent", "letters", "several", "cut"],
)
def test_a_subject_that_cannot_be_placed_is_refused(
    run: Run, words: tuple[str, ...], prompt: str, subject: str, said: str
) -> None:
    code, printed, complaint = run(*words, prompt, "--subject", subject, "-q")
    assert (code, printed) == (2, "")
    assert said in complaint
    assert len(complaint.splitlines()) == 1


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    "words",
    [
        ("trace", *QUICK["trace"], *SUBJECT),
        ("knockout", "--window", "1", *SUBJECT),
        ("knockout", "--extraction", *SUBJECT),
        ("attribute",),
        ("lens",),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_an_answer_of_several_tokens_is_refused_for_one_prompt(run: Run, words: tuple[str, ...]) -> None:
    code, printed, complaint = run(*words, PROMPT, "--answer", " Paris Tower", "-q")
    assert (code, printed) == (2, "")
    assert "' Paris Tower' is 2 tokens, not one" in complaint


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("trace", *QUICK["trace"], *SUBJECT), "the model's own answer is ' Paris'"),
        (("knockout", "--window", "1", *SUBJECT), "the model's own answer is ' Paris'"),
        (("knockout", "--extraction", *SUBJECT), "the model's own answer is ' Paris'"),
        (("attribute",), "the model's own answer is ' Paris'"),
        (("neurons", "--steps", "2", "--others", "0"), "the model says otherwise to 1 of 1 prompts: ' Paris'"),
        (("lens",), '" Paris" 1.000'),
    ],
    ids=lambda words: " ".join(words[:2]) if isinstance(words, tuple) else "",
)
def test_what_the_model_says_to_a_prompt_is_told_where_it_is_not_the_answer(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    code, printed, complaint = run(*words, PROMPT, "--answer", " Seattle", "-q")
    assert code == 0, complaint
    assert said in printed
    assert said not in run(*words, PROMPT, "--answer", " Paris", "-q")[1] or words == ("lens",)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("memories", PROMPT, "--layer", "7"), "7 lies outside; there are 0 to 1"),
        (("memories", "--neuron", "7.0"), "no neuron 7.0: layers go from 0 to 1"),
        (("memories", "--neuron", "0.99"), "no neuron 0.99: layer 0 has one dense FFN of 8 neurons"),
        (("memories", PROMPT, "--top", "99"), "the neurons that write at this token"),
        (("memories", PROMPT, "--position", "9"), "9 lies outside"),
        (("attribute", PROMPT, "--answer", " Paris", "--position", "9"), "9 lies outside"),
        (("lens", PROMPT, "--position", "9"), "9 lies outside"),
    ],
    ids=lambda words: " ".join(words[:4]) if isinstance(words, tuple) else "",
)
def test_layers_neurons_and_positions_that_do_not_exist_are_refused(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    code, printed, complaint = run(*words, "-q")
    assert (code, printed) == (2, "")
    assert said in complaint


FILES = pytest.mark.parametrize(
    "words",
    [*((command, *QUICK[command]) for command in QUICK),
     *(("facts", each) for each in ("list", "show", "filter", "stats"))],
    ids=lambda words: " ".join(words[: 1 + (words[0] == "facts")]),
)  # fmt: skip


@FILES
@pytest.mark.usefixtures("unloadable")
def test_malformed_lines_are_named_by_number_before_a_model_is_loaded(
    run: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    path = tmp_path / "facts.jsonl"
    path.write_text(json.dumps(TOWER) + "\n{broken\n" + json.dumps({"subject": "Italy"}))
    code, printed, complaint = run(*words, "--facts", str(path))
    assert (code, printed) == (4, "")
    assert "2 of 3 records" in complaint
    assert "Line 2: is not JSON" in complaint
    assert "Line 3: there is no 'relation'; its fields are subject." in complaint


@ON_FACTS
@pytest.mark.usefixtures("memory")
def test_where_the_model_knows_no_fact_the_first_is_named_with_what_it_says(
    run: Run, tmp_path: Path, command: str
) -> None:
    (tmp_path / "facts.json").write_text(json.dumps([{**NEEDLE, "object": "Paris"}]))
    code, printed, complaint = run(command, "--facts", str(tmp_path / "facts.json"), *QUICK[command], "-q")
    assert (code, printed) == (2, "")
    assert "of the 1 facts" in complaint
    assert "the first, 'place/Space Needle': the model says ' Seattle'" in complaint


@ON_FACTS
@pytest.mark.usefixtures("memory")
def test_bad_facts_are_named_and_the_others_go_on(run: Run, tmp_path: Path, command: str) -> None:
    bad = {
        "long": {**TOWER, "template": f"{'The ' * 40}{{}} is in"},
        "inside": {**TOWER, "subject": "Tower", "template": "The Eiffel{} is in"},
        "half": {**TOWER, "subject": "\ud800"},
        "unknown": {**NEEDLE, "object": "Paris"},
    }
    facts = [*({**fact, "id": name} for name, fact in bad.items()), TOWER, NEEDLE]
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    code, printed, complaint = run(command, "--facts", str(tmp_path / "facts.json"), *QUICK[command], "-q", "--json")
    assert code == 0, complaint
    reasons = json.loads(printed)["left_out"]
    assert reasons["unknown"] == "the model says ' Seattle'"
    assert "the context holds 32" in reasons["long"]
    assert "half of a surrogate pair" in reasons["half"]
    assert "inside" in reasons


@pytest.mark.usefixtures("memory")
def test_a_relation_of_one_fact_has_no_foil_and_is_told_what_to_do(run: Run, tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_text(json.dumps([TOWER]))
    words = ("attribute", "--facts", str(tmp_path / "facts.json"), "--by", "sublayer")
    code, printed, complaint = run(*words, "-q")
    assert (code, printed) == (2, "")
    assert "its relation 'place' has no other fact, so that there is no foil. Give more of its facts" in complaint
    assert "--foils none" in complaint
    code, printed, _ = run(*words, "--foils", "none", "--json", "-q")
    document = json.loads(printed)
    assert (code, document["settings"]["foils"]) == (0, "none")
    assert sum(row["mean"] for row in document["table"]) == pytest.approx(16, abs=1e-3), "the logit itself"
    assert run("attribute", PROMPT, "--answer", " Paris", "--foils", "none")[0] == 2
