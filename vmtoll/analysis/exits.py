"""Where the time of exits goes: the explained trials of a run by reason, beside what its other trials need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmtoll.analysis.amounts import amount_of
from vmtoll.analysis.run import Run
from vmtoll.model.exits import ExitPrice, ExplainedTrial
from vmtoll.model.finding import Role, Validity
from vmtoll.model.metric import HOST_CPU
from vmtoll.model.trial import Arm, MachineKind, Scenario, TrialRecord
from vmtoll.model.verdict import Estimate
from vmtoll.runs import folder


@dataclass(frozen=True, kw_only=True)
class ReasonShare:
    """Exits for one reason: means over the explained trials."""

    reason: str
    per_request: Estimate
    # `us_per_request`, `us_per_exit`: CPU time of the host from the exit to the entry, with what tracing itself takes
    us_per_request: Estimate
    us_per_exit: float
    away_us: Estimate  # time per request on no CPU, asleep or waiting


@dataclass(frozen=True, kw_only=True)
class ExplainedExits:
    """The exits of a guest in one scenario, per request; means over `trials` explained trials, in µs where it says
    so.
    """

    scenario: Scenario
    arm: Arm
    baseline: Arm
    is_baseline_guest: bool  # the baseline has exits too
    trials: int
    reasons: tuple[ReasonShare, ...]  # by falling CPU time
    per_request: Estimate
    us_per_request: Estimate  # CPU of the host from exits to entries
    # `host_cpu_us`, `traced_cpu_us`: CPU of the guest's QEMU and vhost threads in measured and in explained trials
    host_cpu_us: Estimate | None
    traced_cpu_us: Estimate | None
    # what a measured trial needs of it above the CPU of the baseline's trial in the same block, negative if it needs
    # less; None for the baseline itself, and without such a block
    more_us: Estimate | None
    baseline_us_per_request: Estimate | None  # their CPU, None where they were not explained
    prices: tuple[ExitPrice, ...]
    at_least_us: float | None  # all exits at the lowest price of `prices`


def explained_exits(run: Run) -> tuple[ExplainedExits, ...]:
    """One for each guest and scenario with explained trials that are not invalid. Raises LoadError."""
    groups: dict[tuple[Scenario, Arm], list[ExplainedTrial]] = {}
    for each in folder.EXPLAINED.read(run.path):
        if each.exits and each.trial.validity is not Validity.INVALID and _requests(each):
            groups.setdefault((each.trial.scenario, each.trial.arm), []).append(each)
    prices = folder.read_exit_prices(run.path)
    return tuple(
        _explained(run, *key, trials, groups.get((key[0], run.baseline), ()), prices)
        for key, trials in sorted(groups.items(), key=lambda item: (item[0][0].sort_key, str(item[0][1])))
    )


def _requests(each: ExplainedTrial) -> int:
    return (each.trial.primary and each.trial.primary.transactions) or 0


def _explained(
    run: Run,
    scenario: Scenario,
    arm: Arm,
    trials: Sequence[ExplainedTrial],
    of_baseline: Sequence[ExplainedTrial],
    prices: Mapping[str, list[ExitPrice]],
) -> ExplainedExits:
    names = dict.fromkeys(row.reason for each in trials for row in each.exits)
    shares = [share for share in (_share(name, trials) for name in names) if share]
    listed = prices.get(trials[0].host, [])
    counts = [sum(row.count for row in each.exits) / _requests(each) for each in trials]
    per_request = _known(counts)
    baseline = _cpu_by_block(run, scenario, run.baseline) if arm != run.baseline else {}
    guest = _cpu_by_block(run, scenario, arm)
    return ExplainedExits(
        scenario=scenario,
        arm=arm,
        baseline=run.baseline,
        is_baseline_guest=run.kind(run.baseline) is MachineKind.GUEST,
        trials=len(trials),
        reasons=tuple(sorted(shares, key=lambda share: -share.us_per_request.value)),
        per_request=per_request,
        us_per_request=_known(_cpu_us(trials)),
        host_cpu_us=amount_of(list(guest.values())),
        traced_cpu_us=amount_of(HOST_CPU.value(each.trial, Role.PRIMARY) for each in trials),
        more_us=amount_of([value - baseline[block] for block, value in guest.items() if block in baseline]),
        baseline_us_per_request=amount_of(_cpu_us(of_baseline)),
        prices=tuple(listed),
        at_least_us=per_request.value * min(price.ns for price in listed) / 1000 if listed else None,
    )


def _cpu_us(trials: Sequence[ExplainedTrial]) -> list[float]:
    """CPU of the host from exits to entries, µs per request, by trial."""
    return [sum(row.cpu_us for row in each.exits) / _requests(each) for each in trials]


def _share(name: str, trials: Sequence[ExplainedTrial]) -> ReasonShare | None:
    rows = [(next((row for row in each.exits if row.reason == name), None), _requests(each)) for each in trials]
    count = sum(row.count for row, _ in rows if row)
    if not count:
        return None
    return ReasonShare(
        reason=name,
        per_request=_known([row.count / requests if row else 0.0 for row, requests in rows]),
        us_per_request=_known([row.cpu_us / requests if row else 0.0 for row, requests in rows]),
        us_per_exit=sum(row.cpu_us for row, _ in rows if row) / count,
        away_us=_known([row.away_us / requests if row else 0.0 for row, requests in rows]),
    )


def _known(values: Sequence[float]) -> Estimate:
    amount = amount_of(values)
    if amount is None:
        raise ValueError("no explained trial")
    return amount


def _cpu_by_block(run: Run, scenario: Scenario, arm: Arm) -> dict[int, float]:
    """Block → µs of CPU per request of the measured trials, as the physical machine accounts it."""
    trials: list[TrialRecord] = run.trials_of(scenario, arm)
    values = {
        trial.block: HOST_CPU.value(trial, Role.PRIMARY) for trial in trials if trial.validity is not Validity.INVALID
    }
    return {block: value for block, value in values.items() if value is not None}
