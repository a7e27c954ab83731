"""The lenses over many prompts: one padded forward pass a batch, and one read of all its positions together."""

from collections.abc import Sequence

import numpy as np
import torch

from interp.analyses.lens_facts import lens_facts
from interp.analyses.lens_parts import PartLens, lens_parts, points_read
from interp.analyses.lens_readings import readings
from interp.analyses.study.facts import FactTask, known_only
from interp.analyses.study.prompts import Grid, followed, laid_out, prompt_length
from interp.analyses.study.settings import FactLensSettings, LensPartsSettings, LensSettings
from interp.analyses.study.task import Columns, Found, Item, Outcomes, Task, Work
from interp.analyses.vocabulary import token_texts
from interp.cache import position_list

_BYTES = 128 * 2**20
_READ: Columns = {
    **{"token": str, "entropy": float, "kl_to_final": float},
    **{"final_token": str, "final_probability": float, "final_log_probability": float, "final_rank": int},
    **{"answer_token": str, "answer_probability": float, "answer_log_probability": float, "answer_rank": int},
    **{"top_token": str, "top_id": int, "top_probability": float},
}


def _places(grid: Grid, positions: Sequence[int] | None) -> list[list[int]]:
    """The positions that are read of every prompt, counted from its start. `UsageError` for one that is outside."""
    return [position_list(positions, len(row)) or list(range(len(row))) for row in grid.rows]


def _lens(work: Work, items: Sequence[Item]) -> Outcomes:
    model, asked = work.model, work.settings
    grid = Grid.of(work, items, "right")
    places = _places(grid, asked.positions)
    answers = [followed(model, item.value)[0] for item in items]
    names = ["blocks.0.hook_resid_pre", "blocks.*.hook_resid_post"]
    cache = model.run_with_cache(grid.tokens, names, mask=grid.mask, stop_at_layer=model.config.n_layers)[1]
    rows = [row for row, chosen in enumerate(places) for _ in chosen]
    columns = [place for chosen in places for place in chosen]
    vectors = [value[rows, columns] for value in cache.values()]
    wanted = torch.tensor([[0 if answers[row] is None else answers[row]] for row in rows])
    found = readings(model, vectors, vectors[-1], wanted, asked.top_k, _BYTES)
    ends = np.cumsum([0, *map(len, places)])
    return {
        item.id: Found(_of_prompt(work, found, slice(ends[row], ends[row + 1]), grid.rows[row], places[row], answer))
        for row, (item, answer) in enumerate(zip(items, answers, strict=True))
    }


def _of_prompt(
    work: Work, found: dict[str, np.ndarray], rows: slice, ids: list[int], places: list[int], answer: int | None
) -> dict[str, object]:
    """The columns of one prompt, by [layer, position, rank]; layer −1 is the embedding."""
    model, own = work.model, {name: table[:, rows] for name, table in found.items()}
    boundaries, top_k = len(own["entropy"]), own["top_id"].shape[-1]
    axes = {"layer": range(-1, boundaries - 1), "position": places, "rank": range(1, top_k + 1)}
    shape = (boundaries, len(places), top_k)

    def spread(values: np.ndarray) -> np.ndarray:
        return np.broadcast_to(values[..., None], shape)

    log_p = own["followed_log_probability"]
    read = np.array(token_texts(model, [ids[place] for place in places]), dtype=object)
    final = np.array(token_texts(model, own["followed_id"][-1, :, 0].tolist()), dtype=object)
    nothing = answer is None
    columns = {
        "token": spread(np.broadcast_to(read, shape[:2])),
        "entropy": spread(own["entropy"]),
        "kl_to_final": spread(own["kl_to_final"]),
        "final_token": spread(np.broadcast_to(final, shape[:2])),
        "answer_token": np.full(shape, "" if answer is None else token_texts(model, [answer])[0], dtype=object),
        "top_token": np.array(token_texts(model, own["top_id"].reshape(-1).tolist()), dtype=object),
        "top_id": own["top_id"],
        "top_probability": own["top_probability"],
    }
    for place, name in enumerate(("final", "answer")):
        known = not (nothing and name == "answer")
        columns[f"{name}_log_probability"] = spread(log_p[..., place]) if known else np.full(shape, np.nan)
        columns[f"{name}_probability"] = np.exp(columns[f"{name}_log_probability"])
        columns[f"{name}_rank"] = spread(own["followed_rank"][..., place]) if known else np.full(shape, -1)
    return laid_out(axes, columns)


