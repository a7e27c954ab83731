"""Which neurons carry a fact: those whose coefficients add to the probability of its answer, however it is asked for.

For every way to say the fact, its prompt and its paraphrases, each neuron has an attribution (integrated gradients, see
`interp.analyses.integrated_gradients`) at the last token, or at the last of the subject. From there as Dai et al. go:

    coarse     the neurons above `threshold` times the largest attribution of that prompt
    refined    those that are coarse in at least `share` of the prompts

Neurons that answer to single words stand in few of the sets; those of the fact in most. Where fewer than `adapt[0]`
neurons or more than `adapt[1]` are left, prompts are given up or asked for, one at a time; where still too many
are left in all of them, those of the largest mean attribution stay. In a mixture of experts a neuron counts as
nothing where its expert was not chosen.

Paper: Dai et al. 2022, Knowledge Neurons in Pretrained Transformers (arXiv 2104.08696).

What it does NOT tell: that the fact is in these neurons alone, or that they hold nothing else; take them away and look
at other facts (`interp.analyses.neuron_edits`). A layer near the end raises an answer that was found before it. And
since all of a layer is scaled at once, neurons that could stand in for one another share what either would be given.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch

from interp.analyses.fact_texts import Question
from interp.analyses.integrated_gradients import integrated_gradients
from interp.analyses.last_logits import last_logits
from interp.analyses.neurons import Neuron
from interp.analyses.shared_neurons import across, coarse_set, ffn_at, mean_attribution, of_layers, of_neurons, refined
from interp.errors import UsageError
from interp.facts import Fact, answer_ids, exact_span, fill
from interp.models.batching import pad
from interp.models.replay import Progress
from interp.prompts import find_subject
from interp.results import Result, provenance
from interp.selection import Index, indices

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from interp.models.prompt_formats import PrefixPolicy
    from interp.models.transformer import Transformer

PROMPT_LETTERS = 60  # of each prompt in a figure: wordings of one fact begin alike

Position = Literal["last", "subject"]
"""The last token of the prompt, or that of the subject."""


class KnowledgeNeurons(Result, kind="facts.knowledge-neurons"):
    """The neurons that carry one fact, strongest first, and the attribution of every neuron in every prompt.

    By [neuron], those that were found: their mean attribution over prompts, `strength`, and mean `coefficient`;
    `shared_by`, in how many prompts they are coarse; and where they are: `in_layer`, `in_expert` (−1: none, −2: the
    shared one), `index`. `prompt_strength` [neuron, prompt] in each prompt.

    `attribution` and `coefficients` [prompt, layer, unit] of all neurons; in a model with experts [prompt, layer,
    slot, unit], a shared expert in the last slot, with `expert` [prompt, layer, slot], −1 where a layer has none, −2
    for the shared one; NaN where a layer has no such place. `largest`, `coarse` (their number) and `answer_id`
    [prompt]. By [prompt, layer]: `layer_sum` over neurons,
    `without`, the answer's probability with the layer's neurons at nought there, and `completeness_error`, the sum
    less what they add to `probability` [prompt].
    """

    grid = ("neuron",)
    title = "Knowledge neurons"
    caution = "What adds to an answer need not hold the fact, and may hold others: take it away, and look at those too."

    @property
    def neurons(self) -> tuple[Neuron, ...]:
        """Those that were found, the strongest first."""
        return tuple(Neuron.parse(str(name)) for name in self.axes["neuron"])

    @property
    def question(self) -> Question:
        """The prompts with the tokens that are measured behind them: `edit_neurons(model, [found.question], …)`."""
        prompts, answers = map(str, self.axes["prompt"]), self["answer_id"].tolist()
        return Question("the prompt", "the prompt", tuple(prompts), str(self.settings["answer"]), tuple(answers))

    def strongest(self, count: int) -> tuple[Neuron, ...]:
        """The neurons of the largest mean attribution over prompts, shared or not; fewer, if so few add anything."""
        table = mean_attribution(self["attribution"], self["expert"] if "slot" in self.axes else None)
        layers, rows, indices = np.unravel_index(np.argsort(-table, axis=None, kind="stable")[:count], table.shape)
        return tuple(
            Neuron.of(int(self.axes["layer"][layer]), ffn_at(table, row), index)
            for layer, row, index in zip(layers.tolist(), rows.tolist(), indices.tolist(), strict=True)
            if table[layer, row, index] > 0
        )

    def figure(self) -> "Figure":
        """What the neurons of each layer add to the answer, prompt by prompt: P(w̄) − P(0), no sum of attributions.

        An attribution's sum may miss it by far, and the scale of all colours would be that of the worst.
        """
        from interp.plots import effect_heatmap

        return effect_heatmap(
            self["probability"][:, None] - self["without"],
            title=f"{self.title}: what each layer adds to {self.settings['answer']!r}",
            metric="probability",
            x="layer",
            y="prompt",
            columns=self.axes["layer"],
            rows=self.axes["prompt"],
            upwards=False,
            letters=PROMPT_LETTERS,
        )

    def summary(self) -> list[str]:
        """What was asked, the neurons, and how well the sums close."""
        asked, prompts = self.settings, len(self.axes["prompt"])
        mean, worst = float(self["probability"].mean()), float(np.abs(self["completeness_error"]).max())
        where = {"last": "the last token", "subject": "the subject's last token"}[str(asked["position"])]
        return [
            f"{self.title}: {self.axes['prompt'][0]!r} → {asked['answer']!r}, probability {mean:.3f} "
            f"(mean of {prompts} prompt{'s' * (prompts > 1)})",
            f"  {len(self.neurons)} at {where}, coarse in at least {asked['shared_by']} of {prompts}; "
            f"coarse in one prompt: {', '.join(str(count) for count in self['coarse'])}",
            *(
                f"    {name:>12}  {strength:+.3f}  in {shared} of {prompts}  coefficient {coefficient:+.2f}"
                for name, strength, shared, coefficient in zip(
                    self.axes["neuron"], self["strength"], self["shared_by"], self["coefficient"], strict=True
                )
            ),
            f"  sums over a layer miss what it adds by at most {worst:.3f} ({asked['steps']} steps)",
            f"  {self.caution}",
        ]


@dataclass(frozen=True)
class _Prompt:
    """One way to ask."""

    text: str
    ids: list[int]
    answer: int
    position: int


def knowledge_neurons(
    model: "Transformer",
    fact: Fact | str,
    *,
    answer: str | int | None = None,
    paraphrases: Sequence[str] | None = None,
    subject: str | None = None,
    occurrence: int | None = None,
    position: Position = "last",
    steps: int = 20,
    threshold: float = 0.2,
    share: float = 0.7,
    adapt: tuple[int, int] | None = (2, 5),
    layers: Index | None = None,
    prefix: "PrefixPolicy" = "doc",
    budget: int = 2**30,
    progress: Progress | None = None,
) -> KnowledgeNeurons:
    """The neurons that carry a fact, or what a prompt is continued by.

    `answer`: a token's id, or a text whose first token is meant; by default the fact's, or what the model says to a
    prompt. `paraphrases`: other prompts (or templates with {} for the subject of a fact) with the same answer; by
    default those of the fact. `subject`: what a prompt is about, as it names it; `occurrence`: which one, where every
    prompt names it several times (0 is the first, -1 the last). `adapt`: how few and how many neurons may be left, None
    for whatever number is. `steps` and `budget` as in `integrated_gradients`, which runs for one prompt after the
    other; `progress` counts prompts.

    Raises `UsageError` for settings out of range, prompts that come twice, a subject or an answer that shares a token
    with other words, `position="subject"` without one, and the prefix "chat".
    """
    _check(threshold, share, adapt, position, prefix)
    prompts = _prompts(model, fact, paraphrases, answer, subject, occurrence, position, prefix)
    which = indices(slice(None) if layers is None else layers, model.config.n_layers, "the layers")
    found = []
    for prompt in prompts:
        tokens = torch.tensor([prompt.ids])
        found.append(
            integrated_gradients(
                model, tokens, prompt.answer, position=prompt.position, steps=steps, layers=which, budget=budget
            )
        )
        if progress is not None:
            progress(len(found), len(prompts))
    coarse = [coarse_set(each, threshold) for each in found]
    strength = {neuron: float(np.mean(across(found, neuron, "attribution"))) for neuron in set().union(*coarse)}
    needed, kept = refined(coarse, strength, share=share, adapt=adapt)
    tokens, _ = pad([prompt.ids for prompt in prompts], model.tokenizer.pad_id, "left")
    return KnowledgeNeurons(
        arrays={
            **of_neurons(kept, coarse, found),
            **of_layers(model.config, found, which),
            "coarse": (np.array(list(map(len, coarse))), ("prompt",)),
            "answer_id": (np.array([prompt.answer for prompt in prompts]), ("prompt",)),
        },
        axes={"neuron": list(map(str, kept)), "prompt": [prompt.text for prompt in prompts], "layer": which},
        settings={
            "fact": fact.id if isinstance(fact, Fact) else None,
            "answer": model.tokenizer.str_tokens([prompts[0].answer])[0],
            "occurrence": occurrence,
            **{"position": position, "steps": steps, "threshold": threshold, "share": share},
            "adapt": None if adapt is None else list(adapt),
            "shared_by": needed,
        },
        provenance=provenance(model.provenance, tokens=tokens, prefix=prefix),
    )


def _check(threshold: float, share: float, adapt: tuple[int, int] | None, position: str, prefix: str) -> None:
    if not (0 <= threshold < 1 and 0 < share <= 1) or (adapt is not None and not 1 <= adapt[0] <= adapt[1]):
        raise UsageError(
            f"Expected 0 ≤ threshold < 1, 0 < share ≤ 1 and adapt=(fewest, most) or None; came threshold={threshold}, "
            f"share={share}, adapt={adapt}."
        )
    if position not in get_args(Position):
        raise UsageError(f"The position is {position!r}; expected {' or '.join(map(repr, get_args(Position)))}.")
    if prefix == "chat":
        raise UsageError("Behind the prefix 'chat' no sentence is completed; use 'doc' or 'none'.")


def _prompts(
    model: "Transformer",
    fact: Fact | str,
    paraphrases: Sequence[str] | None,
    answer: str | int | None,
    subject: str | None,
    occurrence: int | None,
    position: Position,
    prefix: "PrefixPolicy",
) -> list[_Prompt]:
    """All ways to ask, as tokens."""
    if isinstance(fact, Fact):
        templates = [fact.template, *(fact.paraphrases if paraphrases is None else paraphrases)]
        answer = fact.answer if answer is None else answer
    else:
        templates = [fact, *(paraphrases or ())]
    if position == "subject" and subject is None and not isinstance(fact, Fact):
        raise UsageError("A prompt does not say what its subject is; name the `subject`, or ask at position='last'.")
    if occurrence is not None and (position != "subject" or isinstance(fact, Fact)):
        raise UsageError("`occurrence` says which `subject` of a prompt is meant, at position='subject'. Leave it out.")
    if len(set(templates)) < len(templates):
        raise UsageError(f"A prompt comes twice among {templates}; give each once.")
    found = []
    for template in templates:
        text = fill(template, fact.subject) if isinstance(fact, Fact) else template
        ids = model.tokenizer.prompt_ids(text, prefix)
        if answer is None:
            answer = int(last_logits(model, torch.tensor([ids]), None)[0, 0].argmax())
        first = answer if isinstance(answer, int) else answer_ids(model.tokenizer, text, answer)[0]
        last = len(ids) - 1
        if position == "subject" and isinstance(fact, Fact):
            last = exact_span(model.tokenizer, template, fact.subject, prefix=prefix).last
        elif position == "subject":
            span = find_subject(model.tokenizer, text, str(subject), prefix=prefix, occurrence=occurrence)
            last = span.must_be_exact().last
        found.append(_Prompt(text, ids, first, last))
    return found
