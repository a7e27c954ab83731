"""Patching: what the answer becomes when one value is that of another run."""

from typing import TYPE_CHECKING, Any

import streamlit as st

from interp.apps.dashboard import look
from interp.apps.dashboard.context import Context
from interp.apps.dashboard.costs import estimated
from interp.apps.dashboard.page import Cost, Page, Work
from interp.apps.dashboard.parameters import Parameter, Values
from interp.apps.dashboard.shelf import Chosen
from interp.apps.dashboard.store import Results
from interp.apps.dashboard.views import pair_inputs, patching_maps

if TYPE_CHECKING:
    from interp.apps.dashboard.jobs import Reporter
    from interp.models.transformer import Transformer

SITES = {
    "embed": "embeddings",
    "resid_pre": "residual stream before a layer",
    "resid_mid": "residual stream between attention and FFN",
    "resid_post": "residual stream after a layer",
    "attn_out": "what attention adds",
    "mlp_out": "what the FFN adds",
    "q": "queries",
    "k": "keys, of a KV head",
    "v": "values, of a KV head",
    "k_by_head": "keys as one query head sees them",
    "v_by_head": "values as one query head sees them",
    "scores": "attention before the softmax",
    "pattern": "attention after the softmax",
    "z": "what a head read",
    "result": "what a head adds",
    "neuron": "coefficients of neurons",
    "router": "router logits",
    "expert": "what an expert writes",
}
OVER = {
    "usual": "what is usual for the site",
    "position": "layer × position",
    "part": "layer × head, neuron or expert",
    "both": "layer × head × position",
}
DIRECTIONS = {"denoise": "clean into corrupted (denoise)", "noise": "corrupted into clean (noise)"}
METRICS = ("logit_difference", "probability", "log_probability", "logit", "rank", "loss", "kl_divergence")
METHODS = {"exact": "patch every cell", "atp": "estimate from one gradient (AtP)"}
PARTS = ("head", "kv_head", "neuron", "expert")
TOKENS = ("pos", "query_pos")

PARAMETERS = (
    Parameter("clean", "text", "", "Clean prompt", "The one with the answer.", needed=pair_inputs.typed, tokens=True),
    Parameter(
        *("corrupted", "text", "", "Corrupted prompt", "As many tokens, another answer."),
        needed=pair_inputs.typed,
        tokens=True,
    ),
    Parameter(
        *("answer", "line", "", "Answer", 'One token with its leading space, such as " Mary".'),
        needed=pair_inputs.typed,
    ),
    Parameter("foil", "line", "", "Foil", "What the answer is held against: what the corrupted prompt is followed by."),
    Parameter(
        *("pairs", "choice", pair_inputs.TYPED, "Pairs", "Those above, or a set that comes along."),
        choices=tuple(pair_inputs.PAIRS),
        labels=pair_inputs.PAIRS,
    ),
    Parameter("count", "whole", 8, "Pairs of a set", "How many of a set that comes along.", low=1, high=512),
    Parameter("site", "choice", "resid_pre", "Site", "What is patched.", choices=tuple(SITES), labels=SITES),
    Parameter("over", "choice", "usual", "Sweep over", "What is not swept is whole.", choices=tuple(OVER), labels=OVER),
    Parameter("direction", "choice", "denoise", "Direction", choices=tuple(DIRECTIONS), labels=DIRECTIONS),
    Parameter(
        *("metrics", "choices", ("logit_difference",), "Metrics", "AtP takes one."),
        choices=METRICS,
        check=lambda value: None if value else "at least one metric is expected.",
    ),
    Parameter("window", "whole", 1, "Layers at once", "Patched together around each layer.", low=1, high=999),
    Parameter("method", "choice", "exact", "Method", choices=tuple(METHODS), labels=METHODS),
    Parameter("prefix", "choice", "doc", "Prefix", "What stands before a prompt.", choices=("doc", "none", "chat")),
    Parameter("seed", "whole", 0, "Seed", "Of the pairs of a set, and of intervals.", low=0, high=2**31),
    Parameter("metric", "choice", METRICS[0], "Metric", choices=METRICS, view=True),
    Parameter(
        *("measure", "choice", "recovered", "Shown"),
        choices=tuple(patching_maps.MEASURES),
        labels=patching_maps.MEASURES,
        view=True,
    ),
    Parameter("layer", "whole", 0, "Layer", low=0, high=999, view=True),
    Parameter("place", "whole", 0, "Position or part", "The place across the map.", low=0, high=999_999, view=True),
    Parameter("position", "whole", -1, "At position", "Negative: from the end.", low=-99_999, high=99_999, view=True),
)


