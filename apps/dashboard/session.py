"""What all sessions of the process share, and what is one session's own."""

import secrets
from dataclasses import dataclass

import streamlit as st

from interp.apps.dashboard.jobs import Jobs
from interp.apps.dashboard.options import Options, parse
from interp.apps.dashboard.shelf import Shelf
from interp.apps.dashboard.store import Store


@dataclass(frozen=True)
class Workshop:
    """Options, models, jobs and results: one of each in a process."""

    options: Options
    shelf: Shelf
    jobs: Jobs
    store: Store


@st.cache_resource(show_spinner=False)
def workshop() -> Workshop:
    """The one of this process."""
    options = parse()
    return Workshop(options, Shelf(options), Jobs(), Store(options.runs, options.cache_bytes))


def session_name() -> str:
    """A name of this session, by which jobs know who waits for them."""
    if "_session" not in st.session_state:
        st.session_state["_session"] = secrets.token_hex(8)
    name: str = st.session_state["_session"]
    return name
