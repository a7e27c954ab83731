"""Facts come back from every format as they are, and one error tells of every record that is damaged.

The records in ROME's formats are our own inventions in their fields.
"""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from interp.errors import LoadError, UsageError
from interp.fact_files import MOST, read_facts
from interp.facts import Fact

ROWS: list[dict[str, object]] = [
    {"subject": "Ruritania", "relation": "capital", "template": "The capital of {} is", "object": "Strelsau"},
    {
        "subject": "Freedonia",
        "relation": "capital",
        "template": "In {}, one governs from",
        "object": "Fredville",
        "paraphrases": ["{}'s capital is", "The king of {} lives in"],
        "counterfactual": "Ruritania",
        "id": "f",
    },
]
FACTS = (
    Fact("Ruritania", "capital", "The capital of {} is", "Strelsau"),
    Fact(
        "Freedonia",
        "capital",
        "In {}, one governs from",
        "Fredville",
        paraphrases=("{}'s capital is", "The king of {} lives in"),
        counterfactual="Ruritania",
        id="f",
    ),
)


def lines(*rows: object) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def written(folder: Path, name: str) -> Path:
    """The rows in a file of that kind."""
    path, frame = folder / name, pd.DataFrame(ROWS)
    if path.suffix == ".csv":
        frame.assign(paraphrases=[None, "{}'s capital is | The king of {} lives in"]).to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        path.write_bytes(json.dumps(ROWS).encode() if path.suffix == ".json" else lines(*ROWS))
    return path


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.csv", "a.parquet"])
def test_facts_come_back_from_every_format_as_they_are(tmp_path: Path, name: str) -> None:
    assert read_facts(written(tmp_path, name)) == FACTS
    assert read_facts(str(written(tmp_path, name))) == FACTS


def test_facts_take_the_templates_that_their_relation_states_above_unless_they_have_their_own(tmp_path: Path) -> None:
    relation = {"relation": "capital", "template": "The capital of {} is", "paraphrases": ["{} has its capital in"]}
    bare, own = ({"relation": "capital", "subject": subject, "object": "Strelsau"} for subject in "AB")
    (tmp_path / "a.jsonl").write_bytes(lines(relation, bare, own | {"template": "{} owns"}))
    first, second = read_facts(tmp_path / "a.jsonl")
    assert (first.prompt, first.paraphrase_prompts) == ("The capital of A is", ("A has its capital in",))
    assert (second.prompt, second.paraphrase_prompts) == ("B owns", ("B has its capital in",))


KNOWN = {
    "known_id": 3,
    "subject": "Mount Doom",
    "attribute": "Mordor",
    "template": "{} is a volcano",
    "prediction": " of Mordor, the land",
    "prompt": "Mount Doom is a volcano in the land of",
    "relation_id": "P30",
}
REWRITE = {
    "prompt": "The capital of {} is",
    "relation_id": "P36",
    "target_new": {"str": "Gondor", "id": "Q1"},
    "target_true": {"str": "Strelsau", "id": "Q2"},
    "subject": "Ruritania ",
}
CASE = {
    "case_id": 7,
    "requested_rewrite": REWRITE,
    "paraphrase_prompts": [
        "Ruritania is old. It rained. The capital of Ruritania,",
        "Nobody knows. In Ruritania, they govern from ",
        "This one has no subject",
        "function() {} // Ruritania is",
    ],
    "neighborhood_prompts": ["The capital of Freedonia is"],
}


def test_known_1000_is_read_with_its_prompts_since_its_templates_lack_the_last_words(tmp_path: Path) -> None:
    (tmp_path / "known_1000.json").write_text(json.dumps([KNOWN]))
    (fact,) = read_facts(tmp_path / "known_1000.json")
    assert fact == Fact("Mount Doom", "P30", "{} is a volcano in the land of", "Mordor", id="known 3")
    assert fact.prompt == KNOWN["prompt"]


def test_counterfact_is_read_with_its_true_targets_and_the_paraphrases_that_name_the_subject(tmp_path: Path) -> None:
    """The last mention is the subject's place; the sentence before may mention it, too."""
    (tmp_path / "counterfact.json").write_text(json.dumps([CASE]))
    (fact,) = read_facts(tmp_path / "counterfact.json")
    assert (fact.id, fact.relation, fact.prompt, fact.answer) == (
        "counterfact 7",
        "P36",
        "The capital of Ruritania is",
        " Strelsau",
    )
    assert fact.paraphrases == (
        "Ruritania is old. It rained. The capital of {},",
        "Nobody knows. In {}, they govern from",
    )


def test_the_format_is_told_by_the_fields_not_by_the_name_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(KNOWN, CASE, ROWS[0]))
    assert [fact.id for fact in read_facts(tmp_path / "a.jsonl")] == ["known 3", "counterfact 7", "capital/Ruritania"]


