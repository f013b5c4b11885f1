"use strict";

// Any number of runs against a baseline of one's choice, and the environments of two runs side by side.

/** Every figure of the chosen runs, divided by that of the baseline; where a premise differs, no ratio. */
function baselineRows(base, s) {
  const inBase = new Map(base.rows.map((row) => [row.id, row]));
  return site.runs.filter((run) => run.id !== base.id).flatMap((run) => chosen(run, s)
    .filter((row) => inBase.has(row.id))
    .map((row) => [run, row, inBase.get(row.id), differences(site.pool[inBase.get(row.id).premises], site.pool[row.premises])]));
}

function baselineView(s) {
  s.delete("run");
  const title = "Against a baseline";
  const base = site.runs.find((run) => run.id === s.get("a") && !run.error);
  if (!base) return [title, s.get("a") ? `There is no readable run ${s.get("a")} here.` : "Choose the baseline above.", null, null];
  const found = baselineRows(base, s);
  const shown = s.has("all") ? found : found.slice(0, MOST);
  const runs = new Set(found.map(([run]) => run.id)).size;
  const caption = `Medians of each run divided by those of ${base.id}. A ratio of medians has no interval.`;
  const rows = shown.map(([run, row, other, why]) => [
    [scenarioName(row), " ", site.arms[row.environment], el("br"), el("a", { href: address({ view: "runs", run: run.id, a: "" }) }, breakable(run.id))],
    ...Object.values(COLUMNS).map(({ metrics }) => metrics.map((name) => baselineCell(row, other, name, why, metrics.length > 1))),
    why.length ? el("details", null, el("summary", null, "not comparable"), el("ul", null, why.map((text) => el("li", null, text)))) : badges(run),
  ]);
  return [title, `${plural(found.length, "row")} of ${plural(runs, "run")}`, shown.length > 0 && [
    table(caption, ["Scenario", ...Object.values(COLUMNS).map(({ heading }) => heading), "Note"], [[null, rows]]),
    shown.length < found.length && el("p", null, `The first ${shown.length}. `, el("a", { href: address({ all: "yes" }) }, `Show all ${found.length}`))],
    ["baseline", () => [[...FIXED, "baseline", "metric", "unit", "median", "baseline_median", "ratio", "not_comparable"],
      ...found.flatMap(([run, row, other, why]) => Object.keys(site.metrics).filter((name) => row.figures[name] && other.figures[name]).map((name) => {
        const [mine, theirs] = [row.figures[name], other.figures[name]];
        const ratio = why.length || mine.source !== theirs.source ? null : mine.median / theirs.median;
        return [...fixedCells(run, row), base.id, name, site.metrics[name].unit, mine.median, theirs.median, ratio, why.join("; ")];
      }))]]];
}

function baselineCell(row, other, name, why, labelled) {
  const [mine, theirs] = [row.figures[name], other.figures[name]];
  if (!mine || !theirs) return null;
  const { label, unit } = site.metrics[name];
  return el("div", { class: "metric" }, el("b", null, why.length ? "–" : ratio(theirs, mine)), " ",
    el("small", null, [labelled && label, `${amount(mine.median, unit)} ÷ ${amount(theirs.median, unit)}`].filter(Boolean).join(" · ")));
}

/** The facts in which the machines of two runs differ, part by part. */
function environmentDifferences(a, b) {
  const [mine, theirs] = [a, b].map((run) => Object.fromEntries(Object.entries(run.environment).map(([part, number]) => [part, site.pool[number]])));
  return [...new Set([...Object.keys(mine), ...Object.keys(theirs)])].flatMap((part) => {
    const [x, y] = [mine[part], theirs[part]];
    if (!x || !y) return [[part, "machine", x ? "there" : "none", y ? "there" : "none"]];
    return [...new Set([...Object.keys(x), ...Object.keys(y)])].filter((fact) => x[fact] !== y[fact])
      .map((fact) => [part, fact, x[fact] ?? "not recorded", y[fact] ?? "not recorded"]);
  });
}

function environmentList(a, b) {
  const found = environmentDifferences(a, b);
  if (!found.length) return el("p", null, "Their environments have no difference in the recorded facts.");
  return el("details", { class: "environments" }, el("summary", null, `Environments: ${plural(found.length, "difference")} (A → B)`),
    el("ul", null, found.map(([part, fact, x, y]) => el("li", null, el("b", null, part), ` ${fact}: ${x} → ${y}`))));
}
