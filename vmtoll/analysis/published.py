"""The published figures: find the trials that repeat each one, and convert our columns to its metric and unit."""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtoll.analysis.claims import Expected, correlation_of, decide, estimate, measure
from vmtoll.analysis.refusals import why_skipped
from vmtoll.analysis.run import Run
from vmtoll.analysis.selection import Selection, column_of, figures_of_side, select_trials
from vmtoll.model.claim import EstimatorUsed, Level, Outcome, Reason, ReasonCode, Shape
from vmtoll.model.experiment import ClaimSide
from vmtoll.model.load import Load
from vmtoll.model.site import Page
from vmtoll.model.trial import METAL, TrialRecord
from vmtoll.model.verdict import Estimate, Region
from vmtoll.model.workload import ClosedWorkload, RampWorkload, SweepWorkload, Workload, listed
from vmtoll.paths import PROJECT
from vmtoll.statistics.series import Floats

FIGURES = PROJECT / "results" / "published" / "figures.csv"
SIZE_TOLERANCE = 0.05  # of a page's size: 4 KB may mean 4,000 or 4,096 bytes
MINUTE_S = 60.0  # siege's counts over a whole test are scaled to this length
ALIKE_PCT = 10.0  # published figures have no spread; two that are this close are read as alike
LOCALHOST = "localhost"
BEST = "best"

# A server's name in figures.csv → its counterparts here; the first that the run has counts.
COUNTERPARTS = {
    "apache": ("apache-prefork", "apache-mod-php"),
    "lighttpd": ("lighttpd", "lighttpd-php-fastcgi"),
    "lighttpd-1-worker": ("lighttpd",),
    "all three": ("apache-prefork and apache-worker and lighttpd",),
}
_SWEEP_METRICS = {"goodput_knee", "peak_goodput"}
_MINUTE_METRICS = {"transactions", "failed_transactions", "data_transferred"}


@dataclass(frozen=True)
class PublishedFigure:
    """A row of figures.csv; a field is empty if the source does not say."""

    experiment: str
    source: str
    published: str
    server: str
    version: str
    environment: str
    tool: str
    load: str  # in the words of the command
    keep_alive: str
    payload_bytes: str
    metric: str
    value: float
    unit: str
    note: str

    @property
    def users(self) -> int | None:
        return self.option("-(?:c|parallel)")

    @property
    def is_remote(self) -> bool:
        """Return whether the load came over a network that the source names."""
        return self.load.startswith("remote") or "Mbit" in self.load

    @property
    def heading(self) -> tuple[str, ...]:
        """Properties that the figures of one metric and load have in common."""
        location = LOCALHOST if self.environment == LOCALHOST else ""
        return self.metric, self.tool, self.load, self.keep_alive, self.payload_bytes, location

    def option(self, name: str) -> int | None:
        """The number after an option of the published command, such as `-n` or `-seconds`; None without it."""
        match = re.search(rf"{name} (\d+)", self.load)
        return int(match[1]) if match else None


Conversion = Callable[[TrialRecord, PublishedFigure], float | None]
Group = tuple[str, bool, frozenset[tuple[str, Load]]]


def figures(experiment: str, published: Path = FIGURES) -> list[PublishedFigure]:
    """The published figures of one experiment, in the order of the file; empty if it has none."""
    with published.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["experiment"] == experiment]
    return [PublishedFigure(**(row | {"value": float(row["value"])})) for row in rows]  # type: ignore[arg-type]


def servers(run: Run, name: str) -> list[str]:
    """The servers of this run that correspond to a published one, all for BEST; empty if it has none of them."""
    measured_servers = {trial.scenario.server for trial in run.trials}
    if name == BEST:
        return sorted(measured_servers)
    candidates = (candidate.split(" and ") for candidate in COUNTERPARTS.get(name, (name,)))
    return next(
        (present for names in candidates if (present := [server for server in names if server in measured_servers])), []
    )


