"""report.html: one self-contained file that shows a run's verdicts and what they rest on."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from vmtoll.analysis.claims import count_outcomes
from vmtoll.analysis.equality import FactStatus, equality
from vmtoll.analysis.exits import explained_exits
from vmtoll.analysis.published import points
from vmtoll.analysis.run import Run
from vmtoll.analysis.schema import side_figures
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.facts import kvm_hosts
from vmtoll.model.finding import Code, Validity
from vmtoll.model.hardware import foreign_kvm_module
from vmtoll.model.limiter import Limiter
from vmtoll.model.metric import CPU, HOST_CPU, LATENCY_P99, TAIL, THROUGHPUT
from vmtoll.model.trial import CROSSCHECK, Accelerator, Arm
from vmtoll.model.verdict import Comparison, Verdict
from vmtoll.report import charts, words
from vmtoll.report.capacity import section as capacity_section
from vmtoll.report.density import section as density_section
from vmtoll.report.leading import leading_text
from vmtoll.report.page import environment, inline_svg, write
from vmtoll.report.panels import panel_groups
from vmtoll.report.tables import (
    P50_COLUMNS,
    SERVER_TIMES,
    WAIT_CPU,
    WAITS,
    availability,
    finding_counts,
    host_facts,
    numbers,
)

HEADINGS = ("requests per second", "p99", "server CPU per request", "CPU per request on the host")
# Heading → (columns of `numbers`, the first with a figure counts; function that formats it).
NumberCells = dict[str, tuple[tuple[str, ...], Callable[[Any], str]]]
STATUS_TITLES = {
    FactStatus.UNDECLARED: "Undeclared differences",
    FactStatus.ONE_SIDED: "Seen on one side only",
    FactStatus.CHANGED: "What a change did",
    FactStatus.DECLARED: "Declared differences",
    FactStatus.EQUAL: "Equal on all sides",
}


def write_report(run: Run, analysis: RunAnalysis) -> Path:
    """Write `report.html` into the run directory (replaced whole) and return its path.

    Raises ValueError when a histogram cannot be read.
    """
    return write(run.path / "report.html", render(run, analysis))


def render(run: Run, analysis: RunAnalysis) -> str:
    """The whole page as text; the same run gives the same bytes."""
    facts = equality(run)
    drawn_charts = [(name, chart, Markup(inline_svg(chart, name))) for name, chart in charts.draw_all(run, analysis)]
    step_charts = [item for item in drawn_charts if item[0].startswith("tuning_steps")]
    picture = next((item for item in drawn_charts if item[0] == charts.FIRST), next(iter(drawn_charts), None))
    labels = words.scenario_labels(run)
    has_several_arms, sides = len(run.compared_arms) > 1, words.sides_of(analysis.comparisons)
    rows = numbers(run).to_dict("records")
    side_cells = {
        figure.heading: ((figure.name,), words.number)
        for figure in side_figures()
        if any(not pd.isna(row[figure.name]) for row in rows)
    }
    number_cells = NUMBER_CELLS | side_cells
    return environment().get_template("report.html.j2").render(
        run=run, manifest=run.manifest, analysis=analysis, headline=words.headline(analysis), picture=picture,
        explanations=words.explanations(analysis), ending=words.ending_text(run.manifest),
        looks=words.looks_text(run.manifest), labels=labels, exits=explained_exits(run),
        outcomes=count_outcomes(analysis.claims), points=points(run),
        subject="server" if len({c.scenario.load for c in analysis.comparisons}) < 2 else "server and load",
        headings=HEADINGS,
        sides=sides,
        verdicts=[(comparison, labels[comparison.scenario], _cells(comparison)) for comparison in analysis.comparisons],
        details=[
            (labels[c.scenario] + (f" · {c.arm}" if has_several_arms else ""), c, verdict)
            for c in analysis.comparisons for verdict in c.verdicts.values() if verdict.applies
        ],
        emulated=[arm for arm in run.guests if run.accelerator(arm) is Accelerator.TCG],
        kvm_module=_kvm_module(run),
        link=_link(run),
        accelerators=_by_text(run, lambda arm: run.accelerator(arm).text),
        hardware=_by_text(run, lambda arm: run.hardware(arm).text),
        findings=finding_counts(run, analysis),
        reliability=[
            (labels[c.scenario] + (f" · {c.arm}" if has_several_arms else ""), c.reliability)
            for c in analysis.comparisons
            if c.reliability and any(s.at_first < s.trials for s in (c.reliability.baseline, c.reliability.compared))
        ],
        quiet=[code for code in Code if code not in analysis.findings],
        excluded=[record for record in run.trials if record.validity is Validity.INVALID],
        availability=availability(run),
        facts={status: [fact for fact in facts if fact.status is status] for status in FactStatus},
        status_titles=STATUS_TITLES, factors=_factors(run),
        sweep=any(len(group.loads) > 2 for group in panel_groups(run)),
        charts=[item for item in drawn_charts if item not in step_charts and item is not picture],
        step_charts=[item for item in step_charts if item is not picture],
        number_headings=list(number_cells),
        numbers=[(row, _number_cells(row, number_cells)) for row in rows],
        server_times=[(row, cells) for row in rows if (cells := _server_time_cells(row))],
        waits=[(row, cells) for row in rows if (cells := _wait_cells(row))],
        host_rows=host_facts(run), capacity=capacity_section(run),
        density=density_section(run), leading=leading_text(run, analysis),
    )  # fmt: skip


def _factors(run: Run) -> list[str]:
    """By what the experiment makes each environment another than the baseline, where it is known."""
    environments = dict.fromkeys(arm.environment for arm in run.arms if arm.environment != run.baseline.environment)
    texts = [
        words.factors_text(run.manifest.experiment, name, run.baseline.environment) for name in environments
    ]  # fmt: skip
    return [text for text in texts if text]


def _cells(comparison: Comparison) -> list[tuple[Verdict, str]]:
    """The verdict under each heading, with its tool. The p99 is that of the load's loop, which the text names."""
    verdicts, tool = comparison.verdicts, comparison.tool
    is_open = comparison.scenario.load.is_open
    p99, loop = (verdicts[(TAIL if is_open else LATENCY_P99).name], "open loop" if is_open else "closed loop: no tail")
    shown = (verdicts[THROUGHPUT.name], p99, verdicts[CPU.name], verdicts[HOST_CPU.name])
    return [(v, ", ".join([v.tool or tool] + ([loop] if v is p99 else []))) for v in shown]


