"""What becomes of a fact, and of others, when some neurons are suppressed or amplified?

With P the probability of the first token of an answer, and a set of neurons for every edited fact,

    effect(group) = mean over edited facts of the mean over the group's texts of P with the edit − P without it

for five groups of texts: the fact's own prompt; its paraphrases, and those of them by which the neurons were not found
(`held out`); and what should not change, other facts of the same relation and of other relations. Beside each effect
stands that of random neurons, as many of the same layers, edited in the same way; the *excess* is the effect less
theirs, fact by fact. Intervals are 95 % bootstraps over edited facts; where only one is edited, over those measured.

A coefficient can be multiplied (0 suppresses, 2 amplifies), set, or replaced by its mean over the tokens of all texts,
the prefix left out. Zero takes a neuron out of its usual range, so that part of its effect may be that shock: the mean
stands beside it.

Papers: Dai et al. 2022, Knowledge Neurons in Pretrained Transformers (arXiv 2104.08696), where suppressing them lowered
the answer's probability by 29 % on average, and doubling raised it by 31 %; Zhang & Nanda 2024 (arXiv 2309.16042) on
zero and mean.

What it does NOT tell: that the fact is gone; other wordings, or other words after it, may still bring it out. The other
facts are those that were given, a sample of all that the neurons may serve.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.analyses.edited_texts import Job, by_change, measured
from interp.analyses.fact_texts import GROUPS, FactText, Question, as_batch, fact_texts, members
from interp.analyses.group_effects import by_group
from interp.analyses.left_out import first_token_lines
from interp.analyses.neuron_changes import mean_coefficients, neuron_edits, parse_change
from interp.analyses.neurons import Neuron, control_neurons, neurons_of
from interp.errors import UsageError
from interp.facts import Fact
from interp.models.replay import Progress
from interp.results import Arrays, Result, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.prompt_formats import PrefixPolicy
    from interp.models.transformer import Transformer


class NeuronEdits(Result, kind="facts.neuron-edits"):
    """What edits of neurons do to the facts they are for, and to others.

    By [change, group]: `effect` on the answer's probability, `control_effect` that of random neurons, and `excess`, the
    first less the second, each with its interval (`_low`, `_high`); `relative`, `relative_low` and `relative_high`,
    mean P with the edit over mean P without it, less 1; `lost`, the share of texts that were answered rightly and are
    no longer, and `control_lost`. `units` [group]: how many facts an interval is over. The effects of every edited fact
    are `fact_effect` and `fact_control_effect` [change, group, edited], NaN where it has no texts of a group.

    By text: `base_probability`, `base_rank` (1 is the top), `base_said`; with the edits `probability`, `rank`, `said`
    [change, edited, text], `control_probability` and `control_rank` [change, edited, draw, text]; paraphrases of other
    facts are not measured (NaN, 0, ""). `prompt`, `fact_id`, `relation_name`, `held_out` [text], and `answer_tokens`,
    how many the answer has, of which the first is measured. `neurons` [edited] and `control_neurons` [edited, draw]
    name what was edited; `skip_reason` [skipped] says why a text was left out.
    """

    grid = ("change", "group")
    title = "Neurons edited"
    caution = "A fact that an edit hides in these wordings need not be gone, and other facts are a sample."

    def figure(self) -> "Figure":
        """The effect on each group, and that of random neurons, change by change."""
        from interp.plots import ranked_bars

        kept = [place for place, units in enumerate(self["units"]) if units]
        labels = [f"{change}: {self.axes['group'][group]}" for change in self.axes["change"] for group in kept]
        series, errors = {}, {}
        for label, name in (("these neurons", "effect"), ("random neurons of their layers", "control_effect")):
            value, low, high = (self[f"{name}{end}"][:, kept].ravel() for end in ("", "_low", "_high"))
            series[label], errors[label] = value, np.nan_to_num(np.stack([value - low, high - value]))
        return ranked_bars(
            labels,
            series,
            errors=errors,
            title=f"{self.title}: {len(self.axes['edited'])} facts edited, 95 % intervals",
            metric="effect on the probability of the answer",
            label="change and group",
        )

    def summary(self) -> list[str]:
        """Change by change, what happens to the facts and to others."""
        edited, texts = len(self.axes["edited"]), len(self["prompt"])
        lines = [f"{self.title}: {edited} fact{'s' * (edited > 1)}, {texts} texts; effects on P(answer)"]
        for change in range(len(self.axes["change"])):
            lines.append(f"  {self.axes['change'][change]}")
            lines += [self._line(change, group) for group in range(len(GROUPS)) if self["units"][group]]
        return [*lines, *first_token_lines(self), f"  {self.caution}"]

    def interval(self, name: str, change: int | str, group: int | str) -> str:
        """An effect with its interval, where there is one: `+0.20 [+0.02, +0.41]`; places by name or by number."""
        one, other = (
            place if isinstance(place, int) else self.axes[axis].index(place)
            for axis, place in (("change", change), ("group", group))
        )
        value, low, high = (float(self[f"{name}{end}"][one, other]) for end in ("", "_low", "_high"))
        return f"{value:+.3f}" + ("" if np.isnan(low) else f" [{low:+.3f}, {high:+.3f}]")

    def _line(self, change: int, group: int) -> str:
        own, control, excess = (self.interval(name, change, group) for name in ("effect", "control_effect", "excess"))
        relative, lost = (float(self[name][change, group]) for name in ("relative", "lost"))
        right = "" if np.isnan(lost) else f", {lost:.0%} of right answers lost"
        return (
            f"    {self.axes['group'][group]:>15}  {own} ({relative:+.0%}{right})   random neurons {control}   "
            f"excess {excess}"
        )


@torch.no_grad()
def edit_neurons(
    model: "Transformer",
    facts: Iterable[Fact | Question],
    neurons: Mapping[str, Sequence[Neuron | str]] | Sequence[Neuron | str],
    *,
    changes: Sequence[str] = ("zero", "mean", "x2"),
    controls: int = 5,
    held_out: int = 0,
    others: int | None = None,
    last: bool = False,
    prefix: "PrefixPolicy" = "doc",
    seed: int = 0,
    budget: int = 2**30,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> NeuronEdits:
    """Edit the neurons of one fact after the other; each time measure it in all its wordings, others by their prompts.

    `neurons`: those of each edited fact, by its id; a list of them is the first fact's. `changes`: `zero`, `mean`, `x2`
    (any factor), `=1.5` (any number). `controls`: how many sets of random neurons. `held_out`: how many paraphrases of
    each fact, the last ones, had no part in finding the neurons. `others`: how many facts of other relations are
    measured for each edited one, drawn at random; all by default. Neurons are edited in every token, or in the `last`
    of each text alone. `budget` as in `Replay`.

    Raises `UsageError` for an id that no fact has, neurons or changes that do not exist, and no usable texts.
    """
    given = tuple(map(Question.of, facts))
    texts, skipped = fact_texts(model, given, held_out=held_out, prefix=prefix)
    edited = _edited(model, given, neurons, {text.fact.id for text in texts})
    if type(controls) is not int or controls < 1 or not changes or len(set(changes)) < len(changes):
        raise UsageError(f"Expected at least one control, and changes, each once; came {controls!r}, {list(changes)}.")
    for change in changes:
        parse_change(change)
    sets = [
        (own, *control_neurons(model.config, own, controls, seed=(seed, number)))
        for number, own in enumerate(edited.values())
    ]
    by_id = {fact.id: fact for fact in given}
    group = members(texts, [by_id[name] for name in edited], most=others, seed=seed)
    kept = np.flatnonzero(group.any((0, 1)))  # the others are nobody's group
    texts, group = [texts[place] for place in kept], group[..., kept]
    tokens, mask = as_batch(model.tokenizer, texts)
    every = list(dict.fromkeys(neuron for each in sets for own in each for neuron in own))
    means = mean_coefficients(model, tokens, every, mask=mask, prefix=prefix) if "mean" in changes else {}
    jobs = [
        Job(
            [neuron_edits(own, change, means=means, last=last) for change in changes for own in each],
            np.flatnonzero(group[:, number].any(0)).tolist(),
        )
        for number, each in enumerate(sets)
    ]
    found = by_change(model, measured(model, texts, jobs, budget, progress, cancelled), len(changes))
    values = {name: array for name, (array, _) in found.items()}
    return NeuronEdits(
        arrays={
            **found,
            **by_group(group, [text.fact.id for text in texts], values, seed),
            **_labels(texts),
            "neurons": ([", ".join(map(str, each[0])) for each in sets], ("edited",)),
            "control_neurons": ([[", ".join(map(str, own)) for own in each[1:]] for each in sets], ("edited", "draw")),
            "skip_reason": (np.array(list(skipped.values()), dtype=object), ("skipped",)),
        },
        axes={"change": list(changes), "group": GROUPS, "edited": list(edited), "skipped": skipped},
        settings={
            "controls": controls,
            "held_out": held_out,
            "others": others,
            "last": last,
            "prefix": prefix,
            "facts": len(given),
        },
        provenance=provenance(model.provenance, tokens=tokens, prefix=prefix, seed=seed),
    )


def _edited(
    model: "Transformer",
    facts: Sequence[Question],
    neurons: Mapping[str, Sequence[Neuron | str]] | Sequence[Neuron | str],
    usable: Collection[str],
) -> dict[str, tuple[Neuron, ...]]:
    """The neurons of each edited fact; refused for facts that are not there or cannot be measured."""
    by_id = neurons if isinstance(neurons, Mapping) else {facts[0].id: neurons}
    if not by_id:
        raise UsageError("There are no neurons to edit; name those of at least one fact.")
    missing = next((name for name in by_id if name not in usable), None)
    if missing is not None:
        raise UsageError(f"Neurons are given for {missing!r}, but no fact of that id is among those that are measured.")
    return {name: neurons_of(model, each) for name, each in by_id.items()}


def _labels(texts: Sequence[FactText]) -> Arrays:
    """What each text is."""
    columns = {
        "prompt": [text.text for text in texts],
        "fact_id": [text.fact.id for text in texts],
        "relation_name": [text.fact.relation for text in texts],
        "held_out": [text.held_out for text in texts],
        "answer_tokens": [text.answer_tokens for text in texts],
    }
    return {name: (values, ("text",)) for name, values in columns.items()}
