// The results explorer. Its whole state is the address after `#`: view, filters, and the runs to compare.
"use strict";

const site = JSON.parse(document.getElementById("data").textContent);
const form = document.getElementById("filters");
const FACETS = ["server", "environment", "workload", "accelerator", "hardware", "cpu", "kernel", "qemu", "mitigations", "tuned"];
// Column → its heading and metrics; `falling`: sorted from the highest down at first, the others from the lowest up.
const COLUMNS = {
  throughput: { heading: "Throughput", metrics: ["throughput"], falling: true },
  p99: { heading: "p99", metrics: ["tail", "latency_p99"] },
  cpu: { heading: "CPU per request", metrics: ["cpu", "host_cpu"] },
};
const CARDS = 100; // runs shown at most
const MOST = 300; // rows that a browser lays out at once without keeping anyone waiting

const state = () => new URLSearchParams(location.hash.slice(1));

/** The address of this state with some keys set, or removed where their value is empty. */
function address(changes) {
  const next = state();
  for (const [key, value] of Object.entries(changes)) {
    if (value) next.set(key, value);
    else next.delete(key);
  }
  return `#${next}`;
}

/** An element; children are nodes, text or lists of these; what is empty is left out. */
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) node.setAttribute(name, value);
  node.append(...children.flat(Infinity).filter((child) => child));
  return node;
}

/** A word that links to its entry in the page's glossary. */
const term = (name, text) => el("a", { href: `#term-${name}` }, text);

const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

/** Three significant digits below a thousand, whole above; microseconds become milliseconds there. */
function amount(value, unit) {
  if (unit === "µs" && value >= 1000) return amount(value / 1000, "ms");
  const digits = value >= 1000 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 };
  return `${value.toLocaleString("en", digits)}${unit === "%" ? "" : " "}${unit === "1/s" ? "req/s" : unit}`;
}

/** What nobody may overlook in any figure of this run. */
function warnings(run) {
  const counts = run.counts;
  const done = counts.valid + counts.suspect + counts.invalid;
  return [
    run.emulated && "guest emulated, not a KVM measurement",
    ...run.kvm_hardware.map((kind) => site.kvm_hardware[kind]),
    !run.complete && `incomplete: ${done} of ${counts.planned ?? "?"} trials`,
    run.smoke && "smoke run: too short to measure",
  ].filter(Boolean);
}

const badges = (run) => warnings(run).map((text) => el("strong", { class: "badge" }, text));

const NO_ROW = {}; // stands for a run without any: only the words can match it
const texts = new Map(); // row, or run without any → its words; made when the first word is looked for

function textOf(run, row) {
  const key = row === NO_ROW ? run : row;
  if (!texts.has(key)) {
    texts.set(key, [run.id, run.sentence, run.question, run.error, ...(row.server ? warnings(run) : []), row.tool, row.load,
      ...FACETS.map((facet) => row[facet]), ...Object.values(row.verdicts ?? {}).map((v) => v.text)].join(" ").toLowerCase());
  }
  return texts.get(key);
}

