"""Causal traces of many facts: which tokens and layers bring facts back on average, and how sure is that?

Every fact that the model knows is traced as in `analyses/tracing.py`, and its tokens are put into roles
(`analyses/trace_roles.py`). With IE(t, ℓ) the indirect effect of fact f at token t and layer ℓ,

    effect_f(r, ℓ) = mean over tokens t of role r in f of IE(t, ℓ)
    effect(r, ℓ)   = mean over facts f that have role r of effect_f(r, ℓ)

with 95 % intervals by bootstrap over facts (Efron 1979), over all facts and by relation. Facts count alike, however
many tokens they have; the reference code pools the tokens of `middle subject` and `further` instead, so that there long
prompts weigh more. Nothing is clipped: what restoring makes worse is negative. Facts that the model completes otherwise
are left out and listed, since what it does not say cannot be brought back; so are facts that cannot be traced.

Facts whose prompts are equally long and whose subjects begin at the same place share their runs. The noise of a fact is
that of `causal_trace` with the same seed, whatever is traced beside it and in whatever order: only rounding may differ.

Paper: Meng et al. 2022, "Locating and editing factual associations in GPT" (arXiv 2202.05262).

What it does NOT tell: what a single trace does not tell either, and that single facts look like the mean. Intervals are
about facts like these, in sentences like these; facts of one relation share their sentence, so that they are less
independent than the interval takes them to be.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Unpack

from interp.analyses.corruption import Corruption, Noise, case_of, noise_of
from interp.analyses.fact_filter import KnownFacts, filter_facts
from interp.analyses.fact_traces import FactTraces, KnownFact, TracedFact, fact_traces
from interp.analyses.left_out import none_left
from interp.analyses.restoring import Restoring, cases_at_once, plan_restoring
from interp.analyses.trace_roles import by_role
from interp.analyses.trace_settings import TraceOptions, TraceSettings
from interp.errors import UsageError
from interp.fact_partners import partners
from interp.facts import Fact, answer_ids, exact_span, fill
from interp.models.replay import SoFar
from interp.models.replay_cost import TOKENS_A_WALK, Clock, Cost, summed

if TYPE_CHECKING:
    from interp.models.transformer import Transformer


def trace_facts(
    model: "Transformer",
    facts: Iterable[Fact],
    *,
    corruption: Corruption = "noise",
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[TraceOptions],
) -> FactTraces:
    """Trace the facts that the model knows, and average them by token role, together and by relation.

    `corruption`: `"noise"`, or `"replace"` for another subject of the same relation and as many tokens in the subject's
    place: the fact's `counterfactual`, or one drawn by (seed, id); a fact that has none is left out. `options` are the
    fields of `TraceSettings`, by keyword. `progress` counts facts.

    Raises `UsageError` as `filter_facts` does, and where no fact is left to trace, saying why.
    """
    return plan_fact_traces(model, facts, corruption=corruption, **options).run(progress=progress)


def plan_fact_traces(
    model: "Transformer", facts: Iterable[Fact], *, corruption: Corruption = "noise", **options: Unpack[TraceOptions]
) -> "FactTracing":
    """The same, planned but not run: its cost can be read first. The model has been asked which facts it knows."""
    settings, given = TraceSettings(**options), tuple(facts)
    if corruption not in ("noise", "replace"):
        raise UsageError(f"The corruption is {corruption!r}; expected 'noise' or 'replace'.")
    asked = filter_facts(model, given, prefix=settings.prefix)
    known, left_out = _known(model, given, asked, corruption, settings)
    noise = noise_of(model, settings.noise, settings.noise_subjects) if corruption == "noise" else None
    return FactTracing(model, known, left_out, corruption, settings, noise)


@dataclass(frozen=True)
class FactTracing:
    """Traces of many facts that are planned and ready to run: `cost()` before them, `run()` for the result."""

    model: "Transformer"
    known: Sequence[KnownFact]
    left_out: Mapping[str, tuple[str, str]]
    corruption: Corruption
    settings: TraceSettings
    noise: Noise | None

    @property
    def groups(self) -> "list[list[KnownFact]]":
        """The facts that share their runs."""
        return list(_groups(self.model, self.known, self.settings, self._samples))

    @property
    def tokens(self) -> int:
        """Tokens of all rows, those that are known to change nothing counted too."""
        cells = len(self.settings.rows) * self.model.config.n_layers * self._samples
        lengths = [(len(each.case.clean), each.case.span.start) for each in self.known]
        return sum(cells * (length - start) * length for length, start in lengths)

    def cost(self) -> Cost:
        """Rows, operations, bytes and seconds of all traces.

        One group of each shape is planned, its clean and corrupted runs done, and stands for the others of that shape.
        """
        alike: dict[tuple[int, int, int], list[list[KnownFact]]] = {}
        for group in self.groups:
            case = group[0].case
            alike.setdefault((len(case.clean), case.span.start, len(group)), []).append(group)
        clock, costs = Clock(self.model, TOKENS_A_WALK), list[Cost]()
        for first, *others in alike.values():
            costs += [self._planned(first).replay.cost(clock)] * (1 + len(others))
        return summed(costs)

    def run(
        self,
        *,
        progress: Callable[[int, int], None] | None = None,
        so_far: SoFar[FactTraces] | None = None,
    ) -> FactTraces:
        """Trace one group after the other; `progress` counts facts, `so_far` may ask for the averages by then."""
        found: dict[str, TracedFact] = {}
        for group in self.groups:
            found |= _traced(group, self._planned(group))
            if progress is not None:
                progress(len(found), len(self.known))
            if so_far is not None:
                so_far(partial(self._result, dict(found)))
        return self._result(found)

    def _result(self, found: Mapping[str, TracedFact]) -> FactTraces:
        known = [each for each in self.known if each.fact.id in found]
        traced = [found[each.fact.id] for each in known]
        return fact_traces(self.model, known, traced, self.left_out, self.settings, self.stated())

    def stated(self) -> dict[str, object]:
        """What a result says of its settings."""
        return {
            "corruption": self.corruption,
            **({} if self.noise is None else self.noise.stated()),
            "samples": self._samples,
            **self.settings.stated(),
            "facts": len(self.known) + len(self.left_out),
        }

    @property
    def _samples(self) -> int:
        return 1 if self.noise is None else self.settings.samples

    def _planned(self, group: Sequence[KnownFact]) -> Restoring:
        cases, answers = [each.case for each in group], [each.answer for each in group]
        places = range(cases[0].span.start, len(cases[0].clean))
        return plan_restoring(self.model, cases, self.settings, self.noise, answers=answers, positions=places)


def _known(
    model: "Transformer", facts: Sequence[Fact], asked: KnownFacts, corruption: Corruption, settings: TraceSettings
) -> tuple[list[KnownFact], dict[str, tuple[str, str]]]:
    """The facts to trace; and of every other its id, what is the matter in one word, and the reason."""
    candidates = asked.known(facts)
    left_out = {
        name: ("error" if name in asked.skipped else "unknown", reason) for name, reason in asked.left_out.items()
    }
    if corruption == "replace":
        candidates, without = _with_partners(model, facts, candidates, settings)
        left_out |= {name: ("error", reason) for name, reason in without.items()}
    known = []
    for fact in candidates:
        try:
            known.append(_as_known(model, fact, corruption, settings))
        except UsageError as error:
            left_out[fact.id] = ("error", str(error))
    if not known:
        reasons = {name: reason for name, (_, reason) in left_out.items()}
        raise none_left(f"None of the {len(facts)} facts is left to trace", reasons)
    return known, left_out


def _with_partners(
    model: "Transformer", facts: Sequence[Fact], candidates: Sequence[Fact], settings: TraceSettings
) -> tuple[tuple[Fact, ...], dict[str, str]]:
    """The candidates with the subject that takes their own's place; and why others have none."""
    found = partners(model.tokenizer, facts, seed=settings.seed, prefix=settings.prefix)
    replaced = {fact.id: fact for fact, _ in found.pairs}
    ids = [fact.id for fact in candidates]
    return tuple(replaced[each] for each in ids if each in replaced), {
        each: found.without[each] for each in ids if each not in replaced
    }


