"""What the traces of many facts come to: by fact, by token role and layer, by relation. Made by `trace_facts`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from interp.analyses.corruption import Case
from interp.analyses.intervals import mean_interval
from interp.analyses.left_out import first_token_lines
from interp.analyses.trace_roles import ROLES, averaged
from interp.analyses.trace_settings import TraceSettings, said, severed_bars, window_arrays
from interp.facts import Fact
from interp.results import Arrays, Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

MOST = 5  # facts left out that a summary names
EARLY = ("first subject", "middle subject", "last subject")


@dataclass(frozen=True)
class KnownFact:
    """A fact that can be traced."""

    fact: Fact
    case: Case
    answer: int
    answer_tokens: int
    """Of how many tokens the whole answer is."""


@dataclass(frozen=True)
class TracedFact:
    """What its trace found: effects [kind, role, layer], and the answer's probability and logit, by measure."""

    effect: Mapping[str, np.ndarray]
    clean: Mapping[str, float]
    corrupted: Mapping[str, float]


class FactTraces(Result, kind="tracing.facts"):
    """Traces of the facts that a model knows, averaged.

    By [kind, role, layer]: `effect`, the mean over facts of the indirect effect, with the ends of its 95 % interval,
    `effect_low` and `effect_high`; the same of the answer's logit as `logit_effect…`. `count` [role]: how many facts
    have that role. `mean_total_effect` with `_low` and `_high`. `first_layer` and `last_layer` [kind, layer]: what was
    restored together.

    By [fact], in the order given, those that are known: `clean_probability`, `corrupted_probability` (the mean over
    samples), `total_effect`, the same two of the logit; `relation_name`, `subject`, `object`, `prompt`, `answer_token`,
    the first of `answer_tokens`, `subject_tokens`, and the subject that it was `replaced_by`. `fact_effect` and
    `fact_logit_effect`, [fact, kind, role, layer], are means over the tokens of a role.

    By [relation]: `relation_count`, `relation_total_effect` with its interval, `relation_role_count` [relation, role],
    and `relation_effect` [relation, kind, role, layer] with its interval. NaN stands for roles that no fact has, and
    for intervals of one fact. `left_out_as` [left_out] is `unknown` or `error`, and `left_out_reason` says more.
    """

    grid = ("kind", "role", "layer")
    title = "Causal traces of facts"
    caution = "Where restoring a state brings answers back is not where an edit of the weights would change them."

    @property
    def left_out(self) -> Mapping[str, str]:
        """Id of each fact that was not averaged → why."""
        return dict(zip(map(str, self.axes["left_out"]), map(str, self["left_out_reason"]), strict=True))

    def peak(self, kind: str, *roles: str) -> tuple[str, int, float]:
        """(role, layer, mean effect) of the strongest cell of a kind, among some roles or all."""
        chosen = [role for role in roles or ROLES if self.at("count", role=role) > 0]
        effects = np.stack([self.at("effect", kind=kind, role=role) for role in chosen])
        place, layer = np.unravel_index(int(effects.argmax()), effects.shape)
        return chosen[place], int(layer), float(effects[place, layer])

    def figure(self) -> "Figure":
        """Role × layer, one panel a kind; nothing is clipped."""
        from interp.plots import trace_heatmaps

        return trace_heatmaps(
            {self.panel(str(kind)): self.at("effect", kind=kind) for kind in self.axes["kind"]},
            title=self._headline(),
            metric="mean indirect effect",
            tokens=[f"{role} ({count})" for role, count in zip(ROLES, self["count"], strict=True)],
            roles=True,
        )

    def severed_figure(self, role: str = "last subject") -> "Figure":
        """The residual stream restored at one role, whole and with sublayers severed, by layer."""
        effects = {str(kind): self.at("effect", kind=kind, role=role) for kind in self.axes["kind"]}
        return severed_bars(effects, f"Restored at {role}: means over {len(self.axes['fact'])} known facts")

    def panel(self, kind: str) -> str:
        """What a kind restores, in words: `FFN outputs, 10 layers`."""
        return said(kind, int(str(self.settings["window"])))

    def summary(self) -> list[str]:
        """The total effect, for each kind its strongest cells at the subject and at the end, and who was left out."""
        kinds = [str(kind) for kind in self.axes["kind"]]
        lines = [self._headline(), f"  {self.hidden}"]
        lines += [f"  {self.panel(kind)}: {self._sites(kind)}" for kind in kinds]
        lines += [f"  left out {name}: {reason}" for name, reason in list(self.left_out.items())[:MOST]]
        if len(self.left_out) > MOST:
            lines.append(f"  … and {len(self.left_out) - MOST} more were left out")
        return [*lines, *first_token_lines(self), f"  {self.caution}"]

    @property
    def hidden(self) -> str:
        """What hides the subjects, and whose embeddings the noise is measured on."""
        asked = self.settings
        if asked["corruption"] == "replace":
            return "subjects hidden by others of their relation"
        shape = "uniform noise ±" if asked["noise_shape"] == "uniform" else "noise "
        level, subjects = f"subjects hidden by {shape}{asked['noise_level']:.3f}", asked["noise_subjects"]
        if subjects is None:
            return level
        whose = subjects if isinstance(subjects, str) else f"the {len(subjects)} that were given"  # type: ignore[arg-type]
        return f"{level}: σ {asked['embedding_spread']:.3f}, measured on the subjects, {whose}"

    def _headline(self) -> str:
        unknown = int((self["left_out_as"] == "unknown").sum())
        others = len(self.left_out) - unknown
        mean, low, high = (float(self[f"mean_total_effect{end}"]) for end in ("", "_low", "_high"))
        left = f"{unknown} unknown" + (f" and {others} that cannot be traced" * (others > 0))
        interval = "" if np.isnan(low) else f" (95 % interval {low:.3f} to {high:.3f})"
        return f"{self.title}: {len(self['total_effect'])} known ({left} left out), total effect {mean:.3f}{interval}"

    def _sites(self, kind: str) -> str:
        sites = (self.peak(kind, *EARLY), self.peak(kind, "last"))
        return "; ".join(f"{effect:+.3f} at layer {layer} of {role}" for role, layer, effect in sites)


