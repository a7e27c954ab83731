"""The demo's tables: every number that the report and the terminal show, as data frames by name."""

from typing import TYPE_CHECKING

import numpy as np

from interp.analyses.components import named
from interp.apps.demo.questions import Findings, InductionFinding, LensFinding

if TYPE_CHECKING:
    import pandas as pd

    from interp.analyses.tracing import CausalTrace


def frames(findings: Findings) -> "dict[str, pd.DataFrame]":
    """Name → table, as it is written to `tables/<name>.parquet`."""
    found: dict[str, pd.DataFrame] = {}
    for finding in findings.lenses():
        slug = finding.sentence.slug
        found[f"{slug}_layers"] = lens_layers(finding)
        found[f"{slug}_prefixes"] = lens_prefixes(finding)
        found[f"{slug}_cells"] = finding.result.to_frame()
    induction = findings.induction
    found["heads"] = ranked_heads(induction)
    found["repeat_loss"] = repeats(induction)
    found["repeat_loss_places"] = induction.loss.to_frame()
    found["words"] = looked_at(induction)
    found["words_patterns"] = word_patterns(induction)
    found["removals"] = induction.removal.to_frame()
    found["removal_costs"] = induction.costs
    if findings.traces:
        found["trace_sites"] = trace_sites(findings)
    for slug, trace in findings.traces.items():
        found[f"{slug}_tokens"] = trace_tokens(trace)
        found[f"{slug}_cells"] = trace.to_frame()
    return found


def lens_layers(finding: LensFinding) -> "pd.DataFrame":
    """The lens at the last position, the last layer first; `leads` marks where the answer is the likeliest token."""
    import pandas as pd

    answer, rival = finding.sentence.answer, finding.sentence.rival
    columns: dict[str, object] = {
        "layer": finding.layers,
        "top_token": finding.at_end("prediction"),
        "top_probability": finding.at_end("prediction_probability"),
        "answer_probability": finding.at_end("answer_probability", answer),
        "answer_rank": finding.at_end("answer_rank", answer),
    }
    if rival is not None:
        columns["rival_probability"] = finding.at_end("answer_probability", rival)
        columns["rival_rank"] = finding.at_end("answer_rank", rival)
    frame = pd.DataFrame(columns)
    frame["leads"] = frame["answer_rank"] == 1
    return frame[::-1].reset_index(drop=True)


def lens_prefixes(finding: LensFinding) -> "pd.DataFrame":
    """The end of the run, with and without what stands before the text."""
    import pandas as pd

    answer = finding.sentence.answer
    rows = []
    for result, read in ((finding.result, finding.at_end), (finding.compared, finding.compared_at_end)):
        ranks = read("answer_rank", answer)
        rows.append(
            {
                "prefix": result.settings["prefix"],
                "answer": answer,
                "probability": read("answer_probability", answer)[-1],
                "rank": ranks[-1],
                "leads_from": settled(ranks, finding.layers),
            }
        )
    return pd.DataFrame(rows)


def settled(ranks: "list[float]", layers: list[str]) -> str:
    """The layer from which on a token leads to the end; a dash if it does not lead in the end."""
    behind = np.flatnonzero(np.asarray(ranks) != 1)
    first = 0 if not behind.size else int(behind[-1]) + 1
    return layers[first] if first < len(layers) else "–"


def ranked_heads(induction: InductionFinding) -> "pd.DataFrame":
    """Every head, strongest prefix matching first."""
    scores = induction.scores
    frame = scores.ranked(scores["prefix_matching"].size)
    names = [named((int(row.layer), int(row.head))) for row in frame.itertuples()]
    frame.insert(0, "name", names)
    frame["best"] = [(int(row.layer), int(row.head)) in induction.best for row in frame.itertuples()]
    return frame


def repeats(induction: InductionFinding) -> "pd.DataFrame":
    """Mean loss of each repeat."""
    import pandas as pd

    loss = induction.loss
    mean = np.asarray(loss["mean"])
    return pd.DataFrame(
        {"repeat": list(loss.axes["repeat"]), "loss": mean, "standard_error": loss["mean_se"], "drop": mean[0] - mean}
    )


def looked_at(induction: InductionFinding) -> "pd.DataFrame":
    """Where the best heads look while the words are read again."""
    return induction.words.looked


def word_patterns(induction: InductionFinding) -> "pd.DataFrame":
    """The full patterns of the best heads on the words: head, query, key, attention."""
    import pandas as pd

    words = induction.words
    parts = []
    for head, pattern in words.patterns.items():
        query, key = np.tril_indices(len(words.tokens))
        parts.append(
            pd.DataFrame(
                {
                    "head": head,
                    "query_position": query,
                    "query": [words.tokens[place] for place in query],
                    "key_position": key,
                    "key": [words.tokens[place] for place in key],
                    "attention": pattern.numpy()[query, key],
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def trace_tokens(trace: "CausalTrace") -> "pd.DataFrame":
    """Each kind and token at the layer where restoring it brings most back."""
    cells = trace.to_frame()
    best = cells.loc[cells.groupby(["kind", "position"], sort=False)["effect"].idxmax()].reset_index(drop=True)
    best.insert(1, "restored", [trace.panel(kind) for kind in best["kind"]])
    ends = zip(best["first_layer"], best["last_layer"], strict=True)
    best["layers"] = [str(first) if first == last else f"{first} to {last}" for first, last in ends]
    kept = ["kind", "restored", "position", "token", "in_subject", "layer", "layers"]
    return best[[*kept, "effect", "effect_error", "probability"]]


def trace_sites(findings: Findings) -> "pd.DataFrame":
    """The early site, the strongest cell among the subject's tokens, and the late one, at the last token."""
    import pandas as pd

    rows = []
    for slug, trace in findings.traces.items():
        asked = {"fact": slug, "subject": trace.settings["subject"], "total_effect": trace.total_effect}
        tokens = trace_tokens(trace)
        for restored, best in tokens.groupby("restored", sort=False):
            early = best.loc[best.loc[best["in_subject"], "effect"].idxmax()]
            sites = {"early": early, "late": best.iloc[-1]}
            found = {
                f"{name}_{column}": site[column]
                for name, site in sites.items()
                for column in ("token", "layer", "layers", "effect")
            }
            last = bool(early["position"] == trace.last_subject_position)
            rows.append({**asked, "restored": restored, **found, "early_at_end_of_subject": last})
    return pd.DataFrame(rows)
