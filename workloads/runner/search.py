"""A search for the highest load that meets an objective: which rung of a fine ladder the next trial tries.

The ladder is fixed before the run, as is the place of each trial; what follows from the rows so far is only the rung.
The same rows give the same rung, so that a run that was killed goes on as it would have.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from workloads.runner.experiment import Resolved
from workloads.runner.schedule import Planned
from workloads.runner.workload import Offer, SearchWorkload

# The trials of a rung are looked at when there are three, and from six on. Student's t for a mean of so many, two-sided
# at half of 5% for each look (Bonferroni); more than six are judged as strictly as six.
FIRST_LOOK, LAST_LOOK = 3, 6
T_AT = {FIRST_LOOK: 6.205347, LAST_LOOK: 3.163381}

Row = Mapping[str, str]


@dataclass(frozen=True)
class Seen:
    """One trial. `margin`: log(deadline / p99), above zero where it was met; None where the trial has no p99."""

    margin: float | None
    requests: int
    successful: int


def decided(planned: Planned, resolved: Resolved, rows: Iterable[Row]) -> Planned:
    """The trial with the load that is due by the rows before it, where its workload is a search; else as it is."""
    scenario = planned.scenario
    workload = resolved.workloads[scenario.workload]
    if not isinstance(workload, SearchWorkload):
        return planned
    here = (scenario.environment, scenario.server, scenario.workload)
    before = [
        row
        for row in rows
        if (row["environment"], row["server"], row["workload"]) == here
        and (int(row["block"]), int(row["order"])) < planned.key
    ]
    return replace(planned, scenario=replace(scenario, offer=next_offer(workload, before)))


def rungs_of(workload: SearchWorkload) -> list[Offer]:
    """The rungs, lightest first: even steps of at most the resolution, to four digits."""
    low, high = workload.between
    steps = math.ceil(math.log(high / low) / math.log1p(workload.resolution_pct / 100) - 1e-9)
    kind: Literal["rate", "share"] = "rate" if workload.between_rps else "share"
    return [Offer(kind, float(f"{low * (high / low) ** (step / steps):.4g}")) for step in range(steps + 1)]


def next_offer(workload: SearchWorkload, rows: Iterable[Row]) -> Offer:
    """Halve what lies between the highest rung that meets the objective and the lowest that does not.

    Each rung is tried until it is decided; when no rung is left between the two, these are tried in turn.
    """
    rungs, tried = rungs_of(workload), _by_load(workload, rows)
    trials = [tried.get(str(rung), []) for rung in rungs]
    answers = [met(seen, workload.availability_pct) for seen in trials]
    missed = next((place for place, answer in enumerate(answers) if answer is False), len(rungs))
    best = max((place for place in range(missed) if answers[place]), default=-1)
    between = range(best + 1, missed)
    if between:
        return rungs[next((place for place in between if trials[place]), (best + missed) // 2)]
    ends = [place for place in (best, missed) if 0 <= place < len(rungs)]
    return rungs[min(ends, key=lambda place: len(trials[place]))]


def met(trials: Sequence[Seen], availability_pct: float) -> bool | None:
    """Whether the trials of one rung show that the objective is met; None while more of them may tell.

    Availability is that of all their requests. What six trials leave open counts as missed, as on a ladder.
    """
    margins = [trial.margin for trial in trials if trial.margin is not None]
    if len(trials) < FIRST_LOOK:
        return None
    requests, successful = (sum(getattr(trial, name) for trial in trials) for name in ("requests", "successful"))
    if 100 * successful < availability_pct * requests:
        return False
    if len(margins) >= FIRST_LOOK:
        looked_at = margins if len(margins) >= LAST_LOOK else margins[:FIRST_LOOK]
        t = T_AT[min(len(looked_at), LAST_LOOK)]
        mean, half = statistics.mean(looked_at), t * statistics.stdev(looked_at) / math.sqrt(len(looked_at))
        if abs(mean) > half:
            return mean > 0
    return None if len(trials) < LAST_LOOK else False


def _by_load(workload: SearchWorkload, rows: Iterable[Row]) -> dict[str, list[Seen]]:
    """Offered load → its trials in the order of the run; of each trial the last attempt."""
    last = {(int(row["block"]), int(row["order"])): row for row in rows}
    tried: dict[str, list[Seen]] = {}
    for _, row in sorted(last.items()):
        tried.setdefault(row["offered_load"], []).append(_seen(workload, row))
    return tried


def _seen(workload: SearchWorkload, row: Row) -> Seen:
    p99_us = float(row["response_time_p99_us"] or 0) if row["verdict"] != "invalid" else 0.0
    counted = bool(row["requests"] and row["successful"])
    return Seen(
        margin=math.log(1000 * workload.deadline_ms / p99_us) if p99_us else None,
        requests=int(row["requests"]) if counted else 0,
        successful=int(row["successful"]) if counted else 0,
    )