def _as_known(model: "Transformer", fact: Fact, corruption: Corruption, settings: TraceSettings) -> KnownFact:
    tokenizer, prefix = model.tokenizer, settings.prefix
    span = exact_span(tokenizer, fact.template, fact.subject, prefix=prefix)
    other = fill(fact.template, str(fact.counterfactual)) if corruption == "replace" else None
    case = case_of(tokenizer, fact.prompt, span, prefix, other)
    answer = answer_ids(tokenizer, fact.prompt, fact.answer)
    return KnownFact(fact, case, answer[0], len(answer))


def _groups(
    model: "Transformer", known: Sequence[KnownFact], settings: TraceSettings, samples: int
) -> Iterable[list[KnownFact]]:
    """Facts that share their runs: of one length, the subject at one place, as many as fit."""
    alike: dict[tuple[int, int], list[KnownFact]] = {}
    for each in known:
        alike.setdefault((len(each.case.clean), each.case.span.start), []).append(each)
    for (length, _), group in alike.items():
        size = cases_at_once(model, length, settings, samples)
        yield from (group[first : first + size] for first in range(0, len(group), size))


def _traced(group: Sequence[KnownFact], planned: Restoring) -> dict[str, TracedFact]:
    """The traces of one group, by id."""
    length, swept = len(group[0].case.clean), planned.run()
    effects = {name: (of.cells - of.corrupted).mean(-1) for name, of in swept.items()}
    return {
        each.fact.id: TracedFact(
            {name: by_role(effect[..., place], each.case.span, length) for name, effect in effects.items()},
            {name: float(of.clean[place]) for name, of in swept.items()},
            {name: float(of.corrupted[place].mean()) for name, of in swept.items()},
        )
        for place, each in enumerate(group)
    }
