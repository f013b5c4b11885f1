"""An open loop: requests at a rate, at even or random intervals, regardless of the server. Yields response times and
goodput.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vmtoll.loadgen import OpenLoad, ToolResult
from vmtoll.model.errors import ToolError
from vmtoll.model.event import Phase
from vmtoll.model.finding import Finding, Role
from vmtoll.model.load import LoadKind
from vmtoll.model.operation import OperationTimes
from vmtoll.model.trial import Measurement, Offered, Times
from vmtoll.model.workload import OpenWorkload, RampWorkload
from vmtoll.trial import gates, latency, operation
from vmtoll.trial.loads import LoadDriver, ToolRun
from vmtoll.trial.measurement import TrialResults, base_measurement, tool_findings

# Each has its own connection.
MOST_IN_FLIGHT = 5000


def measure(driver: LoadDriver, workload: OpenWorkload) -> TrialResults:
    """Run the tool, then the cross-check, at the same rate. Raises ToolError, HostLostError."""
    experiment, load_offered = driver.experiment, offered(driver, workload)
    rate_rps = driver.rate_rps(load_offered)
    driver.tell(Phase.PREPARING, tool=workload.tool, role=Role.PRIMARY)
    if driver.is_cold:
        urls = driver.each_file_once(users=1)
        load = replace(driver.open_load(rate_rps, experiment.duration_s), urls=urls, requests=len(urls))
        load = driver.with_arrivals(load)
    else:
        warmup = driver.run(workload.tool, driver.open_load(rate_rps, experiment.warmup_s), experiment.warmup_s)
        warmup.raise_if_killed(f"{workload.tool} (warm-up)")
        load = driver.open_load(rate_rps, experiment.duration_s)
    if experiment.during:  # all that a standstill leaves waiting
        load = replace(load, in_flight=min(MOST_IN_FLIGHT, max(load.in_flight, math.ceil(rate_rps * load.timeout_s))))
    runs = [driver.measure(Role.PRIMARY, workload.tool, load, load.requests / rate_rps)]
    if (tool := workload.crosscheck) and not experiment.during:
        driver.tell(Phase.PREPARING, tool=tool, role=Role.CROSSCHECK)
        load = driver.open_load(rate_rps, experiment.crosscheck_s)
        runs.append(driver.measure(Role.CROSSCHECK, tool, load, experiment.crosscheck_s))
    measurements = tuple(measurement_of(driver, run, workload.deadline_ms) for run in runs)
    done = None
    if experiment.during:
        measurement, done = _with_disruption(driver, runs[0], measurements[0], workload.deadline_ms)
        measurements = (measurement,)
    findings = gates.mean_over_p99(measurements[0])
    for run, measurement in zip(runs, measurements, strict=True):
        findings += tool_findings(run) + rate_not_reached(run) + gates.client_late(measurement)
    return TrialResults(load_offered, runs, measurements, findings, operation=done)


def offered(driver: LoadDriver, workload: OpenWorkload) -> Offered:
    """This scenario's load in numbers: its rate on this machine, deadline, and the capacity that it is a share of."""
    load, capacity = driver.scenario.load, driver.capacity
    common = Offered(deadline_ms=workload.deadline_ms, arrivals=workload.arrivals, arrivals_seed=driver.arrivals_seed)
    if capacity is None:
        return replace(common, offered_rps=load.value)
    return replace(
        common,
        offered_rps=load.value * capacity.mean_rps if load.kind is LoadKind.SHARE else load.value,
        capacity_rps=capacity.mean_rps,
        capacity_low_rps=capacity.low_rps,
        capacity_high_rps=capacity.high_rps,
        capacity_trials=capacity.trials,
    )


def rate_not_reached(run: ToolRun) -> list[Finding]:
    """Findings on clients that did not reach their part of the rate."""
    findings: list[Finding] = []
    for part in run.parts:
        load, late_us = part.execution.load, _most_late_us(part.result)
        if isinstance(load, OpenLoad) and late_us is not None:
            findings += gates.rate_not_reached(load.requests, load.rate_rps, late_us, run.role, run.tool, part.client)
    return findings


def _most_late_us(result: ToolResult) -> float | None:
    """The client's longest delay of a request; if the tool does not report delays, the delay of the last request."""
    if result.lateness_us is None or not len(result.lateness_us):
        return result.behind_us
    return float(result.lateness_us.max())


def _latencies(run: ToolRun) -> NDArray[np.int64]:
    if run.result.latencies_us is None:
        raise ToolError(f"{run.tool}: it logs no requests, so there is no response time")
    return run.result.latencies_us


