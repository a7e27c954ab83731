"""Texts, tokens and numbers as HTML. Everything passes `html.escape`."""

import html
import math
import re

from interp.apps.report.content import TOKEN_CLOSE, TOKEN_OPEN, Column, ColumnKind

VISIBLE = {"\n": "↵", "\r": "↵", "\t": "⇥"}
LONG_TOKEN = 30
LONG_TEXT = 70  # letters of a text in a cell from which it may wrap; a hash stays whole
NUMERIC: frozenset[ColumnKind] = frozenset({"whole", "number", "general", "signed", "percent", "bar"})


def prose(text: str) -> str:
    """A sentence, its marked tokens as chips."""
    escaped = html.escape(_visible(text))
    return re.sub(f"{TOKEN_OPEN}(.*?){TOKEN_CLOSE}", lambda found: _chip(found[1]), escaped)


def plain(text: str) -> str:
    """A sentence without the marks around its tokens, for places where nothing but text can stand."""
    return text.replace(TOKEN_OPEN, "").replace(TOKEN_CLOSE, "")


def chip(text: str) -> str:
    """One token, its spaces kept and its control characters visible."""
    return _chip(html.escape(_visible(text)))


def _chip(escaped: str) -> str:
    """A short token stays on one line, so that its leading space is not torn off; a whole prompt may wrap."""
    long = " long" if len(escaped) > LONG_TOKEN else ""
    return f'<code class="token{long}">{escaped}</code>'


def cell(value: object, column: Column) -> str:
    """One table cell."""
    if column.kind == "token":
        return f"<td>{chip(str(value))}</td>"
    if column.kind == "flag":
        return f"<td>{'yes' if value else 'no'}</td>"
    if column.kind not in NUMERIC:
        text = _visible(str(value))
        wide = ' class="wide"' if len(text) > LONG_TEXT else ""
        return f"<td{wide}>{html.escape(text)}</td>"
    number = float(value)  # type: ignore[arg-type]
    if column.kind == "bar":
        style = f"--share:{_bar_width(number):.4f}"
        return f'<td class="num bar" style="{style}">{html.escape(written(number, "percent"))}</td>'
    return f'<td class="num">{html.escape(written(number, column.kind))}</td>'


def written(number: float, kind: ColumnKind) -> str:
    """A number as the page writes it.

    >>> written(0.75213, "percent"), written(1234, "whole"), written(-0.5, "signed"), written(0.00001, "percent")
    ('75.2 %', '1,234', '−0.500', '< 0.1 %')
    >>> written(-0.000123456, "general"), written(1234.5678, "general")
    ('−0.0001235', '1235')
    """
    if math.isnan(number):
        return "–"
    if kind == "whole":
        return f"{round(number):,}"
    if kind in ("percent", "bar"):
        return "< 0.1 %" if 0 < number < 0.001 else f"{100 * number:.1f} %"
    text = {"signed": f"{number:+.3f}", "general": f"{number:.4g}"}.get(kind, f"{number:.3f}")
    return text.replace("-", "−")


def share(number: float) -> str:
    """A share or a probability inside a sentence, written as in the tables."""
    return written(number, "percent")


def _bar_width(number: float) -> float:
    return 0.0 if math.isnan(number) else min(max(number, 0.0), 1.0)


def _visible(text: str) -> str:
    r"""Line breaks and tabs as signs, anything else that prints as nothing as its escape (`\xa0`)."""
    return "".join(_sign(letter) for letter in text)


def _sign(letter: str) -> str:
    if letter.isprintable() or letter in (TOKEN_OPEN, TOKEN_CLOSE):
        return letter
    return VISIBLE.get(letter) or letter.encode("unicode_escape").decode("ascii")
