"""Worker processes: each loads the model once and computes batches; the parent alone keeps the ledger.

Workers are spawned, talk over a pipe of their own, and end when it closes, so that none outlives a parent that was
killed by more than its batch. Interrupts are the parent's affair. The threads of the parent are shared out among them.
"""

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from interp.analyses.study.batches import Filled, Order, fill
from interp.errors import Cancelled, InterpError
from interp.models.loading import load
from interp.runs import Batch

_POLL = 0.2  # seconds between two looks at whether the work is to stop


def _serve(pipe: Connection, load_arguments: Mapping[str, Any], folder: Path, threads: int) -> None:
    """A worker's life: the model, then batch after batch until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    with contextlib.suppress(EOFError, BrokenPipeError):
        try:
            model = load(**load_arguments)
            while True:
                pipe.send(fill(model, pipe.recv(), folder))
        except (InterpError, OSError, RuntimeError) as error:
            pipe.send(error)


class Pool:
    """Some workers on the batches of one model. A context manager, which ends them."""

    def __init__(self, workers: int, load_arguments: Mapping[str, Any], folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        threads = max(1, torch.get_num_threads() // workers)
        self._processes, self._pipes = [], []
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, load_arguments, folder, threads), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            if error is not None:
                process.terminate()
            process.join()

    def computed(self, orders: Sequence[Order], cancelled: Callable[[], bool] | None) -> Iterator[tuple[Batch, Filled]]:
        """The batches as they are ready, in no order."""
        left = iter(orders)
        at_work: dict[Connection, Batch] = {}
        for pipe in self._pipes:
            self._give(pipe, left, at_work)
        while at_work:
            for ready in wait(list(at_work), timeout=_POLL):
                assert isinstance(ready, Connection)
                batch, answer = at_work.pop(ready), self._answer(ready)
                self._give(ready, left, at_work)
                yield batch, answer
            if cancelled is not None and cancelled():
                raise Cancelled("The study was stopped. What is done is kept; run it again to go on.")

    def _give(self, pipe: Connection, left: Iterator[Order], at_work: dict[Connection, Batch]) -> None:
        order = next(left, None)
        if order is not None:
            with contextlib.suppress(BrokenPipeError):  # it ended; what it said last comes out below
                pipe.send(order)
            at_work[pipe] = order.batch

    def _answer(self, pipe: Connection) -> Filled:
        try:
            answer = pipe.recv()
        except (EOFError, ConnectionResetError) as error:
            process = self._processes[self._pipes.index(pipe)]
            process.join()
            raise InterpError(
                f"A worker ended by itself (exit code {process.exitcode}), perhaps for lack of memory. What is done is "
                "kept; run it again, with fewer workers or smaller batches."
            ) from error
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, Filled)
        return answer
