"""The demo's report, put together."""

from typing import TYPE_CHECKING

from interp.apps.demo.induction_section import induction_section
from interp.apps.demo.lens_section import gift_section, tower_section
from interp.apps.demo.questions import FACTS, Findings
from interp.apps.demo.trace_section import trace_section
from interp.apps.model_facts import origin_facts, shape_facts
from interp.apps.report import Highlight, Report, token
from interp.apps.report.cells import share

if TYPE_CHECKING:
    import pandas as pd

COUNT = {3: "Three", 4: "Four"}


def report(findings: Findings, frames: "dict[str, pd.DataFrame]") -> Report:
    """The whole page as values."""
    model = findings.model
    sections = [tower_section, gift_section, induction_section, *([trace_section] if findings.traces else [])]
    return Report(
        title="Inside a small language model",
        lead=(
            f"{COUNT[len(sections)]} questions to {model.provenance['model']}, a transformer with "
            f"{model.n_parameters:,} parameters in {model.config.n_layers} layers: what it knows, when it knows it, "
            "which of its parts repeat what they have seen, and what carries a fact. Every number on this page was "
            "measured on this machine and can be measured again."
        ),
        highlights=_highlights(findings),
        facts=[*origin_facts(model), *shape_facts(model)],
        sections=[make(findings, frames) for make in sections],
        notes=_notes(findings),
    )


def _highlights(findings: Findings) -> list[Highlight]:
    tiles = []
    for finding in findings.lenses():
        answer = finding.sentence.answer
        end = finding.at_end("answer_probability", answer)[-1]
        start = " ".join(finding.sentence.text.split()[-2:])
        tiles.append(Highlight(share(end), f"for {token(answer)}", f"after “… {start}”", finding.sentence.slug))
    best = findings.induction.scores.ranked(1).iloc[0]
    mean = findings.induction.loss["mean"]
    tiles.append(
        Highlight(
            share(best.prefix_matching),
            f"of head {int(best.layer)}.{int(best['head'])}'s attention",
            "goes to what came next the last time",
            "induction",
        )
    )
    tiles.append(
        Highlight(
            f"{mean[0]:.1f} → {mean[1]:.1f}", "nats of loss a token", "on random tokens, when read again", "induction"
        )
    )
    return tiles


def _notes(findings: Findings) -> list[str]:
    stated = findings.model.provenance
    versions = ", ".join(f"{name} {version}" for name, version in dict(stated.get("versions", {})).items())
    untraced = [
        f"Not traced: {fact.subject}. {findings.untraced[fact.slug]}"
        for fact in FACTS
        if fact.slug in findings.untraced
    ]
    return [
        f"Prefix {findings.prefix}, seed {findings.seed}, {stated.get('dtype')} on {stated.get('device')}; {versions}.",
        "The folder of this page holds a Parquet file for every table, under tables/, and the results as the analyses "
        "returned them, under results/ (read them with interp.results.Result.load).",
        f"Repeat it all: interp demo --model {stated['model']} --prefix {findings.prefix} --seed {findings.seed}",
        "A head is named layer.head, both counted from 0. “Loss” is the negative logarithm of the probability that the "
        "token which came had been given, in nats: 0 is certainty, and each 0.69 more halves the probability.",
        *untraced,
    ]
