"""Shapes from numbers and from files, side by side, at equal parameters, on accelerators."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tiny import CONFIGS, tiny

from interp.errors import LoadError, UsageError
from interp.models.config import ModelConfig
from interp.models.planner import (
    ACCELERATORS,
    ModelPlan,
    Numbers,
    accelerator,
    depth_width,
    kv_bytes_per_token,
    parameters,
    plan_model,
    plans_figure,
    plans_frame,
    read_shape,
    speed,
    this_machine,
    token_flops,
)
from interp.models.planner.depth import non_embedding
from interp.models.planner.reading import MOST_LAYERS
from interp.models.planner.shape import with_layers
from interp.models.presets import preset, presets
from interp.models.transformer import Transformer

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32_000,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
}

# -------------------------------------------------------------------------------------------------- from numbers


def test_numbers_alone_make_the_published_shape() -> None:
    numbers = Numbers(layers=32, d_model=4096, heads=32, d_mlp=11_008, vocab=32_000)
    assert parameters(numbers.config()).total == 6_738_415_616, "Llama-2-7B"
    assert numbers.assumed == {"kv_heads": 32, "head_dim": 128}
    sparse = replace(numbers, kv_heads=8, d_mlp=14_336, experts=8)
    assert parameters(sparse.config()).total == 46_702_792_704, "Mixtral-8x7B"
    assert sparse.assumed == {"head_dim": 128, "top_k": 2}


@pytest.mark.parametrize("name", ["gemma-3-1b", "mixtral-8x7b", "gpt2", "bloom-560m"])
def test_no_numbers_leave_a_model_as_it_is(name: str) -> None:
    assert Numbers().config(preset(name).config) == preset(name).config


def test_numbers_change_a_model_and_nothing_else_of_it() -> None:
    base = preset("llama-2-7b").config
    assert Numbers(kv_heads=8).config(base) == replace(base, n_kv_heads=8)
    assert Numbers(vocab=50_000, d_mlp=9).config(base) == replace(base, d_vocab=50_000, d_mlp=9)
    assert Numbers(head_dim=63).config(base).d_head == 63
    assert Numbers(layers=3).config(preset("gemma-3-1b").config).layers == preset("gemma-3-1b").config.layers[:3]
    sparse = Numbers(experts=4, d_mlp=100).config(base)
    assert sparse.moe is not None
    assert (sparse.moe.n_experts, sparse.moe.top_k, sparse.moe.d_expert) == (4, 2, 100)
    wider = Numbers(experts=16, top_k=4).config(preset("mixtral-8x7b").config)
    assert wider.moe is not None
    assert (wider.moe.n_experts, wider.moe.top_k, wider.moe.d_expert) == (16, 4, 14_336)


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ({"layers": 4}, "--layers 4: --heads is missing"),
        ({"heads": 4, "d_model": 64}, "--layers is missing"),
        ({"layers": 4, "heads": 4}, "--d-model or --head-dim is missing"),
        ({"layers": 4, "heads": 5, "d_model": 64}, "--heads 5 does not divide --d-model 64"),
        ({"layers": 4, "heads": 6, "kv_heads": 4, "head_dim": 8}, "6 query heads cannot share 4 KV heads"),
        ({"layers": 4, "heads": 6, "head_dim": 8, "top_k": 2}, "--top-k 2 .* give --experts"),
        ({"layers": 4, "heads": 6, "head_dim": 8, "experts": 2, "top_k": 3}, "--top-k 3 of --experts 2"),
    ],
)
def test_numbers_that_make_no_model_are_named(numbers: dict[str, int], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Numbers(**numbers).config()


@pytest.mark.parametrize("value", [0, -1, 10**12, 1.5, True])
def test_a_number_that_no_size_can_be_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match=rf"--kv-heads is {value!r}; a whole number from 1 to 10,000"):
        Numbers(kv_heads=value)  # type: ignore[arg-type]


def test_numbers_that_contradict_a_model_are_refused() -> None:
    with pytest.raises(UsageError, match="--kv-heads 5 cannot be a model: 32 query heads cannot share 5 KV heads"):
        Numbers(kv_heads=5).config(preset("llama-2-7b").config)


# ---------------------------------------------------------------------------------------------------- from files


def test_a_configuration_file_is_enough(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert read_shape(tmp_path) == read_shape(tmp_path / "config.json") == preset("llama-2-7b").config
    assert read_shape("llama-2-7b") == preset("llama-2-7b").config


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"architectures": ["LamaForCausalLM"]}, "'LamaForCausalLM', which is not supported. Did you mean"),
        ({"architectures": []}, "must name one architecture"),
        ({"num_hidden_layers": MOST_LAYERS + 1}, "states 10001 layers"),
        ({"num_key_value_heads": 5}, "32 query heads cannot share 5 KV heads"),
        ({"hidden_size": "wide"}, "hidden_size"),
    ],
)
def test_a_damaged_configuration_is_refused(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | changes))
    with pytest.raises(LoadError, match=says):
        read_shape(tmp_path)


# ------------------------------------------------------------------------------------------- depth against width


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-3.1-8b", "smollm2-135m", "mixtral-8x7b", "gemma-2b", "gpt2"])
def test_shapes_of_equal_parameters_are_equal_within_a_hundredth(name: str) -> None:
    config = preset(name).config
    found = depth_width(config, 2)
    assert config in [each.config for each in found]
    assert 5 <= len(found) <= 9
    depths, widths = ([getattr(each.config, size) for each in found] for size in ("n_layers", "d_model"))
    assert depths == sorted(set(depths))
    assert widths == sorted(widths, reverse=True)
    for each in found:
        assert each.non_embedding == pytest.approx(non_embedding(config), rel=0.01)
        assert each.total == parameters(each.config).total
        assert each.config.d_head == config.d_head
        assert each.kv_bytes_per_token == kv_bytes_per_token(each.config, 2)
        assert each.flops_per_token == token_flops(each.config).without_attention
        assert each.steps == 2 * each.config.n_layers


def test_a_deeper_shape_keeps_more_keys_and_values() -> None:
    found = [each.kv_bytes_per_token for each in depth_width(preset("llama-2-7b").config, 2)]
    assert found == sorted(found)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
def test_any_tiny_model_has_shapes_of_equal_parameters_that_are_models(config: ModelConfig) -> None:
    for each in depth_width(config):
        assert Transformer(each.config, device="meta").n_parameters == each.total


def test_a_pattern_of_layers_goes_on() -> None:
    gemma = preset("gemma-3-1b").config
    longer = with_layers(gemma, 60)
    assert longer.layers[:26] == gemma.layers
    assert longer.layers[26:52] == gemma.layers
    assert with_layers(preset("gpt2").config, 3).layers == ()


# --------------------------------------------------------------------------------------------------- side by side


def test_a_plan_says_everything_as_plain_values() -> None:
    plan = plan_model("mistral-7b-v0.1", context=32_768, users=4, on="h200")
    told = json.loads(json.dumps(plan.to_dict()))
    assert told["parameters"] == 7_241_732_096
    assert told["kv_bytes"] == 32_768 * told["kv_bytes_per_token"] == 8 * told["kv_bytes_needed"]
    assert told["serving"]["total"] == told["weight_bytes"] + 4 * told["kv_bytes"] + told["serving"]["workspace"]
    assert told["decode"]["bound"] == "memory"
    assert told["prefill"]["bound"] == "computing"
    assert told["on"]["source"] == ACCELERATORS["h200"].source


def test_as_many_users_fit_as_are_said_to() -> None:
    for name in ("llama-3.1-8b", "llama-2-7b", "gpt2"):
        plan = plan_model(name, context=8192, on="a100-80gb")
        fit = plan.users_that_fit
        assert fit is not None
        assert fit > 0
        memory = ACCELERATORS["a100-80gb"].memory
        assert replace(plan, users=fit).serving.total <= memory < replace(plan, users=fit + 1).serving.total
    assert plan_model("llama-2-70b", on="l4").users_that_fit == 0


def test_several_plans_are_a_table_with_a_row_each() -> None:
    plans = [plan_model(name, on="h200") for name in ("gpt2", "mixtral-8x7b")]
    frame = plans_frame(plans)
    assert frame["name"].tolist() == ["gpt2", "mixtral-8x7b"]
    assert frame["parameters"].tolist() == [124_439_808, 46_702_792_704]
    assert (frame.filter(like="parameters_").sum(axis=1) == frame["parameters"]).all()


def test_the_figure_stacks_parameters_and_draws_keys_and_values() -> None:
    plans = [plan_model("gpt2", context=500), plan_model("mixtral-8x7b", context=500)]
    figure = plans_figure(plans)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert [sum(bar.y[place] for bar in bars) for place in (0, 1)] == [124_439_808, 46_702_792_704]
    assert "experts" in [bar.name for bar in bars]
    lines = [trace for trace in figure.data if trace.type == "scatter"]
    assert [line.name for line in lines] == ["gpt2", "mixtral-8x7b"]
    assert lines[1].x[0] == 500
    assert lines[1].y[0] * 2**30 == plans[1].kv_bytes


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"context": 0}, "context is 0"), ({"users": 1.5}, "users is 1.5"), ({"dtype": "int8"}, "'int8'; expected")],
)
def test_a_plan_refuses_what_cannot_be(changes: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        ModelPlan("gpt2", preset("gpt2").config, **changes)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------- accelerators


def test_every_accelerator_states_its_source_and_reaches_a_share_of_its_peak() -> None:
    for name, known in ACCELERATORS.items():
        assert known.name == name
        assert len(known.source.split()) > 2
        assert known.float32 < known.bfloat16
        reached = accelerator(name, dtype="bfloat16", efficiency=0.5)
        assert reached.flops_per_second == known.bfloat16 / 2
        assert reached.bytes_per_second == known.bandwidth
        assert 2 * reached.ridge == pytest.approx(known.ridge("bfloat16"))


def test_an_h200_is_what_its_data_sheet_says() -> None:
    h200 = ACCELERATORS["h200"]
    assert (h200.bfloat16, h200.float32, h200.memory, h200.bandwidth) == (989.5e12, 67e12, 141_000_000_000, 4.8e12)
    assert accelerator("h200").flops_per_second == 0.4 * 67e12


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "h20"}, "'h20'. Did you mean 'h200'"),
        ({"name": "l4", "efficiency": 0.0}, "efficiency is 0.0"),
        ({"name": "l4", "efficiency": 1.5}, "efficiency is 1.5"),
        ({"name": "l4", "dtype": "float64"}, "l4 is known for float64"),
    ],
)
def test_an_accelerator_that_is_not_known_is_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        accelerator(**options)  # type: ignore[arg-type]


def test_this_machine_is_measured_on_a_models_own_layers() -> None:
    found = this_machine(tiny())
    assert found.flops_per_second > 0
    assert found.bytes_per_second > 0
    assert found.name == "this machine"


@pytest.mark.parametrize("name", presets())
def test_layers_that_are_made_up_to_measure_with_are_small(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "MOST_BYTES", 2**22)
    made, config = speed._made_up(preset(name).config), preset(name).config
    assert 2**20 < 4 * non_embedding(made.config) < 2**22
    assert made.config.d_head == config.d_head
    assert (made.config.moe is None) == (config.moe is None)


def test_settings_of_an_accelerator_are_plain_values() -> None:
    assert json.loads(json.dumps(asdict(ACCELERATORS["l4"])))["name"] == "l4"
