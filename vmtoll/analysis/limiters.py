"""Limiter of each side of a row: that of most of its trials."""

from collections import Counter
from collections.abc import Iterable

from vmtoll.analysis.run import Run
from vmtoll.model.finding import Role
from vmtoll.model.limiter import Limiter, limiter_of
from vmtoll.model.trial import Arm, TrialRecord


def limiter(run: Run, trials: Iterable[TrialRecord], role: Role = Role.PRIMARY) -> Limiter | None:
    """The limiter that most of these trials have; None without a trial that says."""
    counts = Counter(
        name for trial in trials if (name := limiter_of(trial, role, _cores(run, trial.arm, trial.scenario.server)))
    )
    return min(counts, key=lambda name: (-counts[name], list(Limiter).index(name)), default=None)


def _cores(run: Run, arm: Arm, server: str) -> int | None:
    """The cores that a server can fill: those of its machine, or fewer where it has fewer workers."""
    facts = next((host for host in run.hosts.values() if host.get("environment") == arm.environment), {})
    limits = (facts.get("cpus_allowed"), (facts.get("servers") or {}).get(server, {}).get("workers"))
    return min((int(limit) for limit in map(str, limits) if limit.isdigit() and int(limit)), default=None)
