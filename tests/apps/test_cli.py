"""The command line: what it prints where, and what it ends with when something is wrong."""

import contextlib
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from published import write_gguf
from tiny import BASE

import interp
from interp.apps.cli.output import check_folder, show, staged, table, write_json
from interp.errors import InterpError, UsageError

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

HEAVY = {"torch", "numpy", "pandas", "plotly", "pyarrow", "transformers", "tokenizers", "rich", "streamlit"}
Run = Callable[..., tuple[int, str, str]]
FRANCE = ["--clean", "The capital of France is", "--corrupted", "The capital of Italy is"]
LOUVRE = "The Louvre is located in the city of"


def shell(*words: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """`interp words…` as its own process."""
    command = [sys.executable, "-m", "interp", *words]
    return subprocess.run(command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True)


# ------------------------------------------------------------------------------------------ help and version


def test_help_answers_before_anything_heavy_is_imported() -> None:
    code = "import sys; from interp.apps.cli import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in done.stderr.split()} & HEAVY == set()
    assert all(
        command in done.stdout
        for command in (
            *("demo", "generate", "lens", "attribute", "induction", "heads", "trace", "knockout", "patch", "points"),
            *(
                "facts",
                "models",
                "neurons",
                "plan",
                "run",
                "validate",
                "resume",
                "status",
                "ls",
                "report",
                "diff",
                "merge",
            ),
        )
    )


def test_help_documents_the_exit_codes(run: Run) -> None:
    code, printed, _ = run("--help")
    assert code == 0
    assert [line.split()[0] for line in printed.partition("Exit codes:")[2].splitlines() if line.strip()] == [
        "0", "1", "2", "3", "4", "5", "6", "130", "141", "143",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ("demo",),
        ("generate",),
        ("lens",),
        ("attribute",),
        ("induction",),
        ("heads",),
        ("trace",),
        ("knockout",),
        ("neurons",),
        ("patch",),
        ("points",),
        ("plan",),
        ("facts", "list"),
        ("facts", "show"),
        ("memories",),
        ("facts", "filter"),
        ("facts", "stats"),
        ("models", "list"),
        ("models", "show"),
        ("models", "pull"),
        ("models", "verify"),
        ("run",),
        ("validate",),
        ("resume",),
        ("status",),
        ("ls",),
        ("report",),
        ("diff",),
        ("merge",),
    ],
)
def test_every_command_shows_an_example_of_itself(run: Run, words: tuple[str, ...]) -> None:
    code, printed, _ = run(*words, "--help")
    assert code == 0
    assert f"interp {' '.join(words)}" in printed.partition("Example")[2]


def test_the_version_is_printed_without_torch() -> None:
    code = "import sys; from interp.apps.cli import main; main(['--version']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == [f"interp {interp.__version__}", "False"]


