"""What clients noticed of each operation: means over repetitions, against trials of the same machine without it."""

from collections.abc import Mapping, Sequence
from dataclasses import fields

from vmtoll.analysis.amounts import amount_of
from vmtoll.analysis.run import Run
from vmtoll.model.finding import Validity
from vmtoll.model.operation import MigrationFigures
from vmtoll.model.trial import Arm, Scenario, TrialRecord
from vmtoll.model.verdict import Estimate, OperationEffect, OperationFigure

# Name of a figure → its column in trials.csv.
FIGURES = {"blackout_ms": "blackout_ms", "brownout_s": "brownout_s", "lost": "failed", "late": "late_answers"}


def operation_effects(run: Run) -> tuple[OperationEffect, ...]:
    """One for each operation and scenario with trials; empty without operations. Intervals are Student's over blocks,
    each for itself.
    """
    effects = []
    for name, operation in run.manifest.experiment.during.items():
        for scenario in run.compared_scenarios:
            trials = _by_block(run, scenario, Arm(name))
            without = _by_block(run, scenario, Arm(operation.of))
            times = [trial.operation for trial in trials.values() if trial.operation]
            if trials:
                effects.append(
                    OperationEffect(
                        scenario=scenario,
                        arm=Arm(name),
                        without=Arm(operation.of),
                        blocks=len(trials),
                        begin_s=amount_of([each.begin_s for each in times]),
                        length_s=amount_of([each.end_s - each.begin_s for each in times]),
                        figures={figure: _figure(trials, without, figure) for figure in FIGURES},
                        migration=_migration([each.migration for each in times if each.migration]),
                        open_ended=sum(not each.is_over for each in times),
                    )
                )
    return tuple(effects)


def _migration(migrations: Sequence[MigrationFigures]) -> dict[str, Estimate] | None:
    """What libvirt says of the migrations, by field; None without any."""
    means = {
        field.name: amount_of([getattr(each, field.name) for each in migrations]) for field in fields(MigrationFigures)
    }
    return {name: amount for name, amount in means.items() if amount} or None


def _by_block(run: Run, scenario: Scenario, arm: Arm) -> dict[int, TrialRecord]:
    trials = run.trials_of(scenario, arm)
    return {trial.block: trial for trial in trials if trial.primary and trial.validity is not Validity.INVALID}


def _figure(trials: Mapping[int, TrialRecord], without: Mapping[int, TrialRecord], name: str) -> OperationFigure:
    def values(of: Mapping[int, TrialRecord]) -> dict[int, float]:
        found = {block: trial.primary.column(FIGURES[name]) for block, trial in of.items() if trial.primary}
        return {block: float(value) for block, value in found.items() if value is not None}

    with_it, without_it = values(trials), values(without)
    more = [value - without_it[block] for block, value in with_it.items() if block in without_it]
    return OperationFigure(
        with_it=amount_of(list(with_it.values())), without=amount_of(list(without_it.values())), more=amount_of(more)
    )
