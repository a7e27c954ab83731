"""What an analysis is said to cost is what it does, as PyTorch counts its operations."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from traced_facts import known_facts, speaker

from interp import metrics
from interp.analyses import ANALYSES
from interp.analyses.cost_asked import Asked, Item
from interp.analyses.cost_parts import Costing, Work
from interp.analyses.cost_sweeps import patching_sweep, tracing_sweep
from interp.analyses.cost_table import COSTS
from interp.analyses.costs import ARGUMENTS, AnalysisCost, analysis_cost
from interp.analyses.documents import Document
from interp.analyses.patching import plan_sweep
from interp.analyses.tracing import plan_trace
from interp.analyses.triggers import find_triggers
from interp.errors import UsageError
from interp.facts import exact_span
from interp.models.planner import Speed, accelerator
from interp.models.presets import preset
from interp.models.replay import Replay
from interp.models.replay_cost import flops
from interp.models.transformer import Transformer

KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
TEXT = "the tower of the city of a tower in the city"
DOCUMENTS = [Document(name, " ".join(["the tower of the city in a tower"] * 40)) for name in ("one", "another")]
LOGIT = metrics.logit(3)
FACTS = list(known_facts())
LENGTHS = [speaker().to_tokens(fact.prompt).shape[1] for fact in FACTS]
SUBJECTS = [
    list(exact_span(speaker().tokenizer, fact.template, fact.subject, prefix="doc").positions) for fact in FACTS
]
TOKENS = torch.randint(5, 300, (4, 12), generator=torch.Generator().manual_seed(0))
OTHERS = TOKENS.clone()
OTHERS[:, 4:7] = (OTHERS[:, 4:7] + 17) % 295 + 5
TRACED = FACTS[2]


class Counter(TorchDispatchMode):
    """Counts operations below autograd, where those of the way back are seen too."""

    total = 0

    def __torch_dispatch__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        packet = function._overloadpacket
        if packet is KERNEL:
            batch, head, query_pos, d_head = args[0].shape
            self.total += 4 * batch * head * query_pos * args[1].shape[2] * d_head
        elif packet in flop_registry:
            self.total += flop_registry[packet](*args, **(kwargs or {}), out_val=out)
        return out


def counted(work: Callable[[], object]) -> int:
    with Counter() as counter:
        work()
    return counter.total


def run(name: str, *given: object, **settings: object) -> Callable[[], object]:
    return functools.partial(ANALYSES[name].function, speaker(), *given, **settings)


HEADS = {"n_seqs": 4, "seq_len": 10, "controls": 3}
CHANGED = {"changed": SUBJECTS}
CASES: dict[str, tuple[Callable[[], object], list[int], dict[str, object], float]] = {
    "lens": (run("lens", TEXT), [0], {}, 0),
    "surprisal": (run("surprisal", TEXT), [0], {}, 0),
    "lens-parts": (run("lens-parts", TEXT, of="head"), [0], {"of": "head"}, 0),
    "fact-lens": (run("fact-lens", FACTS), LENGTHS, {}, 0),
    "attribution": (run("attribution", TEXT, 7, by="head_source"), [0], {"by": "head_source"}, 0.01),
    "fact-attribution": (run("fact-attribution", FACTS), LENGTHS, {}, 0),
    "induction": (run("induction", n_seqs=4), [], {"n_seqs": 4}, 0),
    "attention": (run("attention", TEXT), [0], {}, 0.01),
    "head-attention": (run("head-attention", TEXT, "1.2"), [0], {"head": "1.2"}, 0.01),
    "local-ablation": (run("local-ablation", TEXT, ["1.2"], controls=3), [0], {"heads": ["1.2"], "controls": 3}, 0.02),
    "copying": (run("copying", n_seqs=4), [], {"n_seqs": 4}, 0.15),
    "repeat-loss": (run("repeat-loss", n_seqs=4), [], {"n_seqs": 4}, 0),
    "in-context": (run("in-context", DOCUMENTS, early=20, late=60), [90, 90], {"late": 60}, 0),
    "head-ablation": (run("head-ablation", ["1.2", "2.0"], **HEADS), [], {"heads": ["1.2", "2.0"], **HEADS}, 0.02),
    "head-links": (
        run("head-links", ["0.2"], ["2.0", "1.3"], **HEADS),
        [],
        {"senders": ["0.2"], "receivers": ["2.0", "1.3"], **HEADS},
        0.15,
    ),
    "composition": (run("composition"), [], {}, 0),
    "head-circuit": (run("head-circuit", 1, 2), [], {}, 0.1),
    "facts": (run("facts", FACTS), LENGTHS, {}, 0),
    "fact-tracing": (run("fact-tracing", FACTS, samples=3, noise=0.3), LENGTHS, {"samples": 3, **CHANGED}, 0.01),
    "knockout": (run("knockout", FACTS, window=2), LENGTHS, {"window": 2, **CHANGED}, 0),
    "edge-knockout": (
        run("edge-knockout", TOKENS, {"a": [(11, 3)], "b": [(11, 4)]}, metric=LOGIT),
        [12] * 4,
        {"edges": ["a", "b"], "changed": [11]},
        0,
    ),
    "sublayer-knockout": (
        run("sublayer-knockout", FACTS, reference=FACTS),
        LENGTHS,
        {"reference": FACTS, **CHANGED},
        0.05,
    ),
    "extraction": (run("extraction", FACTS), LENGTHS, {}, 0),
    "memories": (run("memories", TEXT), [0], {}, 0.05),
    "fact-memories": (run("fact-memories", FACTS), LENGTHS, {}, 0.05),
    "value-tokens": (run("value-tokens", layer=1), [], {}, 0),
    "triggers": (run("triggers", TOKENS[:2], top_k=2), [12, 12], {}, 0),
    "knowledge-neurons": (run("knowledge-neurons", TRACED), [LENGTHS[2]], {"paraphrases": []}, 0.05),
    "neuron-edits": (run("neuron-edits", FACTS, {FACTS[0].id: ["1.3"]}), LENGTHS, {"neurons": ["1.3"]}, 0.05),
    "patching": (
        run("patching", TOKENS, OTHERS, site="z", metric=LOGIT),
        [12] * 4,
        {"site": "z", "changed": [4, 5, 6]},
        0,
    ),
    "attribution-patching": (
        run("attribution-patching", TOKENS, OTHERS, site="resid_pre", metric=LOGIT),
        [12] * 4,
        {"changed": [4, 5, 6]},
        0.05,
    ),
    "ablation": (
        run("ablation", TOKENS, ["1.2", "mlp 2"], metric=LOGIT, controls=4),
        [12] * 4,
        {"components": ["1.2", "mlp 2"], "controls": 4, "changed": [0]},
        0,
    ),
}
"""What is run, the lengths (0: that of `TEXT`) and settings that are told, and by what share operations may differ."""
BOUNDS = {"atlas": "sentences of a tokenizer's own length", "suppression": "texts of several groups"}
"""Analyses of which only the scale is told, and of what it depends."""


@pytest.mark.parametrize("name", CASES)
def test_an_analysis_does_the_operations_that_are_told(name: str) -> None:
    work, lengths, settings, within = CASES[name]
    told = [length or speaker().to_tokens(TEXT).shape[1] for length in lengths]
    cost = analysis_cost(name, speaker().config, told, settings)
    assert cost.flops == pytest.approx(counted(work), rel=within, abs=0)


def test_agreement_does_the_operations_that_are_told() -> None:
    found = find_triggers(speaker(), TOKENS[:2], top_k=2)
    assert analysis_cost("agreement", speaker().config, []).flops == counted(run("agreement", found))


def test_every_analysis_has_a_cost_and_was_counted() -> None:
    assert set(COSTS) == set(ANALYSES)
    assert set(ANALYSES) == {*CASES, *BOUNDS, "agreement", "tracing"}


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("shape", ["smollm2-135m", "mixtral-8x7b", "gemma-3-1b", "gpt2"])
def test_any_analysis_of_any_model_costs_something(name: str, shape: str) -> None:
    cost = analysis_cost(name, preset(shape).config, [9, 12, 9], speed=accelerator("h200"))
    assert cost.flops > 0
    assert cost.cells > 0
    assert cost.bytes > 0
    assert cost.moved > 0
    assert cost.seconds is not None
    assert cost.seconds > 0


# ------------------------------------------------------------------------------------------------- beside a plan


def near(found: Work, replay: Replay, within: float = 1e-3) -> None:
    """Cells and operations are those of the planned sweep; memory within a twentieth."""
    told = flops(replay.model, replay.base, replay.walks, replay.read, shortcuts=replay.shortcuts)
    assert found.cells == pytest.approx(len(replay.cells), rel=within)
    assert found.flops == pytest.approx(told, rel=within)
    assert found.held == pytest.approx(max(replay.footprint.walk(replay.base, walk) for walk in replay.walks), rel=0.05)


SITES: list[tuple[str, dict[str, object]]] = [
    ("resid_pre", {}),
    ("resid_post", {"by": ["layer"]}),
    ("mlp_out", {"window": 2}),
    ("attn_out", {"layers": [1, 2], "positions": [5, 6, 11]}),
    ("embed", {}),
    ("z", {"by": ["layer", "head", "pos"]}),
    ("q", {}),
    ("v", {"by": ["layer", "kv_head", "pos"]}),
    ("k_by_head", {}),
    ("v_by_head", {"by": ["layer", "head", "pos"], "positions": [4, 5]}),
    ("pattern", {}),
    ("pattern", {"by": ["layer", "query_pos"]}),
    ("pattern", {"by": ["head", "query_pos", "key_pos"], "layers": [1]}),
    ("neuron", {"by": ["layer", "pos"]}),
]


@pytest.mark.parametrize(("site", "settings"), SITES, ids=[f"{site} {settings}" for site, settings in SITES])
def test_a_patching_costs_what_its_plan_says(site: str, settings: dict[str, object]) -> None:
    model = speaker()
    planned = plan_sweep(model, TOKENS[:1], OTHERS[:1], site=site, metric=LOGIT, **settings)
    asked = Asked(model.config, (12,), {"site": site, "changed": [4, 5, 6], **settings})
    near(patching_sweep(Costing(model.config), asked, asked.items[0]), planned.replay, 0.05)


@pytest.mark.parametrize(
    "settings", [{}, {"severed": ["mlp"], "window": 1}, {"kinds": ["resid"]}, {"shortcuts": False}]
)
def test_a_trace_costs_what_its_plan_says(settings: dict[str, object]) -> None:
    planned = plan_trace(speaker(), TRACED.prompt, TRACED.subject, samples=3, noise=0.3, **settings)
    near(traced(speaker(), planned.tokens.shape[1], SUBJECTS[2], {"samples": 3, **settings}), planned.replay)


def traced(model: Transformer, length: int, subject: list[int], settings: Mapping[str, object]) -> Work:
    asked = Asked(model.config, (length,), {"changed": subject, **settings})
    return tracing_sweep(Costing(model.config), asked, Item(length, tuple(subject)))


def test_a_trace_of_a_real_model_costs_what_its_plan_says(smollm2: Transformer) -> None:
    planned = plan_trace(smollm2, "I think that the Louvre is in", "the Louvre", samples=2, kinds=("resid", "mlp"))
    settings = {"samples": 2, "kinds": ["resid", "mlp"]}
    near(traced(smollm2, planned.tokens.shape[1], list(planned.span.positions), settings), planned.replay)


def test_a_patching_of_a_real_model_costs_what_its_plan_says(smollm2: Transformer) -> None:
    clean, corrupted = "When Mary and John met, John spoke to", "When Mary and John met, Mary spoke to"
    planned = plan_sweep(smollm2, clean, corrupted, site="resid_pre", metric=LOGIT, prefix="none")
    tokens = smollm2.to_tokens(clean, prefix="none"), smollm2.to_tokens(corrupted, prefix="none")
    changed = (tokens[0] != tokens[1])[0].nonzero()[:, 0].tolist()
    asked = Asked(smollm2.config, (tokens[0].shape[1],), {"changed": changed})
    near(patching_sweep(Costing(smollm2.config), asked, asked.items[0]), planned.replay)


# ------------------------------------------------------------------------------------------------- adding and saying

LLAMA = preset("llama-3.1-8b").config


def test_costs_of_items_add_up_and_memory_is_that_of_the_widest() -> None:
    settings = {"samples": 3}
    both, first, second = (analysis_cost("tracing", LLAMA, lengths, settings) for lengths in ([8, 12], [8], [12]))
    assert first + second == both
    assert both.bytes == max(first.bytes, second.bytes)
    many = analysis_cost("tracing", LLAMA, [12] * 1000, settings)
    assert (many.flops, many.cells, many.bytes) == (1000 * second.flops, 1000 * second.cells, second.bytes)


def test_seconds_are_those_of_the_roofline_and_unknown_without_a_speed() -> None:
    computing, moving = Speed(1e12, 1e30, "computing"), Speed(1e30, 1e12, "moving")
    told = [analysis_cost("lens", LLAMA, [10], speed=speed) for speed in (computing, moving)]
    assert [cost.seconds for cost in told] == pytest.approx([told[0].flops / 1e12, told[0].moved / 1e12])
    assert analysis_cost("lens", LLAMA, [10]).seconds is None
    assert (told[0] + analysis_cost("lens", LLAMA, [10])).seconds is None
    assert (told[0] + told[1]).seconds == pytest.approx(told[0].seconds + told[1].seconds)  # type: ignore[operator]


def test_half_the_bytes_of_a_number_are_half_of_what_is_held_and_moved() -> None:
    single, half = (analysis_cost("tracing", LLAMA, [10], {"dtype": dtype}) for dtype in ("float32", "bfloat16"))
    assert half.flops == single.flops
    assert half.bytes < 0.7 * single.bytes
    assert half.moved < 0.7 * single.moved


def test_a_cost_says_itself_in_one_line() -> None:
    cost = AnalysisCost(1200, 3 * 10**12, 2**30, 90.0)
    assert str(cost) == "1,200 cells: 3,000.0 GFLOP, 1,024 MiB beside the model, about 90.0 s"
    assert str(replace(cost, cells=1, seconds=None)) == "1 cell: 3,000.0 GFLOP, 1,024 MiB beside the model"
    assert [replace(cost, seconds=each).time for each in (300.0, 86_400.0, None)] == ["5.0 min", "24.0 h", ""]


def test_without_places_everything_behind_the_first_token_is_thought_to_differ() -> None:
    worst = analysis_cost("tracing", LLAMA, [10])
    assert worst == analysis_cost("tracing", LLAMA, [10], {"changed": list(range(1, 10))})
    assert worst.flops > analysis_cost("tracing", LLAMA, [10], {"changed": [4, 5]}).flops
    assert analysis_cost("tracing", LLAMA, [10, 12], {"changed": [[4], [6]]}) == analysis_cost(
        "tracing", LLAMA, [10], {"changed": [4]}
    ) + analysis_cost("tracing", LLAMA, [12], {"changed": [-6]})


@pytest.mark.parametrize(
    ("name", "lengths", "settings", "says"),
    [
        ("tracin", [10], {}, "'tracin'. Did you mean 'tracing'"),
        ("lens", [0], {}, "length is 0; expected whole numbers of tokens from 1"),
        ("lens", [200_000], {}, "context of 131,072"),
        ("tracing", [10], {"samples": 0}, "samples is 0"),
        ("tracing", [10], {"kinds": ["mlps"]}, "kinds names 'mlps'; expected some of resid, mlp, attn"),
        ("tracing", [10], {"changed": [10]}, "position 10; the text has 10"),
        ("tracing", [10, 10], {"changed": [[3]]}, "changed has 1 lists; one for each of 2"),
        ("tracing", [10], {"changed": []}, "changed names no position"),
        ("tracing", [10], {"dtype": "int8"}, "dtype is 'int8'"),
        ("patching", [10], {"site": "zz"}, "There is no site 'zz'"),
        ("patching", [10], {"layers": [99]}, "layers"),
        ("head-ablation", [], {"heads": "1.2"}, "named in a list"),
        ("head-ablation", [], {"heads": ["99.0"]}, "99.0 lies in no layer"),
        ("copying", [], {"which": ["copy"]}, "which names 'copy'"),
    ],
)
def test_what_no_cost_can_be_told_of_is_refused(
    name: str, lengths: list[int], settings: dict[str, object], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        analysis_cost(name, LLAMA, lengths, settings)


def test_arguments_among_the_settings_are_those_of_analyses() -> None:
    taken = {name for each in ANALYSES.values() for name in inspect.signature(each.function).parameters}
    assert set(ARGUMENTS) - taken == {"changed", "relations"}
