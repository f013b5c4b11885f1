"""The published figures: which of our trials repeats one, and how our columns become its metric and unit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.load import BASELINE, Run

FIGURES = Path(__file__).parents[1] / "results" / "published" / "figures.csv"
SIZE_TOLERANCE = 0.05  # of a page: 4 KB are 4,000 bytes to one and 4,096 to another
MINUTE_S = 60.0  # what siege counts over a whole test is set to this length

# A server's name in figures.csv → what stands for it here; the first that the run has.
STANDS_FOR = {
    "apache": ("apache-prefork", "apache-mod-php"),
    "lighttpd": ("lighttpd", "lighttpd-php-fastcgi"),
    "lighttpd-1-worker": ("lighttpd",),
    "all three": ("apache-prefork and apache-worker and lighttpd",),
}

OfTrial = Callable[[pd.DataFrame, pd.Series], pd.Series]


def figures(experiment: str, published: Path = FIGURES) -> pd.DataFrame:
    """The published figures of one experiment, in the order of the file; none for one that has none."""
    table = pd.read_csv(published, keep_default_na=False)
    return table[table["experiment"] == experiment].reset_index(drop=True)


def servers(run: Run, name: str) -> list[str]:
    """The servers of this run that stand for a published one; empty when it has none of them."""
    had = set(run.trials["server"])
    if name == "best":
        return sorted(had)
    for candidate in STANDS_FOR.get(name, (name,)):
        found = [server for server in candidate.split(" and ") if server in had]
        if found:
            return found
    return []


def environments(run: Run, name: str) -> list[str]:
    """A published environment in this run: `kvm` is every guest, `metal` and `localhost` are metal."""
    return run.guests if name == "kvm" else [BASELINE]


def workloads(run: Run, row: pd.Series) -> list[str]:
    """The workloads of this run that send what a published figure was measured under; empty when none does.

    They agree in: where the client is, users, persistent connections, size of the page, closed loop or ramp. What
    the source does not say is not asked for. Of several, those with its tool.
    """
    resolved = run.meta["experiment"].get("resolved", {})
    pages = resolved.get("site", {}).get("pages") or {}
    known: dict[str, dict[str, Any]] = resolved.get("workloads", {})
    found = [name for name, one in known.items() if _repeats(one, row, pages)]
    return [name for name in found if known[name]["tool"] == row["tool"]] or found


def _repeats(one: dict[str, Any], row: pd.Series, pages: dict[str, int | str]) -> bool:
    client = "localhost" if row["environment"] == "localhost" else "remote"
    users = re.search(r"-(?:c|parallel) (\d+)", row["load"])
    ladder = row["metric"] in {"goodput_knee", "peak_goodput"}
    return (
        (one.get("client") or "remote") == client
        and (one.get("kind") or "closed") in (("ramp", "sweep") if ladder else ("closed",))
        and (not users or one.get("users") == int(users[1]))
        and (not row["keep_alive"] or one.get("keep_alive") == (row["keep_alive"] == "yes"))
        and _sends(one.get("page"), row["payload_bytes"], pages)
    )


def _sends(page: str | None, payload: str, pages: dict[str, int | str]) -> bool:
    if payload == "mixed":
        return page is None
    if page is None or not payload.isdigit():
        return page is not None
    content = pages.get(page)
    size = len(content.encode()) if isinstance(content, str) else content
    return size is None or abs(size - int(payload)) <= SIZE_TOLERANCE * int(payload)


def _column(name: str, factor: float = 1.0) -> OfTrial:
    return lambda trials, row: trials[name].astype(float) * factor


def _first_column(*names: str, factor: float = 1.0) -> OfTrial:
    """The first of these columns that the run has figures in; none where it has none."""

    def figure(trials: pd.DataFrame, row: pd.Series) -> pd.Series:
        name = next((name for name in names if name in trials and trials[name].notna().any()), None)
        return trials[name].astype(float) * factor if name else pd.Series(float("nan"), index=trials.index)

    return figure


def _per_minute(name: str) -> OfTrial:
    return lambda trials, row: trials[name].astype(float) / trials["duration_s"] * MINUTE_S


def _per_requests(name: str) -> OfTrial:
    """Seconds of CPU over as many requests as the source sent."""
    return lambda trials, row: trials[name] / trials["transactions"].astype(float) * _option(row, "-n")


def _over_seconds(name: str, factor: float = 1.0) -> OfTrial:
    """What came in as many seconds as the source measured."""
    return lambda trials, row: trials[name] * factor * _option(row, "-seconds")


def _cpu_percent(trials: pd.DataFrame, row: pd.Series) -> pd.Series:
    return 100 * (trials["server_cpu_user_s"] + trials["server_cpu_system_s"]) / trials["duration_s"]


def _option(row: pd.Series, name: str) -> float:
    """The number behind an option of the published command: 10000 of `-n 10000`; NaN where there is none."""
    found = re.search(rf"{name} (\d+)", row["load"])
    return float(found[1]) if found else float("nan")


# Metric and unit of a published figure → (the column it is judged as, each trial's own figure in the published unit).
# An entry whose first part is of evidence.LADDERS is one figure of a whole ladder.
OURS: dict[tuple[str, str], tuple[str, OfTrial]] = {
    ("transaction_rate", "1/s"): ("throughput_rps", _column("throughput_rps")),
    ("requests_per_second", "1/s"): ("throughput_rps", _column("throughput_rps")),
    ("throughput", "MB/s"): ("throughput_mb_per_s", _column("throughput_mb_per_s")),
    ("throughput", "byte/s"): ("throughput_mb_per_s", _column("throughput_mb_per_s", 1e6)),
    ("transfer_rate", "KB/s"): ("throughput_mb_per_s", _column("throughput_mb_per_s", 1e3)),
    ("availability", "percent"): ("availability_pct", _column("availability_pct")),
    ("response_time_mean", "s"): ("response_time_mean_ms", _column("response_time_mean_ms", 1e-3)),
    ("time_per_request", "ms"): ("response_time_mean_ms", _column("response_time_mean_ms")),
    ("longest_transaction", "s"): ("longest_ms", _column("longest_ms", 1e-3)),
    ("concurrency", "1"): ("concurrency", _column("concurrency")),
    ("transactions", "1"): ("transactions", _per_minute("transactions")),
    ("failed_transactions", "1"): ("failed", _per_minute("failed")),
    ("data_transferred", "MB"): ("transferred_mb", _per_minute("transferred_mb")),
    ("fetches", "1"): ("throughput_rps", _over_seconds("throughput_rps")),
    ("bytes", "byte"): ("throughput_mb_per_s", _over_seconds("throughput_mb_per_s", 1e6)),
    ("cpu_user", "s"): ("server_cpu_user_s", _per_requests("server_cpu_user_s")),
    ("cpu_system", "s"): ("server_cpu_system_s", _per_requests("server_cpu_system_s")),
    ("cpu_usage", "percent"): ("cpu_usage", _cpu_percent),
    ("cpu_usage_low", "percent"): ("cpu_usage", _cpu_percent),
    ("cpu_usage_high", "percent"): ("cpu_usage", _cpu_percent),
    ("memory", "KiB"): ("memory_pss_kib", _column("memory_pss_kib")),
    ("processes", "1"): ("processes", _column("processes")),
    ("goodput_knee", "1/s"): ("goodput_knee_rps", _column("goodput_rps")),
    ("peak_goodput", "1/s"): ("peak_goodput_rps", _column("goodput_rps")),
} | {
    (f"{what}_{how}", "ms"): (f"{what}_{how}_ms", _first_column(f"{what}_{how}_ms", f"{what}_{how}_us"))
    for what in ("connect", "first_response")
    for how in ("mean", "max", "min")
}
