"""`interp facts`: lists and shows without weights, says which facts a model knows, and keeps going past bad ones."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from interp.analyses.fact_data import bundled_facts
from interp.analyses.fact_filter import KnownFacts
from interp.apps.cli.options import Common
from interp.apps.cli.session import tokenizer_of
from interp.errors import LoadError
from interp.fact_partners import partners

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Run = Callable[..., tuple[int, str, str]]
FACTS = [
    {"subject": "France", "relation": "capital", "template": "The capital of {} is", "object": "Paris"},
    {"subject": "Italy", "relation": "capital", "template": "The capital of {} is", "object": "Ljubljana"},
    {"subject": "Fin", "relation": "odd", "template": "The {}land of the thousand lakes has", "object": "Helsinki"},
]


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "facts.json").write_text(json.dumps(FACTS))
    return str(tmp_path / "facts.json")


def test_facts_are_listed_without_torch() -> None:
    code = "import sys; from interp.apps.cli import main; main(['facts', 'list']); print('torch' in sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[-1] == "False"
    assert any(" ".join(line.split()) == "capital The capital of France is Paris" for line in lines)
    assert len(lines) == len(bundled_facts()) + 3


def test_facts_of_some_relations_are_listed_as_json(run: Run) -> None:
    code, printed, _ = run("facts", "list", "--relation", "currency", "--relation", "capital", "--json")
    listed = json.loads(printed)["facts"]
    assert code == 0
    assert {fact["relation"] for fact in listed} == {"capital", "currency"}
    assert listed[0]["paraphrases"]


@pytest.mark.usefixtures("loaded")
def test_filtering_shows_what_the_model_says_and_saves_every_fact(run: Run, file: str, tmp_path: Path) -> None:
    code, printed, logged = run("facts", "filter", "--facts", file, "--out", str(tmp_path / "out"))
    assert code == 0
    assert logged.splitlines()[:2] == ["Loading smollm2-135m …", "Asking the model …"]
    rows = [line for line in printed.splitlines() if "The capital of" in line]
    assert rows[0].split()[0] == "yes"
    assert rows[1].split()[0] == "no"
    assert '" Rome"' in rows[1]
    assert "1 of 2 (50%" in printed
    assert "Skipped odd/Fin: the subject 'Fin' shares a token" in printed
    assert KnownFacts.caution in printed
    assert KnownFacts.load(tmp_path / "out")["known"].tolist() == [True, False]
    assert "plotly" in (tmp_path / "out/figures/facts.html").read_text(encoding="utf-8").lower()


@pytest.mark.usefixtures("loaded")
def test_statistics_are_by_relation_and_a_relation_without_numbers_has_none_in_json(run: Run, file: str) -> None:
    code, printed, _ = run("facts", "stats", "--facts", file, "--json")
    document = json.loads(printed)
    assert code == 0
    assert document["kind"] == "facts.known"
    capital, odd = document["table"]
    assert (capital["relation"], capital["count"], capital["known_count"], capital["known_share"]) == (
        "capital",
        2,
        1,
        0.5,
    )
    assert (odd["count"], odd["known_share"]) == (0, None)


@pytest.mark.usefixtures("loaded")
def test_statistics_are_drawn_with_their_intervals(run: Run, file: str) -> None:
    code, printed, _ = run("facts", "stats", "--facts", file)
    assert code == 0
    rows = {line.split()[0]: line for line in printed.splitlines() if line.strip()}
    assert rows["capital"].split()[1:4] == ["2", "1", "50%"]
    assert "9% to 91%" in rows["capital"]
    assert rows["odd"].split()[1:] == ["0", "0", "–", "–", "–", "–", "–"]


FRANCE = ("facts", "filter", "The capital of France is", "--subject", "France")


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("named", ["Paris", " Paris"])
def test_one_prompt_is_asked_with_or_without_the_space_of_its_object(run: Run, named: str) -> None:
    code, printed, _ = run(*FRANCE, "--object", named, "--json")
    (row,) = json.loads(printed)["table"]
    assert code == 0
    assert (row["known"], row["prompt"], row["object"], row["subject_tokens"]) == (True, FRANCE[2], "Paris", 1)


@pytest.mark.usefixtures("loaded")
def test_a_prompt_that_is_completed_otherwise_shows_what_the_model_says_and_what_was_measured(run: Run) -> None:
    code, printed, _ = run(*FRANCE, "--object", "Buenos Aires")
    row = next(line for line in printed.splitlines() if FRANCE[2] in line)
    assert code == 0
    assert row.startswith("no")
    assert '" Paris"' in row
    assert row.split()[-1] == "2", "tokens of the object"
    assert "of which the first is measured" in printed


@pytest.mark.usefixtures("loaded")
def test_the_occurrence_says_which_subject_of_a_prompt_is_meant(run: Run) -> None:
    words = ("facts", "filter", "France is large. The capital of France is", "--subject", "France", "--object", "Paris")
    code, _, complaint = run(*words)
    assert (code, "stands 2 times" in complaint) == (2, True)
    places = [
        json.loads(run(*words, "--occurrence", which, "--json")[1])["table"][0]["subject_last"] for which in ("0", "-1")
    ]
    assert places == [1, 8]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("", "--subject", "x", "--object", "y"), "The text is empty"),
        (FRANCE[2:3], "Give --subject the words"),
        ((*FRANCE[2:4], "France"), "Give --object what should follow"),
        ((*FRANCE[2:4], "France", "--object", " "), "Give --object what should follow"),
        ((*FRANCE[2:4], "Germany", "--object", "Paris"), "'Germany' does not stand in"),
        ((*FRANCE[2:4], "france", "--object", "Paris"), "'France' in other letters"),
        (("The capital of France is ", "--subject", "France", "--object", "Paris"), "ends in a space; leave it out"),
        (
            (*FRANCE[2:4], "France", "--object", "Paris", "--relation", "capital"),
            "--relation belongs to facts of a file",
        ),
        ((*FRANCE[2:4], "France", "--object", "Paris", "--facts", "x.json"), "--facts belongs to facts of a file"),
        (("--object", "Paris"), "--object belongs to a PROMPT"),
        (("--limit", "0"), "--limit"),
    ],
)
@pytest.mark.usefixtures("unloadable")
def test_what_no_model_could_be_asked_is_refused_before_one_is_loaded(
    run: Run, words: tuple[str, ...], says: str
) -> None:
    code, printed, complaint = run("facts", "filter", *words)
    assert (code, printed) == (2, "")
    assert says in complaint


@pytest.mark.usefixtures("loaded")
def test_a_subject_that_is_cut_by_a_token_is_refused(run: Run) -> None:
    code, printed, complaint = run("facts", "filter", FRANCE[2], "--subject", "Fran", "--object", "Paris")
    assert (code, printed) == (2, "")
    assert "the subject 'Fran' shares a token with its neighbours: [' France']" in complaint


@pytest.fixture
def tokenizer_only(smollm2: "Transformer", monkeypatch: pytest.MonkeyPatch, unloadable: None) -> "Transformer":
    """Commands get the default model's tokenizer, and no weights."""
    monkeypatch.setattr("interp.apps.cli.session.tokenizer_of", lambda _: smollm2.tokenizer)
    return smollm2