def _lens_parts(work: Work, items: Sequence[Item]) -> Outcomes:
    model, asked = work.model, work.settings
    grid = Grid.of(work, items, "right")
    points = points_read(model, asked.of)
    cache = model.run_with_cache(grid.tokens, points, mask=grid.mask, stop_at_layer=model.config.n_layers)[1]
    found = {}
    for row, (item, places) in enumerate(zip(items, _places(grid, asked.positions), strict=True)):
        answer = followed(model, item.value)[0]
        answers = [] if answer is None else [answer]
        read = lens_parts(
            model, cache, of=asked.of, answers=answers, positions=places, top_k=asked.top_k, row=row, prefix=work.prefix
        )
        found[item.id] = Found(_of_parts(read, answer is None), result=read)
    return found


def _of_parts(read: PartLens, nothing: bool) -> dict[str, object]:
    """The columns of one prompt, by [part, position, rank]."""
    axes = {"part": read.axes["part"], "position": read.axes["position"]}
    shape = (len(axes["part"]), len(axes["position"]), len(read.axes["rank"]))

    def spread(values: np.ndarray) -> np.ndarray:
        return np.broadcast_to(values[..., None], shape)

    columns = {name: spread(np.broadcast_to(read[name], shape[:2])) for name in ("token", "final_token")}
    columns |= {name: np.broadcast_to(read[name][:, None, None], shape) for name in ("part_layer", "part_head")}
    for name in ("entropy", "kl_to_final", "final_probability", "final_log_probability", "final_rank"):
        columns[name] = spread(read[name])
    for name, empty in (("probability", np.nan), ("log_probability", np.nan), ("rank", -1)):
        columns[f"answer_{name}"] = np.full(shape, empty) if nothing else spread(read[f"answer_{name}"][..., 0])
    columns["answer_token"] = np.full(shape, "" if nothing else str(read.axes["answer"][0]), dtype=object)
    columns |= {name: read[name] for name in ("top_token", "top_id", "top_probability")}
    return laid_out({**axes, "rank": range(1, shape[-1] + 1)}, columns)


LENS = Task(
    name="lens",
    kinds=("prompts", "facts", "pairs"),
    settings=LensSettings,
    compute=_lens,
    columns=lambda _: {"layer": int, "position": int, "rank": int, **_READ},
    cells=lambda _: ("layer",),
    values=("final_probability", "answer_probability", "answer_rank", "entropy", "kl_to_final"),
    finite=("entropy", "kl_to_final", "top_probability", "final_probability"),
    length=prompt_length,
)

LENS_PARTS = Task(
    name="lens-parts",
    kinds=("prompts", "facts", "pairs"),
    settings=LensPartsSettings,
    compute=_lens_parts,
    columns=lambda _: {
        "part": str,
        "position": int,
        "rank": int,
        "part_layer": int,
        "part_head": int,
        **_READ,
    },
    cells=lambda _: ("part",),
    values=("final_probability", "answer_probability", "answer_rank", "entropy"),
    finite=("entropy", "top_probability", "final_probability"),
    length=prompt_length,
)


def _fact_lens(work: Work, items: Sequence[Item]) -> Outcomes:
    def lens(facts: list) -> dict[str, dict[str, object]]:  # type: ignore[type-arg]
        found = lens_facts(work.model, facts, at=work.settings.at, prefix=work.prefix, seed=work.seed)
        arrays = {name: found[name] for name in ("rank", "probability", "log_probability", "entropy", "kl_to_final")}
        return {
            str(fact): laid_out({"layer": found.axes["layer"]}, {name: each[:, place] for name, each in arrays.items()})
            for place, fact in enumerate(found.axes["fact"])
        }

    return known_only(work, items, lens)


FACT_LENS = FactTask(
    name="fact-lens",
    settings=FactLensSettings,
    compute=_fact_lens,
    columns=lambda _: {
        "layer": int,
        "rank": int,
        "probability": float,
        "log_probability": float,
        "entropy": float,
        "kl_to_final": float,
    },
    cells=lambda _: ("layer",),
    values=("probability", "rank"),
    finite=("probability", "log_probability"),
)
