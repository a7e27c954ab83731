"""Are the strongest knowledge neurons of facts needed for them, and for them alone?

For each of some facts that the model knows, the `count` neurons of the largest mean attribution are found, over its
prompt and all paraphrases but the last `held_out`; then they are suppressed and amplified, and all facts are measured
each time, the held-out paraphrases among them, beside as many random neurons of the same layers. What is measured, and
how, stands in `interp.analyses.neuron_edits`, what is found in `interp.analyses.knowledge_neurons`.

Paper: Dai et al. 2022, Knowledge Neurons in Pretrained Transformers (arXiv 2104.08696).

What it does NOT tell: more than those two do; and of unknown facts, which are left out, nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from interp.analyses import fact_data
from interp.analyses.fact_filter import filter_facts
from interp.analyses.knowledge_neurons import Position, knowledge_neurons
from interp.analyses.known_facts import known_facts
from interp.analyses.neuron_edits import NeuronEdits, edit_neurons
from interp.analyses.neurons import Neuron
from interp.errors import UsageError
from interp.facts import Fact, answer_ids, exact_span, fill
from interp.models.replay import Progress
from interp.prompts import Prefix

if TYPE_CHECKING:
    from interp.models.prompt_formats import PrefixPolicy
    from interp.models.transformer import Transformer


def suppression_study(
    model: "Transformer",
    facts: Iterable[Fact],
    *,
    count: int = 5,
    limit: int = 20,
    changes: Sequence[str] = ("zero", "mean", "x2"),
    controls: int = 5,
    held_out: int = 1,
    peers: int = 2,
    others: int | None = 12,
    position: Position = "last",
    steps: int = 20,
    last: bool = False,
    prefix: "PrefixPolicy" = "doc",
    seed: int = 0,
    budget: int = 2**30,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> NeuronEdits:
    """Suppress and amplify the strongest neurons of known facts, one fact after the other.

    Of the facts that the model knows the first of each relation are taken, then the second, until there are `limit`;
    and of each of their relations `peers` more, which are measured only. `others` as in `edit_neurons`. Facts to whose
    answer no neuron adds are measured, not edited. Unknown facts are left out, and paraphrases that come twice or
    cannot be measured, with the reason (`skip_reason`). `progress` counts facts while neurons are found, then texts.

    Raises `UsageError` where no fact is known, or none could be edited.
    """
    if min(count, limit) < 1 or held_out < 0:
        raise UsageError(f"Expected count, limit ≥ 1 and held_out ≥ 0; came {count}, {limit} and {held_out}.")
    everything = known_facts(model, facts, prefix=prefix)
    known, unasked = _measurable(model, in_turns(everything.facts, limit), position, prefix)
    found: dict[str, tuple[Neuron, ...]] = {}
    for number, fact in enumerate(known, 1):
        seen = fact.paraphrases[: max(0, len(fact.paraphrases) - held_out)]
        own = knowledge_neurons(
            model, fact, paraphrases=seen, position=position, steps=steps, prefix=prefix, budget=budget
        )
        if strongest := own.strongest(count):
            found[fact.id] = strongest
        if progress is not None:
            progress(number, len(known))
    if not found:
        raise UsageError(f"No neuron at the position {position!r} adds to any of the {len(known)} answers.")
    edited = edit_neurons(
        model,
        [*known, *peers_of(everything.facts, known, peers)],
        found,
        changes=changes,
        controls=controls,
        held_out=held_out,
        others=others,
        last=last,
        prefix=prefix,
        seed=seed,
        budget=budget,
        progress=progress,
        cancelled=cancelled,
    )
    finding = {"count": count, "limit": limit, "peers": peers, "position": position, "steps": steps}
    unmeasured = zip(map(str, edited.axes["skipped"]), map(str, edited["skip_reason"]), strict=True)
    skipped = {**everything.left_out, **unasked, **dict(unmeasured)}
    return NeuronEdits(
        arrays={**edited.arrays, "skip_reason": (np.array(list(skipped.values()), dtype=object), ("skipped",))},
        axes={**edited.axes, "skipped": skipped},
        settings={**edited.settings, **finding},
        provenance=edited.provenance,
    )


def _measurable(
    model: "Transformer", facts: Sequence[Fact], position: Position, prefix: "PrefixPolicy"
) -> tuple[list[Fact], dict[str, str]]:
    """The facts, each with those of its paraphrases that it can be asked by; and of the others why not."""
    found, skipped = list[Fact](), dict[str, str]()
    for fact in facts:
        kept = [fact.template]
        for template in fact.paraphrases:
            try:
                if template in kept:
                    raise UsageError("the wording comes twice.")
                _check_wording(model, fact, template, position, prefix)
                kept.append(template)
            except UsageError as error:
                skipped[f"{fact.id}: {fill(template, fact.subject)}"] = str(error)
        found.append(replace(fact, paraphrases=tuple(kept[1:])))
    return found, skipped


def _check_wording(model: "Transformer", fact: Fact, template: str, position: Position, prefix: "PrefixPolicy") -> None:
    """Refuse what is longer than the context, an answer that begins inside a token, a subject that is cut by one."""
    text = fill(template, fact.subject)
    model.to_tokens(text, prefix=prefix)
    answer_ids(model.tokenizer, text, fact.answer)
    if position == "subject":
        exact_span(model.tokenizer, template, fact.subject, prefix=prefix)


def in_turns(facts: Sequence[Fact], limit: int) -> tuple[Fact, ...]:
    """The first fact of each relation, then the second of each, and so on, until there are `limit`."""
    turns: dict[str, int] = {}
    ranked = []
    for fact in facts:
        turns[fact.relation] = turns.get(fact.relation, 0) + 1
        ranked.append((turns[fact.relation], fact))
    return tuple(fact for _, fact in sorted(ranked, key=lambda each: each[0])[:limit])


def known_others(model: "Transformer", count: int, answer: str, *, prefix: Prefix = "doc") -> tuple[Fact, ...]:
    """Up to `count` bundled facts that the model knows, of all relations in turn, none with that answer."""
    if count == 0:
        return ()
    tried = in_turns([fact for fact in fact_data.bundled_facts() if fact.answer != answer], 3 * count)
    return in_turns(filter_facts(model, tried, prefix=prefix).known(tried), count)


def peers_of(known: Sequence[Fact], edited: Sequence[Fact], count: int) -> tuple[Fact, ...]:
    """Of every relation that has an edited fact, up to so many known facts that are not edited."""
    ids, relations = {fact.id for fact in edited}, {fact.relation for fact in edited}
    left = [fact for fact in known if fact.id not in ids and fact.relation in relations]
    return tuple(fact for name in dict.fromkeys(fact.relation for fact in left) for fact in _first(left, name, count))


def _first(facts: Sequence[Fact], relation: str, count: int) -> list[Fact]:
    return [fact for fact in facts if fact.relation == relation][:count]
