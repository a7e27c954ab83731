"""What a sweep will cost, before it starts: rows, floating-point operations, bytes, seconds.

Operations are those of matrix products and attention, counted as `torch.utils.flop_counter` counts them. Bytes are
those held beside the model at the widest moment, by which a budget splits a sweep into walks. Seconds come from timing
some layers of this model on this machine for a moment.
"""

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from interp.errors import BudgetError
from interp.models.attention import reading
from interp.models.config import ModelConfig
from interp.models.operations import run_flops
from interp.models.replay_plan import Plan
from interp.models.walk import Base, Cell, behind_layers
from interp.points import PointTable

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

TOKENS_A_WALK = 2048
"""More tokens side by side make products no faster, and leave the processor's caches."""
LOGIT_BYTES = 48 * 2**20
"""Logits that are made at once, where the budget allows it."""


@dataclass(frozen=True)
class Cost:
    """What is about to be spent."""

    cells: int
    """Combinations of the axes whose effect is not known beforehand."""
    rows: int
    """Texts that are computed again: cells times the batch."""
    walks: int
    """Walks through the layers that the budget splits them into."""
    flops: int
    """Multiplications and additions of all walks; the base run is apart."""
    full_flops: int
    """What one full forward pass a cell, with all logits, would take."""
    bytes: int
    """Allocated beside the model at the widest moment."""
    seconds: float

    def __str__(self) -> str:
        saved = self.full_flops / max(self.flops, 1)
        return (
            f"{self.cells:,} cells, {self.rows:,} rows, {self.walks} walk{'s' * (self.walks != 1)}: "
            f"{self.flops / 1e9:,.1f} GFLOP "
            f"(full forward passes: {saved:.1f} times that), {self.bytes / 2**20:,.0f} MiB, about {self.seconds:.1f} s"
        )


