"""The script of a report: draw each figure from the JSON beside it, in the colours of the page's scheme."""

SCRIPT = """
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const variable = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const ramp = name => [0, 1, 2, 3, 4].map(step => [step / 4, variable(`--${name}-${step}`)]);

  function template() {
    const axis = {
      gridcolor: variable("--grid"), zerolinecolor: variable("--grid"), linecolor: variable("--line"),
      tickcolor: variable("--line"), automargin: true, title: {standoff: 8},
    };
    return {
      layout: {
        font: {family: variable("--sans"), size: 13, color: variable("--ink-soft")},
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        colorway: [0, 1, 2, 3, 4].map(step => variable(`--series-${step}`)),
        xaxis: axis, yaxis: axis,
        hoverlabel: {bgcolor: variable("--card"), bordercolor: variable("--line"), font: {color: variable("--ink")}},
        legend: {bgcolor: "rgba(0,0,0,0)"},
        annotationdefaults: {font: {color: variable("--ink-soft")}, arrowcolor: variable("--ink-soft")},
      },
      data: {heatmap: [{colorbar: {outlinewidth: 0, thickness: 12, tickcolor: variable("--line")}}]},
    };
  }

  function coloured(trace) {
    const copy = structuredClone(trace);
    if (copy.type === "heatmap") copy.colorscale = ramp(copy.zmid === 0 ? "signed" : "heat");
    return copy;
  }

  const figures = [...document.querySelectorAll("script.figure-data")].map(script => ({
    plot: document.getElementById(script.dataset.plot), spec: JSON.parse(script.textContent),
  }));
  const options = {responsive: true, displaylogo: false, displayModeBar: false};

  function draw() {
    for (const {plot, spec} of figures) {
      const layout = {...structuredClone(spec.layout), template: template(), autosize: true};
      Plotly.react(plot, spec.data.map(coloured), layout, options);
    }
  }
  dark.addEventListener("change", draw);
  draw();
  document.documentElement.dataset.drawn = figures.length;
})();
"""
