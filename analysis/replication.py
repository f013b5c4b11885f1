"""The published figures, each beside what a run of ours has to say to it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.load import BASELINE, Run
from analysis.metrics import CLOSED, loop_of

FIGURES = Path(__file__).parents[1] / "results" / "published" / "figures.csv"
SEVERAL = "all three"  # servers: the source gives one figure for all of them

# Metric and unit of a published figure → column of trials.csv, and what turns its unit into the published one.
OURS = {
    ("transaction_rate", "1/s"): ("throughput_rps", 1.0),
    ("requests_per_second", "1/s"): ("throughput_rps", 1.0),
    ("throughput", "MB/s"): ("throughput_mb_per_s", 1.0),
    ("throughput", "byte/s"): ("throughput_mb_per_s", 1e6),
    ("transfer_rate", "KB/s"): ("throughput_mb_per_s", 1e3),
    ("availability", "percent"): ("availability_pct", 1.0),
    ("response_time_mean", "s"): ("response_time_mean_ms", 1e-3),
    ("longest_transaction", "s"): ("longest_ms", 1e-3),
    ("concurrency", "1"): ("concurrency", 1.0),
    ("transactions", "1"): ("transactions", 1.0),
    ("failed_transactions", "1"): ("failed", 1.0),
    ("elapsed", "s"): ("duration_s", 1.0),
    ("data_transferred", "MB"): ("transferred_mb", 1.0),
    ("memory", "KiB"): ("memory_pss_kib", 1.0),
    ("processes", "1"): ("processes", 1.0),
}


def replication(run: Run, published: Path = FIGURES) -> pd.DataFrame:
    """One row per published figure: its columns, `ours` (median over trials that are not invalid, in the
    published unit), `ratio` (ours ÷ published) and `remark`: what else differs, or why there is no figure.

    A figure for several servers is set beside the median over all of ours.
    """
    figures = pd.read_csv(published, keep_default_na=False)
    told = [_beside(run, row) for _, row in figures.iterrows()]
    figures["ours"] = pd.Series([ours for ours, _ in told], dtype=float)
    figures["ratio"] = figures["ours"] / figures["value"].where(figures["value"] > 0)
    figures["remark"] = [remark for _, remark in told]
    return figures


def _beside(run: Run, row: pd.Series) -> tuple[float | None, str]:
    column, factor = OURS.get((row["metric"], row["unit"]), ("", 0.0))
    if not column:
        return None, "vmtoll has no such figure"
    if row["environment"] == "localhost":
        return None, "client and server shared a machine there; here they never do"
    trials = run.trials[(run.trials["verdict"] != "invalid") & (run.trials["offered_load"].map(loop_of) == CLOSED)]
    if row["server"] != SEVERAL:
        trials = trials[trials["server"] == row["server"]]
        if trials.empty:
            return None, f"this run has no {row['server']}"
    guest = row["environment"] != BASELINE
    trials = trials[trials["environment"].isin(run.guests) if guest else trials["environment"] == BASELINE]
    figures = trials.groupby("server")[column].median().dropna()
    if figures.empty:
        return None, f"this run has no figure on {row['environment']}"
    return float(figures.median()) * factor, _differs(run, row, trials, guest=guest)


def _differs(run: Run, row: pd.Series, trials: pd.DataFrame, *, guest: bool) -> str:
    tools = ", ".join(sorted(set(trials["tool"])))
    parts = ["emulated (TCG): no KVM figure"] if guest and (trials["accelerator"] == "tcg").any() else []
    if row["tool"] != tools:
        parts.append(f"{row['tool']} there, {tools} here")
    if row["load"]:
        users = ", ".join(sorted(set(trials["offered_load"])))
        parts.append(f"{row['load']} there; {users}, link {run.meta.get('link', 'unknown')} here")
    return "; ".join([*parts, "another machine"])
