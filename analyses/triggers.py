"""What a neuron fires for: the places of a corpus at which its coefficient is largest, and smallest.

For every neuron i of the chosen layers, over all tokens x of all texts (the prefix is left out),

    largest: the k places of the highest m_i(x)          smallest: the k places of the lowest

with m_i the coefficient (`mlp.hook_post`): act(x · gate key) · (x · up key), or act(x · key) without a gate. In a gated
FFN both ends are triggers: where m_i is far below 0, the neuron writes −v_i. (The gate alone would miss them.) The
tokens that led up to a place, and the one that follows, which is what the key's text goes on with, are cut from the
texts when they are asked for.

The corpus is met batch by batch; of each neuron only the best places so far are kept (`trigger_search.py`), so that
memory does not grow with the corpus beyond its tokens, and is known beforehand: `search_bytes`. Of equal coefficients
the earlier place stays, and the size of a batch changes nothing but the last bits of a coefficient. Neurons of experts
meet the tokens that chose their expert, those of a shared expert all tokens.

Paper: Geva et al. 2021, "Transformer feed-forward layers are key-value memories" (arXiv 2012.14913), whose triggers are
prefixes of sentences of the training set.

What it does NOT tell: what a neuron does in general. The most extreme places are one tail: neurons that look clear
there are often mixed below it. A corpus shows only what occurs in it.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.analyses.documents import bundled
from interp.analyses.ffn_values import chosen_layers, chosen_memories
from interp.analyses.last_logits import texts_within
from interp.analyses.neurons import ffn_widths, names_within
from interp.analyses.pieces import Pieces, Texts, longest_piece, pieces_of
from interp.analyses.repeated import Progress
from interp.analyses.trigger_search import CELL, Search, search_bytes
from interp.analyses.vocabulary import token_texts
from interp.errors import BudgetError, UsageError
from interp.models.prompt_formats import PrefixPolicy
from interp.models.replay import SoFar
from interp.named import NamedArray
from interp.results import Result, provenance
from interp.selection import Index

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

ENDS = ("largest", "smallest")
MAX_BYTES = 128 * 2**20
BUDGET = 4 * 2**30
_ROW = 4096
"""Tokens of a row of `token_id`: an axis as long as a corpus would need as many coordinates."""


class Triggers(Result, kind="memories.triggers"):
    """The most extreme places of each neuron: [layer, neuron, end, rank], `end` being largest or smallest.

    `coefficient` is signed; NaN where there were fewer places than ranks. `in_document` counts along the axis
    `document`, `at_token` the tokens of that document, from 0. `memory` [neuron] is the number that `value_tokens`
    knows the neuron by; neurons are named as within their layer: by number, in a mixture `5.17` and `shared.25`.

    The texts, from which `context` and `following` are cut: `token_id` [row, column], all of them one after the other,
    row by row (−1 behind the end); `document_tokens` [document], `piece_start` [piece], where what the model saw
    together begins; `token_text` [token], the texts of all ids.
    """

    grid = CELL
    title = "Trigger examples"
    caution = "The most extreme places are one tail: below it a neuron may fire for something else."

    def context_ids(self, **where: int | str) -> np.ndarray:
        """The tokens up to each trigger, itself last, as far as the model saw them; −1 before, and for no place.

        `where` are coordinates of some axes, as `at` takes them; `settings["context"]` tokens are a further axis.
        """
        rows, stream = self._rows(**where), self._stream()
        begins = self["piece_start"][np.searchsorted(self["piece_start"], rows, side="right") - 1]
        around = rows[..., None] + np.arange(1 - int(str(self.settings["context"])), 1)
        seen = (rows >= 0)[..., None] & (around >= begins[..., None])
        return np.where(seen, stream[around.clip(min=0)], -1)

    def next_ids(self, **where: int | str) -> np.ndarray:
        """The token that follows each trigger; −1 behind the last one of a document, and for no place."""
        rows, stream = self._rows(**where), self._stream()
        document = self.at("in_document", **where)
        follows = (rows >= 0) & (self.at("at_token", **where) + 1 < self["document_tokens"][document])
        return np.where(follows, stream[(rows + 1).clip(0, len(stream) - 1)], -1)

    def context(self, layer: int, neuron: int | str, end: str = "largest") -> list[str]:
        """The text that leads up to each trigger of a neuron, best first."""
        cell = self.context_ids(layer=layer, neuron=neuron, end=end)
        return ["".join(self._text(place) for place in row if place >= 0) for row in cell if row[-1] >= 0]

    def following(self, layer: int, neuron: int | str, end: str = "largest") -> list[str]:
        """The token that follows each trigger, empty behind the end of a document."""
        where = {"layer": layer, "neuron": neuron, "end": end}
        ids, there = self.next_ids(**where), self.at("in_document", **where)
        return [self._text(token) if token >= 0 else "" for token in ids[there >= 0]]

    def examples(self, layer: int, neuron: int | str) -> "pandas.DataFrame":
        """The triggers of one neuron as a table: one row a place, its context, what follows, and where it is."""
        import pandas

        parts = []
        for end in ENDS:
            cell = {"layer": layer, "neuron": neuron, "end": end}
            document = self.at("in_document", **cell)
            there = document >= 0
            columns = {
                "coefficient": self.at("coefficient", **cell)[there],
                "context": self.context(layer, neuron, end),
                "follows": self.following(layer, neuron, end),
                "document": [str(self.axes["document"][place]) for place in document[there]],
                "at_token": self.at("at_token", **cell)[there],
            }
            parts.append(pandas.DataFrame({"end": end, **columns}))
        return pandas.concat(parts, ignore_index=True)

    def figure(self, layer: int | None = None, neuron: int | str | None = None) -> "Figure":
        """The triggers of one neuron (by default the first) with their contexts, at both ends."""
        from interp.plots import ranked_bars, visible

        where = self._first() if layer is None or neuron is None else (layer, neuron)
        labels, values = [], []
        for end in ENDS:
            texts = self.context(*where, end=end)
            labels += [visible(text[-60:]) for text in texts]
            values += self.at("coefficient", layer=where[0], neuron=where[1], end=end)[: len(texts)].tolist()
        title = f"{self.title} of neuron {where[0]}.{where[1]}"
        return ranked_bars(labels, {"coefficient": values}, title=title, metric="coefficient", label="trigger")

    def summary(self) -> list[str]:
        """How much was read, and the first trigger at either end of the first neuron."""
        layers, neurons = len(self.axes["layer"]), len(self.axes["neuron"])
        lines = [f"{self.title}: {layers * neurons} neurons over {int(self['searched']):,} tokens"]
        layer, neuron = self._first()
        for end in ENDS:
            value = float(self.at("coefficient", layer=layer, neuron=neuron, end=end)[0])
            context = self.context(layer, neuron, end)
            if context:
                lines.append(f"  {layer}.{neuron} {end} {value:+.2f}: {context[0]!r}")
        return [*lines, f"  {self.caution}"]

    def _first(self) -> tuple[int, int | str]:
        return int(self.axes["layer"][0]), self.axes["neuron"][0]

    def _rows(self, **where: int | str) -> np.ndarray:
        """Places in the stream of all texts; −1 for none."""
        document, lengths = self.at("in_document", **where), self["document_tokens"]
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        return np.where(document >= 0, starts[document] + self.at("at_token", **where), -1)

    def _stream(self) -> np.ndarray:
        return self["token_id"].reshape(-1)[: int(self["searched"])]

    def _text(self, token: int) -> str:
        return str(self["token_text"][np.searchsorted(self.axes["token"], token)])


@torch.no_grad()
def find_triggers(
    model: "Transformer",
    texts: Texts | None = None,
    *,
    layers: Index | None = None,
    neurons: Index | None = None,
    top_k: int = 20,
    context: int = 8,
    length: int | None = None,
    prefix: PrefixPolicy = "doc",
    max_bytes: int = MAX_BYTES,
    budget: int = BUDGET,
    progress: Progress | None = None,
    so_far: SoFar[Triggers] | None = None,
) -> Triggers:
    """The `top_k` places of the largest and of the smallest coefficients, of these neurons of each of these layers.

    `texts` are documents (by default the bundled ones) or token ids without a prefix; they are read in pieces of at
    most `length` tokens (512, if the context holds them), each behind the prefix, about `max_bytes` at once. None means
    all layers, all neurons; those of experts count expert by expert (expert · d_expert + neuron), those of a shared
    expert behind them. `context` tokens are shown of each place. The places themselves take `search_bytes`, which are
    in the settings. `so_far` is handed, batch by batch, a function that makes the result of the tokens read by then.

    Raises `UsageError` for layers and neurons that do not exist, layers of different widths, and texts that are empty;
    `BudgetError`, before anything runs, where the places take more than `budget`.
    """
    chosen = chosen_layers(model, layers)
    if top_k < 1 or context < 1:
        raise UsageError(f"top_k is {top_k} and context {context}; expected at least 1 of each.")
    if any(ffn_widths(model.config, layer) != ffn_widths(model.config, chosen[0]) for layer in chosen):
        raise UsageError("These layers have FFNs of different widths; search them one kind at a time, by `layers`.")
    memories = chosen_memories(model, chosen[0], neurons)
    held = search_bytes(model, len(chosen), len(memories), top_k)
    if held > budget:
        raise BudgetError(
            f"The {2 * top_k} places of {len(chosen) * len(memories):,} neurons take {held:,} bytes "
            f"({held / 2**30:.1f} GiB); the budget is {budget:,}. Allow more, or search fewer layers at a time, or for "
            "fewer places (top_k)."
        )
    length = longest_piece(model, prefix) if length is None else length
    pieces = pieces_of(model, bundled() if texts is None else texts, length=length, prefix=prefix)
    search, read = Search(model, chosen, memories, top_k), 0
    ids = sorted(set(pieces.stream.tolist()))
    settings = {"layers": chosen, "top_k": top_k, "context": context, "length": length, "prefix": prefix}

    def found(*, ended: bool) -> Triggers:
        return Triggers(
            arrays={
                **search.found(pieces, ended=ended),
                **_texts(pieces),
                "token_text": NamedArray(token_texts(model, ids), ("token",)),
                "memory": NamedArray(memories, ("neuron",)),
                "searched": NamedArray(read),
            },
            axes={
                "layer": chosen,
                "neuron": names_within(model.config, chosen[0], memories),
                "end": ENDS,
                "rank": range(1, top_k + 1),
                "document": pieces.names,
                "token": ids,
            },
            settings={**settings, "bytes_held": held},
            provenance=provenance(model.provenance, tokens=pieces.stream, prefix=prefix),
        )

    for batch in pieces.batches(texts_within(model, pieces.width, max_bytes)):
        search.read(batch)
        read = int(batch.places[-1]) + 1
        if progress is not None:
            progress(read, len(pieces.stream))
        if so_far is not None and read < len(pieces.stream):
            so_far(partial(found, ended=False))
    return found(ended=True)


def _texts(pieces: Pieces) -> dict[str, NamedArray]:
    """The tokens of all texts, and where texts and pieces begin."""
    count = len(pieces.stream)
    columns = min(_ROW, count)
    rows = np.full(-(-count // columns) * columns, -1, np.int32)
    rows[:count] = pieces.stream.numpy()
    lengths = torch.cat([pieces.starts, torch.tensor([count])]).diff()
    return {
        "token_id": NamedArray(rows.reshape(-1, columns), ("row", "column")),
        "document_tokens": NamedArray(lengths.numpy(), ("document",)),
        "piece_start": NamedArray(pieces.cuts[:-1].numpy(), ("piece",)),
    }
