"""A closed loop: users who wait for each answer. Throughput under so many users, and service times."""

from dataclasses import replace

from workloads import tools
from workloads.runner import gates, latency
from workloads.runner.driver import Driver, Phase
from workloads.runner.gates import Reason
from workloads.runner.measured import Measured
from workloads.runner.results import Row
from workloads.runner.workload import ClosedWorkload
from workloads.tools import Load

# The server is warm already; this only learns how fast the twin is, where no earlier trial has.
_TWIN_WARMUP_S = 0.3


def measure(driver: Driver, workload: ClosedWorkload) -> Measured:
    """The tool, then its twin, each for its time. Raises ToolError, HostLostError."""
    experiment, users = driver.experiment, workload.users
    driver.tell(workload.tool)
    if workload.cold:
        urls = driver.once(users)
        own = driver.measured(workload.tool, Load(urls, users, len(urls), workload.keep_alive), None)
    else:
        rate_rps = driver.warm(workload.tool, users, experiment.warmup_s)
        load = driver.closed(workload.tool, users, rate_rps, experiment.duration_s)
        if requests := workload.count(experiment.scale):
            load = replace(load, requests=requests)
        own = driver.measured(workload.tool, load, load.requests / rate_rps)
    row, reasons, logged = _columns(own, workload), own.reasons() + _littles_law(own), own
    if workload.twin:
        driver.tell(workload.twin)
        rate_rps = driver.known_rate_rps(workload.twin) or driver.warm(workload.twin, users, _TWIN_WARMUP_S)
        load = driver.closed(workload.twin, users, rate_rps, experiment.twin_s)
        logged = driver.measured(workload.twin, load, load.requests / rate_rps)
        reasons += logged.reasons(twin=True)
    phases = [own, logged] if workload.twin else [own]
    if logged.result.latencies_us is not None:
        row |= latency.summary("service_time", logged.result.latencies_us)
        reasons += gates.mean_over_p99(row, "service_time")
    return Measured(row, reasons, phases, logged.results)


def _littles_law(own: Phase) -> list[Reason]:
    """Of each client by itself: where one is done before the others, they had fewer users together."""
    tick_s = tools.get(own.tool).TICK_S
    return [
        reason
        for part in own.parts
        if isinstance(part.done.load, Load)
        for reason in gates.littles_law(
            part.result.concurrency, part.done.load.users, part.result.elapsed_s, tick_s, part.who
        )
    ]


def _columns(own: Phase, workload: ClosedWorkload) -> Row:
    result, wall_s = own.result, own.done.wall_s
    return {
        "users": workload.users,
        "throughput_rps": result.transactions / wall_s,
        "throughput_mb_per_s": None if result.transferred_mb is None else result.transferred_mb / wall_s,
        "response_time_mean_ms": result.response_time_mean_ms,
        "concurrency": result.concurrency,
        "longest_ms": result.longest_ms,
        "shortest_ms": result.shortest_ms,
        **result.columns,
    }
