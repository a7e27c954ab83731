"""Colours that follow Streamlit's theme and stay apart for colour-blind eyes, and the little style that pages share."""

from collections.abc import Iterable, Sequence
from html import escape

import streamlit as st

ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">
<rect width="16" height="16" rx="3" fill="#1f5fa8"/>
<path d="M4 4h2v2H4zM7 7h2v2H7zM10 4h2v2h-2zM4 10h2v2H4zM10 10h2v2h-2z" fill="#fff"/></svg>"""
"""What stands in the browser's tab: drawn here, because a named icon would be fetched from another host."""

MOST_COLUMN = 1180  # pixels: longer lines are hard to read

STYLE = f"""<style>
.block-container {{ max-width: {MOST_COLUMN}px; padding-top: 2.6rem; padding-bottom: 4rem; }}
.interp-question {{ opacity: .78; margin: -.6rem 0 .4rem; font-size: 1.02rem; }}
.interp-tokens {{ line-height: 2.1; overflow-wrap: anywhere; }}
.interp-tokens span {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .86rem;
  white-space: pre-wrap; border-radius: 4px; padding: .16rem .1rem; margin-right: 1px; }}
.interp-tokens span.chosen {{ outline: 2px solid currentColor; }}
.interp-pair {{ overflow-x: auto; margin-bottom: .3rem; }}
.interp-pair td, .interp-pair th {{ font-size: .84rem; padding: .12rem .3rem; white-space: pre; }}
.interp-pair td {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; border-radius: 4px; }}
.interp-pair th {{ text-align: left; font-weight: 500; opacity: .75; padding-left: 0; }}
.interp-pair td.marked, .interp-tokens span.marked {{ background: rgba(217, 130, 43, .32); }}
.interp-chip {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .88em;
  white-space: pre-wrap; background: rgba(128, 128, 128, .18); border-radius: 4px; padding: .05rem .3rem; }}
.interp-facts {{ border-collapse: collapse; width: 100%; font-size: .9rem; }}
.interp-facts th {{ text-align: left; font-weight: 500; opacity: .75; padding: .28rem .8rem .28rem 0;
  vertical-align: top; white-space: nowrap; }}
.interp-state {{ display: none; }}
.interp-facts td {{ padding: .28rem 0; overflow-wrap: anywhere; }}
.interp-facts tr {{ border-bottom: 1px solid rgba(128, 128, 128, .2); }}
@media (max-width: 640px) {{
  .block-container {{ padding-left: .9rem; padding-right: .9rem; padding-top: 2.2rem; }}
  h1 {{ font-size: 1.6rem !important; }}
  .heatmap-label {{ display: none; }}
  .xaxislayer-above g.xtick:nth-last-child(n + 16 of g.xtick):not(:nth-child(5n + 1 of g.xtick)),
  .xaxislayer-above g.xtick:nth-last-child(n + 16 of g.xtick) ~ g.xtick:not(:nth-child(5n + 1 of g.xtick)) {{
    display: none;
  }}
}}
</style>"""

SEQUENTIAL = {
    "light": ["#f7fbff", "#d6e6f4", "#abd0e6", "#6aaed6", "#3787c0", "#105ba4", "#08306b"],
    "dark": ["#10202f", "#173a57", "#1d5680", "#2a75a8", "#4c99c9", "#8cc3e4", "#e2f1fb"],
}
"""One hue, from the colour of the page to its opposite."""
SIGNED = {
    "light": ["#b35806", "#e08214", "#fdb863", "#f7f7f7", "#92c5de", "#4393c3", "#2166ac"],
    "dark": ["#ffb454", "#d9822b", "#80511d", "#1b212b", "#1f5d8c", "#3d94cf", "#9ad4fb"],
}
"""Orange below, blue above, the colour of the page at 0: apart for red-green and blue-yellow blindness alike."""
BRIGHTER = {"#1f5fa8": "#5a9ade"}
"""Colours of curves and bars that are hard to see on a dark page → what stands there instead."""
OUTLINE = {"light": "#111111", "dark": "#ffffff"}
BAND = {"light": "#5b6370", "dark": "#a8b3c2"}


def theme() -> str:
    """The theme of this session's browser: light or dark."""
    return "dark" if st.context.theme.get("type") == "dark" else "light"


def scale(signed: bool, of: str | None = None) -> list[list[object]]:
    """A colour scale for plotly, for the session's theme or the one named."""
    colours = (SIGNED if signed else SEQUENTIAL)[of or theme()]
    return [[place / (len(colours) - 1), colour] for place, colour in enumerate(colours)]


def seen(token: object) -> str:
    """A token for a table, its spaces and line breaks visible."""
    text = str(token).replace("\n", "↵").replace("\t", "⇥").replace("\r", "␍")
    return text.replace(" ", "·") or "∅"


def chip(text: str) -> str:
    """A token inside a sentence, as HTML with its spaces visible."""
    from interp.plots import visible

    return f'<code class="interp-chip">{visible(text)}</code>'


def strip(
    tokens: Iterable[object], said: Sequence[str], *, chosen: int | None = None, shades: Sequence[str] | None = None
) -> None:
    """The tokens of a text one behind the other: `said` stands on hovering, `shades` are their backgrounds."""
    from interp.plots import visible

    spans = []
    for place, token in enumerate(tokens):
        marked = ' class="chosen"' if place == chosen else ""
        shade = f' style="background:{shades[place]}"' if shades else ""
        spans.append(f'<span{marked}{shade} title="{escape(said[place])}">{visible(str(token))}</span>')
    st.html(f'<div class="interp-tokens">{"".join(spans)}</div>')


def sentence(text: str, *, small: bool = False) -> None:
    """A sentence that holds chips; everything else in it must be escaped already."""
    st.html(f'<p style="margin:0;opacity:{0.8 if small else 1}">{text}</p>')


def lines(texts: Iterable[str]) -> None:
    """Lines as they are, one below the other: no part of a prompt is taken for markup."""
    sentence("<br>".join(plain(text.strip()) for text in texts), small=True)


def plain(text: str) -> str:
    """A text for use inside HTML."""
    return escape(text)


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> duration(0.4), duration(42), duration(150), duration(7300)
    ('under 1 s', '42 s', '2.5 min', '2.0 h')
    """
    if seconds < 1:
        return "under 1 s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
