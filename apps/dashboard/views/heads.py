"""Heads: the atlas of all of them, sorted and filtered; which compose; and what taking a selection away does."""

import re
from typing import TYPE_CHECKING, Any

import streamlit as st

from interp.apps.dashboard.context import Context
from interp.apps.dashboard.costs import estimated
from interp.apps.dashboard.page import Cost, Page, Work
from interp.apps.dashboard.parameters import Parameter, Values
from interp.apps.dashboard.shelf import Chosen
from interp.apps.dashboard.store import Results

if TYPE_CHECKING:
    import pandas

    from interp.analyses.atlas import HeadAtlas
    from interp.apps.dashboard.jobs import Reporter
    from interp.models.transformer import Transformer

ROLES = ("any", "induction", "previous token", "current token", "same token", "delimiter", "after delimiter",
         "agreement", "coreference", "sink", "none")  # fmt: skip
SCORES = ("strength", "prefix_matching", "prefix_matching_sink_free", "duplicate_token", "random_previous_token",
          "random_current_token", "random_sink", "previous_token", "current_token", "same_token", "delimiter",
          "after_delimiter", "agreement", "coreference", "sink", "distance", "entropy", "evenness", "ov_eigenvalue",
          "ov_eigenvalue_centred", "behavioural", "ioi_copy", "ioi_copy_negative")  # fmt: skip
"""Those of the atlas that a page has room for; all of them stand in its table."""
LEAST = -1000.0
"""No score is lower."""
METHODS = ("mean", "resample", "zero", "pattern_preserving")
KINDS = {"k": "keys", "q": "queries", "v": "values"}
_HEADS = re.compile(r"\d+\.\d+(\s*,\s*\d+\.\d+)*")


def _selection_problem(text: str) -> str | None:
    """Heads as 18.6, 17.3; whether the model has them, the ablation says."""
    if not text or _HEADS.fullmatch(text.strip()):
        return None
    return "heads are expected as layer.head, parted by commas: 18.6, 17.3."


PARAMETERS = (
    Parameter("seq_len", "whole", 50, "Random tokens", "In the sequence that is said again.", low=2, high=512),
    Parameter("repeats", "whole", 2, "Times said", low=2, high=16),
    Parameter("n_seqs", "whole", 16, "Sequences", "Scores are means over them.", low=1, high=256),
    Parameter("n_documents", "whole", 8, "Documents", "How many of those that come along.", low=1, high=36),
    Parameter("doc_len", "whole", 256, "Tokens of each", low=2, high=1024),
    Parameter("threshold", "number", 0.1, "A role begins at", "Above uniform attention, of 1.", low=0.001, high=0.999),
    Parameter("copying", "flag", True, "What heads copy", "Takes about half as long again."),
    Parameter("prefix", "choice", "doc", "Prefix", "What stands before a text.", choices=("doc", "none", "chat")),
    Parameter("seed", "whole", 0, "Seed", low=0, high=2**31),
    Parameter("sort", "choice", "strength", "Score", choices=SCORES, view=True),
    Parameter("role", "choice", "any", "Role", choices=ROLES, view=True),
    Parameter("least", "number", LEAST, "At least", "Heads whose score is lower are left out.", low=LEAST,
              high=1000.0, view=True),
    Parameter("layer", "whole", 0, "Layer", low=0, high=999, view=True),
    Parameter("head", "whole", 0, "Head", low=0, high=999, view=True),
    Parameter("x", "choice", "random_previous_token", "Across", choices=SCORES, view=True),
    Parameter("y", "choice", "prefix_matching", "Upwards", choices=SCORES, view=True),
    Parameter("kind", "choice", "k", "Read through", choices=tuple(KINDS), labels=KINDS, view=True),
    Parameter("selection", "line", "", "Selection", "Heads to take away: 18.6, 17.3.", view=True,
              check=_selection_problem),
    Parameter("first", "whole", 3, "Of the list, the first", low=1, high=64, view=True),
    Parameter("method", "choice", "mean", "In their place", choices=METHODS, view=True),
    Parameter("controls", "whole", 20, "Sets of other heads", "Of the same layers, to compare.", low=1, high=200,
              view=True),
)  # fmt: skip

READS = ("seq_len", "repeats", "n_seqs", "prefix", "seed")