def test_completion_is_written_for_a_shell() -> None:
    done = shell("--show-completion", "bash")
    offered = subprocess.run(
        [sys.executable, "-c", "import sys; from interp.apps.cli import main; sys.exit(main([]))"],
        env=os.environ | {"_INTERP_COMPLETE": "complete_bash", "COMP_WORDS": "interp le", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "_INTERP_COMPLETE" in done.stdout
    assert offered.stdout.split() == ["lens"]


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lense", "x"], "No such command 'lense'"),
        (["lens"], "Give a TEXT, or --facts"),
        (["lens", "x", "--dtype", "int8"], "'float32', 'bfloat16', 'float16', 'float64'"),
        (["lens", "x", "--prefix", "bos"], "'doc', 'none', 'chat'"),
        (["lens", "x", "--top-k", "0"], "--top-k"),
        (["lens", "x", "--device", "abacus", "--quiet"], "abacus"),
        (["induction", "--repeats", "1"], "--repeats"),
        (["trace", "x"], "Give --subject the words"),
        (["trace", "x", "--subject", "x", "--samples", "0"], "--samples"),
        (["trace", "x", "--subject", "x", "--kinds", "resid,mpl"], "Did you mean 'mlp'?"),
        (["trace", "x", "--subject", "x", "--kinds", "mlp,mlp"], "'mlp' twice"),
        (["trace", "x", "--subject", "x", "--kinds", ""], "expected some of resid,mlp,attn"),
        (["trace", "x", "--subject", "x", "--estimate", "--out", "y"], "nothing to save"),
        (["trace"], "Give a PROMPT, or --facts"),
        (["trace", "x", "--subject", "x", "--severed", "resid"], "--severed names 'resid'; expected some of mlp,attn"),
        (["trace", "x", "--subject", "x", "--limit", "3"], "--limit belongs to --facts"),
        (["trace", "x", "--facts", "bundled"], "one of the two"),
        (["trace", "--facts", "bundled", "--occurrence", "0"], "--occurrence belongs to a PROMPT"),
        (["trace", "x", "--subject", "x", "--replacement", "y", "--samples", "3"], "--samples belongs to noise"),
        (["trace", "--facts", "bundled", "--corruption", "replace", "--noise", "s1"], "--noise belongs to noise"),
        (["trace", "--facts", "bundled", "--relation", "capitol"], "Did you mean 'capital'?"),
        (["trace", "--facts", "bundled", "--noise", "0.3", "--noise-subjects", "facts"], "--noise-subjects belongs to"),
        (["trace", "x", "--subject", "x", "--noise-subjects", "facts"], "--noise-subjects belongs to --facts"),
        (["trace", "--facts", "bundle"], "files ending in .json, .jsonl, .csv, .parquet"),
        (["patch"], "give --pairs with a name or a file"),
        (["patch", "--clean", "x", "--answer", "y"], "--clean, --corrupted and --answer"),
        (["patch", "--pairs", "ioi", "--clean", "x"], "Leave out one of the two"),
        (["patch", "--pairs", "ioi", "--foil", "x"], "pairs bring their own"),
        (["patch", "--pairs", "iio"], "Did you mean 'ioi'?"),
        (["patch", "--pairs", "ioi", "--layers", "3-x"], "3,5 or 10-20"),
        (["patch", "--pairs", "ioi", "--estimate", "--out", "y"], "Leave one out"),
        (["patch", "--pairs", "ioi", "--method", "atp", "--metric", "logit,rank"], "one metric"),
        (["patch", "--pairs", "ioi", "--method", "atp", "--window", "3"], "leave --window out"),
        (["facts", "list", "--relation", "capitol"], "Did you mean 'capital'?"),
        (["facts", "filter", "--relation", "capitol"], "There are no facts of the relation 'capitol'"),
        (["facts", "stats", "--facts", "facts.pkl"], "files ending in .json, .jsonl, .csv, .parquet"),
        (["models", "pull", "smollm2-135"], "Did you mean 'smollm2-135m'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_argument_ends_with_2_and_one_message(run: Run, words: list[str], said: str) -> None:
    code, printed, complaint = run(*words)
    assert code == 2
    assert printed == ""
    assert said in complaint
    assert "Traceback" not in complaint


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lens", "word " * 9000], "context"),
        (["lens", "x", "--answer", " Paris and London"], "' and'"),
        (["lens", "x", "--position", "7"], "7"),
        (["lens", "x", "--top-k", "50000"], "49152"),
        (["induction", "--seq-len", "5000"], "context"),
        (["trace", LOUVRE, "--subject", "the louvre"], "'The Louvre' in other letters"),
        (["trace", LOUVRE, "--subject", "Louv"], "covers whole tokens"),
        (["trace", LOUVRE, "--subject", "The Louvre", "--noise", "-1"], "positive level"),
        (["trace", LOUVRE, "--subject", "The Louvre", "--replacement", "Rome"], "token for token"),
        (["trace", LOUVRE, "--subject", "The Louvre", "--answer", " Paris and London"], "' and'"),
        (["trace", LOUVRE, "--subject", "i", "--occurrence", "7"], "7"),
        (["trace", LOUVRE, "--subject", "The Louvre", "--budget-mb", "1"], "budget"),
        (["patch", *FRANCE, "--answer", " Paris and London"], "' and'"),
        (["patch", *FRANCE[:3], "The capital of the Netherlands is", "--answer", " Paris"], "from position"),
        (["patch", *FRANCE, "--answer", " Paris"], "needs a foil"),
        (["patch", "--pairs", "capitals", "--site", "resid"], "There is no site 'resid'"),
        (["patch", "--pairs", "capitals", "--site", "router"], "router"),
        (["patch", "--pairs", "capitals", "--layers", "30"], "30"),
        (["patch", "--pairs", "capitals", "--by", "layer,head"], "runs over some of"),
        (["patch", "--pairs", "capitals", "--metric", "logits"], "There is no metric 'logits'"),
        (["points", "blocks.0.attn.hook_patern"], "Did you mean 'blocks.0.attn.hook_pattern'"),
        (["points", "hook_embed", "blocks.31.hook_resid_pre"], "layers 0 to 29"),
        (["points", "blocks.0.mlp.hook_router"], "cannot exist here"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_an_input_that_the_model_cannot_take_ends_with_2(run: Run, words: list[str], said: str) -> None:
    code, printed, complaint = run(*words, "--quiet")
    assert code == 2
    assert printed == ""
    assert complaint.startswith("Error: ")
    assert said in complaint


@pytest.fixture
def broken(tmp_path: Path) -> dict[str, Path]:
    """Files that are no models."""
    with open(tmp_path / "model.bin", "wb") as file:
        pickle.dump({"weight": [1.0]}, file)
    (tmp_path / "cut.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
    (tmp_path / "empty").mkdir()
    return {name: tmp_path / name for name in ("model.bin", "cut.gguf", "empty", "missing.gguf")}


@pytest.mark.parametrize(
    ("name", "said"),
    [("model.bin", "pickle"), ("cut.gguf", "cut.gguf"), ("empty", "config.json"), ("missing.gguf", "Known")],
)
def test_a_model_that_cannot_be_loaded_ends_with_4(run: Run, broken: dict[str, Path], name: str, said: str) -> None:
    code, printed, complaint = run("lens", "x", "--quiet", "--model", str(broken[name]))
    assert code == 4
    assert printed == ""
    assert complaint.startswith("Error: ")
    assert said in complaint


def test_an_unknown_model_names_the_nearest(run: Run) -> None:
    code, _, complaint = run("models", "show", "smolm2-135m", "--quiet")
    assert code == 4
    assert "Did you mean 'smollm2-135m'?" in complaint


@pytest.mark.usefixtures("unloadable")
@pytest.mark.parametrize(
    "words", [["demo"], ["lens", "x"], ["induction"], ["trace", "x", "--subject", "x"]], ids=" ".join
)
@pytest.mark.parametrize(("out", "said"), [("file", "is a file"), ("file/x/y", "Cannot write"), ("/proc", "Cannot")])
def test_an_unwritable_folder_is_refused_before_the_work_begins(
    run: Run, tmp_path: Path, words: list[str], out: str, said: str
) -> None:
    (tmp_path / "file").write_text("mine")
    code, printed, complaint = run(*words, "--out", str(tmp_path / out), "--quiet")
    assert (code, printed) == (2, "")
    assert said in complaint
    assert len(complaint.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.usefixtures("unloadable")
@pytest.mark.parametrize("command", ["lens", "generate"])
def test_an_empty_text_is_refused_before_the_model_is_loaded(run: Run, command: str) -> None:
    code, printed, complaint = run(command, "")
    assert (code, printed) == (2, "")
    assert complaint == "Error: The text is empty: it has no tokens. Give at least one character of text.\n"


@pytest.mark.usefixtures("unloadable")
@pytest.mark.parametrize(("prompt", "subject", "said"), [("", "x", "The text is empty"), ("x", "", "Give --subject")])
def test_a_trace_without_a_prompt_or_subject_is_refused_before_the_model_is_loaded(
    run: Run, prompt: str, subject: str, said: str
) -> None:
    code, printed, complaint = run("trace", prompt, "--subject", subject)
    assert (code, printed) == (2, "")
    assert said in complaint
    assert len(complaint.splitlines()) == 1


def test_a_wrong_list_of_kinds_is_refused_before_torch_is_imported() -> None:
    words = ["trace", "x", "--subject", "x", "--kinds", "resd"]
    code = f"import sys; from interp.apps.cli import main; print(main({words})); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]


def test_the_kinds_that_the_command_knows_are_those_of_the_analysis() -> None:
    from interp.analyses.trace_settings import SAID
    from interp.apps.cli.trace import KINDS

    assert tuple(SAID) == KINDS


@pytest.mark.usefixtures("smollm2")
def test_an_unknown_point_names_the_command_that_lists_them(run: Run) -> None:
    _, _, complaint = run("points", "zzz", "--quiet")
    assert complaint.startswith("Error: No hook point matches 'zzz'.")
    assert complaint.endswith("On the command line, `interp points` lists them.\n")
    assert len(complaint.splitlines()) == 1


def test_an_unexpected_error_is_a_sentence_and_shows_its_traceback_on_request(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("one over nothing")

    monkeypatch.setattr(interp, "load", fail, raising=False)
    code, printed, complaint = run("lens", "x", "--quiet")
    assert (code, printed) == (1, "")
    assert complaint.startswith("Internal error: ZeroDivisionError: one over nothing\n")
    assert "--debug" in complaint
    assert "Traceback" not in complaint
    assert "Traceback" in run("lens", "x", "--quiet", "--debug")[2]
    monkeypatch.setenv("INTERP_DEBUG", "1")
    assert "Traceback" in run("lens", "x", "--quiet")[2]


def test_each_error_class_brings_its_own_code(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class OddError(InterpError):
        exit_code = 1

    def fail(*_: object, **__: object) -> None:
        raise OddError("Something came, something else was expected.")

    monkeypatch.setattr(interp, "load", fail, raising=False)
    assert run("lens", "x", "-q") == (1, "", "Error: Something came, something else was expected.\n")


# ---------------------------------------------------------------------------------------------------- output


@pytest.mark.usefixtures("loaded")
def test_json_is_the_only_thing_on_stdout_and_progress_is_on_stderr(run: Run) -> None:
    code, printed, logged = run("lens", "The Eiffel Tower is located in the city of", "--answer", " Paris", "--json")
    document = json.loads(printed)
    assert code == 0
    assert logged == "Loading smollm2-135m …\nReading every layer …\n"
    assert document["settings"]["prefix"] == "doc"
    assert document["provenance"]["model"] == "smollm2-135m"
    last = document["table"][-1]
    assert (last["layer"], last["token"], last["rank"], last["top_tokens"][0]) == ("29", " Paris", 1, " Paris")
    assert last["probability"] == pytest.approx(0.7525, abs=2e-3)


@pytest.mark.usefixtures("loaded")
def test_quiet_leaves_stderr_empty(run: Run) -> None:
    code, printed, logged = run("lens", "A", "--quiet", "--prefix", "none")
    assert (code, logged) == (0, "")
    assert "prefix none" in printed
    assert len(printed.splitlines()) > 31


@pytest.mark.usefixtures("loaded")
def test_a_position_other_than_the_last_can_be_read(run: Run) -> None:
    _, printed, _ = run("lens", "The Eiffel Tower", "--position", "1", "-q")
    assert printed.startswith('After "The" (position 1)')
    assert run("lens", "The Eiffel Tower", "--position", "-9", "-q")[0] == 2


@pytest.mark.usefixtures("loaded")
def test_out_saves_the_result_and_its_figure(run: Run, tmp_path: Path) -> None:
    from interp.analyses.lens import LensResult

    folder = tmp_path / "new" / "folder"
    code, _, logged = run("lens", "The Eiffel Tower", "--out", str(folder))
    assert code == 0
    assert logged.splitlines()[-1] == f"Saved {folder}; `interp report {folder}` writes it as a page"
    result = LensResult.load(folder)
    assert list(result["token"]) == ["<|endoftext|>", "The", " E", "iffel", " Tower"]
    assert "plotly" in (folder / "figures/lens.html").read_text(encoding="utf-8").lower()
    assert interp.open_run(folder).status().state == "finished"
    assert run("lens", "The Louvre", "--out", str(folder))[0] == 0
    assert list(LensResult.load(folder)["token"]) != list(result["token"])


@pytest.mark.usefixtures("loaded")
def test_induction_ranks_the_known_heads_first(run: Run) -> None:
    code, printed, _ = run("induction", "--n-seqs", "2", "--ablate-top", "0", "--json", "-q")
    document = json.loads(printed)
    assert code == 0
    assert len(document["table"]) == 270
    best = {f"{row['layer']}.{row['head']}" for row in document["table"][:4]}
    assert {"18.6", "17.3"} <= best


@pytest.mark.usefixtures("loaded")
def test_a_trace_shows_every_token_and_saves_every_cell(run: Run, tmp_path: Path) -> None:
    from interp.analyses.tracing import CausalTrace

    words = ["trace", LOUVRE, "--subject", "The Louvre", "--kinds", "resid", "--samples", "1", "--out", str(tmp_path)]
    code, printed, logged = run(*words)
    assert code == 0
    assert logged.splitlines()[:3] == [
        "Loading smollm2-135m …",
        "Running with and without the subject …",
        "Restoring every state in turn …",
    ]
    shown = [line for line in printed.splitlines() if line.startswith('"')]
    assert [line.split("  ")[0] for line in shown][:4] == ['"<|endoftext|>"', '"The"*', '" Lou"*', '"vre"*']
    assert shown[0].split()[1:] == ["–", "+0.000", "–", shown[0].split()[-1]]
    assert len(shown[3].split()[-1]) > 10, "the bar of the early site"
    assert CausalTrace.caution in printed
    result = CausalTrace.load(tmp_path)
    assert result.settings["samples"] == 1
    assert "plotly" in (tmp_path / "figures/trace.html").read_text(encoding="utf-8").lower()


@pytest.mark.usefixtures("loaded")
def test_a_trace_as_json_holds_every_cell(run: Run) -> None:
    words = ["--subject", "The Louvre", "--kinds", "attn", "--samples", "1", "--window", "3", "--answer", " London"]
    code, printed, _ = run("trace", LOUVRE, *words, "--json", "-q")
    document = json.loads(printed)
    assert code == 0
    assert (document["kind"], document["settings"]["answer"]) == ("tracing.causal", " London")
    assert document["settings"]["prediction"] == " Paris"
    assert len(document["table"]) == 30 * 10
    row = document["table"][30 * 3 + 5]
    assert (row["kind"], row["position"], row["token"], row["layer"]) == ("attn", 3, "vre", 5)
    assert (row["first_layer"], row["last_layer"]) == (4, 6)
    assert row["effect"] == pytest.approx(row["probability"] - row["corrupted_probability"])


@pytest.mark.usefixtures("loaded")
def test_an_estimate_says_what_a_trace_costs_and_runs_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from interp.models.replay import Replay

    monkeypatch.setattr(Replay, "run", lambda *_, **__: pytest.fail("it ran"))
    words = ["trace", LOUVRE, "--subject", "The Louvre", "--kinds", "resid", "--samples", "1", "--estimate", "-q"]
    code, printed, logged = run(*words)
    assert (code, logged) == (0, "")
    assert re.match(r"\d+ cells, \d+ rows.* GFLOP", printed)
    document = json.loads(run(*words, "--json")[1])
    assert document["rows"] == document["cells"] > 200
    assert document["seconds"] > 0
    assert document["settings"]["subject"] == "The Louvre"


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(("limit", "lines"), [(float("inf"), 3), (0, 4)], ids=["small", "large"])
def test_only_a_large_trace_says_first_what_it_costs(
    run: Run, monkeypatch: pytest.MonkeyPatch, limit: float, lines: int
) -> None:
    monkeypatch.setattr("interp.apps.cli.trace_cost.LARGE", limit)
    short = ["trace", "The Louvre", "--subject", "Lou", "--kinds", "resid", "--samples", "1"]
    _, _, logged = run(*short)
    assert len(logged.splitlines()) == lines
    assert ("GFLOP" in logged) == (limit == 0)


@pytest.mark.usefixtures("loaded")
def test_patching_shows_the_strongest_cells_and_saves_all(run: Run, tmp_path: Path) -> None:
    from interp.analyses.patching import Patching

    words = ["patch", "--pairs", "ioi", "--count", "6", "--known", "--layers", "9-12", "--top", "3"]
    code, printed, logged = run(*words, "--out", str(tmp_path))
    assert code == 0
    assert logged.splitlines()[:3] == [
        "Loading smollm2-135m …",
        "Running both prompts …",
        "Patching one cell after the other …",
    ]
    assert re.search(r"\d of 6 pairs right", printed)
    assert re.search(r"\d of \d pairs have \d+ tokens; the others are left out", printed)
    assert Patching.caution in printed
    rows = [line.split() for line in printed.splitlines() if line[:1].isdigit() and "pairs" not in line]
    assert len(rows) == 3
    result = Patching.load(tmp_path)
    assert result.over == ("layer", "pos")
    assert rows[0][:2] == [str(result.ranked(1)[axis][0]) for axis in ("layer", "pos")]
    assert "plotly" in (tmp_path / "figures/patch.html").read_text(encoding="utf-8").lower()


def test_the_built_in_pairs_are_those_of_the_builders() -> None:
    from interp.apps.cli.patch import BUILT_IN
    from interp.pair_builders import BUILDERS

    assert tuple(BUILDERS) == BUILT_IN


@pytest.mark.usefixtures("loaded")
def test_a_backward_pass_keeps_to_the_budget_too(run: Run) -> None:
    code, _, complaint = run("patch", "--pairs", "capitals", "--count", "2", "--method", "atp", "--budget-mb", "1")
    assert code == 2
    assert "budget" in complaint


def test_a_file_of_pairs_that_cannot_be_read_ends_with_4_and_names_the_line(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "pairs.jsonl"
    bad.write_text('{"clean": "a", "corrupted": "b", "answer": "c"}\n{"clean": "a"\n')
    for file, said in ((bad, "Line 2"), (tmp_path / "nowhere.csv", "nowhere.csv")):
        code, printed, complaint = run("patch", "--pairs", str(file))
        assert (code, printed) == (4, "")
        assert said in complaint


@pytest.mark.usefixtures("loaded")
def test_one_pair_can_be_patched_from_the_options(run: Run) -> None:
    words = ["--answer", " Paris", "--foil", " Rome", "--site", "v", "--layers", "20,21", "--direction", "noise"]
    code, printed, complaint = run("patch", *FRANCE, *words, "--metric", "logit_difference,rank", "--json", "-q")
    assert (code, complaint) == (0, "")
    document = json.loads(printed)
    assert (document["kind"], document["settings"]["direction"]) == ("patching", "noise")
    assert [(row["layer"], row["kv_head"]) for row in document["table"]] == [(x, g) for x in (20, 21) for g in range(3)]
    assert {"logit_difference_recovered", "rank_recovered"} <= set(document["table"][0])


@pytest.mark.usefixtures("loaded")
def test_an_estimate_of_a_patching_runs_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from interp.models.replay import Replay

    monkeypatch.setattr(Replay, "run", lambda *_, **__: pytest.fail("it ran"))
    words = ["patch", "--pairs", "capitals", "--count", "2", "--site", "z", "--estimate", "-q"]
    assert re.match(r"270 cells, 540 rows.* GFLOP", run(*words)[1])
    assert json.loads(run(*words, "--json")[1])["cells"] == 270


def test_points_come_with_shapes_and_equations(run: Run, loaded: "Transformer") -> None:
    _, printed, _ = run("points", "--json", "-q")
    assert [row["name"] for row in json.loads(printed)["points"]] == list(loaded.points())
    _, printed, _ = run("points", "*.attn.hook_pattern", "-q")
    rows = [line for line in printed.splitlines() if line.startswith("blocks.")]
    assert len(rows) == 30
    assert "batch head=9 query_pos key_pos" in rows[0]
    assert "softmax of the scores" in rows[0]


@pytest.mark.usefixtures("smollm2", "unloadable")
def test_points_need_no_weights(run: Run) -> None:
    assert run("points", "hook_embed", "-q")[0] == 0


@pytest.mark.usefixtures("smollm2", "unloadable")
def test_a_model_is_described_in_facts_and_in_json_without_its_weights(run: Run) -> None:
    _, printed, _ = run("models", "show", "-q")
    for part in ("45.0 KiB a token", "134,515,008", "Apache-2.0", "blocks.{layer}.attn.hook_z", "head=9 d_head=64"):
        assert part in printed
    _, printed, _ = run("models", "show", "-q", "--json")
    shown = json.loads(printed)
    assert shown["kv_bytes_per_token"] == 2 * 30 * 3 * 64 * 4
    assert sum(shown["parameters_by_component"].values()) == shown["parameters"] == shown["active_parameters"]
    assert len(shown["weights_sha256"]) == 64
    assert shown["tokenizer"]["doc_separator_id"] == 0


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_model_without_a_tokenizer_is_described_too(run: Run, tmp_path: Path, form: list[str]) -> None:
    write_gguf(tmp_path / "tiny.gguf", BASE)
    code, printed, logged = run("models", "show", str(tmp_path / "tiny.gguf"), "-q", *form)
    assert (code, logged) == (0, "")
    assert json.loads(printed)["tokenizer"] is None if form else "came without one" in printed


@pytest.mark.usefixtures("unloadable")
def test_a_preset_of_70_billion_parameters_is_described_without_loading_anything(run: Run) -> None:
    code, printed, logged = run("models", "show", "llama-3.1-70b", "--json", "-q")
    shown = json.loads(printed)
    assert (code, logged, shown["parameters"], shown["preset"]) == (0, "", 70_553_706_496, True)
    assert shown["kv_bytes_per_token"] == 2 * 80 * 8 * 128 * 4
    assert shown["source"] == "config.json of meta-llama/Llama-3.1-70B"


def test_a_preset_cannot_be_loaded_and_says_so(run: Run) -> None:
    code, _, complaint = run("lens", "x", "--model", "gpt2", "-q")
    assert code == 4
    assert "'gpt2' is a preset" in complaint


def test_the_known_models_are_listed(run: Run) -> None:
    code, printed, logged = run("models", "list", "--json")
    first, second = json.loads(printed)["models"]
    assert (code, logged) == (0, "")
    assert (first["name"], first["licence"], first["terms"]) == ("smollm2-135m", "Apache-2.0", None)
    assert (second["name"], second["licence"]) == ("gemma3-270m", "Gemma Terms of Use")
    assert "https://ai.google.dev/gemma/terms" in second["terms"]
    listed = run("models", "list")[1]
    assert "smollm2-135m" in listed
    assert "Gemma Terms of Use" in listed


def test_a_model_with_terms_is_not_pulled_before_they_are_accepted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERP_CACHE", str(tmp_path))
    for command in (("models", "pull", "gemma3-270m"), ("models", "show", "gemma3-270m")):
        code, printed, logged = run(*command)
        assert (code, printed) == (4, "")
        assert "Gemma Terms of Use" in logged
        assert "interp models pull gemma3-270m --accept-terms" in " ".join(logged.split())
    assert not any(tmp_path.iterdir())


@pytest.mark.usefixtures("smollm2")
def test_pulling_a_model_that_is_here_prints_its_path(run: Run) -> None:
    code, printed, _ = run("models", "pull")
    assert code == 0
    assert Path(printed.strip()).is_file()


def test_json_has_no_word_for_a_number_that_is_none(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"nan": float("nan"), "many": [1.5, float("inf")], "path": Path("a")})
    assert json.loads(capsys.readouterr().out) == {"nan": None, "many": [1.5, None], "path": "a"}


def test_in_a_narrow_window_headings_give_way_and_values_do_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    show(
        table(["what was taken away>", "a rather long heading>", "another one>"], [("all together", "+2.615", "[b]no")])
    )
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[-1].split() == ["all", "together", "+2.615", "[b]no"]


def test_columns_that_have_no_room_stand_below_behind_the_first_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    show(table(["head", "previous>", "delimiter>", "agreement>"], [("18.6", "0.001", "0.002", "0.003")], "Title"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip("─")]
    assert lines == [
        ["Title"],
        ["head", "previous", "delimiter"],
        ["18.6", "0.001", "0.002"],
        ["head", "agreement"],
        ["18.6", "0.003"],
    ]


def test_a_reader_that_leaves_early_causes_no_complaint(smollm2: "Transformer") -> None:
    command = [sys.executable, "-m", "interp", "points", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read()
        assert process.wait() == 141
    assert complaint == b""


# --------------------------------------------------------------------------------------- folders and Ctrl-C


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with contextlib.suppress(KeyboardInterrupt), staged(tmp_path / "deep" / "out") as stage:
        (stage / "half").write_text("…")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_second_result_replaces_files_of_its_own_names_only(tmp_path: Path) -> None:
    with staged(tmp_path / "out") as stage:
        (stage / "inner").mkdir()
        (stage / "inner" / "file").write_text("first")
    (tmp_path / "out" / "mine").write_text("kept")
    with staged(tmp_path / "out") as stage:
        (stage / "inner").mkdir()
        (stage / "inner" / "file").write_text("second")
    assert (tmp_path / "out" / "inner" / "file").read_text() == "second"
    assert (tmp_path / "out" / "mine").read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_exists_is_filled_from_within(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with staged(tmp_path / "out") as stage:
        assert (tmp_path / "out") in stage.parents  # what is renamed must lie on the same disk
        (stage / "file").write_text("new")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["file"]


def test_asking_whether_a_folder_can_be_written_leaves_nothing(tmp_path: Path) -> None:
    check_folder(tmp_path / "deep" / "out")
    check_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="Cannot write"), staged(tmp_path / "file" / "out"):
        pytest.fail("the work must not begin")


@pytest.fixture
def demo_under_way(smollm2: "Transformer", tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """`interp demo` in an empty folder, stopped where it scores heads."""
    command = [sys.executable, "-m", "interp", "demo"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("Scoring"):
                break
        time.sleep(0.2)
        yield process
        process.kill()


def test_ctrl_c_ends_the_demo_with_130_and_leaves_nothing(
    demo_under_way: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".interp-demo-")] == []
    demo_under_way.send_signal(signal.SIGINT)
    printed, complaint = demo_under_way.communicate(timeout=60)
    assert demo_under_way.returncode == 130
    assert printed == ""
    assert complaint.endswith("Interrupted.\n")
    assert "Traceback" not in complaint
    assert list(tmp_path.iterdir()) == []
