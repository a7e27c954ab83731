"""Which analysis costs what: a function for every entry of `ANALYSES`, from a model's shape and items to work."""

from collections.abc import Callable, Mapping

from interp.analyses import cost_heads, cost_removals, cost_sweeps, cost_texts
from interp.analyses.cost_asked import Asked
from interp.analyses.cost_parts import Costing, Work

COSTS: Mapping[str, Callable[[Costing, Asked], Work]] = {
    "lens": cost_texts.lens,
    "surprisal": cost_texts.surprisal,
    "lens-parts": cost_texts.lens_parts,
    "fact-lens": cost_texts.fact_lens,
    "attribution": cost_texts.attribution,
    "fact-attribution": cost_texts.fact_attribution,
    "induction": cost_heads.induction,
    "atlas": cost_heads.atlas,
    "attention": cost_heads.attention,
    "head-attention": cost_heads.head_attention,
    "copying": cost_heads.copying,
    "repeat-loss": cost_heads.repeat_loss,
    "in-context": cost_heads.in_context,
    "head-ablation": cost_removals.head_ablation,
    "head-links": cost_removals.head_links,
    "composition": cost_heads.composition,
    "head-circuit": cost_heads.head_circuit,
    "facts": cost_texts.facts,
    "tracing": cost_sweeps.tracing,
    "fact-tracing": cost_sweeps.fact_tracing,
    "knockout": cost_removals.knockout,
    "edge-knockout": cost_removals.edge_knockout,
    "sublayer-knockout": cost_removals.sublayer_knockout,
    "extraction": cost_texts.extraction,
    "memories": cost_texts.memories,
    "fact-memories": cost_texts.fact_memories,
    "value-tokens": cost_texts.value_tokens,
    "triggers": cost_texts.triggers,
    "agreement": cost_texts.agreement,
    "knowledge-neurons": cost_removals.knowledge_neurons,
    "neuron-edits": cost_removals.neuron_edits,
    "suppression": cost_removals.suppression,
    "patching": cost_sweeps.patching,
    "attribution-patching": cost_sweeps.attribution_patching,
    "ablation": cost_removals.ablation,
    "local-ablation": cost_removals.local_ablation,
}
"""By the name of the analysis; lengths are those of its items."""