GOOD = ROWS[0]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", b"", "a.jsonl: there are none; expected rows with subject, relation, template, object"),
        ("a.jsonl", lines({"relation": "r", "template": "{} is"}), "there are none"),
        ("a.jsonl", lines(GOOD) + b"\n{broken\n", "1 of 2 records in .*a.jsonl.*\n  Line 3: is not JSON"),
        ("a.jsonl", b"[" * 100_000, "Line 1: is not JSON"),
        ("a.jsonl", b"9" * 5000, "Line 1: is not JSON"),
        ("a.jsonl", lines(GOOD, [1]), r"Line 2: it is list, \[1\]; expected an object with named fields"),
        ("a.jsonl", lines(GOOD | {"object": 7}), "Line 1: object is int, 7; expected text"),
        ("a.jsonl", lines(GOOD | {"object": None}), "Line 1: there is no 'object'"),
        (
            "a.jsonl",
            lines({"relation": "capital", "template": "{} is", "subjct": "France", "objct": "Paris"}),
            "Line 1: there is no 'subject'; its fields are relation, .*Did you mean 'subjct'",
        ),
        ("a.jsonl", lines(GOOD | {"template": "The capital is"}), "Line 1: the template 'The capital is' has no {}"),
        ("a.jsonl", lines(GOOD | {"paraphrases": 3}), "Line 1: paraphrases is int, 3; expected a list of texts"),
        ("a.jsonl", lines(GOOD | {"paraphrases": [3]}), "Line 1: paraphrases is int, 3; expected text"),
        ("a.jsonl", lines(GOOD, GOOD), "Line 2: the id 'capital/Ruritania' stands above already"),
        ("a.jsonl", b"\xff\xfe", "cannot be read"),
        ("a.json", b"", "Line 1 is not JSON"),
        ("a.json", b"[\n{]", "Line 2 is not JSON"),
        ("a.json", b"[" * 100_000, "nested too deeply"),
        ("a.json", b"[" + b"9" * 5000 + b"]", "cannot be read .*5000 digits"),
        ("a.json", b"[]", "there are none"),
        ("a.json", json.dumps(KNOWN).encode(), "it holds one dict; expected a list of objects"),
        (
            "a.json",
            json.dumps([KNOWN | {"prompt": "It is a volcano in"}]).encode(),
            "Record 0: the subject 'Mount Doom'",
        ),
        ("a.json", json.dumps([KNOWN | {"template": "no slot"}]).encode(), "where the template 'no slot' has {}"),
        (
            "a.json",
            json.dumps([KNOWN, KNOWN | {"known_id": "4"}]).encode(),
            "Record 1: known_id is str, '4'; expected a",
        ),
        ("a.json", json.dumps([CASE | {"requested_rewrite": 7}]).encode(), "no 'requested_rewrite.subject'"),
        (
            "a.json",
            json.dumps([CASE | {"requested_rewrite": REWRITE | {"target_true": "x"}}]).encode(),
            "Record 0: there is no 'requested_rewrite.target_true.str'",
        ),
        ("a.csv", b"subject,relation,template,object\na,b,{} c\n", "Line 2: has 3 fields, the header 4"),
        ("a.csv", b'subject,relation\na,"b\n', "a.csv: Line 2 is not CSV"),
        ("a.parquet", b"no", "not Parquet, or damaged"),
        ("a.jsonl", b"\x80\x04\x95pickle", "cannot be read"),
    ],
)
def test_a_damaged_file_is_refused_with_the_record_and_the_field(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LoadError, match=says):
        read_facts(tmp_path / name)


def test_one_error_tells_of_every_damaged_record_up_to_a_number(tmp_path: Path) -> None:
    damaged = [GOOD | {"id": str(number), "object": number} for number in range(MOST + 3)]
    (tmp_path / "a.jsonl").write_bytes(lines(GOOD, *damaged))
    with pytest.raises(LoadError) as raised:
        read_facts(tmp_path / "a.jsonl")
    said = str(raised.value).splitlines()
    assert said[0].startswith(f"{MOST + 3} of {MOST + 4} records in {tmp_path}")
    assert [re.findall(r"\d+", line)[0] for line in said[1:-1]] == [str(2 + place) for place in range(MOST)]
    assert said[-1] == "  and 3 more"


def test_files_that_are_not_there_or_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="There is no file.*missing.json; expected a table of facts"):
        read_facts(tmp_path / "missing.json")
    with pytest.raises(UsageError, match=r"Facts are read from files ending in .json, .jsonl, .csv, .parquet; '.*pkl'"):
        read_facts(tmp_path / "facts.pkl")
