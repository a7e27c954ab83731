"""Verification passes what is right, and fails what is wrong, in the comparison that can tell."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from published import write_folder, write_gguf
from tiny import BASE, CONFIGS, random_tokens, tiny

import interp
from interp.apps.cli import main
from interp.models import verify as module
from interp.models.certificates import certificate_path, quoted
from interp.models.config import ModelConfig
from interp.models.processing import process
from interp.models.transformer import Transformer
from interp.models.verify import Line, Verification, certify, relative_error, text_length, verify


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates of tests stay out of the user's cache."""
    monkeypatch.setenv("INTERP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny model in Hugging Face layout."""
    write_folder(tmp_path / "tiny", BASE)
    return tmp_path / "tiny"


def failed(lines: tuple[Line, ...]) -> list[str]:
    """What was compared in vain."""
    return [line.compared for line in lines if line.passed is False]


def swap_two_heads(model: Transformer) -> None:
    """Weights that stand in each other's place: a model like any other, but not the one that was published."""
    queries = model.weights()["blocks.1.attn.W_Q"]
    queries[[0, 1]] = queries[[1, 0]].clone()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
def test_every_mechanism_passes_without_a_reference(config: ModelConfig) -> None:
    verified = verify(tiny(config))
    assert failed(verified.lines) == []
    assert [line.compared for line in verified.lines if line.passed is None] == ["transformers"]
    assert len(verified.lines) >= 9


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_other_dtypes_pass_within_what_they_can_hold(dtype: torch.dtype) -> None:
    assert failed(verify(tiny(BASE, dtype=dtype)).lines) == []


def test_a_folder_is_compared_with_the_reference(folder: Path) -> None:
    line = verify(interp.load(folder, device="cpu")).lines[-1]
    assert "LlamaForCausalLM" in line.compared
    assert line.passed
    assert line.error is not None
    assert line.error < line.tolerance


def test_a_gguf_file_is_compared_with_the_reference(tmp_path: Path) -> None:
    from published import small_tokenizer

    words = small_tokenizer()
    config = ModelConfig(**{**BASE.to_dict(), "rotary": BASE.rotary, "d_vocab": words.get_vocab_size(), "layers": ()})
    write_gguf(tmp_path / "tiny.gguf", config, tokenizer=words)
    line = verify(interp.load(tmp_path / "tiny.gguf", device="cpu")).lines[-1]
    assert (line.passed, "LlamaForCausalLM" in line.compared) == (True, True), line.note


def test_swapped_weights_fail_against_the_reference_alone(folder: Path) -> None:
    model = interp.load(folder, device="cpu")
    swap_two_heads(model)
    verified = verify(model)
    assert not verified.passed
    assert failed(verified.lines) == [verified.lines[-1].compared]
    assert verified.lines[-1].compared.startswith("the same weights in transformers")


def test_a_layer_that_computes_something_else_fails_its_equations(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny()
    norm = model.layers[1].ln2
    monkeypatch.setattr(norm, "eps", 0.5)
    assert "equations of the hook points: norms" in failed(verify(model).lines)


class Skewed(Transformer):
    """A device that computes something else, unlike the copy of its weights on the CPU."""

    def forward(self, *arguments: Any, **options: Any) -> torch.Tensor:
        return super().forward(*arguments, **options) * 1.001


@pytest.fixture
def another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU stands in for a device that is none."""
    monkeypatch.setattr(module, "_elsewhere", lambda model: True)


def device_line(verified: Verification) -> Line:
    [line] = [line for line in verified.lines if line.compared == "cpu = cpu"]
    return line


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
def test_a_device_is_compared_with_a_whole_copy_on_the_cpu(config: ModelConfig, dtype: torch.dtype) -> None:
    """Where the device is the CPU itself, no bit may differ."""
    model = tiny(config, dtype=dtype)
    tokens = random_tokens(config, 1, 9)
    line = module._device_line(model, tokens, model(tokens))
    assert (line.error, line.passed) == (0, True)
    assert line.tolerance == 5 * module.TOLERANCE[dtype], "sums in another order may lie further apart"


@pytest.mark.usefixtures("another_device")
def test_a_processed_model_is_copied_as_it_is() -> None:
    processed, _ = process(tiny(BASE))
    assert device_line(verify(processed)).error == 0


@pytest.mark.usefixtures("another_device")
def test_a_device_that_computes_something_else_fails() -> None:
    model = tiny()
    model.__class__ = Skewed
    line = device_line(verify(model))
    assert line.passed is False
    assert line.error == pytest.approx(1e-3, rel=1e-2)


def test_on_the_cpu_there_is_nothing_to_compare_a_device_with() -> None:
    assert not [line for line in verify(tiny()).lines if line.compared.endswith("= cpu")]


def test_weights_that_are_no_numbers_fail() -> None:
    model = tiny()
    model.weights()["blocks.0.mlp.W_in"][0, 0] = torch.nan
    verified = verify(model)
    assert not verified.passed
    json.dumps(verified.to_dict(), allow_nan=False)


def test_an_error_is_relative_to_the_largest_value() -> None:
    assert relative_error(torch.tensor([4.0, 1.0]), torch.tensor([4.0, 2.0])) == 0.25
    assert relative_error(torch.tensor([torch.nan]), torch.tensor([1.0])) == float("inf")


def test_the_text_stays_within_the_context_and_what_positions_are_made_for() -> None:
    assert text_length(BASE) == 24
    assert text_length(ModelConfig(**{**BASE.to_dict(), "rotary": None, "layers": (), "n_ctx": 7})) == 7


def test_a_certificate_is_quoted_by_what_is_loaded_later(folder: Path) -> None:
    assert "verified" not in interp.load(folder, device="cpu").provenance
    verified, path = certify(folder, device="cpu")
    model = interp.load(folder, device="cpu")
    assert path == certificate_path(model.provenance["weights_sha256"])
    quote = model.provenance["verified"]
    assert quote["passed"] is True
    assert quote["date"] == verified.date
    assert any("LlamaForCausalLM" in compared for compared in quote["compared"])


def test_a_certificate_of_another_version_is_not_quoted(folder: Path) -> None:
    verified, path = certify(folder, device="cpu")
    stored = json.loads(path.read_text())
    path.write_text(json.dumps(stored | {"versions": stored["versions"] | {"interp": "0.0.0"}}))
    assert quoted(str(verified.weights_sha256)) is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"versions": 3}'])
def test_a_damaged_certificate_counts_as_none(folder: Path, text: str) -> None:
    verified, path = certify(folder, device="cpu")
    path.write_text(text)
    assert quoted(str(verified.weights_sha256)) is None
    assert "verified" not in interp.load(folder, device="cpu").provenance


def test_the_command_prints_every_comparison_and_ends_with_0(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "verify", str(folder), "--device", "cpu", "-q"]) == 0
    printed = capsys.readouterr().out
    for words in ("residual stream", "token by token = all at once", "padded on the left", "transformers", "1.0e-05"):
        assert words in printed


def test_the_command_ends_with_1_where_a_comparison_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "load", broken(module.load))
    assert main(["models", "verify", str(folder), "--device", "cpu", "--json", "-q"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert [line["passed"] for line in shown["lines"]].count(False) == 1
    quote = quoted(shown["weights_sha256"])
    assert quote is not None
    assert quote["failed"] == [shown["lines"][-1]["compared"]]


def broken(load: Callable[..., Transformer]) -> Callable[..., Transformer]:
    """A loader that puts two heads in each other's place."""

    def load_wrongly(*args: object, **options: object) -> Transformer:
        model = load(*args, **options)
        swap_two_heads(model)
        return model

    return load_wrongly
