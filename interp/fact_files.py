"""Facts from files: our tables, and the two data sets of ROME, by path.

    read_facts("facts.jsonl")          # or .json (a list of records), .csv, .parquet
    read_facts("known_1000.json")      # Meng et al. 2022: facts that GPT-2 XL knows
    read_facts("counterfact.json")     # the same paper's 21,919 rewrites; the TRUE target is the object

A table has the columns `subject`, `relation`, `template` and `object`, and may have `paraphrases` (a list, or one text
with | between them), `counterfactual` and `id`; others are ignored. A row that has a relation and its templates and
nothing else states them for the rows of that relation below it, which then need none of their own.

Which format a record has is told by its fields, record by record. In known_1000.json the prompt counts, not the
template, which lacks the last words. In counterfact.json a paraphrase is a text of its own, often with another sentence
before it; the subject's last mention is its place, and one that does not mention the subject is left out.

Data sets: rome.baulab.info; Meng et al. 2022, "Locating and editing factual associations in GPT" (arXiv 2202.05262).
"""

import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from interp.errors import LoadError, UsageError, nearest
from interp.facts import SLOT, Fact
from interp.tables import read_rows

SUFFIXES = (".json", ".jsonl", ".csv", ".parquet")
COLUMNS = ("subject", "relation", "template", "object", "paraphrases", "counterfactual", "id")
MOST = 8  # damaged records that one error tells of

Record = Mapping[str, object]


def read_facts(path: str | Path) -> tuple[Fact, ...]:
    """The facts of a file, in its order.

    Raises `UsageError` for a suffix that is not known, and `LoadError` for a file that is absent, empty or malformed:
    one error that names every damaged record, up to some number, with its field, what came and what was expected.
    """
    path = Path(path)
    return facts_of(read_rows(path, "facts", SUFFIXES), str(path))


def facts_of(rows: Sequence[tuple[str, object]], source: str) -> tuple[Fact, ...]:
    """The facts of records that were read already, each with its place; `LoadError` as `read_facts` raises it."""
    shared: dict[str, Record] = {}
    facts: dict[str, Fact] = {}
    problems = []
    for place, row in rows:
        try:
            _take(row, shared, facts)
        except UsageError as error:
            problems.append(f"{place}: {str(error).removeprefix(f'{place} ')}")
    if problems:
        raise LoadError(_told(source, problems, len(rows)))
    if not facts:
        raise LoadError(f"The facts in {source}: there are none; expected rows with {', '.join(COLUMNS[:4])}.")
    return tuple(facts.values())


def _told(source: str, problems: list[str], count: int) -> str:
    more = f"\n  and {len(problems) - MOST} more" if len(problems) > MOST else ""
    lines = "".join(f"\n  {problem}" for problem in problems[:MOST])
    return f"{len(problems)} of {count} records in {source} cannot be used:{lines}{more}"


def _take(row: object, shared: dict[str, Record], facts: dict[str, Fact]) -> None:
    """Put what the row states among the facts, or among what facts share."""
    if isinstance(row, UsageError):
        raise row
    if not isinstance(row, Mapping):
        raise UsageError(f"it is {type(row).__name__}, {reprlib.repr(row)}; expected an object with named fields.")
    record = _translated(row)
    stated = {name for name, value in record.items() if value not in (None, "", [])}
    if "relation" in stated and stated <= {"relation", "template", "paraphrases"}:
        shared[_text(record, "relation")] = record
        return
    fact = _fact(record, shared)
    if fact.id in facts:
        raise UsageError(f"the id {fact.id!r} stands above already; expected every fact once.")
    facts[fact.id] = fact


def _fact(record: Record, shared: Mapping[str, Record]) -> Fact:
    relation = _text(record, "relation")
    templates = {name: record.get(name) or shared.get(relation, {}).get(name) for name in ("template", "paraphrases")}
    whole = {**record, **templates}
    counterfactual, name = (_text(whole, field) if whole.get(field) else None for field in ("counterfactual", "id"))
    return Fact(
        subject=_text(whole, "subject"),
        relation=relation,
        template=_text(whole, "template"),
        object=_text(whole, "object"),
        paraphrases=_texts(whole, "paraphrases"),
        counterfactual=counterfactual,
        id=name or "",
    )


def _translated(record: Record) -> Record:
    """A record of either data set in our columns; one of ours as it is."""
    if "requested_rewrite" in record:
        return _of_counterfact(record)
    if "known_id" in record or "attribute" in record:
        return _of_known(record)
    return record


def _of_known(record: Record) -> Record:
    subject, prompt, template = (_text(record, field) for field in ("subject", "prompt", "template"))
    slot = template.find(SLOT)
    if slot < 0 or not prompt.startswith(subject, slot):
        raise UsageError(
            f"the subject {subject!r} does not stand in the prompt {reprlib.repr(prompt)} where the template "
            f"{reprlib.repr(template)} has {SLOT}; expected it there."
        )
    return {
        "id": f"known {_number(record, 'known_id')}",
        "subject": subject,
        "relation": _text(record, "relation_id"),
        "template": f"{prompt[:slot]}{SLOT}{prompt[slot + len(subject) :]}".rstrip(),
        "object": _text(record, "attribute").strip(),
    }


def _of_counterfact(record: Record) -> Record:
    """Paraphrases that do not name the subject, or hold braces of their own, are left out."""
    subject = _text(record, "requested_rewrite.subject").strip()
    others = [text.rpartition(subject) for text in _texts(record, "paraphrase_prompts") if SLOT not in text]
    return {
        "id": f"counterfact {_number(record, 'case_id')}",
        "subject": subject,
        "relation": _text(record, "requested_rewrite.relation_id"),
        "template": _text(record, "requested_rewrite.prompt").rstrip(),
        "object": _text(record, "requested_rewrite.target_true.str").strip(),
        "paraphrases": [f"{before}{SLOT}{after}".rstrip() for before, found, after in others if found],
    }


def _value(record: Record, field: str) -> object:
    """The value of a field; dots lead into records inside records."""
    found: object = record
    for name in field.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _text(record: Record, field: str) -> str:
    value = _value(record, field)
    if value is None:
        there = [str(name) for name in record]
        raise UsageError(
            f"there is no {field!r}; its fields are {', '.join(there[:12]) or 'none'}.{nearest(field, there, count=1)}"
        )
    return _checked(field, value)


def _texts(record: Record, field: str) -> tuple[str, ...]:
    """A list of texts, which may be missing; or one text with | between them."""
    value = _value(record, field)
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return tuple(text.strip() for text in value.split("|"))
    if not isinstance(value, list):
        raise UsageError(f"{field} is {type(value).__name__}, {reprlib.repr(value)}; expected a list of texts.")
    return tuple(_checked(field, text) for text in value)


def _number(record: Record, field: str) -> int:
    value = _value(record, field)
    if type(value) is not int:
        raise UsageError(f"{field} is {type(value).__name__}, {reprlib.repr(value)}; expected a whole number.")
    return value


def _checked(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{field} is {type(value).__name__}, {reprlib.repr(value)}; expected text.")
    return value
