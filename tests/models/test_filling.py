"""One stored tensor may hold several weights, or one expert's share of one: every number lands where it belongs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from interp.errors import LoadError
from interp.models import filling
from interp.models.assignments import Assignment, Axes, assignments
from interp.models.config import LayerConfig, ModelConfig, MoEConfig
from interp.models.families.family import CONDITIONS, Family, Row, axis_sizes, holds
from interp.models.families.registry import FAMILIES
from interp.models.filling import check_copies, fill
from interp.models.sources.checkpoint import Checkpoint

CONFIG = ModelConfig(n_layers=1, d_model=10, n_heads=6, n_kv_heads=6, d_head=4, d_mlp=11, d_vocab=13, n_ctx=16)
GROUPED = replace(CONFIG, n_kv_heads=2)
TWO_LAYERS = replace(CONFIG, n_layers=2)
UNTIED = replace(TWO_LAYERS, tied_embeddings=False)
MOE = replace(TWO_LAYERS, moe=MoEConfig(n_experts=5, top_k=2, d_expert=9, d_shared=8))
SECOND_MOE = replace(MOE, layers=(LayerConfig(), LayerConfig(moe=True)))

Reads = list[tuple[str, int, int]]


def held(tensors: Mapping[str, Tensor], reads: Reads | None = None) -> Checkpoint:
    """A checkpoint of these tensors, which notes the rows that are read."""

    def read(name: str, rows: slice | None = None) -> Tensor:
        first, last, _ = (rows or slice(None)).indices(len(tensors[name]))
        if reads is not None:
            reads.append((name, first, last))
        return tensors[name][first:last].clone()

    return Checkpoint(
        source="here",
        layout="hf",
        architecture="Test",
        fields={},
        shapes={name: tuple(tensor.shape) for name, tensor in tensors.items()},
        read=read,
        tokenizer=lambda: None,
        sha256=lambda: "",
    )


def family(*rows: Row, **others: object) -> Family:
    return Family("hf", ("Test",), rows, lambda checkpoint: CONFIG, **others)  # type: ignore[arg-type]


def numbered(*shape: int, start: int = 0) -> Tensor:
    """No two numbers alike."""
    return torch.arange(start, start + math.prod(shape), dtype=torch.float32).view(shape)


def assert_filled(
    table: Family,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    dtype: torch.dtype = torch.float32,
) -> None:
    """The tensors become the weights expected, also where a weight's memory is laid out the other way round."""
    checkpoint = held(tensors)
    for turned in (False, True):
        weights = {name: torch.full(value.shape, torch.nan, dtype=dtype) for name, value in expected.items()}
        if turned:
            weights = {
                name: weight.mT.contiguous().mT if weight.dim() > 1 else weight for name, weight in weights.items()
            }
        fill(weights, assignments(table, config, checkpoint), config, checkpoint)
        for name, value in expected.items():
            torch.testing.assert_close(weights[name], value.to(dtype), rtol=0, atol=0, msg=name)


def refusal(table: Family, config: ModelConfig, tensors: Mapping[str, Tensor]) -> str:
    with pytest.raises(LoadError) as caught:
        assignments(table, config, held(tensors))
    return str(caught.value)


