"""Presets are the published models: each has the number of parameters that its publishers state."""

from pathlib import Path

import pytest

from interp.errors import LoadError, UsageError
from interp.models.families.registry import FAMILIES
from interp.models.loading import load, preset_named, read_config
from interp.models.planner import parameters
from interp.models.presets import preset, presets
from interp.models.transformer import Transformer

PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "tinyllama-1.1b": 1_100_048_384,
    "smollm-135m": 134_515_008,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "smollm3-3b": 3_075_098_624,
    "mistral-7b-v0.1": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2-0.5b": 494_032_768,
    "qwen2.5-0.5b": 494_032_768,
    "qwen3-0.6b": 596_049_920,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen3-30b-a3b": 30_532_122_624,
    "gemma-2b": 2_506_172_416,
    "gemma-2-2b": 2_614_341_888,
    "gemma-3-270m": 268_098_176,
    "gemma-3-1b": 999_885_952,
    "phi-3-mini-4k": 3_821_079_552,
    "olmo-2-1b": 1_484_916_736,
    "olmo-2-7b": 7_298_617_344,
    "olmoe-1b-7b": 6_919_161_856,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "pythia-70m": 70_426_624,
    "pythia-160m": 162_322_944,
    "pythia-410m": 405_334_016,
    "pythia-1b": 1_011_781_632,
    "pythia-1.4b": 1_414_647_808,
    "pythia-2.8b": 2_775_208_960,
    "pythia-6.9b": 6_857_302_016,
    "pythia-12b": 11_846_072_320,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neo-125m": 125_198_592,
    "opt-125m": 125_239_296,
    "opt-1.3b": 1_315_758_080,
    "bloom-560m": 559_214_592,
}
TWICE = {"gpt-j-6b": 28 * 2 * 4096}
"""Numbers that we store twice: GPT-J has one norm for both sublayers."""


@pytest.mark.parametrize("name", presets())
def test_a_preset_has_the_published_number_of_parameters(name: str) -> None:
    assert parameters(preset(name).config).total == PUBLISHED[name] + TWICE.get(name, 0)


@pytest.mark.parametrize("name", ["gpt2", "pythia-70m", "mixtral-8x7b", "gemma-2-2b", "llama-2-70b"])
def test_the_module_of_a_preset_holds_that_number_without_memory(name: str) -> None:
    model = Transformer(preset(name).config, device="meta")
    assert model.n_parameters == PUBLISHED[name]


@pytest.mark.parametrize(("name", "billions"), [("mixtral-8x7b", 12.9), ("qwen3-30b-a3b", 3.3), ("olmoe-1b-7b", 1.3)])
def test_a_preset_with_experts_has_the_published_number_of_active_parameters(name: str, billions: float) -> None:
    assert parameters(preset(name).config).total_active / 1e9 == pytest.approx(billions, abs=0.06)


def test_every_architecture_of_the_folders_has_a_preset() -> None:
    shown = {shape.architecture for shape in presets().values()}
    readable = [set(family.architectures) for family in FAMILIES if family.layout == "hf"]
    assert [names for names in readable if not names & shown] == [{"Gemma3ForConditionalGeneration"}]


def test_every_preset_says_where_it_comes_from() -> None:
    for shape in presets().values():
        assert shape.source.startswith("config.json of ")
        assert shape.repository.count("/") == 1
        assert shape.licence


def test_a_preset_has_a_shape_and_no_weights() -> None:
    assert read_config("gpt2").n_layers == 12
    with pytest.raises(LoadError, match="'gpt2' is a preset"):
        load("gpt2")


def test_a_folder_of_that_name_comes_before_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert preset_named("gpt2") is not None
    (tmp_path / "gpt2").mkdir()
    assert preset_named("gpt2") is None


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean 'gpt2-xl'"):
        preset("gpt2-xxl")
