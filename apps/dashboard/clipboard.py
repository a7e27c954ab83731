"""Two buttons that the browser answers by itself: copy a text or the address, save a figure as a picture."""

from typing import Any

import streamlit as st

_CSS = """
button { font: inherit; font-size: .875rem; color: var(--st-text-color); background: transparent; cursor: pointer;
  border: 1px solid var(--st-border-color, rgba(128, 128, 128, .4)); border-radius: .5rem; padding: .32rem .75rem;
  width: 100%; white-space: nowrap; }
button:hover, button:focus-visible { border-color: var(--st-primary-color); color: var(--st-primary-color); }
"""
_COPY = """
export default function({ data, parentElement }) {
  const button = parentElement.querySelector("button");
  button.textContent = data.label;
  button.onclick = async () => {
    const text = data.text ?? window.location.href;
    let copied = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch (refused) {
      const field = document.createElement("textarea");
      field.value = text;
      document.body.appendChild(field);
      field.select();
      copied = document.execCommand("copy");
      field.remove();
    }
    button.textContent = copied ? "Copied" : "The browser refused";
    setTimeout(() => { button.textContent = data.label; }, 1500);
  };
}
"""
_PICTURE = """
export default function({ data, parentElement }) {
  const button = parentElement.querySelector("button");
  button.textContent = data.label;
  button.onclick = async () => {
    const drawn = () => document.querySelector(`.st-key-${data.figure} .modebar-btn[data-title*="png" i]`);
    for (let tries = 0; tries < 50 && !drawn(); tries++) {
      button.textContent = "Waiting for the figure";
      await new Promise(done => setTimeout(done, 200));
    }
    button.textContent = drawn() ? data.label : "No figure is drawn";
    drawn()?.click();
    setTimeout(() => { button.textContent = data.label; }, 1500);
  };
}
"""


def _component(name: str, js: str) -> Any:
    return st.components.v2.component(f"interp_{name}", html='<button type="button"></button>', css=_CSS, js=js)


def copy_button(label: str, text: str | None, key: str) -> None:
    """A button that copies a text; without one, the address of the page as it is."""
    _component("copy", _COPY)(data={"label": label, "text": text}, key=key)


def picture_button(label: str, figure: str, key: str) -> None:
    """A button by which the browser saves a figure (its container's key) as PNG."""
    _component("picture", _PICTURE)(data={"label": label, "figure": figure}, key=key)
