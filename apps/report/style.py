"""The look of a report: system fonts, two colour schemes, one column that narrows with the screen."""

STYLE = """
:root {
  color-scheme: light dark;
  --sans: ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial,
    sans-serif;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", "DejaVu Sans Mono", monospace;
  --page: #f4f5f9; --card: #ffffff; --ink: #171a2b; --ink-soft: #4d5470; --line: #d9dce8; --grid: #e7e9f2;
  --accent: #4338ca; --accent-soft: #eceafd; --chip: #eef0f7; --bar: #d9d5fb;
  --caution: #9a5b00; --caution-soft: #fff6e3; --caution-line: #f0b84a;
  --found: #0b6b4f; --found-soft: #e9f7f1; --found-line: #37b58a; --code: #f6f7fb;
  --top-a: #312e81; --top-b: #5b3fd6;
  --series-0: #4f46e5; --series-1: #db7706; --series-2: #0d9488; --series-3: #be185d; --series-4: #64748b;
  --heat-0: #f5f5fd; --heat-1: #d9d6fa; --heat-2: #b0a9f4; --heat-3: #5f50d6; --heat-4: #2a1f7d;
  --signed-0: #b45309; --signed-1: #f3c48b; --signed-2: #f7f7fb; --signed-3: #a8a2f0; --signed-4: #3b2fb0;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0f111a; --card: #181b28; --ink: #eef0fa; --ink-soft: #a9b0cc; --line: #343a52; --grid: #272c40;
    --accent: #a5a0ff; --accent-soft: #262546; --chip: #262b3d; --bar: #3c3678;
    --caution: #f3c26b; --caution-soft: #2c2414; --caution-line: #a87416;
    --found: #7fdcb8; --found-soft: #13291f; --found-line: #25825f; --code: #11131e;
    --top-a: #17153a; --top-b: #36278a;
    --series-0: #9a93ff; --series-1: #f5a742; --series-2: #3fc7b8; --series-3: #f472b6; --series-4: #94a3b8;
    --heat-0: #1d2031; --heat-1: #37327a; --heat-2: #5549c4; --heat-3: #b0a9ff; --heat-4: #e2dfff;
    --signed-0: #f5a742; --signed-1: #80591f; --signed-2: #1d2031; --signed-3: #554bb8; --signed-4: #b4afff;
  }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.6 var(--sans);
  -webkit-text-size-adjust: 100%; }
.top { background: linear-gradient(120deg, var(--top-a), var(--top-b)); color: #fff; padding: 44px 24px 84px; }
.top > * { max-width: 980px; margin-left: auto; margin-right: auto; }
.brand { font: 600 13px/1 var(--mono); letter-spacing: .14em; opacity: .8; margin-top: 0; margin-bottom: 18px; }
h1 { font-size: clamp(28px, 4.4vw, 40px); line-height: 1.15; letter-spacing: -.02em; margin-top: 0;
  margin-bottom: 14px; }
.lead { font-size: 18px; line-height: 1.55; margin-top: 0; margin-bottom: 28px; color: #e4e2ff; }
.top .token { background: rgba(255, 255, 255, .16); color: #fff; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 200px), 1fr)); gap: 14px; }
.tile { display: block; padding: 16px 18px; border-radius: 14px; background: rgba(255, 255, 255, .11); color: #fff;
  text-decoration: none; border: 1px solid rgba(255, 255, 255, .18); }
.tile:hover, .tile:focus-visible { background: rgba(255, 255, 255, .2); }
.tile b { display: block; font-size: 30px; line-height: 1.2; letter-spacing: -.02em;
  font-variant-numeric: tabular-nums; }
.tile span { display: block; font-weight: 600; margin-top: 4px; }
.tile small { display: block; color: #d6d3ff; font-size: 13.5px; line-height: 1.45; margin-top: 2px; }
main { max-width: 1028px; margin: -50px auto 60px; padding: 0 24px; }
nav { background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: 6px 20px;
  margin-bottom: 20px;
  box-shadow: 0 6px 24px rgba(20, 22, 60, .10); }
nav ol { display: flex; flex-wrap: wrap; gap: 4px 28px; margin: 8px 0; padding: 0; list-style: none;
  counter-reset: item; }
nav li { counter-increment: item; }
nav li::before { content: counter(item) "  "; color: var(--ink-soft); font-variant-numeric: tabular-nums;
  white-space: pre; }
a { color: var(--accent); }
nav a { text-decoration: none; font-weight: 600; }
nav a:hover { text-decoration: underline; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 16px; padding: 28px 32px;
  margin-bottom: 20px;
  scroll-margin-top: 16px; }
h2 { font-size: 24px; line-height: 1.25; letter-spacing: -.01em; margin: 0 0 8px; }
.eyebrow { margin: 0 0 4px; font: 600 12px/1.4 var(--mono); letter-spacing: .1em; text-transform: uppercase;
  color: var(--accent); }
.question { font-size: 18px; color: var(--ink-soft); margin: 0 0 14px; }
.card > p:not(.question):not(.eyebrow):not(.finding) { max-width: 80ch; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 215px), 1fr)); gap: 0 28px;
  margin: 8px 0 0; }
.facts div { padding: 9px 0; border-bottom: 1px solid var(--grid); }
.facts .wide { grid-column: 1 / -1; }
dt { font-size: 13px; color: var(--ink-soft); }
dd { margin: 0; font-weight: 550; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.token { font: 500 .88em/1.4 var(--mono); white-space: pre; background: var(--chip); border-radius: 5px;
  padding: .1em .35em;
  color: var(--ink); overflow-wrap: anywhere; }
.token.long { white-space: pre-wrap; }
.finding { border-left: 4px solid var(--found-line); background: var(--found-soft); padding: 10px 16px;
  border-radius: 0 10px 10px 0; }
.finding b { color: var(--found); }
pre.found { border: 0; border-left: 4px solid var(--found-line); background: var(--found-soft);
  border-radius: 0 10px 10px 0; padding: 10px 16px; white-space: pre-wrap; overflow-wrap: anywhere; }
.caution { border-left: 4px solid var(--caution-line); background: var(--caution-soft); padding: 10px 16px;
  border-radius: 0 10px 10px 0;
  margin: 22px 0 16px; max-width: none; }
.caution b { color: var(--caution); }
figure { margin: 24px 0 8px; }
.scroll { overflow-x: auto; }
.plot { width: 100%; }
figcaption, .caption { font-size: 14px; line-height: 1.5; color: var(--ink-soft); margin: 6px 0 0; max-width: 92ch; }
.numbers { margin-top: 22px; }
.numbers .caption { margin: 0 0 6px; }
.source { font: 12px/1.4 var(--mono); opacity: .75; white-space: nowrap; }
table { border-collapse: collapse; width: 100%; font-size: 14px; line-height: 1.45; }
th { text-align: left; font-weight: 600; color: var(--ink-soft); padding: 7px 14px 7px 0;
  border-bottom: 1px solid var(--line);
  vertical-align: bottom; }
td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--grid); vertical-align: middle; white-space: nowrap; }
td.wide { white-space: normal; min-width: 320px; }
tr.strong td { font-weight: 650; }
tr.strong td:first-child { box-shadow: inset 3px 0 0 var(--accent); padding-left: 10px; }
.num { font-variant-numeric: tabular-nums; }
.bar { background: linear-gradient(to right, var(--bar) calc(var(--share) * 100%),
  transparent 0) no-repeat left center / calc(100% - 14px) 68%;
  min-width: 110px; padding-left: 6px; }
details > summary { cursor: pointer; color: var(--accent); font-weight: 600; font-size: 14px; padding: 8px 0; }
.codes { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr)); gap: 16px; }
h4 { margin: 4px 0 6px; font-size: 13px; color: var(--ink-soft); }
pre { margin: 0; padding: 14px 16px; background: var(--code); border: 1px solid var(--line); border-radius: 10px;
  overflow-x: auto;
  font: 13px/1.55 var(--mono); }
.notes { margin: 8px 0 0; padding-left: 20px; }
.notes li { margin: 4px 0; overflow-wrap: anywhere; }
.noscript { text-align: center; }
@media (max-width: 640px) {
  .top { padding: 30px 18px 76px; }
  main { padding: 0 12px; }
  .tiles { grid-template-columns: 1fr 1fr; gap: 10px; }
  .tile { padding: 12px 14px; }
  .tile b { font-size: 24px; }
  .card { padding: 22px 18px; border-radius: 14px; }
}
@media print {
  body { background: #fff; }
  .card { break-inside: avoid-page; border: 0; padding: 12px 0; }
}
"""
