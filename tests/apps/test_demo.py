"""The demo on the real model: its numbers, its page, its files, and that its instructions work."""

import contextlib
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

import interp
from interp.analyses.head_ablation import TOGETHER
from interp.analyses.tracing import CausalTrace
from interp.apps.cli import main
from interp.apps.demo.files import write
from interp.apps.demo.page import report
from interp.apps.demo.questions import Findings, _traced, ask
from interp.apps.demo.summary import parts
from interp.apps.demo.tables import frames, settled
from interp.apps.report import Column, Report, Table, token
from interp.apps.report.cells import written
from interp.errors import UsageError
from interp.results import Result

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from interp.apps.cli.progress import Progress
    from interp.models.transformer import Transformer


@pytest.fixture(scope="module")
def asked(smollm2: "Transformer") -> tuple[Findings, list[tuple[str, int, int]]]:
    """What the demo finds, and every report of progress: (step, done, total)."""
    reported: list[tuple[str, int, int]] = []

    @contextlib.contextmanager
    def working(label: str) -> "Iterator[Progress]":
        yield lambda done, total: reported.append((label, done, total))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("interp.apps.demo.questions.SAMPLES", 1)  # more would only take longer
        return ask(smollm2, prefix="doc", seed=0, working=working), reported


@pytest.fixture(scope="module")
def findings(asked: tuple[Findings, list[tuple[str, int, int]]]) -> Findings:
    return asked[0]


@pytest.fixture(scope="module")
def tables(findings: Findings) -> dict[str, pd.DataFrame]:
    return frames(findings)


