"""From what a page asks for to its results: found in memory, on the disk, or computed by a job that is followed.

A page script never computes. Whatever state the work is in, it is drawn where it was asked for.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import streamlit as st

from interp.apps.dashboard import address, states
from interp.apps.dashboard.jobs import Job, Reporter
from interp.apps.dashboard.page import MAIN, Page, Work
from interp.apps.dashboard.session import session_name, workshop
from interp.apps.dashboard.shelf import Chosen
from interp.apps.dashboard.store import Partial, Results, content_key
from interp.errors import InterpError, UsageError

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

AT_ONCE = 0.3  # seconds: work that is done sooner is shown without a look at its progress
LONG = 30.0  # seconds from which on work is confirmed before it starts
LARGE = 2 * 2**30  # bytes beside the model, likewise
LOADING = "loading"  # the lane in which models are loaded


def model_in_memory(chosen: Chosen) -> "Transformer | None":
    """The model, if it is loaded; else it is being loaded, and the page shows how far that is."""
    shop = workshop()
    if (model := shop.shelf.get(chosen)) is not None:
        return model
    key = f"load {chosen.lane}"
    job = _known(key)
    if job is None:
        here = all(offer.here for offer in shop.shelf.offers() if offer.name == chosen.model)
        if not here and not states.not_here(chosen):
            return None
        label = f"Loading {chosen.model}"
        job = _submitted(key, label, LOADING, lambda report: shop.shelf.load(chosen, report))
    if job is not None:
        _drawn(job, "loading the model", vars(chosen))
    return shop.shelf.get(chosen)


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
    if wanted[work.name] != inputs:
        states.stale(page, work, inputs)
        current = _key(page, work, model, wanted[work.name])
    _abandon_earlier(page, work, current)
    found = shop.store.get(current)
    return found if found is not None else _work_on(page, work, model, wanted[work.name], current)


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


def _abandon_earlier(page: Page, work: Work, key: str) -> None:
    """This session follows one job of each work: asking for another lets the one before go."""
    name = f"_following.{page.key}.{work.name}"
    before = st.session_state.get(name)
    if before is not None and before != key:
        workshop().jobs.leave(before, session_name())
    st.session_state[name] = key


def _work_on(page: Page, work: Work, model: "Transformer", inputs: dict[str, Any], key: str) -> Results | None:
    """Start or follow the job; what there is of its results."""
    job = _known(key)
    if job is None:
        if _must_be_confirmed(page, work, model, inputs, key):
            return None
        job = _submitted(key, work.label, address.current_model().lane, _computing(page, work, model, inputs, key))
    if job is None:
        return None
    job.ended_soon(AT_ONCE)
    found = workshop().store.get(key)  # quick work may be done by now
    if found is None:
        _drawn(job, f"{page.key} {work.name}", inputs)
        found = None if job.partial is None else Partial(job.partial)
    return found


def _known(key: str) -> Job | None:
    """The job of this key. One that is done, though its outcome left the memory, is forgotten: it is done again."""
    jobs = workshop().jobs
    job = jobs.find(key, session_name())
    if job is not None and job.state == "done":
        jobs.drop(key)
        return None
    return job


def _submitted(key: str, label: str, lane: str, work: Any) -> Job | None:
    try:
        return workshop().jobs.submit(key, label, lane, work, session_name())
    except UsageError as error:
        st.warning(str(error))
        return None


def _drawn(job: Job, what: str, inputs: Mapping[str, Any]) -> None:
    """Draw the state of a job."""
    if job.state == "failed":
        states.failed(what, inputs, job)
    elif job.state == "cancelled":
        states.cancelled(job)
    elif session_name() in job.left and not job.stop.is_set():
        states.left_to_others(job)
    else:
        states.running(job, job.label)


def _must_be_confirmed(page: Page, work: Work, model: "Transformer", inputs: dict[str, Any], key: str) -> bool:
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
    if states.too_large(page, work, cost):
        confirmed.add(key)
        st.rerun()
    return True


def _computing(page: Page, work: Work, model: "Transformer", inputs: dict[str, Any], key: str) -> Any:
    """What the job does: find the run of an earlier day, or compute, and keep what it found."""
    store, name = workshop().store, page.key if work.name == MAIN else f"{page.key} {work.name}"
    values = {each: states.jsonable(value) for each, value in inputs.items()}
    settings = {"page": page.key, "work": work.name, "values": values}

    def compute(report: Reporter) -> None:
        recalled = store.recall(key, name)
        results = work.compute(model, inputs, report) if recalled is None else recalled
        store.put(key, results)  # first: the page need not wait for the disk
        if recalled is None and work.recorded:
            store.record(key, name, results, settings)

    return compute
