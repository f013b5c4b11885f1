"""What a plan measures, leaves out and takes: as text for --dry-run and before the first trial, and as JSON."""

import math
from collections.abc import Iterator
from typing import Any

from vmtoll.commands.answer import print_either
from vmtoll.model.errors import UserError
from vmtoll.model.workload import ClosedWorkload
from vmtoll.runner.plan import ASSUMED_RPS, BOOT_S, EXPLAINED_TRIALS, explained
from vmtoll.runner.run import Plan
from vmtoll.runner.service import most_requests

_DRAWN = "the order of a run is drawn at random and recorded"
_RESUMED = "what the run already has is not measured again"


def show(planned: Plan, *, resumed: bool, as_json: bool) -> None:
    """Print the schedule and the time it will take."""
    print_either(as_json, lambda: schedule(planned), lambda: plan_lines(planned, resumed=resumed))


def schedule(planned: Plan) -> dict[str, object]:
    """The output of --dry-run, for programs. `total_s`: with `until`, the maximum."""
    trials = [
        {"block": trial.block, "order": trial.order, "arm": str(trial.arm), "server": trial.scenario.server,
         "workload": trial.scenario.workload, "load_kind": trial.scenario.load.kind.value,
         "load_value": trial.scenario.load.value}
        for trial in planned.trials
    ]  # fmt: skip
    skipped = [skip.model_dump(exclude_none=True) for skip in planned.resolved.skipped]
    one_boot = planned.resolved.one_boot
    boots = {
        "count": planned.resolved.experiment.boots, "restarts": planned.restarts, "restart_s": planned.restart_s,
        "why_one": one_boot.text if one_boot else None,
    }  # fmt: skip
    return {"trials": trials, "skipped": skipped, "boots": boots, "total_s": round(planned.total_s, 1)}


def boots_text(planned: Plan) -> str:
    """What the boots of a plan cost, or why it has one; empty for an experiment that has one in any case."""
    if one_boot := planned.resolved.one_boot:
        return f"one boot: {one_boot.text}"
    if not planned.restarts:
        return ""
    experiment, inventory, restart_s = planned.resolved.experiment, planned.inventory, planned.restart_s
    in_lab = inventory is None or inventory.client.vars.lab == "embedded"
    restarted = "guest and container (the host is not rebooted)" if in_lab else "each machine under test and its host"
    boots = f"{experiment.boots} boots up to the first look" if experiment.until else f"{experiment.boots} boots"
    text = f"{boots}: {planned.restarts} restart{'s' * (planned.restarts != 1)} of {restarted}, "
    if restart_s is None:
        return f"{text}for which the time counts {BOOT_S:.0f} s each"
    return f"{text}{planned.restarts * restart_s / 60:.1f} minutes at {restart_s:.0f} s each as in an earlier run"


def plan_lines(planned: Plan, *, resumed: bool) -> Iterator[str]:
    """The trials of a plan, what it leaves out, and how long it takes."""
    from vmtoll.report.words import load_text  # noqa: PLC0415 (loads pandas)

    for trial in planned.trials:
        scenario = trial.scenario
        yield (
            f"block {trial.block}  {trial.order:3d}  {trial.arm!s:12}  {scenario.server:18}  "
            f"{scenario.workload:16}  {load_text(scenario.load)}"
        )
    if pairs := explained(planned.resolved):
        yield f"then {EXPLAINED_TRIALS * len(pairs)} trials in which exits are traced"
    for skip in planned.resolved.skipped:
        yield f"skipped: {skip.name}: {skip.why}"
    if text := boots_text(planned):
        yield text
    if planned.resolved.requests:
        yield service_cost_text(planned)
        return
    minutes, until = planned.total_s / 60, planned.resolved.experiment.until
    size = f"{len(planned.trials)} trials, about {minutes:.1f} minutes"
    if until:
        size = (
            f"{len(planned.trials)} trials up to the first look, more until every comparison is decided or known "
            f"within ±{until.half_width_pct:g}%, at most {minutes:.1f} minutes"
        )
    yield f"{size}; {_RESUMED if resumed else _DRAWN}"


def check_time(minutes: float, at_most_min: float | None, takes: str, way_out: str) -> None:
    """Raise UserError for what takes more than `at_most_min`. `takes`: that it does, without the unit."""
    if at_most_min is not None and minutes > at_most_min:
        raise UserError(f"it {takes} minutes, and --at-most-min is {at_most_min:g}: {way_out}")


def requests_of(planned: Plan) -> float:
    """The order of magnitude of a plan's requests, warm-ups included."""
    experiment = planned.resolved.experiment
    requests = 0.0
    for trial in planned.trials:
        load, workload = trial.scenario.load, planned.resolved.workloads[trial.scenario.workload]
        crosscheck_s = experiment.crosscheck_s if workload.crosscheck else 0.0
        seconds = experiment.warmup_s + experiment.duration_s + crosscheck_s
        request_count = workload.count(experiment.scale) if isinstance(workload, ClosedWorkload) else None
        requests += request_count or seconds * (load.value if load.kind.value == "rate" else ASSUMED_RPS)
    return requests


def requests_text(requests: float) -> str:
    """`1.2 million`, `270,000`."""
    return f"{requests / 1e6:.1f} million" if requests >= 1e6 else f"{requests:,.0f}"


def cost_text(planned: Plan) -> str:
    """`54 trials, about 9 minutes, in the order of 1.2 million requests to nginx: 10 users`; with `until` "at most"."""
    from vmtoll.report.words import load_text, plural  # noqa: PLC0415 (loads pandas)

    experiment = planned.resolved.experiment
    loads = sorted({trial.scenario.load for trial in planned.trials}, key=lambda load: load.sort_key)
    minutes = plural(math.ceil(planned.total_s / 60), "minute")
    qualifier = "at most" if experiment.until else "about"
    amount = requests_text(requests_of(planned))
    return (
        f"{len(planned.trials)} trials, {qualifier} {minutes}, in the order of {amount} requests to "
        f"{', '.join(experiment.servers)}: {', '.join(map(load_text, loads))}"
    )


def service_cost_text(planned: Plan) -> str:
    """`16 trials, about 4 minutes, at most 3,300 requests to https://shop.example, never more than 50 a second`."""
    planned_cost = service_cost(planned)
    qualifier = "up to the first look, at most" if planned.resolved.experiment.until else "about"
    minutes = math.ceil(planned_cost["total_s"] / 60)
    requests = planned.resolved.requests
    left_out = (
        f"; {requests.left_out:,} of {requests.of:,} requests of the log are for another server, or for no path, and "
        "left out"
        if requests and requests.left_out
        else ""
    )
    return (
        f"{planned_cost['trials']} trials, {qualifier} {minutes} minute{'s' * (minutes != 1)}, at most "
        f"{planned_cost['most_requests']:,} requests to {', '.join(planned_cost['addresses'])}, never more than "
        f"{planned_cost['at_most_rps']:g} a second{left_out}"
    )


def service_cost(planned: Plan) -> dict[str, Any]:
    """What a plan asks of its service at most. Raises UserError for a plan without one."""
    requests = planned.resolved.requests
    if requests is None:
        raise UserError(f"{planned.resolved.file}: service: has none")
    return {
        "trials": len(planned.trials),
        "total_s": planned.total_s,
        "most_requests": most_requests(planned.resolved, requests),
        "addresses": list(dict.fromkeys(requests.addresses.values())),
        "at_most_rps": requests.service.at_most_rps,
    }
