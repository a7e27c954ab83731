"""What a neuron fires for: the places of a corpus at which its coefficient is largest, and smallest.

For every neuron i of the chosen layers, over all tokens x of all texts (the prefix is left out),

    largest: the k places of the highest m_i(x)          smallest: the k places of the lowest

with m_i the coefficient (`mlp.hook_post`): act(x · gate key) · (x · up key), or act(x · key) without a gate. In a gated
FFN both ends are triggers: where m_i is far below 0, the neuron writes −v_i. (The gate alone would miss them.) Beside
each place stand the tokens that led up to it and the one that follows, which is what the key's text goes on with.

The corpus is met batch by batch; of each neuron only the best places so far are kept, so memory does not grow with it.
Of equal coefficients the earlier place stays, and the size of a batch changes nothing but the last bits of a
coefficient. Neurons of experts meet the tokens that chose their expert; the shared expert of a mixture is left out.

Paper: Geva et al. 2021, "Transformer feed-forward layers are key-value memories" (arXiv 2012.14913), whose triggers are
prefixes of sentences of the training set.

What it does NOT tell: what a neuron does in general. The most extreme places are one tail: neurons that look clear
there are often mixed below it. A corpus shows only what occurs in it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analyses.documents import bundled
from interp.analyses.extremes import Extremes
from interp.analyses.ffn_values import chosen_layers, chosen_memories, memory_names, stored_values
from interp.analyses.last_logits import texts_within
from interp.analyses.pieces import Batch, Pieces, Texts, pieces_of
from interp.analyses.repeated import Progress
from interp.analyses.vocabulary import token_texts
from interp.errors import UsageError
from interp.hooks import HookPoint, recorders_active
from interp.models.prompt_formats import PrefixPolicy
from interp.named import NamedArray
from interp.results import Result, provenance
from interp.selection import Index

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

    from interp.models.transformer import Transformer

ENDS = ("largest", "smallest")
MAX_BYTES = 128 * 2**20
CELL = ("layer", "neuron", "end", "rank")


class Triggers(Result, kind="memories.triggers"):
    """The most extreme places of each neuron: [layer, neuron, end, rank], `end` being largest or smallest.

    `coefficient` is signed; NaN where there were fewer places than ranks. `in_document` counts along the axis
    `document`, `at_token` the tokens of that document, from 0; `next_id` is the token that follows, −1 behind the last
    one of a document; `context_id` [layer, neuron, end, rank, place] are the tokens up to the trigger, which stands at
    place 0, as far as the model saw them (−1 before). `token_text` [token] has the texts of all ids. `memory` [neuron]
    is the number that `value_tokens` knows the neuron by; in a mixture its name is "expert.neuron".
    """

    grid = CELL
    title = "Trigger examples"
    caution = "The most extreme places are one tail: below it a neuron may fire for something else."

    def context(self, layer: int, neuron: int | str, end: str = "largest") -> list[str]:
        """The text that leads up to each trigger of a neuron, best first."""
        cell = self.at("context_id", layer=layer, neuron=neuron, end=end)
        return ["".join(self._text(place) for place in row if place >= 0) for row in cell if row[-1] >= 0]

    def following(self, layer: int, neuron: int | str, end: str = "largest") -> list[str]:
        """The token that follows each trigger, empty behind the end of a document."""
        ids, there = (self.at(name, layer=layer, neuron=neuron, end=end) for name in ("next_id", "in_document"))
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
    length: int = 512,
    prefix: PrefixPolicy = "doc",
    max_bytes: int = MAX_BYTES,
    progress: Progress | None = None,
) -> Triggers:
    """The `top_k` places of the largest and of the smallest coefficients, of these neurons of each of these layers.

    `texts` are documents (by default the bundled ones) or token ids without a prefix; they are read in pieces of at
    most `length` tokens, each behind the prefix, about `max_bytes` at once. None means all layers, all neurons; those
    of experts count expert by expert (expert · d_expert + neuron). `context` tokens are shown of each place.

    Raises `UsageError` for layers and neurons that do not exist, layers of different widths, and texts that are empty.
    """
    chosen = chosen_layers(model, layers)
    if top_k < 1 or context < 1:
        raise UsageError(f"top_k is {top_k} and context {context}; expected at least 1 of each.")
    if len({stored_values(model, layer).shape for layer in chosen}) > 1:
        raise UsageError("These layers have FFNs of different widths; search them one kind at a time, by `layers`.")
    memories = chosen_memories(model, chosen[0], neurons)
    pieces = pieces_of(model, bundled() if texts is None else texts, length=length, prefix=prefix)
    search = _Search(model, chosen, memories, top_k)
    for batch in pieces.batches(texts_within(model, pieces.width, max_bytes)):
        search.read(batch)
        if progress is not None:
            progress(int(batch.places[-1]) + 1, len(pieces.stream))
    values, rows = search.found()
    ids = sorted(set(pieces.stream.tolist()))
    settings = {"layers": chosen, "top_k": top_k, "context": context, "length": length, "prefix": prefix}
    return Triggers(
        arrays={
            "coefficient": NamedArray(values, CELL),
            **_contexts(pieces, rows, context),
            "token_text": NamedArray(token_texts(model, ids), ("token",)),
            "memory": NamedArray(memories, ("neuron",)),
            "searched": NamedArray(len(pieces.stream)),
        },
        axes={
            "layer": chosen,
            "neuron": memory_names(model, chosen[0], memories),
            "end": ENDS,
            "rank": range(1, top_k + 1),
            "place": range(1 - context, 1),
            "document": pieces.names,
            "token": ids,
        },
        settings=settings,
        provenance=provenance(model.provenance, tokens=pieces.stream, prefix=prefix),
    )


class _Search:
    """The most extreme coefficients so far, for each layer and each of its experts (a dense FFN counts as one)."""

    def __init__(self, model: "Transformer", layers: Sequence[int], memories: Sequence[int], top_k: int) -> None:
        self.model, self.layers, self.count, self.top_k = model, layers, len(memories), top_k
        *experts, width, _ = stored_values(model, layers[0]).shape
        self.among_experts = bool(experts)
        wanted = torch.tensor(memories, device=model.device)
        chosen = sorted({memory // width for memory in memories})
        self.slots = {expert: (wanted // width == expert).nonzero()[:, 0] for expert in chosen}
        self.neurons = {expert: (wanted % width)[slots] for expert, slots in self.slots.items()}
        self.whole = not experts and list(memories) == list(range(width))
        dtype = torch.float64 if model.dtype == torch.float64 else torch.float32
        self.best = {
            (layer, expert): Extremes(len(slots), top_k, dtype=dtype, device=model.device)
            for layer in layers
            for expert, slots in self.slots.items()
        }

    def read(self, batch: Batch) -> None:
        """One forward pass up to the last layer that is searched, each layer's coefficients let go once compared."""
        rows, places = (part.to(self.model.device) for part in (batch.rows, batch.places))
        chosen: dict[int, Tensor] = {}

        def compare(value: Tensor, point: HookPoint) -> Tensor:
            assert point.layer is not None
            found = value.flatten(0, 1).index_select(0, rows)
            if point.name.endswith("hook_expert_indices"):
                chosen[point.layer] = found
            elif self.among_experts:
                self._by_expert(point.layer, found, chosen.pop(point.layer), places)
            else:
                self.best[point.layer, 0].add(found if self.whole else found[:, self.neurons[0]], places)
            return value

        kinds = ("hook_expert_indices", "hook_post") if self.among_experts else ("hook_post",)
        names = [f"blocks.{layer}.mlp.{kind}" for layer in self.layers for kind in kinds]
        with recorders_active(compare, names):  # the cache is of no interest: it holds as little as it may
            self.model.run_with_cache(
                batch.tokens, "hook_embed", positions=[0], mask=batch.mask, stop_at_layer=max(self.layers) + 1
            )

    def _by_expert(
        self,
        layer: int,
        values: Float[Tensor, "token slot d_expert"],
        experts: Int[Tensor, "token slot"],
        places: Int[Tensor, "token"],
    ) -> None:
        for expert, neurons in self.neurons.items():
            token, slot = (experts == expert).nonzero(as_tuple=True)
            self.best[layer, expert].add(values[token, slot][:, neurons], places[token])

    def found(self) -> tuple[Float[np.ndarray, "layer neuron end rank"], Int[Tensor, "layer neuron end rank"]]:
        """Coefficients with their sign, NaN for none, and places in the stream, −1 for none."""
        shape = (len(self.layers), self.count, 2, self.top_k)
        some = next(iter(self.best.values()))
        values, rows = some.values.new_empty(shape), some.rows.new_empty(shape)
        for (layer, expert), best in self.best.items():
            place, slots = self.layers.index(layer), self.slots[expert]
            values[place, slots], rows[place, slots] = best.values.transpose(0, 1), best.rows.transpose(0, 1)
        values[:, :, 1] *= -1
        return values.masked_fill(rows < 0, torch.nan).cpu().numpy(), rows.cpu()


