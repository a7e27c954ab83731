"""Results by what they were computed from: in memory under a budget of bytes, and as run directories on the disk.

The key is a hash of the model's weights, device, number format, the tokens of every text, and all settings, so a result
can be found again by whoever asks the same, in another tab or another day. The least recently used results leave the
memory first; their run directories stay.
"""

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp import __version__
from interp.errors import InterpError

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

Results = Mapping[str, Any]
"""Name → `Result`: `Any`, so that a page may read what its own results have."""


class Partial(dict[str, Any]):
    """`Results` of work that is not done."""


def content_key(model: "Transformer", work: str, settings: Mapping[str, Any], texts: Mapping[str, list[int]]) -> str:
    """The key of what a work finds on a model: `texts` are the tokens of the settings that the model reads."""
    from interp.apps.dashboard.shelf import identity

    said = json.dumps([__version__, identity(model), work, settings, texts], sort_keys=True, default=list)
    return hashlib.sha256(said.encode()).hexdigest()


def size(results: Results) -> int:
    """Bytes that the arrays take; texts count with their characters."""
    return sum(_bytes(array.values) for result in results.values() for array in result.arrays.values())


def _bytes(values: np.ndarray) -> int:
    if values.dtype != object:
        return values.nbytes
    return values.nbytes + sum(49 + len(str(each)) for each in values.flat)


class Store:
    """The results of one process. Safe to use from several threads."""

    def __init__(self, folder: Path, budget: int) -> None:
        self.folder, self.budget = folder, budget
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Results] = OrderedDict()
        self._sizes: dict[str, int] = {}

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return sum(self._sizes.values())

    def get(self, key: str) -> Results | None:
        """What is in memory under this key."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: str, results: Results) -> None:
        """Keep results; others leave until all fit the budget. A result larger than that is kept alone."""
        with self._lock:
            self._kept[key], self._sizes[key] = results, size(results)
            self._kept.move_to_end(key)
            while self.held > self.budget and len(self._kept) > 1:
                gone, _ = self._kept.popitem(last=False)
                del self._sizes[gone]

    def place(self, key: str, work: str) -> Path:
        """The run directory of this key."""
        return self.folder / f"{re.sub(r'[^a-z0-9]+', '-', work.lower()).strip('-')}-{key[:16]}"

    def recall(self, key: str, work: str) -> Results | None:
        """Results from the run directory of an earlier day, checked against its hashes; None where there are none."""
        import interp

        if not (folder := self.place(key, work)).is_dir():
            return None
        try:
            run = interp.open_run(folder)
            if run.manifest.settings.get("key") != key:
                return None
            return {job: run.result(item, job=job) for job, item in run.results()}
        except InterpError:  # damaged, or half a run: it is computed again
            return None

    def record(self, key: str, work: str, results: Results, settings: Mapping[str, Any]) -> Path | None:
        """Write results as a run directory; None where one of this key is there, or nothing can be written."""
        from interp.runs import record

        folder = self.place(key, work)
        if folder.exists():
            return None
        try:
            record(folder, results, analysis=work, settings={**settings, "key": key}, figures={})
        except (InterpError, OSError):
            return None
        return folder
