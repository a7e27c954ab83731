"""How to come back to a page: its link, the commands and the program that give the same numbers."""

import shlex

import streamlit as st

from interp.apps.dashboard.clipboard import copy_button
from interp.apps.dashboard.context import Context
from interp.apps.dashboard.page import Page
from interp.apps.dashboard.parameters import Values
from interp.apps.dashboard.shelf import Chosen


def command(page: Page, values: Values, chosen: Chosen) -> str | None:
    """The command of a page, quoted for a shell."""
    return None if page.command is None else shlex.join(page.command(values, chosen))


def further_commands(context: Context) -> dict[str, str]:
    """The commands of further work that is shown, by its label, where the page's own does not do it as well."""
    return {
        work.label: shlex.join(work.command(context.found[work.name], context.chosen))
        for work in context.page.further
        if work.command is not None and work.name in context.found
    }


def program(page: Page, values: Values, chosen: Chosen) -> str | None:
    """The program of a page, complete."""
    if page.python is None:
        return None
    load = f"model = {chosen.call()}\n" if page.needs_model else ""
    return f"import interp\n\n{load}{page.python(values, chosen).strip()}\n"


def offer(context: Context) -> None:
    """The buttons that copy the link, and the commands and program of what is shown, with what they copy below."""
    page, values, chosen = context.page, context.shown_values, context.chosen
    shell, code = command(page, values, chosen), program(page, values, chosen)
    further = further_commands(context)
    with st.expander("Link, command, Python", icon=":material/link:"):
        with st.container(horizontal=True):
            copy_button("Copy link", None, key=f"_link.{page.key}")
            if shell is not None:
                copy_button("Copy as command", shell, key=f"_command.{page.key}")
            for label, words in further.items():
                copy_button(f"Copy as command: {label.lower()}", words, key=f"_command.{page.key}.{label}")
            if code is not None:
                copy_button("Copy as Python", code, key=f"_python.{page.key}")
        if shell is not None:
            st.code(shell, language="bash", wrap_lines=True)
        for words in further.values():
            st.code(words, language="bash", wrap_lines=True)
        if code is not None:
            st.code(code, language="python", wrap_lines=True)
