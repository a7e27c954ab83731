"""The demo in the terminal: the answers in a screenful or two, and as one JSON document."""

from typing import TYPE_CHECKING

from interp.apps.cli.output import show_token, table
from interp.apps.demo.questions import BEST, Findings, LensFinding
from interp.apps.demo.texts import READING_IS_NOT_CHANGING

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

BAR = 24
EVERY = 5


def document(findings: Findings, frames: "dict[str, pd.DataFrame]") -> dict[str, object]:
    """What was found, as plain values: the provenance, and every table but the bulky ones."""
    bulky = {"words_patterns", "repeat_loss_places", *(name for name in frames if name.endswith("_cells"))}
    prompts = {finding.sentence.slug: finding.sentence.text for finding in findings.lenses()}
    return {
        "kind": "demo",
        "settings": {"prefix": findings.prefix, "seed": findings.seed},
        "provenance": findings.model.provenance,
        "prompts": {**prompts, **{slug: trace.settings["prompt"] for slug, trace in findings.traces.items()}},
        "untraced": findings.untraced,
        "tables": {name: frame.to_dict(orient="records") for name, frame in frames.items() if name not in bulky},
    }


def parts(findings: Findings, frames: "dict[str, pd.DataFrame]") -> "list[RenderableType]":
    """What the terminal shows, from top to bottom."""
    drawn: list[RenderableType] = [_model_line(findings), ""]
    for number, finding in enumerate(findings.lenses(), start=1):
        text = f"After each layer, the next token of {show_token(finding.sentence.text)}"
        layers = frames[f"{finding.sentence.slug}_layers"]
        drawn += [_heading(f"{number}. {text}"), _lens_table(finding, layers), _prefix_line(frames, finding), ""]
    drawn += [_heading("3. Heads that look at what came next the last time"), _heads_table(frames), ""]
    drawn += [_loss_line(frames), "", _words_table(frames), "", _removal_table(frames), ""]
    if findings.traces:
        drawn += [_heading("4. Which restored state brings a forgotten fact back"), *_trace_lines(findings), ""]
        drawn += [_sites_table(frames), ""]
    drawn += [f"Not traced: {reason}\n" for reason in findings.untraced.values()]
    drawn.append(f"What this does not show. {READING_IS_NOT_CHANGING}")
    drawn.append("Where a head looks is not what it did: compare its score with what its removal costs.")
    drawn += [*dict.fromkeys(trace.caution for trace in findings.traces.values()), ""]
    return drawn


def _model_line(findings: Findings) -> str:
    model = findings.model
    stated = (
        f"prefix {findings.prefix}, seed {findings.seed}, {str(model.dtype).removeprefix('torch.')} on {model.device}"
    )
    weights = str(model.provenance.get("weights_sha256"))[:16]
    return f"{model.provenance['model']}: {model.n_parameters:,} parameters, weights {weights}…; {stated}"


def _heading(text: str) -> "RenderableType":
    from rich.text import Text

    return Text(text + "\n", style="bold")


def _lens_table(finding: LensFinding, layers: "pd.DataFrame") -> "RenderableType":
    """The embedding, every fifth layer, and all from shortly before the answer first leads."""
    upwards = layers[::-1].reset_index(drop=True)
    leading = upwards.index[upwards["leads"]]
    close = max((len(upwards) if leading.empty else int(leading[0])) - 3, 0)
    shown = upwards[(upwards.index == 0) | (upwards.index % EVERY == 1) | (upwards.index >= close)]
    rows = []
    for row in shown.to_dict("records"):
        cells = [row["layer"], show_token(row["top_token"])]
        for followed in _followed(finding):
            cells += [f"{row[f'{followed}_probability']:.3f}", f"{row[f'{followed}_rank']:,}"]
        rows.append([*cells, "█" * round(BAR * float(row["answer_probability"]))])
    headings = [heading for word in _followed(finding).values() for heading in (f"p({word.strip()})>", "rank>")]
    return table(["layer>", "likeliest token", *headings, ""], rows)


def _followed(finding: LensFinding) -> dict[str, str]:
    """Column prefix -> token."""
    sentence = finding.sentence
    return {"answer": sentence.answer} | ({"rival": sentence.rival} if sentence.rival else {})


def _prefix_line(frames: "dict[str, pd.DataFrame]", finding: LensFinding) -> str:
    answer = show_token(finding.sentence.answer)
    rows = frames[f"{finding.sentence.slug}_prefixes"].itertuples()
    return "In the end: " + ", ".join(f"p({answer}) = {row.probability:.3f} with prefix {row.prefix}" for row in rows)


def _heads_table(frames: "dict[str, pd.DataFrame]") -> "RenderableType":
    shown = ("prefix_matching", "previous_token", "duplicate_token", "current_token", "sink")
    rows = [
        (row["name"], *(f"{row[score]:.3f}" for score in shown)) for row in frames["heads"].head(10).to_dict("records")
    ]
    return table(["head", *(f"{score.replace('_', ' ')}>" for score in shown)], rows)


def _loss_line(frames: "dict[str, pd.DataFrame]") -> str:
    first, second = frames["repeat_loss"]["loss"][:2]
    return (
        f"Loss on random tokens: {first:.2f} nats the first time, {second:.2f} the second, {first - second:.2f} less."
    )


def _words_table(frames: "dict[str, pd.DataFrame]") -> "RenderableType":
    words = frames["words"]
    again = words[words["position"] == words["position"].min() + 1]
    rows = [
        (
            row.head,
            show_token(row.reading),
            show_token(row.looks_at),
            f"{row.attention:.3f}",
            "yes" if row.as_induction else "no",
        )
        for row in again.itertuples()
    ]
    return table(["head", "reading again", "looks most at", "attention>", "what came next"], rows)


def _removal_table(frames: "dict[str, pd.DataFrame]") -> "RenderableType":
    rows = [
        (
            row.removed,
            f"{row.increase:+.3f}",
            f"{row.control_mean:+.3f}" if row.controls else "none",
            f"{row.control_lowest:+.3f} to {row.control_highest:+.3f}" if row.controls else "",
        )
        for row in frames["removal_costs"].itertuples()
    ]
    columns = ["removed", "second-time loss>", "random heads of the same layers>", "lowest to highest>"]
    return table(columns, rows, f"Removing the best {BEST} heads (nats a token)")


def _trace_lines(findings: Findings) -> list[str]:
    lines = []
    for trace in findings.traces.values():
        clean, corrupted = float(trace["clean_probability"]), float(trace["corrupted_probability"])
        answer, subject = (show_token(str(trace.settings[name])) for name in ("answer", "subject"))
        lines.append(f"p({answer}) = {clean:.3f}, and {corrupted:.3f} with {subject} hidden by noise")
    return lines


def _sites_table(frames: "dict[str, pd.DataFrame]") -> "RenderableType":
    rows = [
        (
            row.subject,
            row.restored,
            *(show_token(row.early_token), str(row.early_layer), f"{row.early_effect:+.3f}"),
            *(show_token(row.late_token), str(row.late_layer), f"{row.late_effect:+.3f}"),
        )
        for row in frames["trace_sites"].itertuples()
    ]
    columns = [
        "hidden",
        "put back",
        "most in the subject at",
        "layer>",
        "effect>",
        "last token",
        "best layer>",
        "effect>",
    ]
    return table(columns, rows)