@pytest.fixture(autouse=True, params=["one read", "many reads"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny tensors are read whole; the second time, as few rows at once as can be, and converted few by few."""
    if request.param == "many reads":
        monkeypatch.setattr(filling, "CHUNK_BYTES", 1)
        monkeypatch.setattr(filling, "_ONE_THREAD", 4)


# ------------------------------------------------------------------------------------------------ stacked parts

HEADS = (CONFIG.n_heads, CONFIG.d_model, CONFIG.d_head)
QKV = {f"W_{letter}": numbered(*HEADS, start=1000 * i) for i, letter in enumerate("QKV")}


def stacked(arrangement: str) -> Family:
    rows = (
        Row("qkv", f"W_{letter}", f"{arrangement} -> head d_model d_head", at=("three", i))
        for i, letter in enumerate("QKV")
    )
    return family(*rows)


def by_rows(weight: Tensor) -> Tensor:
    """[head d_model d_head] as a matrix of outputs and inputs."""
    return weight.mT.reshape(-1, CONFIG.d_model)


STACKED = {
    "d_model (three head d_head)": torch.cat([by_rows(w).T for w in QKV.values()], dim=1),  # GPT-2
    "(three head d_head) d_model": torch.cat([by_rows(w) for w in QKV.values()]),  # MPT
    "(head three d_head) d_model": torch.cat([w[h].T for h in range(6) for w in QKV.values()]),  # NeoX, BLOOM
    "(head d_head three) d_model": torch.stack([by_rows(w) for w in QKV.values()], dim=1).flatten(0, 1),
    "three (head d_head) d_model": torch.stack([by_rows(w) for w in QKV.values()]),
    "head three d_head d_model": torch.stack([w.mT for w in QKV.values()], dim=1),
}


@pytest.mark.parametrize("arrangement", STACKED)
def test_weights_stacked_anywhere_in_one_tensor_come_apart(arrangement: str) -> None:
    assert_filled(stacked(arrangement), CONFIG, {"qkv": STACKED[arrangement]}, QKV)


@pytest.mark.parametrize("arrangement", ["(three head d_head)", "(head three d_head)"])
def test_stacked_biases_come_apart(arrangement: str) -> None:
    biases = {f"b_{letter}": numbered(6, 4, start=100 * i) for i, letter in enumerate("QKV")}
    together = torch.stack(list(biases.values()), dim=0 if arrangement.startswith("(three") else 1).flatten()
    rows = (Row("qkv", name, f"{arrangement} -> head d_head", at=("three", i)) for i, name in enumerate(biases))
    assert_filled(family(*rows), CONFIG, {"qkv": together}, biases)


def test_a_stack_of_another_number_is_a_wrong_shape() -> None:
    message = refusal(stacked("(head three d_head) d_model"), CONFIG, {"qkv": numbered(6 * 2 * 4, 10)})
    assert "qkv has the shape (48, 10), the configuration makes it (72, 10) ((head three d_head) d_model)" in message


@pytest.mark.parametrize("kept", [(0, 1), (0, 2, 2), (0, 1, 2, 1)])
def test_every_part_of_a_stack_is_taken_once(kept: Sequence[int]) -> None:
    rows = [Row("qkv", f"W_{i}", "d_model (three d_head) -> d_model d_head", at=("three", i)) for i in kept]
    message = refusal(family(*rows), CONFIG, {"qkv": numbered(10, 12)})
    assert "qkv of here has the shape (10, 12), but what the model takes from it is not the whole of it" in message
    assert "W_0 (from row 0, three 0, as d_model (three d_head)); W_" in message


def test_a_part_and_the_whole_of_one_tensor_are_not_both_taken() -> None:
    whole = Row("w", "whole", "(two d_mlp) -> (two d_mlp)")
    parts = [Row("w", f"part_{i}", "(two d_mlp) -> d_mlp", at=("two", i)) for i in range(2)]
    assert "not the whole of it, once" in refusal(family(whole, *parts), CONFIG, {"w": numbered(22)})


def test_one_tensor_may_be_the_whole_of_several_weights() -> None:
    table = family(Row("ln", "ln1.w", "d_model -> d_model"), Row("ln", "ln2.w", "d_model -> d_model"))
    assert_filled(table, CONFIG, {"ln": numbered(10)}, {"ln1.w": numbered(10), "ln2.w": numbered(10)})


# ------------------------------------------------------------------------------------- parts one after the other

ONE_AFTER_THE_OTHER = family(
    Row("qkv", "W_Q", "(head d_head) d_model -> head d_model d_head"),
    Row("qkv", "W_K", "(kv_head d_head) d_model -> kv_head d_model d_head", after=("head d_head",)),
    Row("qkv", "W_V", "(kv_head d_head) d_model -> kv_head d_model d_head", after=("head d_head", "kv_head d_head")),
)
UNEQUAL = {
    "W_Q": numbered(6, 10, 4),
    "W_K": numbered(2, 10, 4, start=1000),
    "W_V": numbered(2, 10, 4, start=2000),
}
JOINED = torch.cat([by_rows(weight) for weight in UNEQUAL.values()])


def test_weights_of_unequal_size_one_after_the_other_come_apart() -> None:
    assert JOINED.shape == (40, 10)
    assert_filled(ONE_AFTER_THE_OTHER, GROUPED, {"qkv": JOINED}, UNEQUAL)


def test_biases_one_after_the_other_come_apart() -> None:
    table = family(
        Row("b", "b_Q", "(head d_head) -> head d_head"),
        Row("b", "b_K", "(kv_head d_head) -> kv_head d_head", after=("head d_head",)),
    )
    assert_filled(table, GROUPED, {"b": numbered(32)}, {"b_Q": numbered(6, 4), "b_K": numbered(2, 4, start=24)})


@pytest.mark.parametrize("shape", [(41, 10), (36, 10), (40, 9), (40,)])
def test_parts_must_make_up_the_tensor(shape: tuple[int, ...]) -> None:
    message = refusal(ONE_AFTER_THE_OTHER, GROUPED, {"qkv": numbered(*shape)})
    assert f"qkv has the shape {shape}, the configuration makes it (40, 10) (" in message
    assert "((head d_head) d_model + (kv_head d_head) d_model + (kv_head d_head) d_model)" in message


def test_rows_between_parts_are_not_lost() -> None:
    table = family(*(row for row in ONE_AFTER_THE_OTHER.rows if row.ours != "W_K"))
    message = refusal(table, GROUPED, {"qkv": JOINED[:32]})
    assert "not the whole of it, once: W_Q (from row 0, as (head d_head) d_model); W_V (from row 32, as" in message


def test_rows_that_two_parts_claim_are_refused() -> None:
    table = family(Row("w", "a", "(two d_mlp) -> (two d_mlp)"), Row("w", "b", "d_mlp -> d_mlp", after=("d_mlp",)))
    assert "not the whole of it, once: a (from row 0, as (two d_mlp)); b (from row 11, as d_mlp)" in refusal(
        table, CONFIG, {"w": numbered(33)}
    )


# ------------------------------------------------------------------------------------------------------ experts

PER_EXPERT = (
    Row("h.{layer}.e.{expert}.w1", "blocks.{layer}.mlp.W_gate", "d_expert d_model -> d_model d_expert", "moe"),
    Row("h.{layer}.e.{expert}.w3", "blocks.{layer}.mlp.W_in", "d_expert d_model -> d_model d_expert", "moe"),
    Row("h.{layer}.e.{expert}.w2", "blocks.{layer}.mlp.W_out", "d_model d_expert -> d_expert d_model", "moe"),
)
_FUSED = "expert (two d_expert) d_model -> expert d_model d_expert"
FUSED = (
    Row("h.{layer}.gate_up", "blocks.{layer}.mlp.W_gate", _FUSED, "moe", at=("two", 0)),
    Row("h.{layer}.gate_up", "blocks.{layer}.mlp.W_in", _FUSED, "moe", at=("two", 1)),
    Row("h.{layer}.down", "blocks.{layer}.mlp.W_out", "expert d_model d_expert -> expert d_expert d_model", "moe"),
)
EXPERTS = {
    f"blocks.{layer}.mlp.{name}": numbered(*shape, start=10_000 * layer + 1000 * i)
    for layer in range(2)
    for i, (name, shape) in enumerate([("W_gate", (5, 10, 9)), ("W_in", (5, 10, 9)), ("W_out", (5, 9, 10))])
}


def files_per_expert(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    names = {"W_gate": "w1", "W_in": "w3", "W_out": "w2"}
    return {
        f"h.{name.split('.')[1]}.e.{expert}.{names[name.split('.')[-1]]}": weight[expert].T.contiguous()
        for name, weight in weights.items()
        for expert in range(5)
    }


def fused(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = {}
    for layer in range(2):
        gate, up, down = (weights[f"blocks.{layer}.mlp.{name}"] for name in ("W_gate", "W_in", "W_out"))
        found[f"h.{layer}.gate_up"] = torch.cat([gate, up], dim=2).mT.contiguous()
        found[f"h.{layer}.down"] = down.mT.contiguous()
    return found


def test_a_tensor_for_each_expert_fills_its_share() -> None:
    assert_filled(family(*PER_EXPERT), MOE, files_per_expert(EXPERTS), EXPERTS)


def test_one_tensor_of_all_experts_fills_two_weights() -> None:
    assert_filled(family(*FUSED), MOE, fused(EXPERTS), EXPERTS)


def test_a_stack_for_each_expert_comes_apart() -> None:
    rows = [
        Row("e.{expert}", name, "(two d_expert) d_model -> d_model d_expert", at=("two", i))
        for i, name in enumerate(("W_gate", "W_in"))
    ]
    gate, up = EXPERTS["blocks.0.mlp.W_gate"], EXPERTS["blocks.0.mlp.W_in"]
    tensors = {f"e.{expert}": torch.cat([gate[expert].T, up[expert].T]) for expert in range(5)}
    assert_filled(family(*rows), MOE, tensors, {"W_gate": gate, "W_in": up})


def test_a_missing_expert_is_named() -> None:
    tensors = files_per_expert(EXPERTS)
    del tensors["h.1.e.3.w2"]
    assert "1 missing (h.1.e.3.w2)." in refusal(family(*PER_EXPERT), MOE, tensors)


def test_an_expert_of_another_shape_is_named() -> None:
    tensors = files_per_expert(EXPERTS) | {"h.1.e.3.w2": numbered(10, 8)}
    message = refusal(family(*PER_EXPERT), MOE, tensors)
    assert "h.1.e.3.w2 has the shape (10, 8), the configuration makes it (10, 9) (d_model d_expert)" in message


def test_an_absurd_number_of_experts_is_refused_at_once() -> None:
    absurd = replace(MOE, moe=MoEConfig(n_experts=2**40, top_k=2, d_expert=9))
    message = refusal(family(*PER_EXPERT), absurd, files_per_expert(EXPERTS))
    assert message == "here should have 1099511627776 experts in a layer but holds only 30 tensors."
    assert f"makes it ({2**40}, 18, 10)" in refusal(family(variants=(PER_EXPERT, FUSED)), absurd, fused(EXPERTS))


# ------------------------------------------------------------------------------------------------- alternatives


@pytest.mark.parametrize("arranged", [files_per_expert, fused])
def test_the_variant_that_fits_the_stored_names_is_taken(arranged: object) -> None:
    assert callable(arranged)
    norm = numbered(10, start=50_000)
    for variants in ((PER_EXPERT, FUSED), (FUSED, PER_EXPERT)):
        table = family(Row("norm", "ln_final.w", "d_model -> d_model"), variants=variants)
        assert_filled(table, MOE, arranged(EXPERTS) | {"norm": norm}, EXPERTS | {"ln_final.w": norm})


def test_errors_are_told_of_the_closest_variant() -> None:
    table = family(variants=(FUSED, PER_EXPERT))
    tensors = files_per_expert(EXPERTS)
    tensors["extra"] = tensors.pop("h.0.e.0.w1")
    assert "1 missing (h.0.e.0.w1); 1 unused (extra)." in refusal(table, MOE, tensors)
    tensors = fused(EXPERTS)
    del tensors["h.1.down"]
    assert "1 missing (h.1.down)." in refusal(table, MOE, tensors)


PREFIXED = family(
    Row("wte", "embed.W_E", "d_vocab d_model -> d_vocab d_model"),
    Row("h.{layer}.ln", "blocks.{layer}.ln1.w", "d_model -> d_model"),
    Row("lm_head", "unembed.W_U", "d_vocab d_model -> d_model d_vocab", "untied"),
    prefixes=("transformer.", "model."),
    copies=(("lm_head", "wte"),),
    ignored=("h.*.mask",),
)
INNER = {"wte": numbered(13, 10), "h.0.ln": numbered(10, start=200), "h.1.ln": numbered(10, start=300)}
OURS = {"embed.W_E": INNER["wte"], "blocks.0.ln1.w": INNER["h.0.ln"], "blocks.1.ln1.w": INNER["h.1.ln"]}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


@pytest.mark.parametrize("prefix", ["", "transformer.", "model."])
@pytest.mark.parametrize("outer", [True, False])
def test_names_may_stand_under_a_prefix_the_unembedding_with_or_without(prefix: str, outer: bool) -> None:
    head = numbered(13, 10, start=500)
    stored = under(prefix, INNER | {"h.0.mask": numbered(3)})
    assert_filled(PREFIXED, TWO_LAYERS, stored, OURS)
    stored |= under("" if outer else prefix, {"lm_head": head})
    assert_filled(PREFIXED, UNTIED, stored, OURS | {"unembed.W_U": head.T})


def test_a_prefix_that_only_some_names_have_is_no_prefix() -> None:
    tensors = under("transformer.", INNER)
    tensors["h.1.ln"] = tensors.pop("transformer.h.1.ln")
    message = refusal(PREFIXED, TWO_LAYERS, tensors)
    assert "2 missing (h.0.ln, wte); 2 unused (transformer.h.0.ln, transformer.wte)" in message


def test_missing_names_are_told_as_the_file_would_spell_them() -> None:
    tensors = under("transformer.", INNER)
    del tensors["transformer.h.1.ln"]
    assert "2 missing (lm_head, transformer.h.1.ln)." in refusal(PREFIXED, UNTIED, tensors)


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_a_repeated_unembedding_is_compared_under_a_prefix_too(prefix: str) -> None:
    tensors = under(prefix, INNER) | {"lm_head": INNER["wte"].clone()}
    check_copies(PREFIXED, TWO_LAYERS, held(tensors))
    assert_filled(PREFIXED, TWO_LAYERS, tensors, OURS)
    tensors["lm_head"][-1, -1] += 1
    with pytest.raises(LoadError, match=rf"lm_head differs from {prefix}wte"):
        check_copies(PREFIXED, TWO_LAYERS, held(tensors))


# --------------------------------------------------------------------------------------------------- conditions


def test_layers_are_filled_by_what_they_have() -> None:
    table = family(
        Row("h.{layer}.up", "blocks.{layer}.mlp.W_in", "d_mlp d_model -> d_model d_mlp", "dense"),
        Row("h.{layer}.up", "blocks.{layer}.mlp.W_in", "expert d_expert d_model -> expert d_model d_expert", "moe"),
        Row("h.{layer}.gate", "blocks.{layer}.mlp.W_shared_gate", "1 d_model -> d_model 1", "shared_expert"),
        Row("h.{layer}.bias", "blocks.{layer}.mlp.b_in", "d_mlp -> d_mlp", "dense & mlp_bias"),
    )
    dense, experts, gate, bias = numbered(11, 10), numbered(5, 9, 10, start=200), numbered(1, 10), numbered(11)
    tensors = {"h.0.up": dense, "h.1.up": experts, "h.1.gate": gate}
    expected = {
        "blocks.0.mlp.W_in": dense.T,
        "blocks.1.mlp.W_in": experts.mT,
        "blocks.1.mlp.W_shared_gate": gate.T,
    }
    assert_filled(table, SECOND_MOE, tensors, expected)
    biased = expected | {"blocks.0.mlp.b_in": bias}
    assert_filled(table, replace(SECOND_MOE, mlp_bias=True), tensors | {"h.0.bias": bias}, biased)


@pytest.mark.parametrize(
    ("condition", "config", "expected"),
    [
        ("always", TWO_LAYERS, [True, True]),
        ("untied", TWO_LAYERS, [False, False]),
        ("untied", UNTIED, [True, True]),
        ("gated", TWO_LAYERS, [True, True]),
        ("gated", replace(TWO_LAYERS, gated=False), [False, False]),
        ("qkv_bias", replace(TWO_LAYERS, qkv_bias=True), [True, True]),
        ("o_bias", replace(TWO_LAYERS, o_bias=True), [True, True]),
        ("qkv_bias & o_bias", replace(TWO_LAYERS, o_bias=True), [False, False]),
        ("moe", TWO_LAYERS, [False, False]),
        ("moe", MOE, [True, True]),
        ("moe", SECOND_MOE, [False, True]),
        ("dense", SECOND_MOE, [True, False]),
        ("shared_expert", SECOND_MOE, [False, True]),
        ("shared_expert", replace(MOE, moe=MoEConfig(5, 2, 9)), [False, False]),
        ("shared_gate", MOE, [False, False]),
        ("shared_gate", replace(MOE, moe=MoEConfig(5, 2, 9, d_shared=8, shared_gate=True)), [True, True]),
        ("qk_norm", TWO_LAYERS, [False, False]),
        ("qk_norm", replace(TWO_LAYERS, qk_norm="head"), [True, True]),
        ("learned_positions", replace(TWO_LAYERS, learned_positions=True), [True, True]),
        ("embed_norm", replace(TWO_LAYERS, embed_norm=True), [True, True]),
        ("unembed_bias", replace(TWO_LAYERS, unembed_bias=True), [True, True]),
        ("layer_norm", TWO_LAYERS, [False, False]),
        ("layer_norm", replace(TWO_LAYERS, norm="layer"), [True, True]),
        ("rotary", replace(TWO_LAYERS, rotary=None), [False, False]),
    ],
)
def test_conditions_hold_layer_by_layer(condition: str, config: ModelConfig, expected: list[bool]) -> None:
    assert [holds(config, condition, layer) for layer in range(2)] == expected


def test_a_condition_that_there_is_not_is_an_error_even_where_another_fails() -> None:
    with pytest.raises(KeyError, match="tied"):
        holds(CONFIG, "untied & tied", 0)


@pytest.mark.parametrize("known", FAMILIES, ids=lambda known: known.architectures[0])
def test_tables_name_only_conditions_and_axes_that_there_are(known: Family) -> None:
    everything = replace(MOE, learned_positions=True)
    for table in known.tables:
        for row in table:
            assert set(row.when.split(" & ")) <= CONDITIONS.keys(), row
            named = {*Axes.parse(row.axes.replace("->", "")).flat(), *" ".join(row.after).split()}
            assert named <= axis_sizes(everything).keys(), row
            assert row.at is None or 0 <= row.at[1] < axis_sizes(everything)[row.at[0]], row


# -------------------------------------------------------------------------------------- values, memory, progress


def test_a_shift_is_added_before_half_precision_rounds() -> None:
    stored = torch.tensor([1 / 512, -1 / 512, 0.25] + 7 * [0.0]).bfloat16()
    table = family(Row("w", "ln.w", "d_model -> d_model", shift=1.0))
    assert float(stored[0] + 1) == 1.0, "in bfloat16 the sum would be lost"
    assert_filled(table, CONFIG, {"w": stored}, {"ln.w": 1 + stored.float()})
    assert_filled(table, CONFIG, {"w": stored}, {"ln.w": 1 + stored.float()}, dtype=torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_part_that_is_not_finite_is_refused_by_the_name_of_its_tensor(dtype: torch.dtype) -> None:
    together = STACKED["(head three d_head) d_model"].clone()
    together[-1, -1] = torch.nan
    checkpoint = held({"qkv": together})
    todo = assignments(stacked("(head three d_head) d_model"), CONFIG, checkpoint)
    with pytest.raises(LoadError, match="Tensor qkv of here holds NaN"):
        fill({name: torch.empty(HEADS, dtype=dtype) for name in QKV}, todo, CONFIG, checkpoint)


@pytest.mark.parametrize(
    ("arrangement", "times"), [("(three head d_head) d_model", 1), ("d_model (three head d_head)", 3)]
)
def test_parts_are_read_a_few_rows_at_a_time(arrangement: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that hold nothing of a part are not read for it; no read is longer than a chunk."""
    monkeypatch.setattr(filling, "CHUNK_BYTES", 600)
    reads: Reads = []
    checkpoint = held({"qkv": STACKED[arrangement]}, reads)
    todo = assignments(stacked(arrangement), CONFIG, checkpoint)
    fill({name: torch.empty(HEADS) for name in QKV}, todo, CONFIG, checkpoint)
    row_bytes = 4 * math.prod(STACKED[arrangement].shape[1:])
    assert len(reads) > 5
    assert max((last - first) * row_bytes for _, first, last in reads) <= 600
    assert sum(last - first for _, first, last in reads) == times * len(STACKED[arrangement])


def test_progress_counts_parts_and_experts_up_to_the_bytes_of_the_weights() -> None:
    seen: list[tuple[int, int]] = []
    for table, tensors in ((PER_EXPERT, files_per_expert(EXPERTS)), (FUSED, fused(EXPERTS))):
        weights = {name: torch.empty_like(weight) for name, weight in EXPERTS.items()}
        todo = assignments(family(*table), MOE, held(tensors))
        fill(weights, todo, MOE, held(tensors), progress=lambda done, total: seen.append((done, total)))
        total = 4 * sum(weight.numel() for weight in weights.values())
        assert seen[-1] == (total, total)
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        seen.clear()


def test_a_table_that_fills_a_weight_twice_is_caught() -> None:
    tensors = {"a": numbered(10), "b": numbered(10)}
    table = family(Row("a", "w", "d_model -> d_model"), Row("b", "w", "d_model -> d_model"))
    todo: list[Assignment] = assignments(table, CONFIG, held(tensors))
    with pytest.raises(AssertionError, match="every weight once"):
        fill({"w": torch.empty(10)}, todo, CONFIG, held(tensors))
