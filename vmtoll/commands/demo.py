"""The command `demo`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmtoll.builds.suite import lab_release
from vmtoll.commands.conclude import conclude
from vmtoll.commands.help import describe
from vmtoll.commands.options import JsonOption, ResultsOption, SuiteOption
from vmtoll.commands.run import run_one
from vmtoll.lab import embedded
from vmtoll.paths import RESULTS
from vmtoll.shell import say
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load

describe("demo", "vmtoll demo", "vmtoll demo --suite bookworm")


def demo(results: ResultsOption = RESULTS, suite: SuiteOption = None, as_json: JsonOption = False) -> None:
    """Bring the embedded lab up, run the experiment `demo`, write its report."""
    embedded.require_root()
    resolved = load(Registry().experiment_file("demo"))
    taken_s: dict[str, float] = {}
    with _timed("lab and load tools", taken_s):
        link, workloads = resolved.experiment.link, resolved.workloads.values()
        embedded.up(link, say, release=lab_release(suite), workloads=workloads)
    with _timed("measuring", taken_s):
        folder = run_one("demo", None, results)
    with _timed("report", taken_s):
        conclusion = conclude(folder)
    stages = ", ".join(f"{stage} {_duration(seconds)}" for stage, seconds in taken_s.items())
    say(f"{stages}; {100 * _load_s(folder) / taken_s['measuring']:.0f}% of the measuring was load")
    conclusion.show(as_json=as_json)


@contextmanager
def _timed(stage: str, taken_s: dict[str, float]) -> Iterator[None]:
    """Note the wall clock of a stage, in s."""
    started_s = time.monotonic()
    yield
    taken_s[stage] = time.monotonic() - started_s


def _duration(taken_s: float) -> str:
    minutes, seconds = divmod(round(taken_s), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def _load_s(folder: Path) -> float:
    """Total duration of the measurements of a run, in s."""
    from vmtoll.analysis.run import load_run  # noqa: PLC0415

    return sum(
        measurement.duration_s or 0.0 for trial in load_run(folder).records for measurement in trial.measurements
    )
