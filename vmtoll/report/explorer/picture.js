"use strict";

// The picture at the top: guests and containers ÷ metal, or environments ÷ another baseline, by machine and server; and
// the history of one scenario.

const METAL = "metal";
const PICTURE = { throughput: "Requests per second", tail: "p99 of an open loop", host_cpu: "Host CPU per request" };
const LINES = 40; // of the picture, before "show all"
const DOTS = 30; // of one line: the newest run and those before it

// SVG's namespace, without an address in the page.
const SVG = new DOMParser().parseFromString("<svg></svg>", "text/html").body.firstChild.namespaceURI;

/** An element of SVG. */
function draw(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes ?? {})) node.setAttribute(name, value);
  node.append(...children.flat(Infinity).filter((child) => child));
  return node;
}

/** Where a ratio stands, in percent of the width; the scale is logarithmic. */
const scaleOf = (low, high) => (ratio) => 100 * (Math.log(ratio) - Math.log(low)) / (Math.log(high) - Math.log(low));

const clamp = (x) => Math.min(100, Math.max(0, x));

/** Ratios to mark within these ends: the wider the range, the coarser. */
function ticks(low, high) {
  const wide = high / low;
  const marks = wide > 50 ? [0.001, 0.01, 0.1, 1, 10, 100, 1000]
    : wide > 4 ? [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50]
      : [0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 3];
  return marks.filter((tick) => tick >= low && tick <= high);
}

const ends = (ratios) => [Math.min(0.9, ...ratios) / 1.05, Math.max(1.1, ...ratios) * 1.05];

/** A ratio with its interval, or with the range of its blocks; `<` and `>` where an end is open. */
function ratioText([ratio, low, high], { open = [false, false], every_block = null } = {}) {
  const [least, most] = every_block ?? [low, high];
  const text = `${ratio.toPrecision(3)}×`;
  if (least === null || most === null) return `${text}, no interval`;
  const range = `${open[0] ? "<" : ""}${least.toPrecision(3)} to ${open[1] ? ">" : ""}${most.toPrecision(3)}`;
  return every_block ? `${text}, blocks from ${range}` : `${text} (${range})`;
}

const machineOf = (row) => `${row.cpu} · ${site.hardware[row.hardware]}${row.accelerator === "tcg" ? " · guest emulated" : ""}`;

const lineName = (row) => [row.server, row.load, site.arms[row.environment]].join(" · ");

/** Machine → scenario → its points, the newest run first. */
function picturePoints(pairs, name) {
  const machines = new Map();
  let without = 0;
  for (const [run, row] of pairs) {
    const verdict = row.verdicts[name];
    if (!verdict?.applies) continue;
    if (!verdict.ratio) { without += 1; continue; }
    const machine = machineOf(row);
    if (!machines.has(machine)) machines.set(machine, new Map());
    const lines = machines.get(machine);
    if (!lines.has(row.id)) lines.set(row.id, []);
    lines.get(row.id).push([run, row, verdict]);
  }
  return [machines, without];
}

/** The baseline that the picture divides by, and what is divided: metal and what is not metal, or, where no run has metal as
    its baseline, the baseline of the newest one and all others. */
function picturePairs(s) {
  const pairs = site.runs.flatMap((run) => chosen(run, s).map((row) => [run, row]));
  const baselines = pairs.map(([run]) => run.baseline);
  const baseline = baselines.includes(METAL) ? METAL : baselines[0];
  return [baseline, pairs.filter(([run, row]) => run.baseline === baseline && (baseline !== METAL || row.kind !== METAL))];
}

function picture(s) {
  const [baseline, pairs] = picturePairs(s);
  const text = (key) => `${PICTURE[key]} ÷ ${baseline}'s`;
  const available = Object.keys(PICTURE).filter((name) => pairs.some(([, row]) => row.verdicts[name]?.ratio));
  const name = available.includes(s.get("m")) ? s.get("m") : available[0] ?? "throughput";
  const [machines, without] = picturePoints(pairs, name);
  const all = [...machines].flatMap(([machine, lines]) => [...lines.values()].map((points) => [machine, lineName(points[0][1]), points]));
  const shown = s.has("lines") ? all : all.slice(0, LINES);
  const links = Object.keys(PICTURE).map((key) => available.includes(key) && el("a", { href: address({ m: key }), "aria-current": String(key === name) }, text(key)));
  const missing = without > 0 && el("p", { class: "soft" }, `${plural(without, "comparison")} without a valid figure ${without === 1 ? "is" : "are"} not drawn.`);
  if (!all.length) return el("figure", { class: "picture" }, el("figcaption", null, `No comparison${baseline ? ` with ${baseline}` : ""} has a valid figure here.`), missing);
  const ratios = shown.flatMap(([, , points]) => points.slice(0, DOTS).flatMap(([, , v], i) => i ? [v.ratio[0]] : v.ratio)).filter((x) => x > 0);
  const [low, high] = ends(ratios);
  const at = scaleOf(low, high);
  let last = null;
  const rows = shown.flatMap(([machine, line, points]) => {
    const heading = machine !== last && el("h3", null, machine);
    last = machine;
    return [heading, pictureLine(line, points, at)];
  });
  return el("figure", { class: "picture", "data-metric": name },
    el("figcaption", null, el("b", null, baseline === METAL ? "What virtualization cost" : `Against ${baseline}`), ` · ${text(name)}. Dot and bar: the newest run and the interval of the ratio; small dots: earlier runs. Left of 1: ${baseline} has more.`),
    el("p", { class: "links" }, links),
    el("div", { class: "line axis" }, el("span", null), axis(low, high, at), el("span", null, "ratio (interval)")),
    rows,
    shown.length < all.length && el("p", null, `The first ${shown.length}. `, el("a", { href: address({ lines: "all" }) }, `Show all ${all.length} lines`)),
    missing);
}

