"""Opening a run of a million rows and reading the rows of one item, against pyarrow, which knows where they stand."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Row, medians
from interp.runs import Job, Manifest, RunWriter, open_run, write_part

SHAPES = ((1_000, 1_000, 8), (100_000, 10, 100))
"""(items, rows an item, items a batch)"""


def runs() -> Iterator[Row]:
    """The median over many items, each of which is opened anew; the files are in the system's memory on both sides."""
    with tempfile.TemporaryDirectory() as home:
        for items, rows, packing in SHAPES:
            folder = Path(home) / f"{items}-{packing}"
            _write(folder, items, rows, packing)
            yield _compared(folder, items, rows, packing)


def _write(folder: Path, items: int, rows: int, packing: int) -> None:
    names = tuple(f"item-{number:06d}" for number in range(items))
    sizes = (packing,) * (items // packing)
    job = Job("lens", "model", "lens", "texts", {}, names, sizes)
    with RunWriter.open(folder, Manifest.new("benchmark", [job])) as writer:
        for batch in writer.pending():
            part = write_part(folder, batch, {item: _rows(rows, int(item[5:])) for item in batch.items})
            writer.commit(batch, part)
        writer.finish()


def _rows(count: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    cells = np.arange(count)
    tokens = np.array([f" token{number % 50}" for number in cells], dtype=object)
    numbers = {name: rng.normal(size=count).astype(np.float32) for name in ("logit", "probability", "rank")}
    return pa.table({"layer": cells // 10, "position": cells % 10, "token": tokens, **numbers})


def _compared(folder: Path, items: int, rows: int, packing: int) -> Row:
    chosen = iter(np.random.default_rng(0).integers(0, items, 2 * 1000).tolist())
    started = open_run(folder)

    def ours() -> object:
        return open_run(folder).item(f"item-{next(chosen):06d}")

    def theirs() -> object:
        number = next(chosen)
        part = folder / f"results/part-{number // packing:05d}.parquet"
        start, group = number % packing * rows, 0
        with pq.ParquetFile(part) as opened:
            while start >= opened.metadata.row_group(group).num_rows:
                start -= opened.metadata.row_group(group).num_rows
                group += 1
            return opened.read_row_group(group).slice(start, rows).to_pandas()

    assert len(started.item("item-000000")) == rows
    found = medians({"ours": ours, "pyarrow": theirs}, 51)
    measured = f"{found['ours'] * 1e3:.2f} ms against {found['pyarrow'] * 1e3:.2f} ms"
    return Row(
        f"one of {items:,} items × {rows} rows, {packing} a batch", measured, found["ours"] / found["pyarrow"], 2
    )
