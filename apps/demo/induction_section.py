"""The third section of the demo's report: heads that repeat, and what happens without them."""

from typing import TYPE_CHECKING

from interp.analyses.components import named
from interp.analyses.head_ablation import TOGETHER
from interp.analyses.repeated import texts_read
from interp.apps.demo import texts
from interp.apps.demo.figures import loss_curves, removal_bars, score_map, word_pattern
from interp.apps.demo.questions import BEST, CONTROLS, Findings, InductionFinding
from interp.apps.report import Code, Column, Figure, Section, Table, token
from interp.apps.report.cells import share, written

if TYPE_CHECKING:
    import pandas as pd

HIGH = 0.4
SCORE_COLUMNS = {
    "name": Column("head"),
    "prefix_matching": Column("prefix matching", "bar"),
    "previous_token": Column("token before", "percent"),
    "duplicate_token": Column("earlier occurrence", "percent"),
    "current_token": Column("itself", "percent"),
    "sink": Column("first position", "percent"),
}
LOSS_COLUMNS = {
    "repeat": Column("repeat", "whole"),
    "loss": Column("loss", "number"),
    "standard_error": Column("±", "number"),
    "drop": Column("drop", "number"),
}
WORD_COLUMNS = {
    "head": Column("head"),
    "reading": Column("reading", "token"),
    "looks_at": Column("looks at", "token"),
    "attention": Column("attention", "bar"),
    "attention_to_first": Column("to the first position", "percent"),
    "as_induction": Column("what came next", "flag"),
}
COST_COLUMNS = {
    "removed": Column("removed"),
    "increase": Column("increase", "signed"),
    "control_mean": Column("controls: mean", "signed"),
    "control_lowest": Column("lowest", "signed"),
    "control_highest": Column("highest", "signed"),
    "controls": Column("drawn", "whole"),
}


def induction_section(findings: Findings, frames: "dict[str, pd.DataFrame]") -> Section:
    """The heads that repeat."""
    return Section(
        slug="induction",
        title="Which heads repeat what they have seen?",
        question="The model reads random tokens, then the same tokens again. Which attention heads notice?",
        explanation=texts.INDUCTION,
        finding=_found(findings.induction),
        blocks=[*_score_blocks(findings.induction, frames), *_cause_blocks(findings.induction, frames)],
        not_shown=texts.INDUCTION_NOT_SHOWN,
        code=_code(findings),
    )


def _found(induction: InductionFinding) -> str:
    scores, mean = induction.scores["prefix_matching"], induction.loss["mean"]
    best = induction.best[0]
    together = induction.costs.set_index("removed").loc[TOGETHER]
    return " ".join(
        [
            f"{int((scores > HIGH).sum())} of {scores.size} heads give more than {100 * HIGH:.0f} % of their attention "
            f"to the token that came next; head {named(best)} gives {share(float(scores[best]))}.",
            f"The second time, the loss is {mean[1]:.2f} nats a token instead of {mean[0]:.2f}.",
            f"Removing the best {BEST} together raises the second-time loss by {together['increase']:.2f}; "
            f"{_controls_cost(together)}.",
            _costs_alone(induction),
        ]
    )


def _controls_cost(together: "pd.Series") -> str:
    """What other heads cost, where a model has others in these layers."""
    if not together["controls"]:
        return "these layers have no others to compare with"
    lowest, highest = together["control_lowest"], together["control_highest"]
    return f"removing as many others of the same layers, by {lowest:.2f} to {highest:.2f}"


def _costs_alone(induction: InductionFinding) -> str:
    """The dearest and the cheapest head: the scores do not foretell which is which."""
    alone = induction.costs[induction.costs["removed"] != TOGETHER].set_index("removed")["increase"]
    least, most = str(alone.idxmin()), str(alone.idxmax())
    layer, head = (int(part) for part in least.split("."))
    score = share(float(induction.scores.at("prefix_matching", layer=layer, head=head)))
    dearest, cheapest = written(alone[most], "signed"), written(alone[least], "signed")
    text = f"Alone, head {most} costs most, {dearest}, and head {least} least, {cheapest}"
    surprising = alone[least] < 0.2 * alone[most]
    return text + (f", though its score is {score}: a score is not a cause." if surprising else ".")


def _score_blocks(induction: InductionFinding, frames: "dict[str, pd.DataFrame]") -> list[Figure | Table]:
    uniform = share(float(induction.scores.at("uniform", score="prefix_matching")))
    ranking = (
        f"All heads, ranked, on {texts_read(induction.scores.settings)}; the {BEST} marked ones are looked at "
        "below. Prefix matching and earlier occurrence are means over the second reading, the others over both. "
        f"Looking everywhere alike would give a prefix matching of {uniform}."
    )
    losses = "Mean loss in nats a token, each repeat from its second token on."
    curve = "Loss by place in the sequence, the first and the second time. Lower is better."
    return [
        Figure(score_map(induction), "Prefix matching of every head, layers from left to right.", min_width=420),
        Table("heads", frames["heads"], ranking, SCORE_COLUMNS, first=10, emphasis="best"),
        Figure(loss_curves(induction), curve, min_width=300),
        Table("repeat_loss", frames["repeat_loss"], losses, LOSS_COLUMNS),
    ]


def _cause_blocks(induction: InductionFinding, frames: "dict[str, pd.DataFrame]") -> list[Figure | Table]:
    words = frames["words"]
    again = words[words["position"] == words["position"].min() + 1].reset_index(drop=True)
    hits = ", ".join("{}: {} of {}".format(head, *induction.words.hits(head)) for head in induction.words.patterns)
    looked = (
        f"Where the best heads look most (the first position aside) at the second {token(again['reading'][0])}. How "
        f"often, over all second readings, that is the word that came next: {hits}."
    )
    costs = f"Increase of the second-time loss in nats a token, on {texts_read(induction.removal.settings)}."
    return [
        Figure(word_pattern(induction), texts.PATTERN.format(head=named(induction.best[0])), min_width=560),
        Table("words", again, looked, WORD_COLUMNS),
        Figure(removal_bars(induction), texts.REMOVALS, min_width=480),
        Table("removal_costs", frames["removal_costs"], costs, COST_COLUMNS),
    ]


def _code(findings: Findings) -> Code:
    name = findings.model.provenance["model"]
    asked = f"seed={findings.seed}, prefix={findings.prefix!r}"
    return Code(
        python=f"""import interp
from interp.analyses.head_ablation import ablate_heads
from interp.analyses.induction import score_heads
from interp.analyses.repeat_loss import repeat_loss

model = interp.load({name!r})
scores = score_heads(model, {asked})
scores.ranked(10)
print(repeat_loss(model, {asked}).drop)

# without the best heads, and without others of the same layers
removal = ablate_heads(model, {list(findings.induction.best)}, controls={CONTROLS}, {asked})
print(*removal.summary(), sep="\\n")""",
        shell=f"""interp induction --top 10 \\
  --model {name} --prefix {findings.prefix} --seed {findings.seed}""",
    )
