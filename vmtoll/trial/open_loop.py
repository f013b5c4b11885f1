"""An open loop: requests at a rate, at even or random intervals, regardless of the server. Yields response times and
goodput.
"""

import itertools
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vmtoll.loadgen import OpenLoad, ToolResult
from vmtoll.model.errors import ToolError
from vmtoll.model.event import Phase
from vmtoll.model.finding import Finding, Role
from vmtoll.model.load import LoadKind
from vmtoll.model.trial import Measurement, Offered
from vmtoll.model.workload import OpenWorkload, RampWorkload
from vmtoll.trial import gates, latency
from vmtoll.trial.loads import Driver, ToolRun
from vmtoll.trial.measurement import Measured, findings, measurement, with_figures


def measure(driver: Driver, workload: OpenWorkload) -> Measured:
    """Run the tool, then the cross-check, at the same rate. Raises ToolError, HostLostError."""
    experiment, load_offered = driver.experiment, offered(driver, workload)
    rate_rps = driver.rate_rps(load_offered)
    driver.tell(Phase.PREPARING, tool=workload.tool, role=Role.PRIMARY)
    if driver.cold:
        urls = driver.once(users=1)
        load = replace(driver.opened(rate_rps, experiment.duration_s), urls=urls, requests=len(urls))
        load = driver.scheduled(load)
    else:
        warmed = driver.run(workload.tool, driver.opened(rate_rps, experiment.warmup_s), experiment.warmup_s)
        warmed.require(f"{workload.tool} (warm-up)")
        load = driver.opened(rate_rps, experiment.duration_s)
    runs = [driver.measured(Role.PRIMARY, workload.tool, load, load.requests / rate_rps)]
    if tool := workload.crosscheck:
        driver.tell(Phase.PREPARING, tool=tool, role=Role.CROSSCHECK)
        load = driver.opened(rate_rps, experiment.crosscheck_s)
        runs.append(driver.measured(Role.CROSSCHECK, tool, load, experiment.crosscheck_s))
    measurements = tuple(_measurement(driver, run, workload.deadline_ms) for run in runs)
    fired = gates.mean_over_p99(measurements[0])
    for run, measured in zip(runs, measurements, strict=True):
        fired += findings(run) + _rate_not_reached(run) + gates.client_late(measured)
    return Measured(load_offered, runs, measurements, fired)


def offered(driver: Driver, workload: OpenWorkload) -> Offered:
    """This scenario's load in numbers: its rate on this machine, deadline, and the capacity that it is a share of."""
    load, whole = driver.scenario.load, driver.capacity
    common = Offered(deadline_ms=workload.deadline_ms, arrivals=workload.arrivals, arrivals_seed=driver.arrivals_seed)
    if whole is None:
        return replace(common, offered_rps=load.value)
    return replace(
        common,
        offered_rps=load.value * whole.mean_rps if load.kind is LoadKind.SHARE else load.value,
        capacity_rps=whole.mean_rps,
        capacity_low_rps=whole.low_rps,
        capacity_high_rps=whole.high_rps,
        capacity_trials=whole.trials,
    )


def _rate_not_reached(run: ToolRun) -> list[Finding]:
    """Findings on clients that did not reach their part of the rate."""
    fired: list[Finding] = []
    for part in run.parts:
        load, late_us = part.done.load, _most_late_us(part.result)
        if isinstance(load, OpenLoad) and late_us is not None:
            fired += gates.rate_not_reached(load.requests, load.rate_rps, late_us, run.role, run.tool, part.client)
    return fired


def _most_late_us(result: ToolResult) -> float | None:
    """The client's longest delay of a request; if the tool does not report delays, the delay of the last request."""
    if result.lateness_us is None or not len(result.lateness_us):
        return result.behind_us
    return float(result.lateness_us.max())


def _latencies(run: ToolRun) -> NDArray[np.int64]:
    if run.result.latencies_us is None:
        raise ToolError(f"{run.tool}: it logs no requests, so there is no response time")
    return run.result.latencies_us


def _measurement(driver: Driver, run: ToolRun, deadline_ms: float) -> Measurement:
    """The figures of one tool. Throughput is over the time from the first intended send to the last response; goodput
    over the planned sending time, so that one late answer costs only one request.
    """
    result, latencies_us = run.result, _latencies(run)
    elapsed_s = result.elapsed_s or run.done.wall_s  # no answer at all
    measured = replace(
        measurement(run, elapsed_s),
        goodput_rps=int(np.count_nonzero(latencies_us <= deadline_ms * 1000)) / _intended_s(run),
        response_time_max_us=float(latencies_us.max()) if len(latencies_us) else None,
    )
    if result.lateness_us is not None and len(result.lateness_us):
        lateness_p99_us = latency.summary("lateness", result.lateness_us).get("lateness_p99_us")
        measured = replace(measured, lateness_p99_us=lateness_p99_us, lateness_max_us=_most_late_us(result))
    if result.transferred_mb is None and isinstance(run.load, OpenLoad):
        measured = replace(measured, transferred_mb=_bodies_mb(driver, run.load, result.successful))
    return with_figures(measured, latency.summary("response_time", latencies_us))


def _intended_s(run: ToolRun) -> float:
    """Planned duration of the sending, in seconds. Raises ToolError for a load without a rate."""
    if not isinstance(run.load, OpenLoad):
        raise ToolError(f"{run.tool}: there is no rate to send at")
    return run.load.requests / run.load.rate_rps


def _bodies_mb(driver: Driver, load: OpenLoad, successful: int) -> float | None:
    """Size of the bodies in 10⁶ bytes, for a tool that does not count them: mean size of the requested files in the
    manifest times its successes. None if a requested page is no file of the site: the server generates it.
    """
    sizes = {file["path"]: file["size_bytes"] for file in driver.session.content["files"]}
    urls = itertools.islice(itertools.cycle(load.urls), load.requests)
    sizes_by_url = [sizes.get(url.split("/", 4)[4]) for url in urls]
    known_sizes = [size for size in sizes_by_url if size is not None]
    return sum(known_sizes) / len(sizes_by_url) * successful / 1e6 if len(known_sizes) == len(sizes_by_url) else None


def measure_ramp(driver: Driver, workload: RampWorkload) -> Measured:
    """Run the tool at this rate, with the deadline as its timeout. A late answer is no failure: a ramp looks for them.

    Such a tool may spin while it waits, so no gate judges its CPU; one judges the requests that it could not send.
    Raises ToolError, HostLostError.
    """
    experiment, tool, load_offered = driver.experiment, workload.tool, offered(driver, workload)
    rate_rps = driver.rate_rps(load_offered)
    driver.tell(Phase.PREPARING, tool=tool, role=Role.PRIMARY)
    driver.run(tool, driver.opened(rate_rps, experiment.warmup_s), experiment.warmup_s)
    load = replace(driver.opened(rate_rps, experiment.duration_s), timeout_s=workload.deadline_ms / 1000)
    run = driver.measured(Role.PRIMARY, tool, load, experiment.duration_s)
    seen, elapsed_s = run.result, run.result.elapsed_s or run.done.wall_s
    measured = replace(
        measurement(run, elapsed_s),
        throughput_mb_per_s=None,
        goodput_rps=seen.successful / _intended_s(run),
        response_time_mean_ms=seen.response_time_mean_ms,
    )
    expected = seen.transactions + seen.failed
    fired = gates.failed_requests(expected, seen.transactions, seen.successful, seen.failed, run.role, tool)
    fired += gates.unsent(seen.unsent, load.requests, tool)
    return Measured(load_offered, [run], (with_figures(measured, seen.columns),), fired)
