"""Long work of all sessions: one queue, one thread a lane, jobs shared by content, cancelled between two layers.

A job is known by its key, made of everything that decides its outcome, so two tabs that ask the same share one job.
Jobs of a lane (a model) run one after the other. A job that nobody waits for any more is cancelled.
"""

import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from interp.errors import Cancelled, InterpError, UsageError
from interp.stopping import stopping

State = Literal["waiting", "running", "done", "failed", "cancelled"]
MOST_WAITING = 32
KEPT = 200  # finished jobs that are remembered
NOW_AND_THEN = 5.0  # seconds from one partial result to the next, at least
AWAY = 15.0  # seconds after which a session that no longer asks is taken to have left


class Reporter:
    """What a computation reports to: `report(done, total)`, which raises `Cancelled` once the job is not wanted."""

    def __init__(self, job: "Job") -> None:
        self._job = job
        self._next = time.monotonic() + NOW_AND_THEN

    def __call__(self, done: int, total: int) -> None:
        """Note how far the work is. Raises `Cancelled`."""
        self._job.done, self._job.total = done, total
        if self._job.stop.is_set():
            raise Cancelled("The work was cancelled.")

    def cancelled(self) -> bool:
        """Whether the work should stop, for analyses that ask."""
        return self._job.stop.is_set()

    def partial(self, value: Any) -> None:
        """Hand over what there is so far; it is shown while the rest is computed, and stays if that is cancelled."""
        self._job.partial = value

    def so_far(self, name: str) -> Callable[[Callable[[], Any]], None]:
        """A function that hands over, as result `name`, what it may ask for: now and then, for that takes time too."""

        def hand_over(make: Callable[[], Any]) -> None:
            began = time.monotonic()
            if began >= self._next:
                self.partial({name: make()})
                self._next = time.monotonic() + max(NOW_AND_THEN, 20 * (time.monotonic() - began))

        return hand_over