def _kvm_module(run: Run) -> str:
    """A sentence on the module that owns a KVM host's /dev/kvm, if it is not the CPU's own: why a guest is emulated."""
    hosts = kvm_hosts(run.hosts).values()
    modules = sorted(filter(None, {foreign_kvm_module(facts.kvm_modules, facts.kvm_flags) for facts in hosts}))
    return "".join(f" {words.module_text(module)}" for module in modules)


def _by_text(run: Run, text_of: Callable[[Arm], str]) -> dict[str, list[str]]:
    """Text → the environments that it describes."""
    texts: dict[str, list[str]] = {}
    for arm in run.arms:
        if not arm.is_control:
            texts.setdefault(text_of(arm), []).append(str(arm))
    return texts


def _link(run: Run) -> str:
    name, rate = run.manifest.link, run.manifest.link_mbit
    return name if rate is None else f"{name} ({rate:g} Mbit/s)"


def _number_cells(row: Mapping[Any, Any], cells: NumberCells) -> list[str]:
    return [text(next((row[c] for c in columns if not pd.isna(row[c])), None)) for columns, text in cells.values()]


def _server_time_cells(row: Mapping[Any, Any]) -> list[str]:
    """The client's percentiles, the server's times under the same tool, and steal; empty without a server's times."""
    prefix = CROSSCHECK if all(pd.isna(row[column]) for column in P50_COLUMNS[:2]) else ""
    if pd.isna(row[f"{prefix}{SERVER_TIMES[0]}"]):
        return []
    client_times = [
        next((row[c] for c in _time_columns(name) if not pd.isna(row[c])), None) for name in ("p50", "p99", "p999")
    ]
    return [
        words.number(value)
        for value in (*client_times, *(row[prefix + name] for name in SERVER_TIMES), row["steal_pct"])
    ]


def _wait_cells(row: Mapping[Any, Any]) -> list[str]:
    """Waits for a CPU, µs per request, and a sentence on the longest; nothing where none are known."""
    if all(pd.isna(row[column]) for column in WAITS):
        return []
    known = {column: None if pd.isna(value := row[column]) else float(value) for column in (*WAITS, *WAIT_CPU)}
    return [*(words.number(known[column]) for column in WAITS), words.wait_text(known, str(row["arm"]))]


def _mib(value: Any) -> str:
    return words.number(None if value is None else value / 1024)


def _limiter(value: Any) -> str:
    return words.DASH if value is None else Limiter(value).text


def _time_columns(name: str) -> tuple[str, ...]:
    kinds = ("merged_{}_us", "response_time_{}_us", "service_time_{}_us", f"{CROSSCHECK}service_time_{{}}_us")
    return tuple(kind.format(name) for kind in kinds)


NUMBER_CELLS: NumberCells = {
    "valid": (("valid",), words.number), "suspect": (("suspect",), words.number),
    "invalid": (("invalid",), words.number),
    "offered req/s": (("offered_rps",), words.number), "req/s, tool": (("throughput_rps",), words.number),
    "req/s, cross-check": ((f"{CROSSCHECK}throughput_rps",), words.number),
    "good req/s": (("goodput_rps",), words.number),
    "p50 µs": (_time_columns("p50"), words.number), "p99 µs": (_time_columns("p99"), words.number),
    "p99.9 µs": (_time_columns("p999"), words.number),
    "failed, cross-check": ((f"{CROSSCHECK}failure_rate",), words.percent),
    "server CPU µs/req": (("server_cpu_us_per_request",), words.number),
    "host CPU µs/req": (("machine_cpu_us_per_request", "host_cpu_us_per_request"), words.number),
    "memory MiB": (("memory_pss_kib",), _mib), "client CPU": (("client_cpu_share",), words.percent),
    "steal %": (("steal_pct",), words.number), "limited by": (("limiter",), _limiter),
}  # fmt: skip