def compute(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """The atlas: where every head looks on three kinds of text, and what it copies."""
    from interp.analyses.atlas import head_atlas

    return {"atlas": head_atlas(model, **_asked(values), progress=report, so_far=report.so_far("atlas"))}


def _asked(values: Values) -> dict[str, Any]:
    names = (*READS, "n_documents", "doc_len", "threshold", "copying")
    return {name: values[name] for name in names}


def cost(model: "Transformer", values: Values) -> Cost:
    """Every text read once, and what heads copy."""
    return estimated(model, "atlas", [], _asked(values))


def _listed(selection: str) -> list[str]:
    return [word.strip() for word in selection.split(",") if word.strip()]


def _removal(values: Values) -> dict[str, Any]:
    """How the selection is taken away: on fewer and shorter texts than the scores are of, as on the command line."""
    from interp.apps.cli.induction_study import fewer_texts

    names = ("repeats", "prefix", "seed", "method", "controls")
    return {**{name: values[name] for name in names}, **fewer_texts(values["seq_len"], values["n_seqs"])}


def compute_ablation(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """What repetition is worth without the selection, and without others of the same layers."""
    from interp.analyses.head_ablation import ablate_heads
    from interp.errors import UsageError

    if not (heads := _listed(values["selection"])):
        raise UsageError("No head is selected. Write some, such as 18.6, 17.3, or take the first of the list.")
    return {"ablation": ablate_heads(model, heads, progress=report, **_removal(values))}


def cost_of_ablation(model: "Transformer", values: Values) -> Cost:
    """Every head and all together, each with its controls, on every text."""
    heads = _listed(values["selection"]) or ["0.0"]
    return estimated(model, "head-ablation", [], {"heads": heads, **_removal(values)})


def compute_composition(model: "Transformer", values: Values, report: "Reporter") -> Results:
    """Every head with every head of later layers."""
    from interp.analyses.composition import composition

    return {"composition": composition(model, seed=values["seed"], progress=report)}


def show(context: Context, results: Results) -> None:
    """The map, the list and the scatter; the selection and what it causes; composition."""
    from interp.apps.dashboard.views import head_lists as drawn

    atlas: HeadAtlas = results["atlas"]
    for note in atlas.notes:
        st.info(note)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for name in ("sort", "role", "least"):
            context.control(name)
    score = drawn.known(atlas, context.values["sort"])
    listed = drawn.filtered(atlas, score, context.values["role"], context.values["least"])
    head, layer = context.heatmap("map", drawn.score_map(atlas, score), drawn.map_said(atlas, score))
    _chosen(context, atlas, layer, head)
    left, right = st.columns([7, 5], gap="large")
    with left:
        st.subheader(f"{len(listed)} of {atlas['role'].size} heads, by {score.replace('_', ' ')}", anchor=False)
        drawn.table(context, listed, score)
    with right:
        st.subheader("One score against another", anchor=False)
        drawn.scatter(context, atlas, listed)
    st.subheader("What the selection does", anchor=False)
    _ablation(context, listed)
    st.subheader("Which heads compose", anchor=False)
    _composition(context, layer, head)
    st.caption(atlas.caution)


def _chosen(context: Context, atlas: "HeadAtlas", layer: int, head: int) -> None:
    """The chosen head in words, into the selection, and on to its pattern."""
    name, values = f"{layer}.{head}", context.values
    copied = [f"OV {atlas['ov_eigenvalue'][layer, head]:+.2f}"] if "ov_eigenvalue" in atlas else []
    said = [f"role {atlas['role'][layer, head]}", f"strength {atlas['strength'][layer, head]:.3f}",
            f"prefix matching {atlas['prefix_matching'][layer, head]:.3f}", *copied]  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**Head {name}**: {', '.join(said)}")
        selected = _listed(values["selection"])
        if st.button("Add to the selection", key="_add.heads", disabled=name in selected):
            context.set({"selection": ", ".join([*selected, name])})
        context.link("See it on a repeated sequence", "attention", _pattern_of(values, layer, head))


def _pattern_of(values: Values, layer: int, head: int) -> dict[str, Any]:
    """The page of attention on the first of the random sequences, from its very tokens."""
    same = {name: values[name] for name in ("seq_len", "prefix", "seed")}
    return {"read": "repeated", "other": "", "of": "prompt", "first": False, "layer": layer, "head": head, **same}


def _ablation(context: Context, listed: "pandas.DataFrame") -> None:
    """The selection, how it is taken away, and what that costs beside other heads."""
    from interp.apps.dashboard.views import beside

    with st.container(horizontal=True, vertical_alignment="bottom"):
        for name in ("selection", "method", "controls", "first"):
            context.control(name)
        if st.button("Take those", key="_take.heads", disabled=listed.empty):
            first = listed.head(context.values["first"]).itertuples()
            context.set({"selection": ", ".join(f"{row.layer}.{row.head}" for row in first)})
    found = context.further("ablation", button="Take the selection away")
    if found is not None:
        beside.draw(context, found["ablation"], "nll", {"nll": (-1,)})


def _composition(context: Context, layer: int, head: int) -> None:
    """Which earlier heads the chosen one is made to read, and which later ones read it."""
    from interp.apps.dashboard.views import head_lists as drawn

    context.control("kind")
    found = context.further("composition", button="Compose all heads")
    if found is not None:
        drawn.composed(context, found["composition"], context.values["kind"], layer, head)


# ---------------------------------------------------------------------------------------------------------- repeating


def command(values: Values, chosen: Chosen) -> list[str]:
    """The atlas, sorted and filtered, and the ablation of the selection."""
    words = ["interp", "heads", "--sort", values["sort"]]
    words += [] if values["least"] <= LEAST else [f"--at-least={values['least']}"]
    words += [] if values["role"] == "any" else ["--role", values["role"]]
    for name in ("seq_len", "repeats", "n_seqs", "n_documents", "doc_len", "threshold", "prefix", "seed"):
        words += [f"--{name.replace('_', '-')}", str(values[name])]
    words += [] if values["copying"] else ["--no-copying"]
    heads = _listed(values["selection"])
    how = ["--method", values["method"], "--controls", str(values["controls"])]
    words += ["--ablate", ",".join(heads), *how] if heads else ["--ablate-top", "0"]
    return [*words, *chosen.words(), "--json"]


def composing(values: Values, chosen: Chosen) -> list[str]:
    """The same, and composition."""
    return [*command(values, chosen), "--composition"]


def python(values: Values, chosen: Chosen) -> str:
    """The same, and composition."""
    role = None if values["role"] == "any" else values["role"]
    asked, removal = (
        ", ".join(f"{name}={value!r}" for name, value in each.items()) for each in (_asked(values), _removal(values))
    )
    heads = _listed(values["selection"])
    ablation = (
        f"without = ablate_heads(model, {heads!r}, {removal})\nprint(*without.summary(), sep='\\n')" if heads else ""
    )
    return f"""
from interp.analyses.atlas import head_atlas
from interp.analyses.composition import composition
from interp.analyses.head_ablation import ablate_heads

atlas = head_atlas(model, {asked})
heads = atlas.ranked(atlas["role"].size, by={values["sort"]!r}, role={role!r}, least={values["least"]!r})
print(heads.head(15))
{ablation}


def composed():  # not of every model
    return composition(model, seed={values["seed"]})


# print(composed().pairs({values["kind"]!r}, 10))
"""


FURTHER = (
    Work("ablation", "Taking heads away", compute_ablation, needs=(*READS, "selection", "method", "controls"),
         cost=cost_of_ablation),
    Work("composition", "Composing heads", compute_composition, needs=("seed",), command=composing),
)  # fmt: skip

EXAMPLE = {
    **{parameter.name: parameter.default for parameter in PARAMETERS},
    "n_seqs": 4,
    "n_documents": 2,
    "doc_len": 64,
    "copying": False,
    "sort": "prefix_matching",
    "layer": 18,
    "head": 6,
    "selection": "18.6, 17.3",
    "controls": 6,
}
"""Quick: fewer texts than the defaults, and nothing of what heads copy."""

PAGE = Page(
    key="heads",
    title="Heads",
    icon=":material/hub:",
    question="What does every head look at, which of them work together, and what happens without them?",
    parameters=PARAMETERS,
    example=EXAMPLE,
    show=show,
    compute=compute,
    command=command,
    python=python,
    cost=cost,
    further=FURTHER,
    empty="Compute, or load the quick example, to map every head by what it looks at.",
)