@dataclass(eq=False)
class Job:
    """One piece of work. Fields are written by its thread, and read by whoever shows them."""

    key: str
    label: str
    lane: str
    work: Callable[[Reporter], Any] | None
    state: State = "waiting"
    done: int = 0
    total: int = 0
    created: float = field(default_factory=time.time)
    started: float | None = None
    ended: float | None = None
    value: Any = None
    partial: Any = None
    error: BaseException | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    watchers: dict[str, float] = field(default_factory=dict)  # session → when it last asked
    left: set[str] = field(default_factory=set)  # sessions that no longer want it, while others do
    place: int = 0  # how many wait before it
    ending: threading.Event = field(default_factory=threading.Event)

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in ("done", "failed", "cancelled")

    @property
    def seconds(self) -> float:
        """How long it has run, or ran."""
        return 0.0 if self.started is None else (self.ended or time.time()) - self.started

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the steps done so far; None before the first."""
        return None if not self.done or self.total < self.done else self.seconds * (self.total - self.done) / self.done

    def ended_soon(self, seconds: float) -> bool:
        """Whether a job that has just begun is over after so long at most; an older one is not waited for."""
        if not self.over and time.time() - self.created < seconds:
            self.ending.wait(seconds)
        return self.over

    def where(self) -> str:
        """The place in the code at which an error arose, for those who report it."""
        frames = traceback.extract_tb(None if self.error is None else self.error.__traceback__)
        return f"{'/'.join(Path(frames[-1].filename).parts[-2:])}:{frames[-1].lineno}" if frames else ""


class Jobs:
    """All jobs of one process. `finished` is called with each job that ends well, in its thread, before it is done."""

    def __init__(self, most_waiting: int = MOST_WAITING, finished: Callable[[Job], None] | None = None) -> None:
        self._lock = threading.RLock()
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._queues: dict[str, deque[Job]] = {}
        self._most_waiting = most_waiting
        self._finished = finished

    def submit(self, key: str, label: str, lane: str, work: Callable[[Reporter], Any], session: str) -> Job:
        """The job of this key: the one that waits, runs or is done, or else a new one.

        Raises `UsageError` where too many jobs wait.
        """
        with self._lock:
            job = self._jobs.get(key)
            if job is not None and job.state in ("waiting", "running", "done") and not job.stop.is_set():
                job.left.discard(session)
                job.watchers[session] = time.monotonic()
                return job
            waiting = sum(len(queue) for queue in self._queues.values())
            if waiting >= self._most_waiting:
                raise UsageError(f"{waiting} jobs wait already, as many as may. Try again when some are done.")
            job = Job(key, label, lane, work, watchers={session: time.monotonic()})
            self._jobs[key] = job
            self._jobs.move_to_end(key)
            self._enqueue(job)
            self._forget()
            return job

    def find(self, key: str, session: str | None = None) -> Job | None:
        """The job of this key, if it is remembered; asking with a session says that this session waits for it."""
        with self._lock:
            job = self._jobs.get(key)
            if job is not None and session is not None and session not in job.left:
                job.watchers[session] = time.monotonic()
            return job

    def leave(self, key: str, session: str) -> bool:
        """This session no longer waits for the job; if nobody else does, it is cancelled, and the answer is True."""
        with self._lock:
            job = self._jobs.get(key)
            if job is None or job.over:
                return False
            job.watchers.pop(session, None)
            job.left.add(session)
            now = time.monotonic()
            if any(now - seen < AWAY for seen in job.watchers.values()):
                return False
            self._cancel(job)
            return True

    def rejoin(self, key: str, session: str) -> None:
        """This session waits for the job after all."""
        with self._lock:
            if (job := self._jobs.get(key)) is not None:
                job.left.discard(session)

    def cancel(self, key: str) -> None:
        """Stop the job, whoever waits for it."""
        with self._lock:
            if (job := self._jobs.get(key)) is not None and not job.over:
                self._cancel(job)

    def drop(self, key: str) -> None:
        """Forget a job that is over, so that asking again computes again."""
        with self._lock:
            if (job := self._jobs.get(key)) is not None and job.over:
                del self._jobs[key]

    def all(self) -> list[Job]:
        """Every job that is remembered, the newest first."""
        with self._lock:
            return list(reversed(self._jobs.values()))

    def _cancel(self, job: Job) -> None:
        job.stop.set()
        queue = self._queues.get(job.lane)
        if job.state == "waiting" and queue is not None and job in queue:
            queue.remove(job)
            job.state, job.ended, job.work = "cancelled", time.time(), None
            self._number(queue)

    def _enqueue(self, job: Job) -> None:
        queue = self._queues.get(job.lane)
        if queue is not None:
            queue.append(job)
            self._number(queue)
            return
        self._queues[job.lane] = deque([job])
        threading.Thread(target=self._work, args=(job.lane,), name=f"interp-{job.lane}", daemon=True).start()

    def _number(self, queue: "deque[Job]") -> None:
        for place, job in enumerate(queue):
            job.place = place + 1  # the one that runs is before them all

    def _work(self, lane: str) -> None:
        """The thread of a lane: ends when nothing waits."""
        while True:
            with self._lock:
                queue = self._queues[lane]
                if not queue:
                    del self._queues[lane]
                    return
                job = queue.popleft()
                self._number(queue)
                job.state, job.started = "running", time.time()
            self._run(job)

    def _run(self, job: Job) -> None:
        assert job.work is not None
        state: State = "done"
        try:
            with stopping(job.stop.is_set):
                job.value = job.work(Reporter(job))
            if self._finished is not None:
                self._finished(job)
        except Cancelled:
            state = "cancelled"
        except InterpError as error:
            state, job.error = "failed", error
        except Exception as error:  # noqa: BLE001  the last stop of a thread: the page says it in words
            traceback.print_exc()
            state, job.error = "failed", error
        job.work = None
        job.ended = time.time()
        job.state = state
        job.ending.set()

    def _forget(self) -> None:
        over = [key for key, job in self._jobs.items() if job.over]
        for key in over[: max(0, len(self._jobs) - KEPT)]:
            del self._jobs[key]
