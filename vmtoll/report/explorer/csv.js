"use strict";

// What is shown, as a table for other programs.

/** A cell of RFC 4180. Texts of others that a spreadsheet would take for a formula begin with an apostrophe. */
function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const csvText = (rows) => rows.map((row) => row.map(csvCell).join(",") + "\r\n").join("");

/** A button that downloads the rows, which are made when it is pressed. */
function csvButton(name, rows) {
  const button = el("button", { type: "button", class: "csv" }, "Download as CSV");
  button.addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([csvText(rows())], { type: "text/csv;charset=utf-8" }));
    const link = el("a", { href: url, download: `vmtoll-${name}.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  });
  return button;
}

const FIXED = ["run", "started_at", "server", "workload", "tool", "load", "environment", "accelerator", "hardware",
  "cpu", "kernel", "qemu", "mitigations", "tuned"];

const fixedCells = (run, row) => FIXED.map((name) => ({ run: run.id, started_at: run.started_at }[name] ?? row[name]));

/** One line per row and metric: the figure, its unit and tool, and the verdict with its interval and the blocks behind
    it, each as number:low:mid:high. */
function csvOfRows(pairs) {
  const lines = pairs.flatMap(([run, row]) => Object.keys(site.metrics)
    .filter((name) => row.figures[name] || row.verdicts[name])
    .map((name) => {
      const [figure, verdict] = [row.figures[name], row.verdicts[name]];
      return [...fixedCells(run, row), name, site.metrics[name].unit, figure?.median, figure?.source, verdict?.kind,
        ...(verdict?.ratio ?? [null, null, null]), ...(verdict?.open ?? [null, null]), verdict?.level,
        verdict?.effects?.map((block) => block.map((value) => value ?? "").join(":")).join(" "), warnings(run).join("; ")];
    }));
  return [[...FIXED, "metric", "unit", "median", "figure_tool", "verdict", "ratio", "ratio_low", "ratio_high", "open_low", "open_high",
    "level", "blocks", "warnings"], ...lines];
}