def environments(run: Run, name: str) -> list[str]:
    """A published environment in this run: `kvm` is every guest, `metal` and `localhost` are metal."""
    return [arm.environment for arm in run.guests] if name == "kvm" else [METAL]


def workloads(run: Run, figure: PublishedFigure) -> list[str]:
    """The workloads of this run that repeat the load of a published figure; empty if none does.

    They agree in the client's place, users, persistent connections, page size, and closed loop or rising rates. What
    the source does not say is not compared. Of several, those with its tool.
    """
    known = run.manifest.workloads
    matching = [name for name, workload in known.items() if _repeats(workload, figure, run)]
    return [name for name in matching if known[name].tool == figure.tool] or matching


def _repeats(workload: Workload, figure: PublishedFigure, run: Run) -> bool:
    if figure.metric in _SWEEP_METRICS:
        is_same_kind = isinstance(workload, RampWorkload | SweepWorkload)
    else:
        is_same_kind = isinstance(workload, ClosedWorkload)
    return (
        is_same_kind
        and workload.client == (LOCALHOST if figure.environment == LOCALHOST else "remote")
        and (not figure.users or (isinstance(workload, ClosedWorkload) and figure.users in listed(workload.users)))
        and (not figure.keep_alive or workload.keep_alive == (figure.keep_alive == "yes"))
        and _is_page_of_size(workload.page, figure.payload_bytes, run)
    )


def _is_page_of_size(page: str | None, payload: str, run: Run) -> bool:
    if payload == "mixed":
        return page is None
    if page is None or not payload.isdigit():
        return page is not None
    content = run.manifest.site.pages.get(page) if run.manifest.site else None
    if content is None:
        return True
    if isinstance(content, Page):
        content = content.size_bytes
    size = len(content.encode()) if isinstance(content, str) else content
    return abs(size - int(payload)) <= SIZE_TOLERANCE * int(payload)


def _column(name: str, factor: float = 1.0) -> Conversion:
    return _scaled_column(name, lambda *_: factor)


def _per_minute(name: str) -> Conversion:
    return _scaled_column(
        name, lambda trial, _: MINUTE_S / duration if (duration := _primary(trial, "duration_s")) else None
    )


def _per_requests(name: str) -> Conversion:
    """Seconds of CPU, scaled to the number of requests that the source sent."""

    def factor(trial: TrialRecord, figure: PublishedFigure) -> float | None:
        requests, answers = figure.option("-n"), _primary(trial, "transactions")
        return requests / answers if requests and answers else None

    return _scaled_column(name, factor)


def _over_seconds(name: str, factor: float = 1.0) -> Conversion:
    """A rate times the seconds that the source measured."""
    return _scaled_column(name, lambda _, figure: (figure.option("-seconds") or 0) * factor or None)


def _scaled_column(name: str, factor: Conversion) -> Conversion:
    """A column times a factor that follows from the trial and the published figure."""

    def figure(trial: TrialRecord, published: PublishedFigure) -> float | None:
        value, scale = column_of(name)(trial), factor(trial, published)
        return None if value is None or scale is None else value * scale

    return figure


def _cpu_percent(trial: TrialRecord, _: PublishedFigure) -> float | None:
    names = ("server_cpu_user_s", "server_cpu_system_s", "duration_s")
    user, system, duration = (_primary(trial, name) for name in names)
    return None if user is None or system is None or not duration else 100 * (user + system) / duration


def _primary(trial: TrialRecord, field: str) -> float | None:
    return trial.primary.column(field) if trial.primary else None


# Metric and unit of a published figure → (the column it is judged as, each trial's own figure in the published unit).
# An entry whose column is in selection.SWEEPS is one figure of a whole rate sweep.
CONVERSIONS: dict[tuple[str, str], tuple[str, Conversion]] = {
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
    (f"{phase}_{statistic}", "ms"): (f"{phase}_{statistic}_ms", _column(f"{phase}_{statistic}_ms"))
    for phase in ("connect", "first_response")
    for statistic in ("mean", "max", "min")
}
# The experimenter sets how long a test lasts.
NOT_COMPARED = frozenset({"elapsed"})
NO_LEVEL = Level()


