// Curves of a report, by uPlot: a drag across them, buttons and keys zoom, and the legend shows values at the cursor.
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const shown = (value) => (value == null ? "–" : String(Number(value.toPrecision(4))));

function options(chart, width, changed) {
  const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
  const series = [{ label: chart.x, value: (_, x) => shown(x) }];
  const bands = [];
  chart.lines.forEach((line, i) => {
    const stroke = color(`--c${i % 8}`);
    const value = (u, mean, _, at) => {
      const low = at == null || !line.low ? null : line.low[at];
      return low == null ? shown(mean) : `${shown(mean)} (${shown(low)} to ${shown(line.high[at])})`;
    };
    const points = { show: chart.values.length < 2 };
    series.push({ label: line.label, stroke, width: 2, value, points, spanGaps: true });
    for (const label of ["low", "high"]) {
      series.push({ label: `${line.label}, ${label}`, class: "edge", stroke: "transparent", width: 0, points: { show: false }, spanGaps: true });
    }
    bands.push({ series: [3 * i + 3, 3 * i + 2], fill: `color-mix(in srgb, ${stroke} 22%, transparent)` });
  });
  return {
    width,
    height: Math.max(220, Math.min(340, Math.round(width * 0.5))),
    series,
    bands,
    scales: { x: { time: false } },
    axes: [{ ...axis, label: chart.x, labelSize: 24 }, { ...axis, size: 64 }],
    cursor: { drag: { x: true, y: false, setScale: true } },
    hooks: {
      setScale: [(u, key) => key === "x" && changed(u)],
      setSeries: [(u, i, set) => set.show != null && i % 3 === 1 && [i + 1, i + 2].forEach((edge) => u.setSeries(edge, { show: set.show }))],
    },
  };
}

function zoom(u, by, along) {
  const { min, max } = u.scales.x;
  const [first, last] = [u.data[0][0], u.data[0].at(-1)];
  const half = Math.min((by * (max - min)) / 2, (last - first) / 2);
  const middle = Math.min(Math.max((min + max) / 2 + along * (max - min), first + half), last - half);
  if (half > 0) u.setScale("x", { min: middle - half, max: middle + half });
}

function make(box) {
  const chart = JSON.parse(box.querySelector("script").textContent);
  const empty = chart.values.map(() => null);
  const data = [chart.values, ...chart.lines.flatMap((line) => [line.mean, line.low ?? empty, line.high ?? empty])];
  const tools = document.createElement("div");
  const plot = document.createElement("div");
  const range = document.createElement("output");
  tools.className = "tools";
  plot.className = "plot";
  plot.tabIndex = 0;
  plot.setAttribute("role", "group");
  plot.setAttribute("aria-label", `${chart.title}: arrow keys move the cursor`);
  const changed = (u) => (range.textContent = `${chart.x} ${shown(u.scales.x.min)} to ${shown(u.scales.x.max)}`);
  const draw = (width) => {
    const { min, max } = box.chart?.scales.x ?? {};
    box.chart?.destroy();
    box.chart = new uPlot(options(chart, width, changed), data, plot);
    if (min != null) box.chart.setScale("x", { min, max });
  };
  const whole = () => box.chart.setScale("x", { min: chart.values[0], max: chart.values.at(-1) });
  const buttons = [["zoom in", () => zoom(box.chart, 0.5, 0)], ["zoom out", () => zoom(box.chart, 2, 0)], ["←", () => zoom(box.chart, 1, -0.25), "earlier"], ["→", () => zoom(box.chart, 1, 0.25), "later"], ["all", whole]];
  for (const [text, act, name] of buttons) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    if (name) button.setAttribute("aria-label", name);
    button.addEventListener("click", act);
    tools.append(button);
  }
  tools.append(range);
  box.append(plot, tools);
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const u = box.chart;
    const at = Math.min(Math.max((u.cursor.idx ?? 0) + step, 0), chart.values.length - 1);
    u.setCursor({ left: u.valToPos(chart.values[at], "x"), top: u.over.clientHeight / 2 });
    event.preventDefault();
  });
  return draw;
}

const drawn = new Map();
const sizes = new ResizeObserver((changes) => {
  for (const { target, contentRect } of changes) {
    const width = Math.floor(contentRect.width);
    if (!width) continue; // in a part that is folded
    if (!drawn.has(target)) {
      drawn.set(target, make(target));
      drawn.get(target)(width);
    } else if (target.chart.width !== width) drawn.get(target)(width);
  }
});
document.querySelectorAll(".chart").forEach((box) => sizes.observe(box));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((draw, box) => draw(box.chart.width)));