def fact_traces(
    model: "Transformer",
    known: Sequence[KnownFact],
    traced: Sequence[TracedFact],
    left_out: Mapping[str, tuple[str, str]],
    settings: TraceSettings,
    stated: Mapping[str, object],
) -> FactTraces:
    """The averages of traced facts; `left_out`: id → (`unknown` or `error`, the reason); `stated`: all settings."""
    relations = list(dict.fromkeys(each.fact.relation for each in known))
    names = np.array([each.fact.relation for each in known], dtype=object)
    members = {relation: np.flatnonzero(names == relation) for relation in relations}
    reasons = {
        name: (np.array([each[place] for each in left_out.values()], dtype=object), ("left_out",))
        for place, name in enumerate(("left_out_as", "left_out_reason"))
    }
    return FactTraces(
        arrays={
            **_by_fact(model, known, traced),
            **_means(traced, settings.seed),
            **_by_relation(traced, list(members.values()), settings.seed),
            **window_arrays(settings, model.config.n_layers),
            **reasons,
        },
        axes={
            "kind": settings.rows,
            "role": ROLES,
            "fact": [each.fact.id for each in known],
            "relation": relations,
            "left_out": left_out,
        },
        settings=stated,
        provenance=provenance(model.provenance, prefix=settings.prefix, seed=settings.seed),
    )


def _by_fact(model: "Transformer", known: Sequence[KnownFact], traced: Sequence[TracedFact]) -> Arrays:
    facts = [each.fact for each in known]
    columns: dict[str, Sequence[object]] = {
        "relation_name": [fact.relation for fact in facts],
        "subject": [fact.subject for fact in facts],
        "object": [fact.object for fact in facts],
        "prompt": [fact.prompt for fact in facts],
        "replaced_by": ["" if each.case.other is None else str(each.fact.counterfactual) for each in known],
        "answer_token": model.tokenizer.str_tokens([each.answer for each in known]),
        "answer_tokens": [each.answer_tokens for each in known],
        "subject_tokens": [len(each.case.span.positions) for each in known],
        "total_effect": [each.clean["probability"] - each.corrupted["probability"] for each in traced],
    }
    for name in ("probability", "logit"):
        columns[f"clean_{name}"] = [each.clean[name] for each in traced]
        columns[f"corrupted_{name}"] = [each.corrupted[name] for each in traced]
    found: Arrays = {name: (values, ("fact",)) for name, values in columns.items()}
    axes = ("fact", *FactTraces.grid)
    return {
        **found,
        "fact_effect": (_stacked(traced, "probability"), axes),
        "fact_logit_effect": (_stacked(traced, "logit"), axes),
    }


def _means(traced: Sequence[TracedFact], seed: int) -> Arrays:
    """Over all facts."""
    found: dict[str, tuple[object, Sequence[str]]] = {}
    for measure, prefix in (("probability", ""), ("logit", "logit_")):
        each = averaged(_stacked(traced, measure), seed=seed)
        found[f"{prefix}effect"] = each["mean"], FactTraces.grid
        found[f"{prefix}effect_low"], found[f"{prefix}effect_high"] = (
            (each[end], FactTraces.grid) for end in ("low", "high")
        )
        found["count"] = each["count"], ("role",)
    total = _totals(traced, [np.arange(len(traced))], seed)
    return {**found, **{f"mean_total_effect{end}": (values[0], ()) for end, values in total.items()}}


def _by_relation(traced: Sequence[TracedFact], members: Sequence[np.ndarray], seed: int) -> Arrays:
    """Over the facts of each relation."""
    stacked = _stacked(traced, "probability")
    each = [averaged(stacked[own], seed=seed) for own in members]
    axes = ("relation", *FactTraces.grid)
    names = {"relation_effect": "mean", "relation_effect_low": "low", "relation_effect_high": "high"}
    found: Arrays = {name: (np.stack([of[part] for of in each]), axes) for name, part in names.items()}
    totals = _totals(traced, members, seed)
    return {
        **found,
        "relation_role_count": (np.stack([of["count"] for of in each]), ("relation", "role")),
        "relation_count": ([len(own) for own in members], ("relation",)),
        **{f"relation_total_effect{end}": (values, ("relation",)) for end, values in totals.items()},
    }


def _totals(traced: Sequence[TracedFact], members: Sequence[np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Mean total effects of sets of facts, [set], and the ends of their intervals."""
    total = np.array([each.clean["probability"] - each.corrupted["probability"] for each in traced])
    ends = [mean_interval(total[own], seed=seed) for own in members]
    mean = np.array([total[own].mean() for own in members])
    return {"": mean, "_low": np.array([low for low, _ in ends]), "_high": np.array([high for _, high in ends])}


def _stacked(traced: Sequence[TracedFact], measure: str) -> np.ndarray:
    """[fact, kind, role, layer]."""
    return np.stack([each.effect[measure] for each in traced])