def axes_of(site: str, over: str) -> list[str] | None:
    """The axes that are swept; None for those that are usual. Raises `UsageError` where the site has none such."""
    from interp.analyses.sites import site_spec
    from interp.errors import UsageError

    if over == "usual":
        return None
    axes = site_spec(site).axes
    part, token = ([axis for axis in axes if axis in kind][:1] for kind in (PARTS, TOKENS))
    wanted = {"position": ["layer", *token], "part": ["layer", *part], "both": ["layer", *part, *token]}[over]
    if len(wanted) < (3 if over == "both" else 2) or "layer" not in axes:
        raise UsageError(
            f"The site {site} has the axes {', '.join(axes)}, so that it cannot be swept over {OVER[over]}. "
            "Choose another site, or what is usual for it."
        )
    return wanted


def _asked(values: Values) -> dict[str, Any]:
    """What both analyses are asked."""
    by = axes_of(values["site"], values["over"])
    return {"site": values["site"], "by": by, "direction": values["direction"], "seed": values["seed"]}


def compute(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """Every cell patched, or all of them estimated and some checked."""
    from interp.analyses.patching import plan_sweep
    from interp.errors import UsageError

    if values["method"] == "atp":
        if values["window"] > 1:
            raise UsageError("An estimate is of one layer a cell: patch 1 layer at once, or patch every cell.")
        return _estimates(model, values, report)
    pairs = pair_inputs.pairs_of(model, values)
    planned = plan_sweep(model, pairs, metric=values["metrics"], window=values["window"], **_asked(values))
    so_far = report.so_far("patching")
    return {"patching": planned.run(progress=report, cancelled=report.cancelled, so_far=so_far)}


def _estimates(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """All cells from one gradient, which is that of one metric."""
    from interp.analyses.attribution_patching import attribution_patching

    pairs, told = pair_inputs.pairs_of(model, values), {**_asked(values), "metric": values["metrics"]}
    return {"estimates": attribution_patching(model, pairs, **told, progress=report, cancelled=report.cancelled)}


def compare(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """The estimates of one metric, to be set beside what patching every cell found."""
    return _estimates(model, {**values, "metrics": [values["metric"]]}, report)


def cost(model: "Transformer", values: Values) -> Cost:
    """What the planner says of these pairs: which tokens differ is known."""
    pairs = pair_inputs.pairs_of(model, values)
    told = {"site": values["site"], "changed": pair_inputs.changed(pairs), "window": values["window"]}
    if (by := axes_of(values["site"], values["over"])) is not None:
        told["by"] = by
    exact = values["method"] == "exact"
    lengths = [pairs.clean.shape[1]] * len(pairs)
    return estimated(model, "patching" if exact else "attribution-patching", lengths, told)


def preview(context: Context) -> None:
    """The prompts as aligned tokens, and what the sweep will take."""
    from interp.errors import UsageError

    if context.page.missing(context.values):
        return
    try:
        pairs = pair_inputs.pairs_of(context.model, context.values)
    except UsageError as error:
        st.warning(str(error))
        return
    pair_inputs.draw(context.model, pairs)
    if said := context.expected():
        st.caption(f"Before it starts: {said}.")


def show(context: Context, results: Results) -> None:
    """The map, the chosen cell, how far estimates are off, and the strongest cells."""
    exact = "patching" in results
    found = results["patching" if exact else "estimates"]
    look.lines(found.headline())
    patching_maps.draw(context, found)
    st.caption(found.caution)
    if exact:
        _against_estimates(context, found)
    else:
        patching_maps.checks(context, found)
    with st.expander("The cells that move it most"):
        context.table("strongest", found.ranked(20))
    shown = context.shown_values
    if shown["pairs"] == pair_inputs.TYPED:
        layer = {"layer": context.values["layer"], "answer": shown["answer"], "prefix": shown["prefix"]}
        context.link("The corrupted prompt through the lens", "prompt", {"text": shown["corrupted"], **layer})


def _against_estimates(context: Context, found: Any) -> None:
    """Exact effects of all cells beside their estimates, where both are of one layer a cell."""
    st.subheader("Approximate against exact", anchor=False)
    if found.settings["window"] != 1:
        st.caption("Estimates are of one layer a cell; this map patches several at once.")
        return
    st.caption("One gradient estimates all cells at once (AtP). How far is that from what patching them found?")
    others = context.further("estimates", button="Estimate all cells")
    if others is not None:
        patching_maps.against(context, found, others["estimates"])


# ---------------------------------------------------------------------------------------------------------- repeating


def command(values: Values, chosen: Chosen) -> list[str]:
    """`interp patch` with the same pairs, site and metrics."""
    told = ["--metric", ",".join(values["metrics"]), "--method", values["method"], "--window", str(values["window"])]
    return [*_asked_of(values), *told, *chosen.words(), "--json"]


def estimating(values: Values, chosen: Chosen) -> list[str]:
    """The estimates beside the cells that were patched."""
    return [*_asked_of(values), "--metric", values["metric"], "--method", "atp", *chosen.words(), "--json"]


def _asked_of(values: Values) -> list[str]:
    """The pairs, and what is patched into which."""
    if pair_inputs.typed(values):
        given = [f"--{name}={values[name]}" for name in ("clean", "corrupted", "answer", "foil") if values[name]]
    else:
        given = ["--pairs", values["pairs"], "--count", str(values["count"])]
    by = axes_of(values["site"], values["over"])
    words = ["--site", values["site"], *([] if by is None else ["--by", ",".join(by)])]
    words += ["--direction", values["direction"], "--prefix", values["prefix"], "--seed", str(values["seed"])]
    return ["interp", "patch", *given, *words]


def python(values: Values, chosen: Chosen) -> str:
    """The same sweep, and the estimates that stand beside it."""
    if pair_inputs.typed(values):
        texts = ", ".join(repr(values[name]) for name in ("clean", "corrupted", "answer"))
        given = f"[PromptPair({texts}, {values['foil'] or None!r})]"
        imports = "from interp.pairs import PromptPair, align"
    else:
        given = f"BUILDERS[{values['pairs']!r}](model.tokenizer, n={values['count']}, seed={values['seed']})"
        imports = "from interp.pair_builders import BUILDERS\nfrom interp.pairs import align"
    asked = "".join(f"    {name!r}: {value!r},\n" for name, value in _asked(values).items())
    exact, metrics = values["method"] == "exact", list(values["metrics"])
    function, window = ("sweep", f", window={values['window']}") if exact else ("attribution_patching", "")
    return f"""
from interp.analyses.attribution_patching import attribution_patching
from interp.analyses.patching import sweep
{imports}

pairs = align(model.tokenizer, {given}, prefix={values["prefix"]!r}).of_one_length()
asked = {{
{asked}}}
found = {function}(model, pairs, metric={metrics!r}{window}, **asked)
print("\\n".join(found.summary()))


def estimates():  # of one layer a cell, to set beside exact effects
    return attribution_patching(model, pairs, metric={values["metric"]!r}, **asked)


# print("\\n".join(estimates().summary()))
"""


PAGE = Page(
    key="patching",
    title="Patching",
    icon=":material/swap_horiz:",
    question="What does the answer become when one value is that of another run?",
    parameters=PARAMETERS,
    example={
        "clean": "When John and Mary went to the store, John gave a drink to",
        "corrupted": "When John and Mary went to the store, Mary gave a drink to",
        "answer": " Mary",
        "foil": " John",
        "pairs": pair_inputs.TYPED,
        "site": "resid_pre",
        "over": "usual",
        "direction": "denoise",
        "metrics": ("logit_difference", "probability"),
        "window": 1,
        "method": "exact",
        "metric": "logit_difference",
        "measure": "recovered",
        "layer": 15,
        "place": 10,
    },
    show=show,
    compute=compute,
    command=command,
    python=python,
    cost=cost,
    preview=preview,
    further=(
        Work(
            "estimates",
            "Estimates of all cells",
            compare,
            needs=(
                *("clean", "corrupted", "answer", "foil", "pairs", "count", "site", "over"),
                *("direction", "prefix", "seed", "metric"),
            ),
            command=estimating,
        ),
    ),
    empty="Type two prompts that differ in one thing, choose a set of pairs, or load the example.",
)