function axis(low, high, at) {
  const marks = ticks(low, high);
  return draw("svg", { class: "plot", height: 20, "aria-hidden": "true" },
    marks.map((tick) => draw("text", { x: `${clamp(at(tick))}%`, y: 14, "text-anchor": "middle" }, `${tick}×`)));
}

function pictureLine(line, points, at) {
  const [[run, row, verdict], ...earlier] = points.slice(0, DOTS);
  const [ratio, low, high] = verdict.ratio;
  const y = 14;
  const title = `${line}: ${ratioText(verdict.ratio, verdict)} in ${run.id}`;
  const plot = draw("svg", { class: "plot", height: 28, role: "img", "aria-label": title },
    draw("title", null, title),
    draw("line", { class: "unit", x1: `${clamp(at(1))}%`, x2: `${clamp(at(1))}%`, y1: 0, y2: 28 }),
    earlier.map(([, , v]) => draw("circle", { class: `earlier`, cx: `${clamp(at(v.ratio[0]))}%`, cy: y, r: 2 })),
    low !== null && high !== null && draw("line", { class: `bar ${verdict.kind}`, x1: `${clamp(at(Math.max(low, 1e-6)))}%`, x2: `${clamp(at(high))}%`, y1: y, y2: y }),
    draw("circle", { class: `dot ${verdict.kind}`, cx: `${clamp(at(ratio))}%`, cy: y, r: 5 }));
  const more = el("small", null, ` ${row.workload}${earlier.length ? `, ${plural(points.length, "run")}` : ""}`);
  return el("div", { class: "line" },
    el("a", { href: address({ view: "history", id: row.id, m: metricOf(row, verdict), lines: "" }) }, line, more),
    plot, el("span", null, ratioText(verdict.ratio, verdict), warnings(run).length > 0 && el("span", { class: "mark", title: warnings(run).join("; ") }, " ⚠")));
}

const metricOf = (row, verdict) => Object.keys(row.verdicts).find((name) => row.verdicts[name] === verdict);

// ---- the history of one scenario

const WATCHED = ["cpu", "kernel", "qemu", "mitigations", "tuned", "hardware", "accelerator"];

/** The runs that have this scenario, the oldest first: its value, and what changed since the run before. */
function historyOf(s) {
  const id = s.get("id");
  const name = s.get("m") && site.metrics[s.get("m")] ? s.get("m") : "throughput";
  const points = site.runs.flatMap((run) => chosen(run, s).filter((row) => row.id === id).map((row) => [run, row]))
    .filter(([, row]) => row.figures[name] || row.verdicts[name]?.ratio)
    .sort(([x], [y]) => (x.started_at < y.started_at ? -1 : x.started_at > y.started_at ? 1 : 0));
  const asRatio = points.some(([, row]) => row.verdicts[name]?.ratio);
  return [name, asRatio, points.map(([run, row], i) => {
    const before = i ? points[i - 1] : null;
    const value = asRatio ? row.verdicts[name]?.ratio ?? null : [row.figures[name].median, null, null];
    return { run, row, value, changes: before ? changesBetween(before, [run, row], name, asRatio) : [] };
  })];
}

/** What differs from the run before: the arm that a ratio is against, facts, and a ratio whose interval does not meet
    the earlier one. */
