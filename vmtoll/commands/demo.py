"""The command `demo`."""

from pathlib import Path

from vmtoll.builds.suite import lab_release
from vmtoll.commands.conclude import conclude
from vmtoll.commands.help import describe
from vmtoll.commands.options import JsonOption, ResultsOption, SuiteOption
from vmtoll.commands.run import run_one
from vmtoll.commands.stages import Stages
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
    stages = Stages()
    with stages.stage("lab and load tools"):
        embedded.up(resolved.experiment.link, say, release=lab_release(suite))
    with stages.stage("measuring"):
        folder = run_one("demo", None, results)
    with stages.stage("report"):
        conclusion = conclude(folder)
    share = _load_s(folder) / stages.taken_s["measuring"]
    say(f"{stages}; {100 * share:.0f}% of the measuring was load")
    conclusion.show(as_json=as_json)


def _load_s(folder: Path) -> float:
    """Total duration of the measurements of a run, in s."""
    from vmtoll.analysis.run import load_run  # noqa: PLC0415

    return sum(
        measurement.duration_s or 0.0 for trial in load_run(folder).records for measurement in trial.measurements
    )