def measurement_of(driver: LoadDriver, run: ToolRun, deadline_ms: float) -> Measurement:
    """The figures of one tool. Throughput is over the time from the first intended send to the last response; goodput
    over the planned sending time, so that one late answer costs only one request.
    """
    result, latencies_us = run.result, _latencies(run)
    elapsed_s = result.elapsed_s or run.execution.wall_s  # no answer at all
    measurement = replace(
        base_measurement(run, elapsed_s),
        goodput_rps=int(np.count_nonzero(latencies_us <= deadline_ms * 1000)) / _intended_s(run),
    )
    if result.lateness_us is not None and len(result.lateness_us):
        p99_us = latency.times(result.lateness_us).p99_us
        measurement = replace(measurement, lateness=Times(p99_us=p99_us, max_us=_most_late_us(result)))
    if result.transferred_mb is None and isinstance(run.load, OpenLoad):
        measurement = replace(measurement, transferred_mb=_bodies_mb(driver, run.load, result.successful))
    return replace(measurement, response_time=latency.times(latencies_us))


def _with_disruption(
    driver: LoadDriver, run: ToolRun, measurement: Measurement, deadline_ms: float
) -> tuple[Measurement, OperationTimes | None]:
    """The measurement with what clients noticed of the operation, or notice without one at the same time of the load;
    when the operation was, None without one. Its course is stored. Raises ToolError.
    """
    log = operation.log_of(run.result)
    spell = run.spell or operation.planned_spell(driver.session, driver.arm.environment, float(log.planned[0]))
    noticed = operation.noticed(log, spell, deadline_ms)
    done = operation.times(log, spell, is_over=noticed.is_over) if run.spell else None
    driver.session.store.write_file(f"operations/{driver.name}.json", operation.course(log, spell, done))
    measurement = replace(
        measurement, blackout_ms=noticed.blackout_ms, brownout_s=noticed.brownout_s, late_answers=noticed.late
    )
    return measurement, done


def _intended_s(run: ToolRun) -> float:
    """Planned duration of the sending, in seconds. Raises ToolError for a load without a rate."""
    if not isinstance(run.load, OpenLoad):
        raise ToolError(f"{run.tool}: there is no rate to send at")
    return run.load.requests / run.load.rate_rps


def _bodies_mb(driver: LoadDriver, load: OpenLoad, successful: int) -> float | None:
    """Size of the bodies in 10⁶ bytes, for a tool that does not count them: mean size of the requested files in the
    manifest times its successes. None if a requested page is no file of the site: a server or service generates it.
    """
    if load.guard:
        return None
    sizes = {file["path"]: file["size_bytes"] for file in driver.session.content["files"]}
    urls = itertools.islice(itertools.cycle(load.urls), load.requests)
    sizes_by_url = [sizes.get(url.split("/", 4)[4]) for url in urls]
    known_sizes = [size for size in sizes_by_url if size is not None]
    return sum(known_sizes) / len(sizes_by_url) * successful / 1e6 if len(known_sizes) == len(sizes_by_url) else None


def measure_ramp(driver: LoadDriver, workload: RampWorkload) -> TrialResults:
    """Run the tool at this rate, with the deadline as its timeout. A late answer is no failure: a ramp looks for them.

    Such a tool may spin while it waits, so no gate judges its CPU; one judges the requests that it could not send.
    Raises ToolError, HostLostError.
    """
    experiment, tool, load_offered = driver.experiment, workload.tool, offered(driver, workload)
    rate_rps = driver.rate_rps(load_offered)
    driver.tell(Phase.PREPARING, tool=tool, role=Role.PRIMARY)
    driver.run(tool, driver.open_load(rate_rps, experiment.warmup_s), experiment.warmup_s)
    load = replace(driver.open_load(rate_rps, experiment.duration_s), timeout_s=workload.deadline_ms / 1000)
    run = driver.measure(Role.PRIMARY, tool, load, experiment.duration_s)
    result, elapsed_s = run.result, run.result.elapsed_s or run.execution.wall_s
    measurement = replace(
        base_measurement(run, elapsed_s),
        throughput_mb_per_s=None,
        goodput_rps=result.successful / _intended_s(run),
    ).with_columns({"response_time_mean_ms": result.response_time_mean_ms, **result.columns})
    expected = result.transactions + result.failed
    findings = gates.failed_requests(expected, result.transactions, result.successful, result.failed, run.role, tool)
    findings += gates.unsent(result.unsent, load.requests, tool)
    return TrialResults(load_offered, [run], (measurement,), findings)
