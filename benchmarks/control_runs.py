"""Rate at which a page calls a machine different from itself: `python -m benchmarks.control_runs RUN…`.

Takes folders of runs with an A/A control, such as those of the experiment `control`, and judges the control against its
own environment, whichever that is, all metrics of a run as one family, as a page judges an arm. The control does not
join the baseline here and vetoes nothing. Adds the runs to docs/control-runs.csv, and writes the table of all in
docs/statistics.md.
"""

import csv
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import write_measured
from benchmarks.verdicts import FOLDER
from vmtoll.analysis.judge import Family
from vmtoll.analysis.judged import evidence_of
from vmtoll.analysis.pairs import choose_role, pair_arms
from vmtoll.analysis.run import Run, load_run
from vmtoll.model.finding import Validity
from vmtoll.model.metric import METRICS, loop_of
from vmtoll.model.trial import Arm
from vmtoll.model.verdict import DIFFERENT, Kind


@dataclass(frozen=True)
class ControlRun:
    """Result of one run. `verdicts`: of the comparisons of the control with its own environment."""

    run_id: str
    experiment: str
    blocks: int
    trials: int
    valid: int
    verdicts: Counter[Kind]

    @property
    def alarms(self) -> int:
        """Comparisons that a page would call a difference."""
        return sum(self.verdicts[kind] for kind in DIFFERENT)


def control_run(run: Run) -> ControlRun | None:
    """Result of a run's control against its own environment; None if it has no control."""
    if not run.controls:
        return None
    control = run.controls[0]
    itself = Arm(control.environment)
    scenarios = [scenario for scenario in run.compared_scenarios if run.trials_of(scenario, control)]
    compared = [
        (metric, pair_arms(run, scenario, itself, control, metric, choose_role(run, scenario, itself, control)))
        for scenario in scenarios
        for metric in METRICS.values()
        if loop_of(scenario.load) in metric.loops
    ]
    if not compared:
        return None
    family = Family(
        [evidence_of(run, pairs, metric, None) for metric, pairs in compared], run.manifest.experiment.margin
    )
    verdicts = Counter(judgement.kind for judgement in family.judge())
    trials = [trial for scenario in scenarios for arm in (itself, control) for trial in run.trials_of(scenario, arm)]
    valid = sum(trial.validity is Validity.VALID for trial in trials)
    blocks = len({trial.block for trial in trials})
    return ControlRun(run.manifest.run_id, run.manifest.experiment.name, blocks, len(trials), valid, verdicts)


def table(runs: Sequence[ControlRun]) -> str:
    """A Markdown table: a row for each experiment."""
    lines = ["| experiment | runs | blocks | trials, valid | comparisons | equivalent | undecided | not judged "
             "| different | reports with any |", "|---|" + "---|" * 9]  # fmt: skip
    for name in sorted({run.experiment for run in runs}):
        of_experiment = [run for run in runs if run.experiment == name]
        kinds = sum((run.verdicts for run in of_experiment), Counter[Kind]())
        cells = [
            f"`{name}`", len(of_experiment), "–".join(map(str, sorted({run.blocks for run in of_experiment}))),
            f"{sum(run.trials for run in of_experiment)}, {sum(run.valid for run in of_experiment)}", kinds.total(),
            kinds[Kind.EQUIVALENT], kinds[Kind.UNDECIDED], kinds[Kind.NOT_JUDGED],
            sum(kinds[kind] for kind in DIFFERENT), sum(run.alarms > 0 for run in of_experiment),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def read(file: Path) -> list[ControlRun]:
    """The rows of an earlier CSV; none if there is no such file."""
    if not file.exists():
        return []
    return [
        ControlRun(
            row["run_id"], row["experiment"], int(row["blocks"]), int(row["trials"]), int(row["valid"]),
            Counter({kind: int(row[kind]) for kind in Kind}),
        )
        for row in csv.DictReader(file.read_text("utf-8").splitlines())
    ]  # fmt: skip


def write(runs: Sequence[ControlRun], folder: Path = FOLDER) -> None:
    """Add runs to the CSV, which has a row for each, and write the table of all."""
    file = folder / "control-runs.csv"
    new = {run.run_id for run in runs}
    runs = sorted([*(run for run in read(file) if run.run_id not in new), *runs], key=lambda run: run.run_id)
    write_measured(folder / "statistics.md", "control runs", table(runs))
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["run_id", "experiment", "blocks", "trials", "valid", *Kind])
        for run in runs:
            counts = [run.verdicts[kind] for kind in Kind]
            writer.writerow([run.run_id, run.experiment, run.blocks, run.trials, run.valid, *counts])


def main() -> None:
    """Judge, print, write."""
    results = [control_run(load_run(Path(folder))) for folder in sys.argv[1:]]
    runs = [run for run in results if run]
    if not runs:
        sys.exit("control_runs: give the folders of runs with an A/A control, such as results/control/*")
    for run in runs:
        print(f"{run.experiment} {run.run_id}: {run.valid} of {run.trials} trials valid, " + ", ".join(
            f"{count} {kind}" for kind, count in run.verdicts.items()
        ))  # fmt: skip
    write(runs)


if __name__ == "__main__":
    main()