@dataclass(frozen=True)
class Footprint:
    """Bytes that the parts of a sweep hold."""

    base: int
    token: int
    """A token on its way through a layer."""
    logits: int
    """The logits of one cell and what a metric makes of them."""

    @classmethod
    def of(cls, model: "Transformer", plan: Plan, read: Sequence[int], *, shortcuts: bool) -> "Footprint":
        """The footprint of a planned sweep."""
        base, c = plan.base, model.config
        held = [tensor for kind in (base.boundaries, base.keys, base.values) for tensor in kind.values()]
        whole = not shortcuts or _edited_behind_layers(model, base, plan.cells)
        columns = max((_logit_columns(base, cell, read, whole=whole) for cell in plan.cells), default=len(read))
        column = base.batch * c.d_vocab * model.embed.element_size()
        unchanged = len(read) * column
        return cls(sum(tensor.nbytes for tensor in held) + unchanged, _token_bytes(model, plan), 3 * columns * column)

    def walk(self, base: Base, cells: Sequence[Cell]) -> int:
        """Bytes of a walk of these cells, the base run's included."""
        return self.base + max(self.token * _tokens(base, cells), self.logits)

    def tokens_that_fit(self, base: Base, cells: Sequence[Cell], budget: int) -> int:
        """How many tokens may lie side by side. Raises `BudgetError` where the largest cell does not fit."""
        if not cells:
            return 0
        largest = max(cells, key=lambda cell: base.stop - cell.start)
        needed = self.walk(base, [largest])
        if needed > budget:
            raise BudgetError(
                f"One cell of the sweep, {base.batch} texts of {base.stop - largest.start} tokens, needs {needed:,} "
                f"bytes ({needed / 2**20:.1f} MiB); the budget is {budget:,}. Allow more, or fewer texts at a time."
            )
        return max(min(TOKENS_A_WALK, (budget - self.base) // self.token), _tokens(base, [largest]))

    def cells_read_at_once(self, budget: int) -> int:
        """For how many cells logits are made together."""
        return max(1, min(LOGIT_BYTES, (budget - self.base) // 2) // self.logits)


def packed(base: Base, cells: Sequence[Cell], limit: int) -> list[list[Cell]]:
    """The cells in walks of at most `limit` tokens: those that join at the same layer together."""
    walks: list[list[Cell]] = []
    room, last = 0, None
    for cell in sorted(cells, key=lambda cell: (_company(cell), cell.join, cell.start)):
        size, company = _tokens(base, [cell]), _company(cell)
        if size > room or company != last:
            walks.append([])
            room = limit
        walks[-1].append(cell)
        room, last = room - size, company
    return walks


def _company(cell: Cell) -> int:
    """Cells that may share a walk: a head that reads a residual of its own cannot see its neighbours' edited norm."""
    receivers = any(name.endswith(("hook_q_input", "hook_k_input", "hook_v_input")) for name in cell.edits)
    norms = any(".ln1." in name for name in cell.edits)
    return 2 + cell.index if receivers and norms else int(receivers)


def _edited_behind_layers(model: "Transformer", base: Base, cells: Sequence[Cell]) -> bool:
    names = {name for edits in (base.edits, *(cell.edits for cell in cells)) for name in edits}
    return any(behind_layers(name, model.points()) for name in names)


def _logit_columns(base: Base, cell: Cell, read: Sequence[int], *, whole: bool) -> int:
    """At how many columns a cell's logits are made."""
    return base.stop - cell.kept if whole else sum(column >= cell.kept for column in read)


def _tokens(base: Base, cells: Sequence[Cell]) -> int:
    return sum(base.batch * (base.stop - cell.start) for cell in cells)


def _token_bytes(model: "Transformer", plan: Plan) -> int:
    """The widest moment of one token in a layer, with what edits at these points add."""
    names = {name for cell in plan.cells for name in cell.edits}
    shortest = min((plan.base.stop - cell.start for cell in plan.cells), default=1)
    numbers = token_numbers(model.config, model.points(), names, plan.base.stop, shortest)
    return numbers * model.embed.element_size()


def token_numbers(config: ModelConfig, points: PointTable, edited: Iterable[str], length: int, shortest: int) -> int:
    """The same as numbers held at once, for cells of at least `shortest` columns of texts of `length` tokens."""
    queries, joint = config.n_heads * config.d_head, (config.n_heads + 2 * config.n_kv_heads) * config.d_head
    read = 4 * length * config.n_kv_heads * config.d_head // max(1, shortest)
    attention = 3 * config.d_model + 2 * joint + 2 * queries + read
    ffn = 4 * config.d_model + max(config.ffn_width(layer) for layer in range(config.n_layers))
    most = 0
    for point in {points[name].name: points[name] for name in edited}.values():
        sizes = {"batch": 1, "pos": 1, "query_pos": 1, "key_pos": length, **config.axis_sizes}
        copies = 4 if point.axes[-1] == "key_pos" or point.on_demand else 2
        most = max(most, copies * math.prod(point.shape(sizes))) if point.per_layer else most
    return max(attention, ffn) + most


# ---------------------------------------------------------------------------------------------------- operations


def flops(
    model: "Transformer", base: Base, walks: Sequence[Sequence[Cell]], read: Sequence[int], *, shortcuts: bool
) -> int:
    """Operations of all walks, as the forward pass does them; those of points on demand are left out."""
    total = 0
    for cells in walks:
        whole = not shortcuts or _edited_behind_layers(model, base, cells)
        for cell in cells:
            total += cell_flops(model.config, base, cell, _logit_columns(base, cell, read, whole=whole))
    return total


def cell_flops(config: ModelConfig, base: Base, cell: Cell, read: int) -> int:
    """Operations of one cell: every layer from where it joins, the last one only where it is kept, and its logits."""
    return run_flops(config, base.stop, batch=base.batch, join=cell.join, start=cell.start, kept=cell.kept, read=read)


def full_flops(config: ModelConfig, base: Base, cells: int) -> int:
    """Operations of one full forward pass a cell, with logits at every position."""
    length = base.tokens.shape[1]
    return cells * cell_flops(config, replace(base, stop=length), Cell(0, {}), length)


# ------------------------------------------------------------------------------------------------------- seconds


class Clock:
    """How long a layer takes for a number of tokens, and the unembedding for a number of rows, here and now."""

    def __init__(self, model: "Transformer", longest: int) -> None:
        sizes = [size for size in (8, 32, 128, 512, 2048) if size < longest]
        self.layer = {size: time_layer(model, size) for size in [*sizes, max(longest, 1)]}
        self.row = _unembed_seconds(model, 64) / 64
        self.group = 1e-4

    def layer_seconds(self, tokens: int) -> float:
        """Seconds of one layer, between the sizes that were timed in proportion."""
        sizes = sorted(self.layer)
        place = bisect_left(sizes, tokens)
        if place == 0:
            return self.layer[sizes[0]]
        if place == len(sizes):
            return self.layer[sizes[-1]] * tokens / sizes[-1]
        low, high = sizes[place - 1], sizes[place]
        share = (tokens - low) / (high - low)
        return (1 - share) * self.layer[low] + share * self.layer[high]

    def walk_seconds(self, base: Base, cells: Sequence[Cell], layers: int, read: int) -> float:
        """Seconds of one walk."""
        first = min(cell.join for cell in cells)
        seconds = 0.0
        for layer in range(first, layers):
            there = [cell for cell in cells if cell.join <= layer]
            seconds += self.layer_seconds(_tokens(base, there))
            seconds += self.group * len({cell.start for cell in there})
        return seconds + self.row * base.batch * len(cells) * read


def time_layer(model: "Transformer", tokens: int) -> float:
    """Seconds that a layer takes for so many tokens, here and now.

    Several layers are run in a row, so that their weights come from memory as they do in a walk.
    """
    c = model.config
    columns = 8 if tokens % 8 == 0 else 1
    resid = torch.randn(tokens // columns, columns, c.d_model, dtype=torch.float32).to(model.embed)
    positions = torch.arange(columns, device=model.device).expand(tokens // columns, columns)
    shared = reading(c, positions, None, columns)
    layers = model.layers[: max(2, min(c.n_layers, 1024 // tokens))]

    def run() -> None:
        line = resid
        for layer in layers:
            line = layer(line, shared)

    return _median_seconds(run, model.device) / len(layers)


def _unembed_seconds(model: "Transformer", rows: int) -> float:
    resid = torch.randn(1, rows, model.config.d_model).to(model.embed)
    return _median_seconds(lambda: model.unembed_rows(resid).logsumexp(-1), model.device)


def _median_seconds(run: Callable[[], object], device: torch.device, rounds: int = 3) -> float:
    def once() -> float:
        _wait(device)
        start = time.perf_counter()
        run()
        _wait(device)
        return time.perf_counter() - start

    with torch.no_grad():
        once()
        return sorted(once() for _ in range(rounds))[rounds // 2]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
