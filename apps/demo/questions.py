"""The four questions of the demo, asked. Everything a report shows is in the returned `Findings`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interp.apps.demo.words import WordList, read_words
from interp.errors import UsageError
from interp.models.prompt_formats import PrefixPolicy

if TYPE_CHECKING:
    import pandas as pd

    from interp.analyses.components import Head
    from interp.analyses.head_ablation import HeadAblation
    from interp.analyses.induction import InductionScores
    from interp.analyses.lens import LensResult
    from interp.analyses.repeat_loss import RepeatLoss
    from interp.analyses.trace_settings import Kind
    from interp.analyses.tracing import CausalTrace
    from interp.models.transformer import Transformer

Progress = Callable[[int, int], None]
Working = Callable[[str], AbstractContextManager[Progress]]
"""Given a step's name, shows that it is under way and yields its progress callback."""

BEST = 5
CONTROLS = 5  # sets of other heads beside each removal: enough to see that it stands out, and soon done
SAMPLES = 5  # draws of noise: ten would take longer than all other questions together


@dataclass(frozen=True)
class Sentence:
    """A prompt with the answer that is expected and, where there is one, the wrong answer that lies near."""

    slug: str
    text: str
    answer: str
    rival: str | None = None


TOWER = Sentence("tower", "The Eiffel Tower is located in the city of", " Paris")
GIFT = Sentence("gift", "When Mary and John went to the store, John gave a drink to", " Mary", " John")


@dataclass(frozen=True)
class Fact:
    """A prompt that names its subject, and which kinds of states are restored in it."""

    slug: str
    text: str
    subject: str
    kinds: "tuple[Kind, ...]"


FACTS = (
    Fact("tower_trace", TOWER.text, "The Eiffel Tower", ("resid", "mlp", "attn")),
    Fact("museum_trace", "The Louvre is located in the city of", "The Louvre", ("resid",)),
)


@dataclass(frozen=True)
class LensFinding:
    """One sentence through the lens: under the prefix that was asked for, and under the other one to compare."""

    sentence: Sentence
    result: "LensResult"
    compared: "LensResult"

    @property
    def layers(self) -> list[str]:
        """Names of the places where the lens reads: `embed`, `0`, `1` and so on."""
        return self.result.layer_names

    def at_end(self, name: str, token: str | None = None) -> list[Any]:
        """Layer by layer, a value of the lens at the last position (of one followed token)."""
        return self._at_end(self.result, name, token)

    def compared_at_end(self, name: str, token: str | None = None) -> list[Any]:
        """The same under the other prefix."""
        return self._at_end(self.compared, name, token)

    @staticmethod
    def _at_end(result: "LensResult", name: str, token: str | None) -> list[Any]:
        where = {"position": result.axes["position"][-1]} | ({} if token is None else {"answer": token})
        return list(result.at(name, **where))


@dataclass(frozen=True)
class InductionFinding:
    """Heads ranked, what repetition is worth, a readable example, and what removing the best heads costs."""

    scores: "InductionScores"
    loss: "RepeatLoss"
    words: WordList
    removal: "HeadAblation"
    best: "tuple[Head, ...]"

    @property
    def costs(self) -> "pd.DataFrame":
        """What each removal costs on the second reading, beside its controls, of which there may be none."""
        import pandas as pd

        table, controls = self.removal.to_frame(), pd.DataFrame(self.removal.at("nll_control_effect", repeat=2))
        costs = table[table["repeat"] == 2].reset_index(drop=True)
        return pd.DataFrame(
            {
                "removed": costs["removed"],
                "heads": costs["components"],
                "increase": costs["nll_effect"],
                "control_mean": costs["nll_control_mean"],
                "control_lowest": controls.min(axis=1),
                "control_highest": controls.max(axis=1),
                "controls": costs["controls"],
            }
        )


@dataclass(frozen=True)
class Findings:
    """Everything that the demo found, and of which model."""

    model: "Transformer"
    prefix: PrefixPolicy
    seed: int
    tower: LensFinding
    gift: LensFinding
    induction: InductionFinding
    traces: "Mapping[str, CausalTrace]"
    """By slug, in the order of `FACTS`."""
    untraced: Mapping[str, str]
    """By slug, why a fact could not be traced in this model."""

    def lenses(self) -> Iterator[LensFinding]:
        """Both sentences."""
        yield self.tower
        yield self.gift


def ask(model: "Transformer", *, prefix: PrefixPolicy, seed: int, working: Working) -> Findings:
    """Put all four questions to a model."""
    with working("Reading two sentences layer by layer"):
        tower, gift = (_through_the_lens(model, sentence, prefix) for sentence in (TOWER, GIFT))
    induction = _about_induction(model, prefix, seed, working)
    return Findings(model, prefix, seed, tower, gift, induction, *_traced(model, prefix, seed, working))


def _through_the_lens(model: "Transformer", sentence: Sentence, prefix: PrefixPolicy) -> LensFinding:
    from interp.analyses.lens import logit_lens

    followed = [sentence.answer, *([sentence.rival] if sentence.rival else [])]
    other: PrefixPolicy = "doc" if prefix == "none" else "none"
    asked, other_result = (
        logit_lens(model, sentence.text, answers=followed, prefix=policy, positions=positions)
        for policy, positions in ((prefix, None), (other, [-1]))
    )
    return LensFinding(sentence, asked, other_result)


def _about_induction(model: "Transformer", prefix: PrefixPolicy, seed: int, working: Working) -> InductionFinding:
    from interp.analyses.head_ablation import ablate_heads
    from interp.analyses.induction import score_heads
    from interp.analyses.repeat_loss import repeat_loss

    with working("Scoring every attention head") as progress:
        scores = score_heads(model, seed=seed, prefix=prefix, progress=progress)
    with working("Measuring what repetition is worth") as progress:
        loss = repeat_loss(model, seed=seed, prefix=prefix, progress=progress)
    best = tuple((int(row["layer"]), int(row["head"])) for row in scores.ranked(BEST).to_dict("records"))
    with working("Removing heads, and others to compare") as progress:
        removal = ablate_heads(model, best, controls=CONTROLS, seed=seed, prefix=prefix, progress=progress)
    return InductionFinding(scores, loss, read_words(model, best, prefix), removal, best)


def _traced(
    model: "Transformer", prefix: PrefixPolicy, seed: int, working: Working
) -> "tuple[dict[str, CausalTrace], dict[str, str]]":
    """Both facts, and why one was not traced: a vocabulary may have a token across the edge of a subject."""
    from interp.analyses.tracing import causal_trace

    found, refused = {}, {}
    for fact in FACTS:
        with working(f"Hiding {fact.subject}, restoring every state in turn") as progress:
            try:
                found[fact.slug] = causal_trace(
                    model,
                    fact.text,
                    fact.subject,
                    kinds=fact.kinds,
                    samples=SAMPLES,
                    seed=seed,
                    prefix=prefix,
                    progress=progress,
                )
            except UsageError as error:
                refused[fact.slug] = str(error)
    return found, refused