def test_a_fact_is_shown_with_its_sentences_and_its_partner(run: Run, tokenizer_only: "Transformer") -> None:
    fact = next(fact for fact in bundled_facts() if fact.id == "capital/France")
    code, printed, _ = run("facts", "show", fact.id)
    lines = printed.splitlines()
    assert code == 0
    assert lines[: 1 + len(fact.paraphrases)] == [
        f"capital: {fact.template}",
        *(f"  or: {each}" for each in fact.paraphrases),
    ]
    pairs = partners(tokenizer_only.tokenizer, bundled_facts()).pairs
    partner = next(partner for each, partner in pairs if each.id == fact.id)
    row = next(line for line in lines if line.startswith("France"))
    assert row.split() == ["France", "Paris", "1", *partner.subject.split(), *partner.object.split()]
    assert lines[-1] == "1 fact, 0 of them without a partner"


@pytest.mark.usefixtures("tokenizer_only")
def test_facts_without_a_partner_are_counted_with_the_reason(run: Run, file: str) -> None:
    code, printed, _ = run("facts", "show", "--facts", file)
    assert code == 0
    assert "3 facts, 1 of them without a partner" in printed
    assert "No partner for odd/Fin: the relation 'odd' has no other fact with another object." in printed
    document = json.loads(run("facts", "show", "--facts", file, "--json")[1])
    assert [fact["partner"] for fact in document["facts"]] == ["Italy", "France", None]
    assert [fact["answer_tokens"] for fact in document["facts"]] == [1, 6, 1]
    assert list(document["without_partner"]) == ["odd/Fin"]
    alone = json.loads(run("facts", "show", "--facts", file, "--limit", "1", "--json")[1])
    assert [fact["partner"] for fact in alone["facts"]] == ["Italy"], "partners are sought among all facts"


@pytest.mark.usefixtures("unloadable")
def test_a_fact_that_does_not_exist_is_refused_with_the_nearest_id(run: Run) -> None:
    code, printed, complaint = run("facts", "show", "capital/Frence")
    assert (code, printed) == (2, "")
    assert "Did you mean 'capital/France'" in complaint


def test_the_tokenizer_is_that_of_the_named_model_and_no_weights_are_read(smollm2: "Transformer") -> None:
    found = tokenizer_of(Common(quiet=True))
    assert found.encode("The capital of France") == smollm2.tokenizer.encode("The capital of France")
    with pytest.raises(LoadError, match="neither a known model"):
        tokenizer_of(Common(model="smollm3-135m-nowhere", quiet=True))


@pytest.mark.usefixtures("unloadable")
def test_a_damaged_file_is_refused_before_the_model_is_loaded(run: Run, tmp_path: Path) -> None:
    (tmp_path / "facts.jsonl").write_text('{"subject": "France"}\n{broken\n')
    code, printed, complaint = run("facts", "filter", "--facts", str(tmp_path / "facts.jsonl"))
    assert (code, printed) == (4, "")
    assert "2 of 2 records" in complaint
    assert "Line 1: there is no 'relation'" in complaint
    assert "Line 2: is not JSON" in complaint
