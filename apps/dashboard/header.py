"""The head of every page: which model, on which device, in which number format."""

import streamlit as st

from interp.apps.dashboard import address
from interp.apps.dashboard.session import workshop
from interp.apps.dashboard.shelf import DEVICES, DTYPES, Chosen
from interp.errors import InterpError

TYPED = "another path…"


def header() -> None:
    """One line that says what is chosen; opened, it lets choose."""
    chosen = address.current_model()
    loaded = workshop().shelf.get(chosen) is not None
    label = f"{_short(chosen.model)} · {chosen.device} · {chosen.dtype}"
    with st.popover(label, icon=":material/memory:" if loaded else ":material/hourglass_empty:"):
        _picker(chosen)


def _short(name: str) -> str:
    return name if len(name) <= 40 else "…" + name[-38:]


def _picker(chosen: Chosen) -> None:
    shop = workshop()
    offers = {offer.name: offer for offer in shop.shelf.offers()}
    names = [*offers, *([chosen.model] if chosen.model not in offers else []), TYPED]
    name = st.selectbox(
        "Model",
        names,
        index=names.index(chosen.model),
        format_func=lambda each: each if each not in offers or offers[each].here else f"{each} (not on this machine)",
        key="_model.name",
    )
    if name == TYPED:
        folders = ", ".join(str(folder) for folder in shop.options.models) or "none: start with --models FOLDER"
        name = st.text_input("Path of a model folder or .gguf file", key="_model.path", help=f"Inside: {folders}")
    device = st.selectbox("Device", DEVICES, index=DEVICES.index(chosen.device), key="_model.device")
    dtype = st.selectbox("Number format", DTYPES, index=DTYPES.index(chosen.dtype), key="_model.dtype")
    wanted = Chosen(str(name or chosen.model).strip(), device, dtype)
    if st.button("Use this model", type="primary", disabled=wanted == chosen, key="_model.use"):
        _use(wanted)


def _use(wanted: Chosen) -> None:
    try:
        workshop().shelf.resolved(wanted.model)
    except InterpError as error:
        st.error(str(error))
        return
    for key in list(st.session_state):
        if str(key).startswith("_model."):
            del st.session_state[key]
    address.choose(wanted)
    st.rerun()
