"""`interp plan`: what it counts, what it refuses, what it saves; and that no weights are read for it."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import tree

from interp.apps.cli import plan_analysis
from interp.models.planner import Speed

Run = Callable[..., tuple[int, str, str]]
WIDE = ("--layers", "32", "--heads", "32", "--head-dim", "128")


def told(run: Run, *words: str) -> dict[str, object]:
    code, printed, logged = run("plan", *words, "--json", "-q")
    assert (code, logged) == (0, "")
    document: dict[str, object] = json.loads(printed)
    return document


def test_numbers_alone_are_planned(run: Run) -> None:
    (plan,) = told(run, *WIDE, "--context", "131072")["plans"]  # type: ignore[misc]
    assert plan["kv_bytes_per_token"] == 524_288
    assert plan["kv_bytes"] == 68_719_476_736
    code, printed, _ = run("plan", *WIDE, "--context", "128000", "-q")
    assert code == 0
    assert "67,108,864,000 (62.5 GiB)" in printed
    assert "Assumed, since not given: --d-model 4096, --kv-heads 32" in printed


def test_models_stand_side_by_side(run: Run) -> None:
    code, printed, _ = run("plan", "llama-2-7b", "mixtral-8x7b", "--users", "8", "--on", "h200", "-q")
    assert code == 0
    rows = {line[:30].strip(): line for line in printed.splitlines()}
    assert "6,738,415,616" in rows["parameters"]
    assert "46,702,792,704" in rows["parameters"]
    assert "12,879,925,248" in rows["active for a token"]
    assert "an assumption" in printed


def test_numbers_change_a_model(run: Run) -> None:
    (plan,) = told(run, "llama-2-7b", "--kv-heads", "8")["plans"]  # type: ignore[misc]
    assert plan["name"] == "llama-2-7b --kv-heads 8"
    assert plan["kv_bytes_per_token"] == 131_072


def test_depth_stands_against_width(run: Run) -> None:
    document = told(run, "llama-2-7b", "--depth-width")
    shapes = document["depth_width"]["llama-2-7b"]  # type: ignore[index]
    assert 32 in [shape["config"]["n_layers"] for shape in shapes]
    code, printed, _ = run("plan", "llama-2-7b", "--depth-width", "-q")
    assert code == 0
    assert "32 *" in printed


def test_a_context_beyond_a_models_own_is_remarked(run: Run) -> None:
    _, printed, _ = run("plan", "gpt2", "-q")
    assert "4,096 tokens are more than the context of 1,024 that gpt2 states." in printed


def test_a_plan_is_saved_as_tables_and_a_figure(run: Run, tmp_path: Path) -> None:
    document = told(run, "gpt2", "gemma-3-1b", "--out", str(tmp_path / "plan"))
    saved = [Path(path).name for path in document["saved"]]  # type: ignore[attr-defined]
    assert sorted(path.name for path in (tmp_path / "plan").iterdir()) == sorted(saved)
    for frame in (pd.read_csv(tmp_path / "plan/plan.csv"), pd.read_parquet(tmp_path / "plan/plan.parquet")):
        assert frame["parameters"].tolist() == [124_439_808, 999_885_952]
    assert json.loads((tmp_path / "plan/plan.json").read_text())["plans"] == document["plans"]
    assert "plotly" in (tmp_path / "plan/plan.html").read_text()


def test_the_cost_of_an_analysis_is_that_of_python(run: Run) -> None:
    from interp.analyses.costs import analysis_cost
    from interp.models.planner import accelerator
    from interp.models.presets import preset

    words = (
        "--analysis",
        "trace",
        "--tokens",
        "8,12",
        "--items",
        "5",
        "--set",
        "samples=3",
        "--set",
        "kinds=resid,mlp",
    )
    document = told(run, "llama-3.1-8b", *words, "--on", "h200", "--dtype", "bfloat16")
    (cost,) = document["costs"]  # type: ignore[misc]
    settings = {"samples": 3, "kinds": ["resid", "mlp"], "dtype": "bfloat16"}
    speed = accelerator("h200", dtype="bfloat16")
    expected = analysis_cost("tracing", preset("llama-3.1-8b").config, [8, 12, 8, 12, 8], settings, speed=speed)
    assert (cost["cells"], cost["flops"], cost["bytes"]) == (expected.cells, expected.flops, expected.bytes)
    assert cost["seconds"] == pytest.approx(expected.seconds)
    assert document["items"] == [8, 12, 8, 12, 8]


def test_without_an_accelerator_this_machine_is_measured(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[object] = []
    monkeypatch.setattr("interp.models.planner.this_machine", lambda shape: measured.append(shape) or Speed(1e9, 1e9))
    code, printed, logged = run("plan", "gpt2", "--analysis", "lens", "--tokens", "10")
    assert (code, len(measured)) == (0, 1)
    assert "Measuring this machine" in logged
    assert printed.splitlines()[0] == "lens, float32"
    assert "this machine" in printed


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "Nothing to plan: name a MODEL"),
        (("--layers", "4"), "--heads is missing"),
        (("--layers", "0", "--heads", "4", "--head-dim", "8"), "--layers is 0; a whole number from 1 to 10,000"),
        ((*WIDE, "--kv-heads", "5"), "32 query heads cannot share 5 KV heads"),
        ((*WIDE, "--top-k", "2"), "give --experts too"),
        (("llama-2-7b", "--kv-heads", "5"), "--kv-heads 5 cannot be a model"),
        (("gpt2", "--on", "h20"), "'h20'. Did you mean 'h200'"),
        (("gpt2", "--on", "l4", "--efficiency", "2"), "efficiency is 2.0"),
        (("gpt2", "--efficiency", "0.5"), "--efficiency belongs to --on"),
        (("gpt2", "--tokens", "5"), "--tokens belongs to --analysis"),
        (("gpt2", "--analysis", "lens", "--users", "2"), "--users belongs to a plan of models"),
        (("gpt2", "--analysis", "lense"), "Did you mean 'lens'"),
        (("gpt2", "--analysis", "lens", "--tokens", "ten"), "--tokens is 'ten'; expected whole numbers"),
        (("gpt2", "--analysis", "lens", "--tokens", "2000", "--on", "l4"), "context of 1,024"),
        (("gpt2", "--analysis", "lens", "--set", "top=3"), "Did you mean 'top_k'"),
        (("gpt2", "--analysis", "lens", "--set", "top_k"), "Expected KEY=VALUE"),
        (("gpt2", "--analysis", "tracing", "--set", "samples=many", "--on", "l4"), "samples is 'many'"),
        (("gpt2", "--analysis", "lens", "--out", "here"), "printed, not saved"),
    ],
)
def test_what_cannot_be_planned_is_one_sentence(run: Run, words: tuple[str, ...], says: str) -> None:
    code, printed, logged = run("plan", *words, "-q")
    assert (code, printed) == (2, "")
    assert says in logged
    assert "Traceback" not in logged


def test_a_model_that_is_not_there_ends_with_its_own_code(run: Run) -> None:
    code, _, logged = run("plan", "lama-2-7b", "-q")
    assert code == 4
    assert "'lama-2-7b' is neither a known model" in logged


def test_a_configuration_file_is_planned_without_weights(run: Run, tmp_path: Path) -> None:
    fields = {
        "architectures": ["GPT2LMHeadModel"],
        **{"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50_257},
    }
    (tmp_path / "config.json").write_text(json.dumps(fields))
    (plan,) = told(run, str(tmp_path / "config.json"))["plans"]  # type: ignore[misc]
    assert plan["parameters"] == 124_439_808


PAGE = (tree.ROOT / "docs/planner.md").read_text()


@pytest.mark.parametrize("line", [line for line in PAGE.splitlines() if line.startswith("interp plan")])
def test_commands_of_the_page_run_as_written(run: Run, line: str) -> None:
    code, printed, _ = run(*line.split()[1:], "-q")
    assert code == 0
    assert printed


def test_the_python_code_of_the_page_runs_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(code, "planner.md", "exec"), {})
    assert "cells" in capsys.readouterr().out


def test_help_of_a_plan_needs_no_torch() -> None:
    code = "import sys; from interp.apps.cli import main; main(['plan', '--help']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert "interp plan --layers 32" in done.stdout


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("0.5", 0.5), ("true", True), ("None", None), ("resid", "resid"), ("mlp,attn", ["mlp", "attn"])],
)
def test_a_setting_is_read_as_what_it_looks_like(text: str, value: object) -> None:
    assert plan_analysis._value(text) == value