function matches(run, row, s) {
  const words = (s.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  return FACETS.every((facet) => !s.has(facet) || s.getAll(facet).includes(row[facet])) &&
    (!s.has("run") || s.get("run") === run.id) &&
    words.every((word) => textOf(run, row).includes(word));
}

const chosen = (run, s) => run.rows.filter((row) => matches(run, row, s));

/** The filters that are set, in words. */
function inWords(s) {
  const parts = ["run", ...FACETS].filter((key) => s.has(key)).map((key) => `${key}: ${s.getAll(key).join(" or ")}`);
  if (s.has("q")) parts.push(`text: ${s.get("q")}`);
  return parts;
}

// ---- the three views: each returns [title, how many of what, nodes]

function runsView(s) {
  const shown = site.runs.filter((run) => (run.rows.length ? run.rows : [NO_ROW]).some((row) => matches(run, row, s)));
  const most = s.has("all") ? shown : shown.slice(0, CARDS);
  return ["Runs", `${shown.length} of ${plural(site.runs.length, "run")}`, [picture(s), most.map((run) => runCard(run, s)),
    most.length < shown.length && el("p", null, `The newest ${most.length}. `, el("a", { href: address({ all: "yes" }) }, `Show all ${shown.length} runs`))],
    ["runs", () => csvOfRows(shown.flatMap((run) => chosen(run, s).map((row) => [run, row])))]];
}

function runCard(run, s) {
  if (run.error) {
    return el("article", { class: "verdict" }, el("h3", null, run.id),
      el("p", { class: "banner" }, el("strong", null, "Cannot be read. "), run.error));
  }
  const fact = (name, value) => el("div", null, el("dt", null, name), el("dd", null, value));
  const other = s.get("a") && s.get("a") !== run.id ? s.get("a") : null;
  const guests = Object.entries(run.accelerators).filter(([, accelerator]) => accelerator !== "none");
  return el("article", { class: "verdict" },
    el("h3", null, run.id, " ", el("span", null, (run.started_at ?? "").slice(0, 16).replace("T", " "), " UTC")),
    run.contributed && el("span", { class: "badge plain" }, "contributed"),
    badges(run),
    el("p", null, run.sentence),
    el("dl", null,
      fact(term("accelerator", "Accelerator"), guests.map(([name, a]) => `${name}: ${site.accelerators[a]}`).join(", ") || "no guest"),
      fact(term("hardware", "Hardware below"), Object.entries(run.hardware).map(([name, kind]) => `${name}: ${site.hardware[kind]}`).join(", ")),
      fact("Link, lab", `${run.link}, ${run.lab}`),
      fact("Trials", [`${run.counts.valid} valid, ${run.counts.suspect} `, term("suspect", "suspect"), `, ${run.counts.invalid} `, term("invalid", "invalid")]),
      fact(term("block", "Blocks"), `${run.blocks}`)),
    el("p", { class: "links" },
      el("a", { href: address({ view: "scenarios", run: run.id }) }, "Scenarios"),
      run.report && el("a", { href: encodeURI(run.report) }, "Report"),
      run.disclosure && el("a", { href: encodeURI(run.disclosure) }, "Disclosure"),
      el("a", { href: address({ view: "baseline", a: run.id, b: "", run: "" }) }, "Use as baseline"),
      el("a", { href: address({ view: "compare", ...(other ? { b: run.id } : { a: run.id, b: "" }) }) },
        other ? `Compare with ${other}` : "Compare with another run")));
}

function scenariosView(s) {
  const matching = sorted(site.runs.flatMap((run) => chosen(run, s).map((row) => [run, row])), s.get("sort") ?? "");
  const shown = s.has("all") ? matching : matching.slice(0, MOST);
  const all = site.runs.reduce((sum, run) => sum + run.rows.length, 0);
  const caption = ["One row per server, load and environment. Figures are medians over the trials that are not ", term("invalid", "invalid"),
    "; verdicts compare with the baseline of the run, ", term("block", "block by block"), ", with the ", term("interval", "interval"), " of the ratio in parentheses."];
  return ["Scenarios", `${matching.length} of ${plural(all, "row")}`, shown.length > 0 && [
    table(caption, ["Scenario", "Environment", ...Object.keys(COLUMNS), "Trials"],
      [[null, shown.map((pair) => scenarioRow(...pair))]], s.get("sort") ?? ""),
    shown.length < matching.length && el("p", null, `The first ${shown.length}. `, el("a", { href: address({ all: "yes" }) }, `Show all ${matching.length}`))],
    ["scenarios", () => csvOfRows(matching)]];
}

/** By the figures of a column, `p99` from the lowest up, `-p99` from the highest down; rows without one last. */
function sorted(pairs, sort) {
  const names = COLUMNS[sort.replace(/^-/, "")]?.metrics;
  if (!names) return pairs;
  const value = ([, row]) => names.map((name) => row.figures[name]?.median).find((figure) => figure !== undefined);
  const sign = sort.startsWith("-") ? -1 : 1;
  const order = (x, y) => (x === undefined || y === undefined ? (x === undefined) - (y === undefined) : sign * (x - y));
  return pairs.toSorted((x, y) => order(value(x), value(y)));
}

const headingOf = (name) => COLUMNS[name]?.heading ?? name;

/** A heading of a column that can be sorted is a link that turns its order round. */
function columnHeading(name, sort) {
  if (sort === undefined || !COLUMNS[name]) return el("th", { role: "columnheader", scope: "col" }, headingOf(name));
  const at = { [name]: "ascending", [`-${name}`]: "descending" }[sort];
  const next = at ? (at === "ascending" ? `-${name}` : name) : (COLUMNS[name].falling ? `-${name}` : name);
  return el("th", { role: "columnheader", scope: "col", "aria-sort": at ?? "none" },
    el("a", { href: address({ sort: next }), title: `Sort by ${headingOf(name)}` }, headingOf(name), { ascending: " ▲", descending: " ▼" }[at]));
}

/** A run's name may break after its experiment. */
const breakable = (id) => id.split(/(?<=\/)/).flatMap((part) => [el("wbr"), part]);

function scenarioName(row) {
  return [el("b", null, row.server), " ", el("span", { class: "soft" }, `${row.workload} · ${row.tool} · ${row.load}`)];
}

function scenarioRow(run, row) {
  const trials = Object.entries(row.trials).filter(([, n]) => n).map(([validity, n]) => `${n} ${validity}`).join(", ");
  return [
    [scenarioName(row), el("br"), el("a", { href: address({ view: "runs", run: run.id }) }, breakable(run.id)), " ",
      el("a", { class: "soft", href: address({ view: "history", id: row.id }) }, "history")],
    [site.arms[row.environment], row.accelerator !== "none" && ` · ${site.accelerators[row.accelerator]}`, badges(run)],
    ...Object.values(COLUMNS).map(({ metrics }) => metrics.map((name) => metric(row, name, metrics.length > 1))),
    trials,
  ];
}

/** One figure, what it is where that needs saying, its tool, and the verdict below it. */
function metric(row, name, labelled) {
  const [figure, verdict] = [row.figures[name], row.verdicts[name]];
  if (!figure && !verdict) return null;
  const { label, unit } = site.metrics[name];
  return el("div", { class: "metric" },
    figure && el("b", null, amount(figure.median, unit)), " ",
    el("small", null, [labelled && label, figure?.source].filter(Boolean).join(" · ")),
    figure?.failed > 0 && el("div", null, `with ${amount(100 * figure.failed, "%")} of requests failed`),
    verdict && [el("div", { class: verdict.kind }, verdict.text), el("small", null, verdict.estimate.replace(", ", ",\u00a0"))],
    verdict?.effects?.length > 0 && el("details", null, el("summary", null, plural(verdict.effects.length, "block")),
      el("ul", null, verdict.effects.map(([block, low, mid, high]) => el("li", null, `${block}: `, blockText(low, mid, high))))),
    verdict?.notes.length > 0 && el("details", null, el("summary", null, plural(verdict.notes.length, "note")),
      el("ul", null, verdict.notes.map((note) => el("li", null, note)))));
}

/** A block's ratio as measured, and as far as findings and lost trials allow. */
function blockText(low, mid, high) {
  const digits = (value) => value === null ? "–" : value.toPrecision(3);
  return `${digits(mid)}×${low === mid && high === mid ? "" : ` (${digits(low)} to ${digits(high)})`}`;
}

function compareView(s) {
  s.delete("run");
  const [a, b] = ["a", "b"].map((side) => site.runs.find((run) => run.id === s.get(side) && !run.error));
  const title = "Compare two runs";
  const unknown = ["a", "b"].map((side) => s.get(side)).filter((id) => id && !site.runs.some((run) => run.id === id && !run.error));
  if (unknown.length) return [title, `There is no readable run ${unknown.join(" and ")} here.`, null, null];
  if (!a || !b) return [title, "Choose two runs above.", null, null];
  const [inA, inB] = [a, b].map((run) => new Map(chosen(run, s).map((row) => [row.id, row])));
  const both = [...inA.keys()].filter((id) => inB.has(id));
  const alone = [["A", inA, inB], ["B", inB, inA]]
    .map(([side, here, there]) => [side, [...here].filter(([id]) => !there.has(id)).map(([, row]) => rowName(row))]).filter(([, names]) => names.length);
  return [title, `${plural(both.length, "scenario")} in both`, [
    el("dl", { class: "basis" }, [["A", a], ["B", b]].map(([side, run]) =>
      el("div", null, el("dt", null, `${side}: `, breakable(run.id)), el("dd", null, badges(run), el("div", null, run.sentence))))),
    environmentList(a, b),
    both.length > 0 && table("The same scenario in both runs: medians, verdicts against the baseline, and the ratio of the medians",
      ["Figure", "A", "B", "B ÷ A"], both.map((id) => pair(a, b, inA.get(id), inB.get(id)))),
    el("p", { class: "soft" }, "A ratio of medians has no interval. Whether B reproduces A: ",
      el("code", null, `.venv/bin/vmtoll compare results/${a.id} results/${b.id}`)),
    alone.map(([side, names]) => el("details", null, el("summary", null, `Only in ${side}: ${plural(names.length, "scenario")}`),
      el("ul", null, names.map((name) => el("li", null, name)))))],
    ["comparison", () => csvOfRows([[a, inA], [b, inB]].flatMap(([run, rows]) => [...rows.values()].map((row) => [run, row])))]];
}

const rowName = (row) => [row.server, row.workload, row.tool, row.load, site.arms[row.environment]].join(" · ");

/** A scenario that both runs have: its heading, and a row per metric. */
function pair(a, b, x, y) {
  const [other, also] = [differences(site.pool[x.premises], site.pool[y.premises]), differences(site.pool[x.others], site.pool[y.others])];
  const heading = [scenarioName(x), " ", site.arms[x.environment],
    [["A", a], ["B", b]].map(([side, run]) => warnings(run).length > 0 && el("div", null, `${side}: `, badges(run))),
    other.length > 0 && el("div", null, el("strong", null, `not comparable: ${other.join("; ")}`)),
    also.length > 0 && el("div", { class: "soft" }, `${other.length ? "also" : "but"}: ${also.join("; ")}`)];
  const names = Object.keys(site.metrics).filter((name) => x.figures[name] || y.figures[name]);
  return [heading, names.map((name) => [site.metrics[name].label, metric(x, name), metric(y, name),
    other.length ? "not comparable" : ratio(x.figures[name], y.figures[name])])];
}

function ratio(x, y) {
  if (!x || !y) return "–";
  return x.source === y.source ? `${(y.median / x.median).toPrecision(3)}×` : `not comparable: ${x.source} and ${y.source}`;
}

/** `link differs (unshaped, 100mbit)`, for each fact that is not the same, or that only one of them knows. */
function differences(x, y) {
  const short = (value) => (JSON.stringify(value) ?? "unknown").replace(/^"(.*)"$/, "$1").replace(/^([0-9a-f]{12})[0-9a-f]{20,}$/, "$1…");
  return [...new Set([...Object.keys(x), ...Object.keys(y)])]
    .map((fact) => [fact, short(x[fact]), short(y[fact])]).filter(([fact]) => JSON.stringify(x[fact]) !== JSON.stringify(y[fact]))
    .map(([fact, a, b]) => `${fact} differs (${a}, ${b})`);
}

/** A table that becomes a list of cards on a narrow screen: each cell knows its heading. Groups are [heading or null, rows];
 * `sort`, where the rows can be sorted, is how they are. */
function table(caption, headings, groups, sort) {
  const cell = (content, i) => i
    ? el("td", { role: "cell", "data-label": headingOf(headings[i]) }, content)
    : el("th", { role: "rowheader", scope: "row" }, content);
  const group = ([heading, rows]) => el("tbody", { role: "rowgroup" },
    heading && el("tr", { role: "row", class: "group" }, el("th", { role: "rowheader", scope: "rowgroup", colspan: headings.length }, heading)),
    rows.map((row) => el("tr", { role: "row" }, row.map(cell))));
  return el("table", { role: "table", class: "cards" }, el("caption", null, caption),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, headings.map((name) => columnHeading(name, sort)))),
    groups.map(group));
}