@dataclass(frozen=True)
class Point:
    """A published figure and ours. `servers`, `environments`, `workloads`: the counterparts here; `measured_level`: in
    the published unit, by the experiment's `published_estimator`; `ratio`: ours ÷ published.

    `shape` compares ratios, because the machines behind the figures are decades apart: `published_ratio` is the figure
    over the first one of its group, `measured_ratio` the same for ours, with its interval over blocks. `reasons`: those
    of the shape, then remarks.
    """

    figure: PublishedFigure
    servers: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    measured_level: Level = NO_LEVEL
    shape: Shape = Shape.INCONCLUSIVE
    published_ratio: float | None = None
    measured_ratio: Estimate | None = None
    blocks: int = 0
    region: Region | None = None
    reasons: tuple[Reason, ...] = ()

    @property
    def ratio(self) -> float | None:
        return (
            self.measured_level.value / self.figure.value
            if self.measured_level.value is not None and self.figure.value > 0
            else None
        )


@dataclass(frozen=True)
class _Candidate:
    """A point before its shape is known, with the trials behind it."""

    point: Point
    selection: Selection | None = None
    # points may be compared within it; the metric, whether the client was on the same machine, and the loads
    group: Group = ("", False, frozenset())


def points(run: Run, published: Path = FIGURES) -> list[Point]:
    """The points of `replication`, sorted so that those of one metric and load are together."""
    result = replication(run, published)
    headings = list(dict.fromkeys(point.figure.heading for point in result))
    return sorted(result, key=lambda point: headings.index(point.figure.heading))


def replication(run: Run, published: Path = FIGURES) -> list[Point]:
    """One point per published figure of the run's experiment, in the order of the file.

    In a group (one metric under the same of our loads) every figure is compared with the first, in the source and here.
    The shape is the same if the 95% interval over blocks shows the same direction, or that ours are alike within
    ALIKE_PCT as the published ones are (`claims.decide`).
    """
    candidates = [_candidate(run, figure) for figure in figures(run.manifest.experiment.name, published)]
    groups: dict[Group, list[_Candidate]] = {}
    for candidate in candidates:
        if candidate.selection is not None:
            groups.setdefault(candidate.group, []).append(candidate)
    correlation = correlation_of(
        (each.selection, group[0].selection)
        for group in groups.values() for each in group[1:] if each.selection and group[0].selection
    )  # fmt: skip
    return [_with_shape(run, candidate, groups.get(candidate.group, []), correlation) for candidate in candidates]


def _candidate(run: Run, figure: PublishedFigure) -> _Candidate:
    point = Point(figure)
    metric, conversion = CONVERSIONS.get((figure.metric, figure.unit), ("", None))
    if conversion is None:
        code = ReasonCode.NOT_COMPARED if figure.metric in NOT_COMPARED else ReasonCode.NO_SUCH_METRIC
        return _Candidate(replace(point, reasons=(Reason(code),)))
    server_names, workload_names = servers(run, figure.server), workloads(run, figure)
    if not server_names:
        skipped, absent = run.manifest.skipped_servers, (figure.server,)
        reason = (
            why_skipped(run, absent) if figure.server in skipped else Reason(ReasonCode.NO_SUCH_SERVER, names=absent)
        )
        return _Candidate(replace(point, reasons=(reason,)))
    if not workload_names:
        return _Candidate(replace(point, reasons=(Reason(ReasonCode.NO_SUCH_WORKLOAD),)))
    environment_names = environments(run, figure.environment)

    def select_servers(servers_chosen: Sequence[str]) -> Selection:
        users = figure.users if figure.metric not in _SWEEP_METRICS else None
        trials = select_trials(
            run,
            ClaimSide(server=list(servers_chosen), environment=environment_names, workload=workload_names, users=users),
        )
        return figures_of_side(run, trials, metric, lambda trial: conversion(trial, figure))

    selection = select_servers(server_names)
    if figure.server == BEST:
        selection = max((select_servers([server]) for server in server_names), key=_median)
        server_names = sorted({trial.scenario.server for trial in selection.trials})
    point = replace(
        point, servers=tuple(server_names), environments=tuple(environment_names), workloads=tuple(workload_names)
    )
    if not selection.figures:
        reason = Reason(ReasonCode.NO_FIGURE, {"side": 0}, (metric,), tuple(sorted(selection.refused)))
        return _Candidate(replace(point, reasons=(reason,)))
    point = replace(
        point, measured_level=_level(run, figure, selection), reasons=tuple(_remarks(run, figure, selection))
    )
    loads = {(trial.scenario.workload, trial.scenario.load) for trial in selection.trials}
    return _Candidate(point, selection, (figure.metric, figure.environment == LOCALHOST, frozenset(loads)))


