"""Small runs without a model: two jobs whose tables are known, whole, half-done or with failures."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from interp.runs import Failure, Job, Manifest, RunWriter, write_part

ITEMS = ("France", "Italy", "Côte d'Ivoire", "Japan")


def manifest(**changed: object) -> Manifest:
    """Two jobs of four items in batches of three and one."""
    job = {"model": "tiny", "analysis": "lens", "data": "countries", "settings": {"top_k": 2}, "items": ITEMS}
    facts: dict[str, object] = {
        "name": "countries",
        "jobs": [
            Job("lens-tiny", packing=(3, 1), **job),
            Job("more-tiny", packing=(4,), **{**job, "settings": {"top_k": 3}}),
        ],
        "settings": {"name": "countries", "seed": 3},
        "models": [{"name": "tiny", "weights_sha256": "ab" * 32, "tokenizer_sha256": "cd" * 32}],
        "data": [{"name": "countries", "kind": "facts", "sha256": "ef" * 32, "items": len(ITEMS)}],
        "seed": 3,
        "prefix": "doc",
        "dtype": "float32",
        "device": "cpu",
    }
    return Manifest.new(**(facts | changed))  # type: ignore[arg-type]


def table(item: str, off: float = 0.0) -> pd.DataFrame:
    """Three layers, as of the lens: a token, a rank, a probability."""
    base = len(item) / 100 + off
    texts = [f" {item}", "</b>", "\n"]
    found = {"layer": range(3), "token": texts, "rank": [3, 2, 1], "final_probability": [base, base + 0.1, base + 0.2]}
    return pd.DataFrame(found)


def write(
    folder: Path,
    plan: Manifest | None = None,
    *,
    batches: int | None = None,
    failing: Sequence[str] = (),
    table: Callable[[str], pd.DataFrame] = table,
) -> Path:
    """Write a run: its first `batches`, or all of them and the summary; items in `failing` fail."""
    with RunWriter.open(folder, plan or manifest()) as writer:
        for batch in writer.pending()[:batches]:
            good = {item: table(item) for item in batch.items if item not in failing}
            failures = [Failure(item, "UsageError", f"no {item} here", 2) for item in batch.items if item in failing]
            writer.commit(batch, write_part(folder, batch, good) if good else None, failures)
        if batches is None:
            writer.finish({})
    return folder
