"""The fourth section of the demo's report: which restored states bring a forgotten fact back."""

from typing import TYPE_CHECKING

from interp.apps.demo import texts
from interp.apps.demo.figures import trace_map
from interp.apps.demo.questions import FACTS, Findings
from interp.apps.report import Code, Column, Figure, Section, Table, token
from interp.apps.report.cells import share, written

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from interp.analyses.tracing import CausalTrace

SLIGHT = 0.1  # of the total effect: a cell that brings back less is no site
SITE_COLUMNS = {
    "subject": Column("hidden", "token"),
    "restored": Column("put back"),
    "early_token": Column("early site", "token"),
    "early_layer": Column("layer", "whole"),
    "early_effect": Column("effect", "signed"),
    "late_token": Column("late site", "token"),
    "late_layer": Column("layer", "whole"),
    "late_effect": Column("effect", "signed"),
}
TOKEN_COLUMNS = {
    "restored": Column("put back"),
    "token": Column("at", "token"),
    "in_subject": Column("subject", "flag"),
    "layer": Column("best layer", "whole"),
    "layers": Column("layers put back"),
    "effect": Column("effect", "signed"),
    "effect_error": Column("±", "number"),
    "probability": Column("probability", "bar"),
}


def trace_section(findings: Findings, frames: "dict[str, pd.DataFrame]") -> Section:
    """The facts that are forgotten."""
    first = next(iter(findings.traces.values()))
    prompt, answer = token(str(first.settings["prompt"])), token(str(first.settings["answer"]))
    return Section(
        slug="trace",
        title="What carries the fact?",
        question=f"The model reads {prompt} with its subject hidden. Which one state brings {answer} back?",
        explanation=texts.TRACE.format(samples=first.settings["samples"]),
        finding=_found(findings, frames["trace_sites"]),
        blocks=_blocks(findings, frames),
        not_shown=texts.TRACE_NOT_SHOWN,
        code=_code(findings),
    )


def _found(findings: Findings, sites: "pd.DataFrame") -> str:
    sentences = []
    for slug, trace in findings.traces.items():
        sentences.append(_noise(trace))
        rows = sites[sites["fact"] == slug].to_dict("records")
        sentences += [_sites(row) for row in rows]
        sentences.append(_where_early(trace, rows[0]))
    return " ".join(sentence for sentence in sentences if sentence)


def _noise(trace: "CausalTrace") -> str:
    asked = trace.settings
    clean, corrupted = share(float(trace["clean_probability"])), share(float(trace["corrupted_probability"]))
    return (
        f"Noise on {token(str(asked['subject']))} takes {token(str(asked['answer']))} from {clean} to {corrupted}, a "
        f"total effect of {written(trace.total_effect, 'signed')}."
    )


def _sites(row: "Mapping[str, object]") -> str:
    """One kind's early and late site, or that it has none."""
    restored = str(row["restored"])
    found = []
    for name, where in (("early", "among the subject's tokens"), ("late", "at the last token")):
        effect = written(float(str(row[f"{name}_effect"])), "signed")
        if _slight(row, name):
            found.append(f"hardly anything {where} ({effect} at most)")
        else:
            layer = f"{token(str(row[f'{name}_token']))}, layer {row[f'{name}_layer']}"
            found.append(f"{effect} {where}, at {layer}")
    return f"{restored[0].upper()}{restored[1:]}: {found[0]}; {found[1]}."


def _slight(row: "Mapping[str, object]", name: str) -> bool:
    return float(str(row[f"{name}_effect"])) < SLIGHT * abs(float(str(row["total_effect"])))


def _where_early(trace: "CausalTrace", row: "Mapping[str, object]") -> str:
    """Whether the early site is where the subject ends."""
    if _slight(row, "early"):
        return ""
    end, found = token(str(trace["token"][trace.last_subject_position])), token(str(row["early_token"]))
    if row["early_at_end_of_subject"]:
        return f"So the early site is at the subject's last token, {end}."
    return f"So the early site is not at the subject's last token, {end}, but at {found}."


def _blocks(findings: Findings, frames: "dict[str, pd.DataFrame]") -> list[Figure | Table]:
    said = (
        "The strongest state among the subject's tokens, and at the last token. A window is named by its middle layer."
    )
    blocks: list[Figure | Table] = []
    for trace in findings.traces.values():
        subject, answer = (token(str(trace.settings[name])) for name in ("subject", "answer"))
        caption = texts.TRACE_MAP.format(subject=subject, answer=answer)
        blocks.append(Figure(trace_map(trace), caption, min_width=300))
    blocks.append(Table("trace_sites", frames["trace_sites"], said, SITE_COLUMNS))
    for slug, trace in findings.traces.items():
        subject, places = token(str(trace.settings["subject"])), len(trace.axes["position"])
        caption = f"{subject}: every token at the layer where putting its state back brings most back."
        columns = TOKEN_COLUMNS
        blocks.append(
            Table(f"{slug}_tokens", frames[f"{slug}_tokens"], caption, columns, first=places, emphasis="in_subject")
        )
    return blocks


def _code(findings: Findings) -> Code:
    name = findings.model.provenance["model"]
    fact = next(fact for fact in FACTS if fact.slug in findings.traces)
    samples = findings.traces[fact.slug].settings["samples"]
    return Code(
        python=f"""import interp
from interp.analyses.tracing import causal_trace

model = interp.load({name!r})
result = causal_trace(
    model,
    {fact.text!r},
    {fact.subject!r},
    kinds={list(fact.kinds)!r},
    samples={samples},
    seed={findings.seed},
    prefix={findings.prefix!r},
)
print(*result.summary(), sep="\\n")
result.figure().write_html("trace.html")""",
        shell=f"""interp trace "{fact.text}" \\
  --subject "{fact.subject}" --kinds {",".join(fact.kinds)} --samples {samples} \\
  --model {name} --prefix {findings.prefix} --seed {findings.seed}""",
    )
