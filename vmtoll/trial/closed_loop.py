"""A closed loop: each user waits for an answer before the next request. Yields throughput and service times."""

from dataclasses import replace

from vmtoll import loadgen
from vmtoll.loadgen import ClosedLoad, ToolLoad, ToolResult
from vmtoll.model.event import Phase
from vmtoll.model.finding import Finding, Role
from vmtoll.model.trial import Measurement, Offered
from vmtoll.model.workload import ClosedWorkload
from vmtoll.trial import gates, latency
from vmtoll.trial.loads import LoadDriver, ToolRun
from vmtoll.trial.measurement import TrialResults, base_measurement, tool_findings, with_service_times

# The server is warm already: this only finds the cross-check's rate, if no earlier trial has.
_CROSSCHECK_WARMUP_S = 0.3


def measure(driver: LoadDriver, workload: ClosedWorkload) -> TrialResults:
    """Run the tool, then the cross-check, each for its time. Raises ToolError, HostLostError."""
    runs = [_primary(driver, workload), *([_crosscheck(driver, workload.crosscheck)] if workload.crosscheck else [])]
    measurements = tuple(_measurement(run) for run in runs)
    findings = tool_findings(runs[0]) + _littles_law(runs[0])
    for run in runs[1:]:
        findings += tool_findings(run)
    logged = [measurement for measurement in measurements if measurement.logs_service_times]
    for measurement in logged[-1:]:  # the measurement whose latencies are kept as a histogram
        findings += gates.mean_over_p99(measurement)
    return TrialResults(Offered(users=driver.users), runs, measurements, findings)


def _primary(driver: LoadDriver, workload: ClosedWorkload) -> ToolRun:
    experiment, users = driver.experiment, driver.users
    driver.tell(Phase.PREPARING, tool=workload.tool, role=Role.PRIMARY)
    if workload.cold:
        urls = driver.each_file_once(users)
        load = replace(driver.closed_load(workload.tool, users, None, 0), urls=urls, requests=len(urls))
        return driver.measure(Role.PRIMARY, workload.tool, load, None)
    rate_rps = driver.warm(workload.tool, users, experiment.warmup_s)
    load = driver.closed_load(workload.tool, users, rate_rps, experiment.duration_s)
    if requests := workload.count(experiment.scale):
        load = replace(load, requests=requests)
    return driver.measure(Role.PRIMARY, workload.tool, load, load.requests / rate_rps)


def _crosscheck(driver: LoadDriver, tool: str) -> ToolRun:
    driver.tell(Phase.PREPARING, tool=tool, role=Role.CROSSCHECK)
    rate_rps = driver.known_rate_rps(tool) or driver.warm(tool, driver.users, _CROSSCHECK_WARMUP_S)
    load = driver.closed_load(tool, driver.users, rate_rps, driver.experiment.crosscheck_s)
    return driver.measure(Role.CROSSCHECK, tool, load, load.requests / rate_rps)


def _measurement(run: ToolRun) -> Measurement:
    result = run.result
    measurement = base_measurement(run, run.execution.wall_s)
    steady = _steady_part(run.load, result)
    measurement = replace(
        measurement,
        throughput_rps=steady.rps if steady else measurement.throughput_rps,
        concurrency=steady.in_flight if steady else result.concurrency,
    ).with_columns({name: getattr(result, name) for name in ("response_time_mean_ms", "longest_ms", "shortest_ms")})
    return with_service_times(measurement.with_columns(result.columns), result.latencies_us)


def _steady_part(load: ToolLoad, result: ToolResult) -> latency.SteadyPart | None:
    """The steady part of a closed loop; None if the tool does not log each request, or there is no such part."""
    if not isinstance(load, ClosedLoad) or result.sent_us is None or result.latencies_us is None:
        return None
    return latency.steady_part(result.sent_us, result.latencies_us, load.in_flight)


def _littles_law(run: ToolRun) -> list[Finding]:
    """Findings on each client by itself: if one ends before the others, fewer users were active together."""
    tick_s = loadgen.get(run.tool).tick_s
    findings: list[Finding] = []
    for part in run.parts:
        load, result = part.execution.load, part.result
        if isinstance(load, ClosedLoad):
            steady = _steady_part(load, result)
            in_flight = steady.in_flight if steady else result.concurrency
            findings += gates.littles_law(
                in_flight, load.in_flight, result.transactions, result.elapsed_s, tick_s, run.tool, part.client
            )
    return findings
