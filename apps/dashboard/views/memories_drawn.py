"""What the page of FFN memories draws of its results."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from interp.apps.dashboard import look
from interp.apps.dashboard.context import Context
from interp.apps.dashboard.heatmaps import Grid
from interp.apps.dashboard.look import seen

if TYPE_CHECKING:
    import pandas

    from interp.analyses.memories import Memories
    from interp.analyses.triggers import Triggers
    from interp.analyses.value_tokens import ValueTokens
    from interp.models.transformer import Transformer

WORDS = 5  # of a neuron, in a table
METRICS = {"dominance": "±|w·m|·‖v‖", "coefficient": "coefficient m", "explained": "explained so far"}


def refused(model: "Transformer", names: str) -> str | None:
    """Why these neurons, by commas, cannot be looked at; None if they can."""
    from interp.analyses.neurons import neurons_of
    from interp.errors import UsageError

    try:
        neurons_of(model, [name.strip() for name in names.split(",") if name.strip()])
    except UsageError as error:
        return str(error)
    return None


def where(found: "Memories") -> None:
    """The token at which neurons write."""
    place, count = int(str(found.settings["position"])), len(found["tokens"])
    look.sentence(f"Written at {look.chip(str(found['token']))}, position {place} of 0 to {count - 1}.")


def grid(found: "Memories", metric: str) -> Grid:
    """The map of all layers by rank."""
    values = found[metric]
    if metric == "dominance":
        values = np.copysign(values, found["coefficient"])
    return Grid(
        values=values,
        row="layer",
        column="rank",
        rows=[str(layer) for layer in found.axes["layer"]],
        columns=[str(rank) for rank in found.axes["rank"]],
        metric=METRICS[metric],
        row_title="layer",
        column_title="rank in its layer",
        column_start=1,
        signed=True,
        texts=found["promoted_token"][..., 0],
        details=_details(found),
        form="+.3f",
    )


def _details(found: "Memories") -> np.ndarray:
    """What hovering says of a neuron beside its value."""
    cells = list(np.ndindex(found["name"].shape))
    said = [f"neuron {found['name'][cell]}, promotes {_listed(found['promoted_token'][cell])}" for cell in cells]
    return np.array(said, dtype=object).reshape(found["name"].shape)


def _listed(tokens: np.ndarray) -> str:
    return "  ".join(seen(token) for token in tokens[:WORDS])


def alt(found: "Memories") -> str:
    """The map in words."""
    layer, rank = (int(each) for each in np.unravel_index(found["dominance"].argmax(), found["dominance"].shape))
    layers, ranks = found["dominance"].shape
    return (
        f"Map of the {ranks} dominant neurons of each of {layers} layers, each with the word that it promotes most; "
        f"the strongest is {found['name'][layer, rank]}, |w·m|·‖v‖ {found['dominance'][layer, rank]:.2f}, and promotes "
        f"{seen(found['promoted_token'][layer, rank, 0])}. All sub-updates of a layer add up to the FFN's output "
        f"within {float(found['completeness_error'].max()):.0e} of it."
    )


def layer_table(found: "Memories", layer: int) -> "pandas.DataFrame":
    """The dominant neurons of one layer."""
    import pandas as pd

    return pd.DataFrame(
        {
            "rank": list(found.axes["rank"]),
            "neuron": found["name"][layer].astype(str),
            "coefficient": found["coefficient"][layer],
            "dominance": found["dominance"][layer],
            "explained so far": found["explained"][layer],
            "promotes": [_listed(words) for words in found["promoted_token"][layer]],
            "suppresses": [_listed(words) for words in found["suppressed_token"][layer]],
        }
    )


def here(context: Context, found: "Memories", name: str) -> None:
    """What the neuron does at this token, as far as it is among those that were kept."""
    places = np.argwhere(found["name"] == name)
    if not len(places):
        look.sentence(f"{look.chip(name)} is none of those that write most here: the map does not hold it.")
        return
    cell = tuple(int(each) for each in places[0])
    value = {key: float(found[key][cell]) for key in ("coefficient", "pre", "pre_linear", "weight", "value_norm")}
    gated = value["pre_linear"] == value["pre_linear"]
    keys = f"gate {value['pre']:+.2f}, up projection {value['pre_linear']:+.2f}" if gated else f"{value['pre']:+.2f}"
    mixed = f", weight of its expert {value['weight']:.2f}" if value["weight"] != 1 else ""
    sign = "as its value stands" if value["coefficient"] > 0 else "turned around, since its coefficient is negative"
    look.sentence(
        f"{look.chip(name)} matches here with {keys}: coefficient <b>{value['coefficient']:+.3f}</b>{mixed}. It writes "
        f"its value (‖v‖ {value['value_norm']:.2f}) {sign}, and so promotes "
        f"{' '.join(look.chip(str(word)) for word in found['promoted_token'][cell][:WORDS])}."
    )
    context.export("neuron here", _written(found, cell))


def _written(found: "Memories", cell: tuple[int, ...]) -> "pandas.DataFrame":
    import pandas as pd

    ends = ("promoted", "suppressed")
    columns: Mapping[str, Any] = {
        f"{end} {kind}": found[f"{end}_{kind}"][cell] for end in ends for kind in ("token", "score")
    }
    return pd.DataFrame({"rank": list(found.axes["word"]), **columns})


def both_ends(words: "ValueTokens") -> "pandas.DataFrame":
    """The tokens at both ends of a value."""
    import pandas as pd

    return pd.DataFrame(
        {
            "top": [seen(token) for token in words["top_token"][0]],
            "score": words["top_score"][0],
            "bottom": [seen(token) for token in words["bottom_token"][0]],
            "score below": words["bottom_score"][0],
        }
    )


def triggers(context: Context, found: "Triggers") -> None:
    """The places of the largest and the smallest coefficients."""
    frame = found.examples(int(found.axes["layer"][0]), found.axes["neuron"][0])
    shown = frame.assign(context=frame["context"].map(seen), follows=frame["follows"].map(seen))
    st.dataframe(shown, width="stretch", hide_index=True)
    context.export("triggers", frame)
    st.caption(f"{int(found['searched']):,} tokens were read. {found.caution}")


def changes(context: Context, results: Mapping[str, Any]) -> None:
    """The texts, the probabilities of the unedited one, and effects beside random neurons."""
    texts = results["texts"]
    frame = texts.to_frame()[["change", "text", "same_tokens"]]
    context.table("texts", frame.rename(columns={"text": "goes on", "same_tokens": "tokens as unedited"}))
    said = "; ".join(f"{change}: {text.strip()!r}" for change, text in texts.texts.items())
    context.plot("steps", texts.figure().update_layout(height=320), f"Probability of each unedited token; {said}.")
    st.caption(f"The probability of each token of the unedited text, with each change. {texts.caution}")
    if "edits" not in results:
        return
    edits = results["edits"]
    asked = str(edits["prompt"][0])
    said = " ".join(
        f"{change}: {edits.interval('effect', str(change), 'fact')}, random neurons "
        f"{edits.interval('control_effect', str(change), 'fact')}."
        for change in edits.axes["change"]
    )
    st.markdown("**Effects on the probability of the answer**, and on that of other facts, beside random neurons")
    context.plot("effects", edits.figure(), f"Effects on the answer to {asked!r}. {said}")
    rows = edits.to_frame()
    kept = ("change", "group", "units", "effect", "control_effect", "excess", "relative", "lost")
    shown = rows.loc[rows["units"] > 0, list(kept)]
    st.dataframe(shown, width="stretch", hide_index=True)
    context.export("effects", rows)
    if "mean" in edits.axes["change"]:
        st.caption("With its mean no text is written on: that is over the texts that are measured.")
    st.caption(edits.caution)