def _contexts(pieces: Pieces, rows: Int[Tensor, "layer neuron end rank"], context: int) -> dict[str, NamedArray]:
    """Where the places are, and the tokens around them."""
    there = rows >= 0
    document = torch.searchsorted(pieces.starts, rows, right=True) - 1
    begins = pieces.cuts[(torch.searchsorted(pieces.cuts, rows, right=True) - 1).clamp(min=0)]
    lengths = torch.cat([pieces.starts, torch.tensor([len(pieces.stream)])]).diff()
    ends = (pieces.starts + lengths)[document.clamp(min=0)]
    around = rows[..., None] + torch.arange(1 - context, 1)
    seen = there[..., None] & (around >= begins[..., None])
    following = there & (rows + 1 < ends)
    numbers = {
        "in_document": document.masked_fill(~there, -1),
        "at_token": (rows - pieces.starts[document.clamp(min=0)]).masked_fill(~there, -1),
        "next_id": pieces.stream[(rows + 1).clamp(0, len(pieces.stream) - 1)].masked_fill(~following, -1),
    }
    context_ids = pieces.stream[around.clamp(min=0)].masked_fill(~seen, -1)
    return {
        "document_tokens": NamedArray(lengths.numpy(), ("document",)),
        **{name: NamedArray(values.int().numpy(), CELL) for name, values in numbers.items()},
        "context_id": NamedArray(context_ids.int().numpy(), (*CELL, "place")),
    }
