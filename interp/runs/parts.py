"""The rows of a batch as one Parquet file: a long table, the item's id first, the rows of an item side by side.

Items are never parted over row groups, and a group is closed once it has `GROUP_ROWS` rows: the rows of one item are
read without those of most others. Pages carry checksums, and the ledger the SHA-256 of the file.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from interp.errors import IntegrityError, LoadError, UsageError
from interp.runs.durable import make_folder, write_file
from interp.runs.plan import Batch
from interp.runs.sealed import digest

if TYPE_CHECKING:
    import pandas
    import pyarrow

    Frame: TypeAlias = pandas.DataFrame | pyarrow.Table

RESULTS = "results"
GROUP_ROWS = 1000
VERIFIED = 4 << 20
"""Bytes: a part up to this size is checked against its hash even where the rows of one item are asked for."""
ADVICE = "Resume the run: what is damaged is computed again."


@dataclass(frozen=True)
class Part:
    """A file of rows in a run: its path there, its hash, and item → (first row, number of rows)."""

    file: str
    sha256: str
    spans: Mapping[str, tuple[int, int]]


def write_part(folder: str | Path, batch: Batch, frames: "Mapping[str, Frame]") -> Part:
    """Write the rows of a batch's items, one frame an item, whole or not at all. Items that failed have no frame.

    Needs no lock: workers may write parts while one process keeps the ledger. Raises `UsageError` for frames that do
    not fit the batch or each other, and `StorageError`.
    """
    import pyarrow as pa

    foreign = sorted(set(frames) - set(batch.items))
    if foreign or not frames:
        raise UsageError(f"Batch {batch.index} came with frames of {foreign or 'no item'}: expected some of its items.")
    tables = {item: _table(item, frames[item]) for item in batch.items if item in frames}
    try:
        whole = pa.concat_tables(tables.values(), promote_options="permissive")
    except pa.ArrowException as error:
        raise UsageError(f"The tables of batch {batch.index} do not fit each other: {error}.") from error
    content = _parquet(whole, [table.num_rows for table in tables.values()])
    path = Path(folder) / batch.part
    make_folder(path.parent)
    write_file(path, content)
    spans, start = {}, 0
    for item, table in tables.items():
        spans[item] = (start, table.num_rows)
        start += table.num_rows
    return Part(batch.part, digest(content), spans)


def _table(item: str, frame: "Frame") -> "pyarrow.Table":
    """The rows with the item's id in front."""
    import pyarrow as pa

    try:
        table = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame, preserve_index=False)
    except pa.ArrowException as error:
        raise UsageError(f"The table of item {item!r} cannot be written: {error}.") from error
    if "item" in table.column_names:
        raise UsageError(f"The table of item {item!r} has a column 'item', which is the run's own. Rename it.")
    ids = pa.array([item], pa.string()).take(pa.array([0] * table.num_rows, pa.int32()))
    return table.replace_schema_metadata(None).add_column(0, "item", ids)


def _parquet(table: "pyarrow.Table", lengths: Sequence[int]) -> bytes:
    """The file, whole items in each row group."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, write_page_checksum=True) as writer:
        start = stop = 0
        for length in lengths:
            stop += length
            if stop - start >= GROUP_ROWS:
                writer.write_table(table.slice(start, stop - start), row_group_size=stop - start)
                start = stop
        if stop > start:
            writer.write_table(table.slice(start), row_group_size=stop - start)
    return sink.getvalue()


def part_intact(folder: Path, file: str, sha256: str) -> bool:
    """Whether the file is there and is, to the byte, what was written."""
    try:
        return digest((folder / file).read_bytes()) == sha256
    except OSError:
        return False


def read_part(folder: Path, file: str, sha256: str, columns: Sequence[str] | None = None) -> "pyarrow.Table":
    """All rows of a part, checked against its hash. Raises `IntegrityError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = _checked(folder / file, sha256)
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as opened:
            return opened.read(columns=_known(opened.schema_arrow.names, columns))
    except (pa.ArrowException, OSError) as error:
        raise IntegrityError(f"{folder / file} cannot be read as Parquet ({error}). {ADVICE}") from error


def read_rows(
    folder: Path, file: str, sha256: str, item: str, span: tuple[int, int], columns: Sequence[str] | None = None
) -> "pyarrow.Table":
    """The rows of one item, from no more row groups than hold them. Raises `IntegrityError` if they are not its own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, wanted = folder / file, None if columns is None else ["item", *columns]
    try:
        small = path.stat().st_size <= VERIFIED
        source = pa.BufferReader(_checked(path, sha256)) if small else pa.OSFile(str(path))
        with source, pq.ParquetFile(source, page_checksum_verification=True) as opened:
            groups, before = _groups(opened, *span)
            table = opened.read_row_groups(groups, columns=_known(opened.schema_arrow.names, wanted))
    except (pa.ArrowException, OSError) as error:
        raise IntegrityError(f"{path} cannot be read as Parquet ({error}). {ADVICE}") from error
    rows = table.slice(span[0] - before, span[1])
    if rows.num_rows != span[1] or rows["item"].to_pylist() != [item] * span[1]:
        raise IntegrityError(f"{path} does not hold the rows of {item!r} where the ledger says. {ADVICE}")
    return rows if columns is None or "item" in columns else rows.drop_columns("item")


def _groups(opened: "pyarrow.parquet.ParquetFile", start: int, rows: int) -> tuple[list[int], int]:
    """The row groups that hold these rows, and the number of the first row in them."""
    found: list[int] = []
    before = first = 0
    for group in range(opened.metadata.num_row_groups):
        after = before + opened.metadata.row_group(group).num_rows
        if before < start + rows and after > start:
            first = first if found else before
            found.append(group)
        before = after
    return found, first


def _known(names: Sequence[str], columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    missing = [column for column in columns if column not in names]
    if missing:
        raise UsageError(f"The rows have no columns {missing}: they have {', '.join(names)}.")
    return list(dict.fromkeys(columns))


def _checked(path: Path, sha256: str) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise IntegrityError(f"{path} is missing. {ADVICE}") from error
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror}.") from error
    if digest(content) != sha256:
        raise IntegrityError(f"{path} is not what was written: its hash does not fit. {ADVICE}")
    return content
