"""A closed loop: each user waits for an answer before the next request. Yields throughput and service times."""

from dataclasses import replace

from vmtoll import loadgen
from vmtoll.loadgen import ClosedLoad, ToolLoad, ToolResult
from vmtoll.model.event import Phase
from vmtoll.model.finding import Finding, Role
from vmtoll.model.trial import Measurement, Offered
from vmtoll.model.workload import ClosedWorkload
from vmtoll.trial import gates, latency
from vmtoll.trial.loads import Driver, ToolRun
from vmtoll.trial.measurement import Measured, findings, measurement, with_figures, with_service_times

# The server is warm already: this only finds the cross-check's rate, if no earlier trial has.
_CROSSCHECK_WARMUP_S = 0.3


def measure(driver: Driver, workload: ClosedWorkload) -> Measured:
    """Run the tool, then the cross-check, each for its time. Raises ToolError, HostLostError."""
    runs = [_primary(driver, workload), *([_crosscheck(driver, workload.crosscheck)] if workload.crosscheck else [])]
    measurements = tuple(_measurement(run) for run in runs)
    fired = findings(runs[0]) + _littles_law(runs[0])
    for run in runs[1:]:
        fired += findings(run)
    logged = [measured for measured in measurements if measured.logs_service_times]
    for measured in logged[-1:]:  # the measurement whose latencies are kept as a histogram
        fired += gates.mean_over_p99(measured)
    return Measured(Offered(users=driver.users), runs, measurements, fired)


def _primary(driver: Driver, workload: ClosedWorkload) -> ToolRun:
    experiment, users = driver.experiment, driver.users
    driver.tell(Phase.PREPARING, tool=workload.tool, role=Role.PRIMARY)
    if workload.cold:
        urls = driver.once(users)
        load = replace(driver.closed(workload.tool, users, None, 0), urls=urls, requests=len(urls))
        return driver.measured(Role.PRIMARY, workload.tool, load, None)
    rate_rps = driver.warm(workload.tool, users, experiment.warmup_s)
    load = driver.closed(workload.tool, users, rate_rps, experiment.duration_s)
    if requests := workload.count(experiment.scale):
        load = replace(load, requests=requests)
    return driver.measured(Role.PRIMARY, workload.tool, load, load.requests / rate_rps)


def _crosscheck(driver: Driver, tool: str) -> ToolRun:
    driver.tell(Phase.PREPARING, tool=tool, role=Role.CROSSCHECK)
    rate_rps = driver.known_rate_rps(tool) or driver.warm(tool, driver.users, _CROSSCHECK_WARMUP_S)
    load = driver.closed(tool, driver.users, rate_rps, driver.experiment.crosscheck_s)
    return driver.measured(Role.CROSSCHECK, tool, load, load.requests / rate_rps)


def _measurement(run: ToolRun) -> Measurement:
    result = run.result
    measured = measurement(run, run.done.wall_s)
    steady = _steady(run.load, result)
    measured = replace(
        measured,
        throughput_rps=steady.rps if steady else measured.throughput_rps,
        response_time_mean_ms=result.response_time_mean_ms,
        concurrency=steady.in_flight if steady else result.concurrency,
        longest_ms=result.longest_ms,
        shortest_ms=result.shortest_ms,
    )
    return with_service_times(with_figures(measured, result.columns), result.latencies_us)


def _steady(load: ToolLoad, result: ToolResult) -> latency.Steady | None:
    """The steady part of a closed loop; None if the tool does not log each request, or there is no such part."""
    if not isinstance(load, ClosedLoad) or result.sent_us is None or result.latencies_us is None:
        return None
    return latency.steady(result.sent_us, result.latencies_us, load.in_flight)


def _littles_law(run: ToolRun) -> list[Finding]:
    """Findings on each client by itself: if one ends before the others, fewer users were active together."""
    tick_s = loadgen.get(run.tool).tick_s
    fired: list[Finding] = []
    for part in run.parts:
        load, result = part.done.load, part.result
        if isinstance(load, ClosedLoad):
            steady = _steady(load, result)
            in_flight = steady.in_flight if steady else result.concurrency
            fired += gates.littles_law(
                in_flight, load.in_flight, result.transactions, result.elapsed_s, tick_s, run.tool, part.client
            )
    return fired
