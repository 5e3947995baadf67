"use strict";
// Draws the figures in the page's colours; the slider and the choices of chunk and measure redraw theirs.
(() => {
  const payload = JSON.parse(document.getElementById("payload").textContent);
  const element = (id) => document.getElementById(id);
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const redraws = []; // what to do when the colours change

  /** Colours, fonts and margins that all figures share, read from the style sheet. */
  function template() {
    const lines = {
      gridcolor: style("grid"),
      linecolor: style("line"),
      zerolinecolor: style("line"),
      title: { font: { size: 13 } },
    };
    const axis = { ...lines, automargin: true, fixedrange: true };
    const spatial = { ...lines, backgroundcolor: "rgba(0,0,0,0)", showspikes: false, tickfont: { size: 10 }, nticks: 5 };
    return {
      layout: {
        font: { family: style("sans"), size: 13, color: style("ink") },
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        margin: { l: 56, r: 16, t: 44, b: 48 },
        dragmode: false,
        legend: { orientation: "h", x: 0, xref: "container", y: 1, yref: "container", yanchor: "top" },
        hoverlabel: { bgcolor: style("card"), bordercolor: style("line"), font: { color: style("ink") } },
        xaxis: axis,
        yaxis: axis,
        scene: { xaxis: spatial, yaxis: spatial, zaxis: spatial },
      },
      data: { heatmap: [{ textfont: { color: style("ink") } }] },
    };
  }

  function draw(id, data, layout, height = 360) {
    element(id).style.height = `${height}px`;
    Plotly.react(id, data, { ...layout, template: template() }, { responsive: true, displayModeBar: false });
  }

  function fill(select, labels) {
    select.replaceChildren(...labels.map((label, number) => new Option(label, number)));
  }

  // ---- the slider over K

  function extent(lists) {
    const low = Math.min(...lists.flat()), high = Math.max(...lists.flat());
    return { low, high, middle: (low + high) / 2, size: high - low || 1 };
  }

  const sumUp = (steps) => steps.reduce((sums, step) => [...sums, sums.at(-1) + step], [0]);

  /** Demonstrated and decoded actions, a small plot for each dimension. */
  function drawDimensions({ dimensions, colour }, { truth, decoded }, place) {
    const width = element("dimensions").clientWidth;
    const columns = dimensions.length === 1 || (width < 440 && dimensions.length < 5) ? 1 : width < 900 ? 2 : 3;
    const rows = Math.ceil(dimensions.length / columns);
    const layout = {
      margin: { l: 40, r: 8, t: 56, b: 28 },
      grid: { rows, columns, pattern: "independent", xgap: 0.12, ygap: 0.32 },
      annotations: [],
    };
    const traces = dimensions.flatMap((name, dim) => {
      const suffix = dim ? dim + 1 : "";
      const { low, high, size } = extent([truth[dim], ...decoded.map((prefix) => prefix[dim])]);
      layout[`xaxis${suffix}`] = { nticks: 5, zeroline: false };
      layout[`yaxis${suffix}`] = { nticks: 4, range: [low - 0.08 * size, high + 0.08 * size] };
      layout.annotations.push({
        text: name,
        showarrow: false,
        font: { color: style("soft") },
        ...{ x: 0, xref: `x${suffix} domain`, xanchor: "left" },
        ...{ y: 1, yref: `y${suffix} domain`, yanchor: "bottom" },
      });
      const line = { type: "scatter", mode: "lines", xaxis: `x${suffix}`, yaxis: `y${suffix}`, showlegend: dim === 0 };
      const steps = truth[dim].map((_, step) => step);
      return [
        { ...line, name: "demonstrated", x: steps, y: truth[dim], line: { color: style("truth"), width: 5 } },
        { ...line, name: "decoded", x: steps, y: decoded[place][dim], line: { color: colour, width: 2.5 } },
      ];
    });
    draw("dimensions", traces, layout, 60 + 160 * rows);
  }

  /** The first three dimensions in space, or the only two in the plane; every axis has the same scale. */
  function drawPath({ dimensions, colour }, { truth, decoded }, place, motions) {
    const axes = dimensions.slice(0, 3), spatial = axes.length === 3;
    element("path-figure").hidden = axes.length < 2;
    if (axes.length < 2) return;
    const path = (values) => axes.map((_, dim) => (motions ? sumUp(values[dim]) : values[dim]));
    const paths = [path(truth), ...decoded.map(path)];
    const extents = axes.map((_, dim) => extent(paths.map((each) => each[dim])));
    const half = 0.55 * Math.max(...extents.map(({ size }) => size));
    const axis = (dim) => ({
      title: { text: axes[dim] },
      range: [extents[dim].middle - half, extents[dim].middle + half],
    });
    const trace = (name, [x, y, z], width, size, more) => ({
      ...{ name, x, y, type: spatial ? "scatter3d" : "scatter", mode: "lines" },
      ...(spatial ? { z } : {}),
      ...{ line: { width: spatial ? 1.6 * width : width }, marker: { size: spatial ? 0.6 * size : size } },
      ...more,
    });
    const traces = [
      trace("demonstrated", paths[0], 5, 0),
      trace("decoded", paths[1 + place], 2.5, 4, { mode: "lines+markers" }),
      trace("start", paths[0].map((values) => values.slice(0, 1)), 0, 9, { mode: "markers" }),
    ];
    [style("truth"), colour, style("ink")].forEach((shade, number) => {
      traces[number].line.color = traces[number].marker.color = shade;
    });
    const scene = {
      ...{ xaxis: axis(0), yaxis: axis(1), zaxis: spatial ? axis(2) : {} },
      ...{ aspectmode: "cube", dragmode: "orbit", camera: { eye: { x: 1.55, y: 1.55, z: 0.9 }, center: { z: -0.12 } } },
    };
    const flat = { xaxis: axis(0), yaxis: { ...axis(1), scaleanchor: "x" } };
    const inSpace = { scene, margin: { l: 0, r: 0, t: 28, b: 0 }, uirevision: "what the reader turned stays so" };
    draw("path", traces, spatial ? inSpace : flat, 300);
    const meaning = motions
      ? "added up: where the end effector is sent, in units of actions, whatever controller and contacts make of it"
      : "as they are: where the end effector is sent";
    const turn = spatial ? " Drag to turn." : "";
    element("path-caption").textContent = `The first ${axes.length} numbers of each action, ${meaning}.${turn}`;
  }

  /** K, bits and error in words, and the token ids with the error after each. */
  function tell({ name, ordered, bits }, { tokens, errors }, place) {
    const count = ordered ? place + 1 : tokens.length, few = tokens.length <= 16;
    const amount = `${count} of ${tokens.length} tokens`;
    const words = [
      amount,
      `${Math.round(count * bits).toLocaleString("en")} bits`,
      `squared error ${errors[place].toPrecision(2)}`,
      ...(ordered ? [] : [`prefixes of ${name} do not decode`]),
    ];
    element("readout").textContent = words.join(" · ");
    element("prefix").setAttribute("aria-valuetext", amount);
    element("tokens").classList.toggle("many", !few);
    element("tokens").replaceChildren(...tokens.map((token, number) => {
      const item = document.createElement("li");
      item.textContent = token;
      item.classList.toggle("used", number < count);
      if (ordered && few) {
        item.append(Object.assign(document.createElement("small"), { textContent: errors[number].toPrecision(2) }));
      }
      return item;
    }));
  }

  function explore() {
    const [slider, tokenizers, chunks, meaning] = ["prefix", "tokenizer", "chunk", "meaning"].map(element);
    const tokenizer = () => payload.tokenizers[tokenizers.value];
    const chosen = () => [tokenizer(), tokenizer().chunks[chunks.value], Number(slider.value) - 1];
    const showPath = () => drawPath(...chosen(), meaning.value === "motions");
    const show = () => {
      tell(...chosen());
      drawDimensions(...chosen());
      showPath();
    };
    const chooseTokenizer = () => {
      const { chunks: mine, ordered, motions } = tokenizer(), before = chunks.value;
      fill(chunks, mine.map((each) => each.label));
      chunks.value = before in mine ? before : 0;
      meaning.value = motions ? "motions" : "positions";
      slider.max = mine[0].errors.length;
      slider.disabled = !ordered;
      show();
    };
    fill(tokenizers, payload.tokenizers.map((each) => each.name));
    chooseTokenizer();
    tokenizers.addEventListener("change", chooseTokenizer);
    chunks.addEventListener("change", show);
    slider.addEventListener("input", show);
    meaning.addEventListener("change", showPath);
    redraws.push(show);
    let width = element("dimensions").clientWidth;
    new ResizeObserver(([{ contentRect }]) => {
      if (Math.abs(contentRect.width - width) < 1) return;
      width = contentRect.width;
      drawDimensions(...chosen());
    }).observe(element("dimensions"));
  }

  // ---- everything else

  function showTraining() {
    const show = () => draw("curves", ...payload.training[element("measure").value]);
    element("measure").addEventListener("change", show);
    redraws.push(show);
    show();
  }

  function markCurrentSection() {
    const links = new Map([...document.querySelectorAll("nav li a")].map((link) => [link.hash.slice(1), link]));
    const observer = new IntersectionObserver((entries) => {
      for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
        for (const link of links.values()) link.removeAttribute("aria-current");
        links.get(target.id).setAttribute("aria-current", "true");
      }
    }, { rootMargin: "-20% 0px -75% 0px" });
    for (const id of links.keys()) observer.observe(element(id));
  }

  for (const { name, data, layout, height } of payload.figures) {
    const show = () => draw(name, data, layout, height);
    redraws.push(show);
    show();
  }
  if (payload.tokenizers) explore();
  if (payload.training) showTraining();
  markCurrentSection();
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(query).addEventListener("change", () => redraws.forEach((redraw) => redraw()));
  }
})();
