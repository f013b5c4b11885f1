"""What commands that measure share: the measuring, and at the end the report, what a service's loads measured, and
whether any trial is valid.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from vmtoll.commands.answer import print_json
from vmtoll.commands.conclude import judge, load_and_analyse, write_conclusion
from vmtoll.commands.help import NOTHING_VALID
from vmtoll.commands.progress import Progress
from vmtoll.model.finding import Code, Role, Validity
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.message import number
from vmtoll.model.metric import CPU
from vmtoll.model.percentiles import FEWEST
from vmtoll.model.trial import Measurement, TrialRecord
from vmtoll.runner.run import Plan
from vmtoll.runner.run import run as measure
from vmtoll.runs.folder import read_pages
from vmtoll.shell import say

if TYPE_CHECKING:
    from vmtoll.analysis.run import Run


def measured(planned: Plan, results: Path, resume: Path | None = None) -> Path:
    """Measure a plan on its machines, with its progress on stderr; return the run's folder."""
    with Progress() as progress:
        return measure(planned, results, resume, listener=progress, judge=judge)


def finish(folder: Path, *, as_json: bool) -> None:
    """Write a run's report and print its answer, with what it measured of a service. Exits with NOTHING_VALID if no
    trial is valid.
    """
    run, analysis = load_and_analyse(folder)
    conclusion = write_conclusion(run, analysis)
    figures = list(service_figures(run)) if run.manifest.experiment.service else []
    if as_json:
        print_json(conclusion.document() | ({"measured": figures} if figures else {}))
    else:
        conclusion.show()
        print("\n".join(["", *map(_line, figures)] if figures else []))
    if changed := changed_pages(run):
        say(
            f"{', '.join(changed)}: not the answer that it gave at the start; if the page changes between requests, "
            f"name it: {' '.join(f'--dynamic {path!r}' for path in changed)} (`dynamic:`)"
        )
    if not any(trial.validity is not Validity.INVALID for trial in run.trials):
        invalid = ({f.code.value for f in t.findings if f.severity is Validity.INVALID} for t in run.trials)
        codes = Counter(code for each in invalid for code in each)
        say(f"no trial of {len(run.trials)} is valid: {', '.join(f'{code} in {n}' for code, n in codes.most_common())}")
        raise SystemExit(NOTHING_VALID)


def service_figures(run: "Run") -> Iterator[dict[str, Any]]:
    """For each load on each side, medians over the trials that are not invalid; None where a figure is not known.

    `p99_pooled`: p99 is that of all their requests together, because a trial has too few.
    """
    for scenario in run.scenarios:
        for arm in run.arms:
            trials = run.trials_of(scenario, arm)
            valid = [trial for trial in trials if trial.primary and trial.validity is not Validity.INVALID]
            values = [_values(trial.primary, scenario.load) for trial in valid if trial.primary]
            known = {name: [v for each in values if (v := each[name]) is not None] for name in _NAMES}
            figures = {name: median(of) if of else None for name, of in known.items()}
            pooled_ms = None if figures["p99_ms"] else _pooled_p99_ms(run, valid)
            yield {
                "workload": scenario.workload, "environment": str(arm), "trials": len(trials), "valid": len(valid),
                **figures, "p99_ms": figures["p99_ms"] or pooled_ms, "p99_pooled": pooled_ms is not None,
            }  # fmt: skip


_NAMES = ("answers_per_s", "p50_ms", "p99_ms", "cpu_us_per_request")


def _pooled_p99_ms(run: "Run", trials: Sequence[TrialRecord]) -> float | None:
    """The p99 of all requests of these trials, by nearest rank; None of too few."""
    import numpy as np  # noqa: PLC0415 (`--help` should not wait for it)

    pooled = Counter[float]()
    for trial in trials:
        if latencies := run.latencies(trial, Role.PRIMARY):
            values, at_most = latencies
            pooled.update(dict(zip(values.tolist(), np.diff(at_most, prepend=0).tolist(), strict=True)))
    total = pooled.total()
    if total < FEWEST["p99"]:
        return None
    values_us = np.array(sorted(pooled))
    ranks = np.cumsum([pooled[value] for value in values_us.tolist()])
    return float(values_us[np.searchsorted(ranks, 0.99 * total)]) / 1000


def _values(measurement: Measurement, load: Load) -> dict[str, float | None]:
    """The values of a measurement; the rate of an open loop is that of its schedule, times the share answered."""
    times, rate_rps = measurement.service_time, measurement.throughput_rps
    if load.is_open:
        times = measurement.response_time
        if load.kind is LoadKind.RATE and measurement.requests:
            rate_rps = load.value * (measurement.transactions or 0) / measurement.requests
    latencies_ms = (None if us is None else us / 1000 for us in (times.p50_us, times.p99_us))
    values = (rate_rps, *latencies_ms, CPU.of(measurement, guest=False))
    return dict(zip(_NAMES, values, strict=True))


def _line(figure: dict[str, Any]) -> str:
    rate, p50, p99, cpu = (None if figure[name] is None else number(figure[name]) for name in _NAMES)
    measured = [
        f"{rate} answers/s" if rate else "no rate",
        f"p50 {p50} ms" if p50 else "no p50",
        f"p99 {p99} ms{' of all trials together' * figure['p99_pooled']}" if p99 else "too few requests for a p99",
        f"{cpu} µs of CPU per request" if cpu else "CPU time not known",
    ]
    head = f"{figure['workload']} on {figure['environment']}"
    if not figure["valid"]:
        return f"{head}: none of {figure['trials']} trials is valid"
    return f"{head}: {', '.join(measured)} (medians of {figure['valid']} of {figure['trials']} trials)"


def changed_pages(run: "Run") -> list[str]:
    """Paths of a service's pages that had another body in a trial than at the start."""
    firsts = {
        f.payload.first for t in run.records for f in t.findings if f.payload and f.payload.code is Code.WRONG_BODY
    }
    return [
        page.path
        for page in read_pages(run.path)
        if any(first.startswith(f"URL {page.number} (") and "status" not in first for first in firsts)
    ]