@pytest.fixture(scope="module")
def folder(findings: Findings, tables: dict[str, pd.DataFrame], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's output."""
    made = tmp_path_factory.mktemp("demo")
    write(findings, tables, made)
    return made


# ------------------------------------------------------------------------------------------------ the numbers


@pytest.mark.parametrize(
    ("slug", "prefix", "probability", "leads_from"),
    [
        ("tower", "doc", 0.7525, "27"),
        ("tower", "none", 0.7015, "27"),
        ("gift", "doc", 0.8020, "29"),
        ("gift", "none", 0.9229, "29"),
    ],
)
def test_the_model_says_paris_and_mary(
    tables: dict[str, pd.DataFrame], slug: str, prefix: str, probability: float, leads_from: str
) -> None:
    [row] = tables[f"{slug}_prefixes"].query("prefix == @prefix").to_dict("records")
    assert row["probability"] == pytest.approx(probability, abs=1e-3)
    assert (row["rank"], row["leads_from"]) == (1, leads_from)


def test_the_last_row_of_the_lens_is_the_model_itself(findings: Findings, tables: dict[str, pd.DataFrame]) -> None:
    model = findings.model
    tokens = model.to_tokens(findings.gift.sentence.text, prefix="doc")
    probabilities = model(tokens)[0, -1].softmax(-1)
    top = tables["gift_layers"].iloc[0]
    assert top["layer"] == "29"
    assert top["answer_probability"] == pytest.approx(float(probabilities[model.to_single_token(" Mary")]), abs=1e-5)
    assert top["rival_probability"] == pytest.approx(float(probabilities[model.to_single_token(" John")]), abs=1e-5)


def test_the_known_induction_heads_rank_first_and_none_is_in_the_first_layer(tables: dict[str, pd.DataFrame]) -> None:
    heads = tables["heads"]
    assert len(heads) == 270
    assert list(heads["name"][:3]) == ["18.6", "17.3", "17.4"]
    assert heads.loc[heads["prefix_matching"] > 0.2, "layer"].min() > 0
    assert list(heads["best"]) == [True] * 5 + [False] * 265


def test_repetition_is_worth_many_nats(tables: dict[str, pd.DataFrame]) -> None:
    loss = tables["repeat_loss"]
    assert loss["drop"][1] == pytest.approx(loss["loss"][0] - loss["loss"][1])
    assert loss["drop"][1] > 4


def test_the_best_heads_look_at_the_word_that_came_next(findings: Findings, tables: dict[str, pd.DataFrame]) -> None:
    words = tables["words"].query("head == '18.6'")
    assert list(words["looks_at"]) == [*words["reading"][1:], " window"]
    assert findings.induction.words.hits("18.6") == (9, 9)
    assert all(findings.induction.words.hits(head)[0] >= 7 for head in findings.induction.words.patterns)


def test_removing_the_best_heads_costs_far_more_than_removing_others(tables: dict[str, pd.DataFrame]) -> None:
    together = tables["removal_costs"].set_index("removed").loc[TOGETHER]
    assert together["increase"] > 1
    assert together["increase"] > 10 * together["control_mean"]
    on_first = tables["removals"].query("repeat == 1")["nll_effect"]
    assert on_first.abs().max() < 0.1


def test_progress_is_reported_to_the_end_of_every_long_step(
    asked: tuple[Findings, list[tuple[str, int, int]]],
) -> None:
    last = {label: (done, total) for label, done, total in asked[1]}
    assert len(last) == 5
    assert all(done == total for done, total in last.values())


def test_hiding_the_subject_hides_the_answer_and_one_state_brings_most_of_it_back(
    findings: Findings, tables: dict[str, pd.DataFrame]
) -> None:
    assert list(findings.traces) == ["tower_trace", "museum_trace"]
    assert findings.untraced == {}
    tower, museum = findings.traces.values()
    assert tower["clean_probability"] == pytest.approx(0.7525, abs=1e-3)
    assert [list(trace.axes["kind"]) for trace in (tower, museum)] == [["resid", "mlp", "attn"], ["resid"]]
    sites = tables["trace_sites"]
    assert (sites["total_effect"] > 0.6).all()
    assert list(sites["early_token"][[0, 1, 3]]) == ["iffel", "iffel", "vre"]
    assert (sites["early_layer"][[0, 1, 3]] < 10).all()
    assert (sites["early_effect"][[0, 1, 3]] > 0.3).all()
    assert set(sites["late_token"]) == {" of"}
    assert list(sites["early_at_end_of_subject"][[0, 3]]) == [False, True]


def test_the_sites_are_the_strongest_cells(findings: Findings, tables: dict[str, pd.DataFrame]) -> None:
    trace = findings.traces["tower_trace"]
    cells = tables["tower_trace_cells"]
    for row in tables["trace_sites"].query("fact == 'tower_trace'").to_dict("records"):
        kind = next(kind for kind in trace.axes["kind"] if trace.panel(str(kind)) == row["restored"])
        inside = cells[(cells["kind"] == kind) & cells["in_subject"]]
        assert row["early_effect"] == inside["effect"].max()
        assert row["late_effect"] == trace.at("effect", kind=kind)[-1].max()
    assert len(tables["tower_trace_tokens"]) == 3 * len(trace.axes["position"])


def test_the_page_says_where_the_early_site_is_and_what_is_hardly_anything(contents: Report) -> None:
    found = contents.sections[3].finding
    tower, museum = found.split("Noise on")[1:]
    assert f"the early site is not at the subject's last token, {token(' Tower')}, but at {token('iffel')}." in tower
    assert f"the early site is at the subject's last token, {token('vre')}." in museum
    assert "Attention outputs, 10 layers: hardly anything among the subject's tokens" in tower


def test_a_fact_that_cannot_be_traced_leaves_its_reason_and_the_rest_of_the_page(
    findings: Findings, folder: Path
) -> None:
    without = replace(
        findings, traces={}, untraced={"tower_trace": "Its tokens cross the edge.", "museum_trace": "So."}
    )
    tables = frames(without)
    page = report(without, tables)
    assert [section.slug for section in page.sections] == ["tower", "gift", "induction"]
    assert page.lead.startswith("Three questions")
    assert "Not traced: The Eiffel Tower. Its tokens cross the edge." in page.notes
    assert not [name for name in tables if "trace" in name]
    assert any("Not traced: So." in str(part) for part in parts(without, tables))


def test_a_subject_that_no_token_ends_with_is_reported_and_the_other_is_traced(
    findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_: object, prompt: str, subject: str, **__: object) -> CausalTrace:
        if "Louvre" in subject:
            raise UsageError("Its tokens cross the edge.")
        return findings.traces["tower_trace"]

    monkeypatch.setattr("interp.analyses.tracing.causal_trace", refuses)
    found, refused = _traced(findings.model, "doc", 0, lambda label: contextlib.nullcontext(lambda done, total: None))
    assert list(found) == ["tower_trace"]
    assert refused == {"museum_trace": "Its tokens cross the edge."}


@pytest.mark.parametrize(
    ("ranks", "layer"), [([3, 1, 1], "0"), ([1, 1, 1], "embed"), ([1, 2, 1], "1"), ([1, 1, 2], "–")]
)
def test_a_token_leads_from_the_layer_after_which_nothing_overtakes_it(ranks: list[int], layer: str) -> None:
    assert settled(ranks, ["embed", "0", "1"]) == layer


# ---------------------------------------------------------------------------------------------------- the page


class Cells(HTMLParser):
    """Texts of all table rows by the table's Parquet file, folded rows included; and what the page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[list[str]]] = {}
        self.loads: list[str] = []
        self._table = ""
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loads += [str(given[name]) for name in ("src", "srcset", "poster", "action", "data") if name in given]
        self.loads += [str(given["href"])] if tag == "link" else []
        if given.get("class") == "source" or tag == "td":
            self._inside = "source" if tag == "span" else "td"
        if tag == "tr" and self._table:
            self.rows[self._table].append([])
        if tag == "td":
            self.rows[self._table][-1].append("")

    def handle_data(self, data: str) -> None:
        if self._inside == "source":
            self._table = data.removeprefix("tables/").removesuffix(".parquet")
            self.rows[self._table] = []
        elif self._inside == "td":
            self.rows[self._table][-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("span", "td"):
            self._inside = ""


@pytest.fixture(scope="module")
def page(folder: Path) -> Cells:
    parser = Cells()
    parser.feed((folder / "report.html").read_text(encoding="utf-8"))
    return parser


@pytest.fixture(scope="module")
def contents(findings: Findings, tables: dict[str, pd.DataFrame]) -> Report:
    return report(findings, tables)


def shown(row: dict[str, object], columns: dict[str, Column]) -> list[str]:
    """One row as the page must write it."""
    cells = []
    for name, column in columns.items():
        if column.kind in ("text", "token"):
            cells.append(str(row[name]).replace("\n", "↵").replace("\xa0", "\\xa0"))
        elif column.kind == "flag":
            cells.append("yes" if row[name] else "no")
        else:
            cells.append(written(float(str(row[name])), column.kind))
    return cells


NAMES = ["tower_layers", "tower_prefixes", "gift_layers", "gift_prefixes", "heads", "repeat_loss", "removal_costs"]
NAMES += ["trace_sites", "tower_trace_tokens", "museum_trace_tokens"]


@pytest.mark.parametrize("name", [*NAMES, "words"])
def test_the_page_shows_what_the_parquet_file_holds(page: Cells, contents: Report, folder: Path, name: str) -> None:
    stored = pd.read_parquet(folder / "tables" / f"{name}.parquet")
    table = contents.tables()[name]
    expected = [shown(row, dict(table.columns)) for row in stored.to_dict("records")]
    found = [row for row in page.rows[name] if row]
    assert len(found) == len(table.frame)
    if name == "words":  # the page shows one reading, the file all of them
        assert all(row in expected for row in found)
    else:
        assert found == expected


def test_every_parquet_file_equals_the_table_it_was_made_from(folder: Path, tables: dict[str, pd.DataFrame]) -> None:
    files = {path.stem: path for path in (folder / "tables").iterdir()}
    assert set(files) == set(tables)
    for name, path in files.items():
        pd.testing.assert_frame_equal(pd.read_parquet(path), tables[name], check_dtype=False)


def test_the_page_loads_nothing(page: Cells) -> None:
    assert page.loads == ["data:,"]


def test_every_section_says_what_it_does_not_show_and_how_to_repeat_it(contents: Report, folder: Path) -> None:
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert len(contents.sections) == 4
    assert text.count("What this does not show.") == 4
    assert text.count("Repeat this") == 4
    assert "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53" in text


def test_a_browser_draws_all_figures_and_asks_for_nothing_else(
    browser: "Browser", folder: Path, contents: Report
) -> None:
    file = (folder / "report.html").as_uri()
    window = browser.new_page(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []
    window.on("console", lambda message: complaints.append(message.text))
    window.on("pageerror", lambda error: complaints.append(str(error)))
    window.on("request", lambda request: complaints.append(request.url) if request.url != file else None)
    window.goto(file)
    figures = sum(not isinstance(block, Table) for section in contents.sections for block in section.blocks)
    window.wait_for_function(f"document.documentElement.dataset.drawn === '{figures}'")
    assert window.locator(".heatmaplayer image").count() == 8
    assert window.locator(".barlayer .point").count() == 12
    assert "·Paris" in window.locator("#plot-tower-2").inner_text()
    assert window.evaluate("document.documentElement.scrollWidth") <= 1280
    assert complaints == []


# ------------------------------------------------------------------------------------------- files and commands


RESULTS = ("tower_lens", "gift_lens", "heads", "repeat_loss", "head_ablation")


def test_the_results_can_be_read_back(folder: Path, findings: Findings) -> None:
    kept = {path.name: Result.load(path) for path in (folder / "results").iterdir()}
    assert set(kept) == {*RESULTS, "tower_trace", "museum_trace"}
    assert kept["tower_trace"].identical(findings.traces["tower_trace"])
    assert kept["head_ablation"].identical(findings.induction.removal)
    assert kept["heads"].identical(findings.induction.scores)
    assert kept["tower_lens"].identical(findings.tower.result)


@pytest.fixture
def at_hand(findings: Findings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The model and the findings come from memory; the working folder is an empty one."""
    monkeypatch.setattr(interp, "load", lambda *_, **__: findings.model, raising=False)
    monkeypatch.setattr("interp.apps.demo.questions.ask", lambda *_, **__: findings)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_prints_a_summary_and_where_the_report_is(
    at_hand: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo"]) == 0
    printed = capsys.readouterr()
    assert re.search(r'29\s+" Paris"\s+0\.75\d\s+1\s+█+', printed.out)
    assert re.search(r'29\s+" Mary"\s+0\.80\d\s+1\s+0\.\d+', printed.out)
    assert re.search(r"^18\.6\s+0\.8", printed.out, re.MULTILINE)
    assert "Where a head looks is not what it did" in printed.out
    assert re.search(
        r'^p\(" Paris"\) = 0\.75\d, and 0\.0\d\d with "The Eiffel Tower" hidden', printed.out, re.MULTILINE
    )
    assert re.search(r'^The Louvre\s+residual stream\s+"vre"\s+\d\s+\+0\.', printed.out, re.MULTILINE)
    assert printed.err.splitlines()[-1] == f"Report: {(at_hand / 'interp-demo' / 'report.html').as_uri()}"
    assert sorted(path.name for path in (at_hand / "interp-demo").iterdir()) == [
        "report.html",
        "results",
        "summary.json",
        "tables",
    ]


def test_the_command_prints_one_document_with_json(at_hand: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--json", "--quiet", "--out", "elsewhere"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert printed.err == ""
    assert document["tables"]["tower_prefixes"][0]["probability"] == pytest.approx(0.7525, abs=1e-3)
    stored = json.loads((at_hand / "elsewhere" / "summary.json").read_text(encoding="utf-8"))
    assert document == {**stored, "saved": "elsewhere"}


QUICKER = {2: ("prefix='doc')", "prefix='doc', n_seqs=2)"), 3: (", 'mlp', 'attn'", "")}
"""What is written differently in the code of a section, by its number: two texts suffice, and one kind of state."""


@pytest.mark.parametrize("index", [0, 1, 2, 3], ids=["tower", "gift", "induction", "trace"])
def test_the_instructions_of_a_section_work(
    at_hand: Path, contents: Report, index: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code = contents.sections[index].code
    names: dict[str, object] = {}
    exec(compile(code.python.replace(*QUICKER.get(index, ("", ""))), "report", "exec"), names)
    assert "result" in names or "scores" in names
    command = shlex.split(code.shell.replace("\\\n", " "))
    assert command[0] == "interp"
    capsys.readouterr()
    shorter = {2: ["--n-seqs", "1"], 3: ["--kinds", "resid"]}
    assert main([*command[1:], *shorter.get(index, [])]) == 0
    assert ("18.6" if index == 2 else code.shell.split('"')[3].strip()) in capsys.readouterr().out
    assert at_hand.is_dir()
