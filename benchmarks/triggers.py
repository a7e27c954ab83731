"""Trigger search against the plain forward passes that it needs, over the bundled documents said again and again.

`python -m benchmarks.triggers --tokens 1000000 --layers 30` measures more than the case of the report does.
"""

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence

import torch

from benchmarks.measuring import Row, peak_bytes
from benchmarks.models import ours
from interp.analyses.documents import Document, bundled
from interp.analyses.last_logits import texts_within
from interp.analyses.pieces import pieces_of
from interp.analyses.triggers import MAX_BYTES, find_triggers

TOKENS, LAYERS = 100_000, 4
SPEED, MEMORY = 0.8, 4.0
"""The least speed, as a share of that of plain forward passes, and the most memory, in GB."""


def triggers(tokens: int = TOKENS, layers: int = LAYERS) -> Iterator[Row]:
    """All neurons of the first layers: seconds against plain passes up to the same layer, and the peak of memory."""
    texts, searched = _corpus(tokens), []

    def search() -> None:
        found = find_triggers(ours(), texts, layers=range(layers))
        searched.append(int(found["searched"]))

    before = _plain(texts, layers)
    start = time.perf_counter()
    peak = peak_bytes(search)
    taken = time.perf_counter() - start
    plain = (before + _plain(texts, layers)) / 2
    what = f"triggers of {layers} layers over {searched[0]:,} tokens"
    yield Row(f"{what} ÷ plain passes", f"{taken:.1f} s against {plain:.1f} s", taken / plain, 1 / SPEED)
    yield Row(f"{what}, peak above the model", f"{peak / 1e9:.2f} GB", peak / 1e9, MEMORY, "GB")


def _corpus(tokens: int) -> Sequence[Document]:
    """The bundled documents, cycled until so many tokens are there."""
    chosen, count = [], 0
    for number, document in enumerate(itertools.cycle(bundled())):
        if count >= tokens:
            return chosen
        chosen.append(Document(f"{document.name} {number}", document.text))
        count += len(ours().tokenizer.encode(document.text))
    raise AssertionError


@torch.no_grad()
def _plain(texts: Sequence[Document], layers: int) -> float:
    """Seconds of the forward passes alone, in the batches of the search."""
    start = time.perf_counter()
    pieces = pieces_of(ours(), texts, length=512, prefix="doc")
    for batch in pieces.batches(texts_within(ours(), pieces.width, MAX_BYTES)):
        ours().run_with_cache(batch.tokens, "hook_embed", positions=[0], mask=batch.mask, stop_at_layer=layers)
    return time.perf_counter() - start


def main() -> None:
    """More tokens or layers than the case of the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.triggers", description=__doc__)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    for row in triggers(asked.tokens, asked.layers):
        print(f"{row.what}: {row.measured}, {row.value:.2f} {row.unit} (mark {row.mark:.2f})", flush=True)


if __name__ == "__main__":
    main()