function changesBetween([earlier, before], [run, row], name, asRatio) {
  const against = asRatio && earlier.baseline !== run.baseline ? [`against: ${earlier.baseline} → ${run.baseline}`] : [];
  const facts = WATCHED.filter((fact) => before[fact] !== row[fact]).map((fact) => `${fact}: ${before[fact]} → ${row[fact]}`);
  const premises = differences(site.pool[before.premises], site.pool[row.premises]).filter((text) => !WATCHED.some((fact) => text.startsWith(`${fact} `)));
  const [x, y] = [before, row].map((r) => r.verdicts[name]?.ratio);
  const apart = asRatio && !against.length && x && y && [x[1], x[2], y[1], y[2]].every((end) => end !== null) && (x[2] < y[1] || y[2] < x[1]);
  return [...against, ...facts, ...premises, ...(apart ? [`ratio changed: ${ratioText(x)} → ${ratioText(y)}`] : [])];
}

function historyView(s) {
  s.delete("run");
  const names = new Map(site.runs.flatMap((run) => chosen(run, s).map((row) => [row.id, rowName(row)])));
  const ids = [...names.keys()].sort();
  const options = ids.map((id) => el("option", { value: id, ...(id === s.get("id") ? { selected: "" } : {}) }, names.get(id)));
  const select = el("select", { "aria-label": "Scenario" }, el("option", { value: "" }, "choose a scenario"), options);
  select.addEventListener("change", () => { location.hash = address({ id: select.value }).slice(1); });
  const title = "History of a scenario";
  if (!s.get("id")) return [title, plural(ids.length, "scenario"), [select], null];
  const [name, asRatio, points] = historyOf(s);
  const baselines = [...new Set(points.map((point) => point.run.baseline))];
  const sides = points.length ? `${site.arms[points[0].row.environment]} ÷ ${baselines.length === 1 ? baselines[0] : "baseline"}` : "";
  const { label, unit } = site.metrics[name];
  const metrics = Object.keys(site.metrics).map((key) => el("a", { href: address({ m: key }), "aria-current": String(key === name) }, site.metrics[key].label));
  const shown = points.filter((point) => point.value);
  const marked = points.filter((point) => point.changes.length);
  const rows = points.map((point) => [
    [el("a", { href: address({ view: "runs", run: point.run.id, id: "", m: "" }) }, breakable(point.run.id)), el("br"), (point.run.started_at ?? "").slice(0, 16).replace("T", " ")],
    point.value ? (asRatio ? ratioText(point.value) : amount(point.value[0], unit)) : "no valid figure",
    point.changes.length ? el("ul", null, point.changes.map((change) => el("li", null, change))) : "",
    badges(point.run),
  ]);
  return [title, `${plural(points.length, "run")}, ${plural(marked.length, "marked change")}`, [select, el("p", { class: "links" }, metrics),
    shown.length > 0 && historyChart(shown, asRatio, asRatio ? `${label}, ${sides}` : label, unit),
    points.length > 0 && table("The oldest run first. A change is marked where a fact differs from the run before, or where the 95% intervals of the two ratios do not meet.",
      ["Run", asRatio ? sides : label, "Changed since the run before", "Warnings"], [[null, rows.slice(-MOST)]])],
    ["history", () => [["run", "started_at", "scenario", "metric", asRatio ? "ratio" : "median", "low", "high", "changes"],
      ...points.map((p) => [p.run.id, p.run.started_at, p.row.id, name, ...(p.value ?? [null, null, null]), p.changes.join("; ")])]]];
}

function historyChart(points, asRatio, label, unit) {
  const [width, height, top] = [1000, 260, 20];
  const values = points.flatMap(({ value }) => value).filter((x) => x !== null && x > 0);
  const [low, high] = asRatio ? ends(values) : [Math.min(...values) / 1.1, Math.max(...values) * 1.1];
  const y = (value) => top + (height - top) * (1 - clamp(scaleOf(low, high)(Math.max(value, low))) / 100);
  const x = (i) => points.length === 1 ? width / 2 : 20 + (width - 40) * i / (points.length - 1);
  const marks = points.map((p, i) => p.changes.length && draw("line", { class: "change", x1: x(i), x2: x(i), y1: 0, y2: height }, draw("title", null, p.changes.join("; "))));
  const dots = points.map(({ run, value: [value, from, to] }, i) => [
    from !== null && to !== null && draw("line", { class: "bar", x1: x(i), x2: x(i), y1: y(Math.max(from, low)), y2: y(to) }),
    draw("circle", { class: "dot", cx: x(i), cy: y(value), r: points.length > 100 ? 3 : 9 }, draw("title", null, `${run.id}: ${asRatio ? ratioText([value, from, to]) : amount(value, unit)}`)),
  ]);
  return el("figure", { class: "history" },
    el("figcaption", null, `${label}: ${asRatio ? ratioText([low, null, null]).split(",")[0] : amount(low, unit)} to ${asRatio ? ratioText([high, null, null]).split(",")[0] : amount(high, unit)}, logarithmic; dashed: something changed.`),
    draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${label} in ${points.length} runs` },
      asRatio && draw("line", { class: "unit", x1: 0, x2: width, y1: y(1), y2: y(1) }), marks, dots));
}