// ---- state and page

const VIEWS = { runs: runsView, scenarios: scenariosView, compare: compareView, baseline: baselineView, history: historyView };
let folded = null; // whether the visitor has folded the filters; null: as the view has them
let last = null;

function show() {
  const s = state();
  const view = Object.hasOwn(VIEWS, s.get("view")) ? s.get("view") : "runs";
  for (const input of form.elements) {
    if (input.type === "checkbox") input.checked = s.getAll(input.name).includes(input.value);
    else if (input.name) input.value = s.get(input.name) ?? "";
  }
  document.getElementById("pair").hidden = view !== "compare" && view !== "baseline";
  document.querySelector("#pair legend").textContent = view === "baseline" ? "Baseline" : "Runs to compare";
  document.getElementById("second").hidden = view === "baseline";
  document.getElementById("choose").open = folded === null ? view !== "runs" && matchMedia("(min-width: 45rem)").matches : !folded;
  for (const anchor of document.querySelectorAll("nav a")) {
    anchor.href = address({ view: anchor.dataset.view });
    anchor.setAttribute("aria-current", anchor.dataset.view === view ? "page" : "false");
  }
  const [title, count, nodes, csv] = VIEWS[view](s);
  const filters = inWords(s);
  const clear = el("a", { href: address({ run: "", q: "", ...Object.fromEntries(FACETS.map((facet) => [facet, ""])) }) }, "Clear filters");
  document.getElementById("count").replaceChildren(count, ...(filters.length ? [` — ${filters.join("; ")}. `, clear] : []));
  const heading = el("h2", { id: "title", tabindex: "-1" }, title);
  document.getElementById("download").replaceChildren(...(csv ? [csvButton(...csv)] : []));
  document.getElementById("out").replaceChildren(heading, ...[nodes].flat(Infinity).filter((node) => node));
  document.querySelector("summary").textContent = filters.length ? `Filters (${filters.length} set)` : "Filters";
  document.getElementById("link").href = address({ view });
  document.title = `${title}: vmtoll results`;
  if (last !== null && last !== view) heading.focus();
  last = view;
}

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", (event) => {
  const next = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  for (const key of ["view", "run", "all", "sort", "m", "id", "lines"]) if (state().has(key)) next.set(key, state().get(key));
  // A word that is being typed is one step back, not one per letter.
  if (event.target.name === "q" && state().has("q")) location.replace(`#${next}`);
  else location.hash = next;
});
// The address after `#` is the state: a link to a term opens the glossary and leaves the address as it is.
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#term-"]');
  if (!link) return;
  event.preventDefault();
  document.getElementById("glossary").open = true;
  const entry = document.getElementById(link.hash.slice(1));
  entry.setAttribute("tabindex", "-1");
  entry.focus();
});
addEventListener("hashchange", show);
document.querySelector("#choose > summary").addEventListener("click", () => { folded = document.getElementById("choose").open; });
show();
