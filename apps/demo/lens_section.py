"""Two sections of the demo's report: a fact, and a sentence with two names, through the logit lens."""

from typing import TYPE_CHECKING

from interp.apps.demo import texts
from interp.apps.demo.figures import answer_curves, lens_cells
from interp.apps.demo.questions import Findings, LensFinding
from interp.apps.demo.tables import settled
from interp.apps.report import Code, Column, Figure, Section, Table, token
from interp.apps.report.cells import share

if TYPE_CHECKING:
    import pandas as pd


def tower_section(findings: Findings, frames: "dict[str, pd.DataFrame]") -> Section:
    """The fact about the tower."""
    finding = findings.tower
    answer, text = token(finding.sentence.answer), token(finding.sentence.text)
    return Section(
        slug=finding.sentence.slug,
        title="Where is the Eiffel Tower?",
        question=f"The model reads {text}. After which layer can {answer} be read?",
        explanation=texts.LENS.format(vocabulary=findings.model.config.d_vocab),
        finding=_found(finding),
        blocks=_blocks(finding, frames),
        not_shown=texts.TOWER_NOT_SHOWN,
        code=_code(findings, finding),
    )


def gift_section(findings: Findings, frames: "dict[str, pd.DataFrame]") -> Section:
    """The sentence with two names."""
    finding = findings.gift
    answer, rival = token(finding.sentence.answer), token(finding.sentence.rival or "")
    return Section(
        slug=finding.sentence.slug,
        title="Who gets the drink?",
        question=f"The model reads {token(finding.sentence.text)}. When does {answer} win over {rival}?",
        explanation=texts.TWO_NAMES,
        finding=_found(finding),
        blocks=_blocks(finding, frames),
        not_shown=texts.GIFT_NOT_SHOWN,
        code=_code(findings, finding),
    )


def _found(finding: LensFinding) -> str:
    answer, rival, layers = finding.sentence.answer, finding.sentence.rival, finding.layers
    ranks = finding.at_end("answer_rank", answer)
    end = share(finding.at_end("answer_probability", answer)[-1])
    since = settled(ranks, layers)
    if since == "–":
        top = token(finding.at_end("prediction")[-1])
        return f"The model ends up saying {top}; {token(answer)} has {end} and rank {ranks[-1]:,}."
    when = f"from layer {since} to the end" if since != layers[-1] else f"only after the last layer, {since}"
    middle = len(ranks) // 2
    sentences = [
        f"{token(answer)} is the likeliest token {when}, where it has {end}.",
        f"Half-way, after layer {layers[middle]}, it is number {ranks[middle]:,} of the vocabulary.",
    ]
    if rival is not None:
        sentences.append(f"{token(rival)} ends with {share(finding.at_end('answer_probability', rival)[-1])}.")
    other = share(finding.compared_at_end("answer_probability", answer)[-1])
    sentences.append(f"With prefix {finding.compared.settings['prefix']} instead, {token(answer)} has {other}.")
    return " ".join(sentences)


def _blocks(finding: LensFinding, frames: "dict[str, pd.DataFrame]") -> list[Figure | Table]:
    slug, answer = finding.sentence.slug, token(finding.sentence.answer)
    layers = f"The last position, the last layer first. Where {answer} leads, the row is marked."
    prefixes = {
        "prefix": Column("prefix"),
        "probability": Column(f"p({answer}) at the end", "bar"),
        "rank": Column("rank", "whole"),
        "leads_from": Column("leads from layer"),
    }
    curve = f"Probability of {answer}, read after each layer, at the last position."
    return [
        Figure(answer_curves(finding), curve, min_width=300),
        Table(f"{slug}_layers", frames[f"{slug}_layers"], layers, _layer_columns(finding), first=8, emphasis="leads"),
        Figure(lens_cells(finding), texts.CELLS, min_width=860),
        Table(f"{slug}_prefixes", frames[f"{slug}_prefixes"], texts.PREFIXES, prefixes),
    ]


def _layer_columns(finding: LensFinding) -> dict[str, Column]:
    columns = {
        "layer": Column("after layer"),
        "top_token": Column("likeliest token", "token"),
        "top_probability": Column("its probability", "bar"),
        "answer_probability": Column(f"p({token(finding.sentence.answer)})", "percent"),
        "answer_rank": Column("rank", "whole"),
    }
    if finding.sentence.rival is not None:
        columns["rival_probability"] = Column(f"p({token(finding.sentence.rival)})", "percent")
        columns["rival_rank"] = Column("rank", "whole")
    return columns


def _code(findings: Findings, finding: LensFinding) -> Code:
    name, sentence = findings.model.provenance["model"], finding.sentence
    followed = [sentence.answer, *([sentence.rival] if sentence.rival else [])]
    return Code(
        python=f"""import interp
from interp.analyses.lens import logit_lens

model = interp.load({name!r})
text = {sentence.text!r}
result = logit_lens(model, text, answers={followed!r}, prefix={findings.prefix!r})
result.answer_figure().write_html("lens.html")
result.to_frame()""",
        shell=f"""interp lens "{sentence.text}" \\
  --answer "{sentence.answer}" --model {name} --prefix {findings.prefix}""",
    )