def _median(selection: Selection) -> float:
    value = estimate(list(selection.figures.values()), "median").value
    return -1.0 if value is None else value


def _level(run: Run, figure: PublishedFigure, selection: Selection) -> Level:
    values = list(selection.figures.values())
    if figure.metric.endswith("_low"):
        return Level(min(values), EstimatorUsed.LOWEST, len(values))
    if figure.metric.endswith("_high"):
        return Level(max(values), EstimatorUsed.HIGHEST, len(values))
    return estimate(values, run.manifest.experiment.published_estimator)


def _with_shape(run: Run, candidate: _Candidate, group: Sequence[_Candidate], correlation: Floats) -> Point:
    """The point with its shape relative to the first of its group."""
    point, selection = candidate.point, candidate.selection
    if selection is None or not group:
        return point
    first = group[0]
    if candidate is first:
        return replace(point, shape=Shape.ALONE if len(group) == 1 else Shape.FIRST)
    base = first.selection
    if base is None or selection.emulation or base.emulation:
        return point
    measured = measure(run, (selection, base), correlation)
    values = (point.figure.value, first.point.figure.value)
    if measured is None or min(values) <= 0:
        return replace(point, reasons=(Reason(ReasonCode.ZERO_HAS_NO_RATIO), *point.reasons))
    published_ratio = values[0] / values[1]
    is_equality = 1 / (1 + ALIKE_PCT / 100) <= published_ratio <= 1 + ALIKE_PCT / 100
    within_pct = ALIKE_PCT if is_equality else None
    expected = Expected(published_ratio, within_pct, margin=run.manifest.experiment.margin)
    decision = decide(measured.estimate, measured.blocks, expected)
    shapes = {Outcome.CONFIRMED: Shape.SAME, Outcome.REFUTED: Shape.NOT_SAME}
    return replace(
        point,
        shape=shapes.get(decision.outcome, Shape.INCONCLUSIVE),
        published_ratio=published_ratio,
        measured_ratio=measured.estimate,
        blocks=measured.blocks,
        region=decision.region,
        reasons=(decision.reason, *point.reasons),
    )


def _remarks(run: Run, figure: PublishedFigure, selection: Selection) -> Iterator[Reason]:
    """Yield the differences from the source other than the machine."""
    tools = tuple(sorted({run.tool(trial.scenario) for trial in selection.trials}))
    if selection.emulation:
        yield Reason(selection.emulation)
    if figure.tool not in {*tools, "download"}:
        yield Reason(ReasonCode.OTHER_TOOL, names=(figure.tool, *tools))
    if selection.limited:
        counts = {"trials": len(selection.limited), "used": len(selection.used)}
        yield Reason(ReasonCode.LIMITED, counts, codes=tuple(sorted(selection.limits)))
    if figure.is_remote and not run.manifest.experiment.prescribes_link:
        yield Reason(ReasonCode.OTHER_LINK, names=(run.manifest.link,))
    if figure.metric in _MINUTE_METRICS:
        yield Reason(ReasonCode.SET_TO_A_MINUTE)
