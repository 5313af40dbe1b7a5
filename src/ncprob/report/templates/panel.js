"use strict";
// The panel: every value is set as text, never as markup, since names and levels come from data.
(function () {
  const data = JSON.parse(document.getElementById("panel-data").textContent);
  const state = { mode: "grid", view: "density", target: 0, row: 0, places: [], threshold: null };
  state.places = data.inputs.map((input) => input.start);
  const controls = document.getElementById("controls");
  const numbers = data.kind === "numbers";
  const BLUE = "#2a5caa", ORANGE = "#d55e00";

  function element(tag, parent, text) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.appendChild(made);
    return made;
  }
  // plotly reads some markup in titles
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const short = (value) => Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });

  function choice(options, key) {
    const box = element("div", controls);
    box.className = "choice";
    for (const [value, label] of options) {
      const button = element("button", box, label);
      button.type = "button";
      button.setAttribute("aria-pressed", String(state[key] === value));
      button.addEventListener("click", () => { state[key] = value; build(); show(); });
    }
  }

  function slider(name, labels, value, change) {
    const label = element("label", controls, name);
    const output = element("output", label, labels[value]);
    const input = element("input", label);
    Object.assign(input, { type: "range", min: 0, max: labels.length - 1, step: 1 });
    input.value = value;
    input.setAttribute("aria-valuetext", labels[value]);
    input.addEventListener("input", () => {
      output.textContent = labels[input.value];
      input.setAttribute("aria-valuetext", labels[input.value]);
      change(Number(input.value));
      show();
    });
  }

  function select(name, labels, value, change) {
    const label = element("label", controls, name);
    const input = element("select", label);
    labels.forEach((text, i) => { element("option", input, text).value = i; });
    input.value = value;
    input.addEventListener("change", () => { change(Number(input.value)); show(); });
  }

  function list(pairs) {
    const items = element("ul", controls);
    items.className = "fixed";
    for (const [name, value] of pairs) element("li", items, name + " = " + value);
  }

  function build() {
    controls.replaceChildren();
    choice([["grid", "Grid"], ["test", "Test rows"]], "mode");
    if (numbers) choice([["density", "Density"], ["cdf", "CDF"]], "view");
    if (data.targets.length > 1) {
      select("target", data.targets, state.target, (i) => { state.target = i; state.threshold = null; });
    }
    if (state.mode === "grid") {
      data.inputs.forEach((input, i) => {
        const control = input.ordered ? slider : select;
        control(input.name, input.labels, state.places[i], (place) => { state.places[i] = place; });
      });
      if (data.fixed.length) {
        element("div", controls, "kept at typical values:").className = "caption muted";
        list(data.fixed.map((input) => [input.name, input.value]));
      }
    } else {
      const labels = data.rows.map((row) => String(row.number));
      slider("row", labels, state.row, (i) => { state.row = i; rowValues(); });
      rowValues();
    }
    if (numbers) threshold();
  }

  function rowValues() {
    const old = controls.querySelector(".fixed");
    list(data.names.map((name, i) => [name, data.rows[state.row].values[i]]));
    if (old) old.replaceWith(controls.lastElementChild);
  }

  function threshold() {
    const label = element("label", null, "probability up to");
    const input = element("input", label);
    input.type = "number";
    input.step = "any";
    if (state.threshold !== null) input.value = state.threshold;
    input.addEventListener("input", () => {
      state.threshold = input.value === "" ? null : Number(input.value);
      show();
    });
    controls.appendChild(label);
  }

  function cell() {
    return state.places.reduce((index, place, i) => index * data.inputs[i].labels.length + place, 0);
  }

  // F(t) from the stored quantiles, straight lines between them
  function cdf(law, t) {
    const q = law.q, p = data.levels;
    if (t < q[0]) return "under " + (100 * p[0]).toFixed(1) + " %";
    if (t >= q[q.length - 1]) return "over " + (100 * p[p.length - 1]).toFixed(1) + " %";
    let i = q.length - 1;
    while (q[i] > t) i -= 1;
    const share = q[i + 1] > q[i] ? (t - q[i]) / (q[i + 1] - q[i]) : 1;
    return (100 * (p[i] + share * (p[i + 1] - p[i]))).toFixed(1) + " %";
  }
  const quantile = (law, level) => law.q[data.levels.indexOf(level)];

  function answers(rows) {
    const table = document.getElementById("answers");
    table.replaceChildren();
    for (const [name, value] of rows) {
      const row = element("tr", table);
      element("th", row, name);
      element("td", row, value);
    }
  }

  function curve(law) {
    if (state.view === "cdf") return { x: law.q, y: data.levels };
    const step = (law.high - law.low) / (law.d.length - 1);
    return { x: law.d.map((_, i) => law.low + i * step), y: law.d.map((d) => d * law.peak / 1000) };
  }

  function vertical(x, color, dash, name) {
    return { type: "scatter", mode: "lines", x: [x, x], y: [0, 1], yaxis: "y2", name: name, hoverinfo: "name+x",
             line: { color: color, dash: dash, width: 1.5 } };
  }

  function showLaw() {
    const part = data[state.mode][state.target];
    const law = part[state.mode === "grid" ? cell() : state.row];
    const points = curve(law);
    const traces = [{ type: "scatter", mode: "lines", x: points.x, y: points.y, line: { color: BLUE, width: 2 }, name: "law",
                      fill: state.view === "density" ? "tozeroy" : "none", fillcolor: "rgba(42,92,170,0.12)" }];
    if (state.view === "density") {
      const ends = [quantile(law, 0.05), quantile(law, 0.95)];
      const inside = points.x.map((x, i) => [x, points.y[i]]).filter(([x]) => x >= ends[0] && x <= ends[1]);
      traces.push({ type: "scatter", mode: "lines", x: inside.map((v) => v[0]), y: inside.map((v) => v[1]), fill: "tozeroy",
                    fillcolor: "rgba(42,92,170,0.3)", line: { width: 0 }, hoverinfo: "skip", name: "90 % interval" });
    }
    traces.push(vertical(quantile(law, 0.5), BLUE, "dash", "median"));
    const rows = [["mean", short(law.mean)]];
    for (const level of [0.05, 0.25, 0.5, 0.75, 0.95]) {
      rows.push([(100 * level).toFixed(0) + " % quantile", short(quantile(law, level))]);
    }
    if (state.threshold !== null && Number.isFinite(state.threshold)) {
      traces.push(vertical(state.threshold, "#666666", "dot", "threshold"));
      rows.push(["P(" + data.targets[state.target] + " ≤ " + short(state.threshold) + ")", cdf(law, state.threshold)]);
    }
    if (state.mode === "test") {
      const observed = data.observed[state.row][state.target];
      traces.push(vertical(observed, ORANGE, "solid", "observed"));
      rows.push(["observed", short(observed)], ["P(Y ≤ observed)", cdf(law, observed)]);
    }
    answers(rows);
    draw(traces, {
      xaxis: { title: { text: plain(data.targets[state.target]) }, range: span(law), zeroline: false },
      yaxis: { title: { text: state.view === "cdf" ? "probability" : "density" }, rangemode: "tozero", zeroline: false,
               range: state.view === "cdf" ? [0, 1.02] : undefined },
      yaxis2: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
    });
  }

  // One range for nearly all laws of a target, so that moving a slider moves the law and not the axis
  function span(law) {
    const low = Math.min(data.range[state.target][0], quantile(law, 0.02));
    const high = Math.max(data.range[state.target][1], quantile(law, 0.98));
    const room = 0.04 * (high - low) || 1;
    return [low - room, high + room];
  }

  function showClasses() {
    const shares = data[state.mode][0][state.mode === "grid" ? cell() : state.row];
    const seen = state.mode === "test" ? data.observed[state.row][0] : -1;
    answers(data.classes.map((name, i) => [name + (i === seen ? " (observed)" : ""), shares[i].toFixed(1) + " %"]));
    draw([{ type: "bar", x: data.classes.map(plain), y: shares, marker: { color: shares.map((_, i) => (i === seen ? ORANGE : BLUE)) } }],
         { xaxis: { type: "category" }, yaxis: { title: { text: "probability (%)" }, range: [0, 100] } });
  }

  function draw(traces, axes) {
    const layout = Object.assign({ margin: { l: 56, r: 12, t: 30, b: 48 }, legend: { orientation: "h", y: 1.14, x: 0 },
                                   font: { size: 12 }, hovermode: "closest", showlegend: traces.length > 1 }, axes);
    Plotly.react("chart", traces, layout, { responsive: true, displaylogo: false, displayModeBar: false });
  }

  function show() {
    const support = document.getElementById("support");
    if (state.mode === "grid") {
      const count = data.counts[cell()];
      const near = count === 1 ? "1 training row is" : count + " training rows are";
      support.textContent = near + " nearest to this choice of the varied inputs" + (count < 5 ? ": take it with care." : ".");
    } else {
      support.textContent = "Row " + data.rows[state.row].number + " of the rows given for this report.";
    }
    if (numbers) showLaw(); else showClasses();
  }

  build();
  show();
})();
