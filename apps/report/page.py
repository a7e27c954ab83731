"""A `Report` as one HTML page: plotly's script inlined once, styles inside, no other host, no cookies, no fonts."""

import html
from collections.abc import Sequence

from interp.apps.report.cells import cell, plain, prose
from interp.apps.report.content import Code, Figure, Highlight, Report, Section, Table
from interp.apps.report.restyle import fitted
from interp.apps.report.script import SCRIPT
from interp.apps.report.style import STYLE

WIDE_FACT = 44  # longer values take a row of their own
_WIDE = ' class="wide"'


def render(report: Report) -> str:
    """The whole page as text, to be written as UTF-8."""
    from plotly.offline import get_plotlyjs

    sections = "\n".join(_section(number, section) for number, section in enumerate(report.sections, start=1))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(report.title)}</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
</head>
<body>
<header class="top">
<p class="brand">interp</p>
<h1>{prose(report.title)}</h1>
<p class="lead">{prose(report.lead)}</p>
{_highlights(report.highlights)}
</header>
<main>
{_navigation(report.sections)}
{_card(report.card, report.facts)}
{sections}
{_notes(report.notes)}
</main>
<noscript><p class="noscript">The figures need JavaScript; every number they draw is in the tables.</p></noscript>
<script>{get_plotlyjs()}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _highlights(highlights: Sequence[Highlight]) -> str:
    tiles = [
        f'<a class="tile" href="#{html.escape(tile.target)}"><b>{prose(tile.value)}</b>'
        f"<span>{prose(tile.label)}</span><small>{prose(tile.note)}</small></a>"
        for tile in highlights
    ]
    return f'<div class="tiles">{"".join(tiles)}</div>' if tiles else ""


def _navigation(sections: Sequence[Section]) -> str:
    links = [f'<li><a href="#{html.escape(section.slug)}">{prose(section.title)}</a></li>' for section in sections]
    return f'<nav aria-label="Contents"><ol>{"".join(links)}</ol></nav>'


def _card(title: str, facts: Sequence[tuple[str, str]]) -> str:
    rows = [
        f"<div{_WIDE if len(value) > WIDE_FACT else ''}><dt>{prose(name)}</dt><dd>{prose(value)}</dd></div>"
        for name, value in sorted(facts, key=lambda fact: len(fact[1]) > WIDE_FACT)
    ]
    return f'<section class="card" id="model"><h2>{prose(title)}</h2><dl class="facts">{"".join(rows)}</dl></section>'


def _section(number: int, section: Section) -> str:
    blocks = [
        _figure(f"{section.slug}-{place}", block) if isinstance(block, Figure) else _table(block)
        for place, block in enumerate(section.blocks)
    ]
    eyebrow = f"Question {number}" if section.eyebrow is None else section.eyebrow
    parts = [
        f'<p class="eyebrow">{prose(eyebrow)}</p>',
        f"<h2>{prose(section.title)}</h2>",
        _said('<p class="question">{}</p>', section.question),
        _said("<p>{}</p>", section.explanation),
        _said('<p class="finding"><b>Found.</b> {}</p>', section.finding),
        _lines(section.lines),
        *blocks,
        _said('<aside class="caution"><b>What this does not show.</b> {}</aside>', section.not_shown),
        "" if section.code is None else _code(section.code),
    ]
    inside = "\n".join(part for part in parts if part)
    return f'<section class="card" id="{html.escape(section.slug)}">\n{inside}\n</section>'


def _said(form: str, text: str) -> str:
    """A text in its place; nothing where there is none."""
    return form.format(prose(text)) if text else ""


def _lines(lines: Sequence[str]) -> str:
    """What was found, a line each, the first one before the others."""
    return f'<pre class="found">{"<br>".join(prose(line) for line in lines)}</pre>' if lines else ""


def _figure(name: str, block: Figure) -> str:
    """The figure's data as JSON; `<` is written as an escape, so that no text can end the script element."""
    figure = fitted(block.figure)
    data = str(figure.to_json()).replace("<", "\\u003c")
    label = html.escape(plain(block.caption).split(". ")[0])
    height = figure.layout.height or 400
    return f"""<figure>
<div class="scroll"><div class="plot" id="plot-{name}" role="img" aria-label="{label}"
 style="min-width:{block.min_width}px;height:{height}px"></div></div>
<figcaption>{prose(block.caption)}</figcaption>
<script type="application/json" class="figure-data" data-plot="plot-{name}">{data}</script>
</figure>"""


def _table(block: Table) -> str:
    rows = [_row(block, row) for row in block.frame.to_dict(orient="records")]
    shown = len(rows) if block.first is None else block.first
    head = "".join(f'<th scope="col">{prose(column.heading)}</th>' for column in block.columns.values())
    opened = _rows(head, rows[:shown])
    rest = rows[shown:]
    folded = f"<details><summary>{len(rest)} more rows</summary>{_rows(head, rest)}</details>" if rest else ""
    file = f"tables/{block.name}.parquet" if block.file is None else block.file
    source = f'<span class="source">{html.escape(file)}</span>'
    return f'<div class="numbers"><p class="caption">{prose(block.caption)} {source}</p>{opened}{folded}</div>'


def _row(block: Table, row: dict[object, object]) -> str:
    strong = ' class="strong"' if block.emphasis is not None and row[block.emphasis] else ""
    return f"<tr{strong}>{''.join(cell(row[name], column) for name, column in block.columns.items())}</tr>"


def _rows(head: str, rows: Sequence[str]) -> str:
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _code(code: Code) -> str:
    blocks = [("In Python", code.python), ("On the command line", code.shell)]
    drawn = [f"<div><h4>{name}</h4><pre><code>{html.escape(text.strip())}</code></pre></div>" for name, text in blocks]
    return f'<details class="repeat"><summary>Repeat this</summary><div class="codes">{"".join(drawn)}</div></details>'


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{prose(note)}</li>" for note in notes)
    return f'<section class="card" id="run"><h2>About this run</h2><ul class="notes">{items}</ul></section>'
