"""An open loop: requests at a constant rate, whether or not the server keeps up. Response times and goodput."""

import itertools

import numpy as np
from numpy.typing import NDArray

from workloads.runner import gates, latency
from workloads.runner.driver import Driver, Phase
from workloads.runner.gates import Reason
from workloads.runner.joint import merged
from workloads.runner.measured import Measured
from workloads.runner.results import Row
from workloads.runner.workload import Capacity, OpenWorkload
from workloads.tools import OpenLoad, ToolError


def measure(driver: Driver, workload: OpenWorkload) -> Measured:
    """The tool, then the cross-check tool, at the same rate. Raises ToolError, HostLostError."""
    experiment, row = driver.experiment, offered(driver, workload)
    rate_rps = row["offered_rps"]
    driver.tell(workload.tool)
    if driver.cold:
        urls = driver.once(users=1)
        load = OpenLoad(urls, rate_rps, len(urls), workload.keep_alive)
    else:
        warmed = driver.run(workload.tool, driver.opened(rate_rps, experiment.warmup_s), experiment.warmup_s)
        warmed.require(f"{workload.tool}, warming up,")
        load = driver.opened(rate_rps, experiment.duration_s)
    own = driver.measured(workload.tool, load, load.requests / rate_rps)
    row |= _columns(own, workload.deadline_ms)
    if own.result.transferred_mb is None:
        row["transferred_mb"] = _bodies_mb(driver, load, own.result.successful)
    reasons, phases = own.reasons() + gates.mean_over_p99(row, "response_time") + _rate_not_reached(own), [own]
    if workload.twin:
        driver.tell(workload.twin)
        twin = driver.measured(workload.twin, driver.opened(rate_rps, experiment.twin_s), experiment.twin_s)
        row["twin_response_time_p99_us"] = latency.summary("response_time", _latencies(twin)).get(
            "response_time_p99_us"
        )
        reasons += twin.reasons(twin=True)
        phases.append(twin)
    return Measured(row, reasons, phases, own.results)


def offered(driver: Driver, workload: OpenWorkload) -> Row:
    """The rate that this scenario's offer comes to here, its deadline, and the capacity that it is a share of."""
    offer, row = driver.scenario.offer, {"deadline_ms": workload.deadline_ms}
    if not workload.capacity:
        return row | {"offered_rps": offer.value}
    whole_rps = capacity_rps(driver, workload.capacity)
    rate_rps = offer.value * whole_rps if offer.kind == "share" else offer.value
    return row | {"capacity_rps": whole_rps, "offered_rps": rate_rps}


def capacity_rps(driver: Driver, capacity: Capacity) -> float:
    """What the server on the first machine alone gives so many users in a closed loop: measured once in a run, so that
    a share is one rate.
    """
    key = (driver.scenario.base_environment, driver.scenario.server, driver.scenario.workload)
    known = driver.bench.capacities.get(key)
    if known is None:
        alone = driver.alone()
        alone.tell(f"capacity by {capacity.tool}")
        duration_s = alone.experiment.duration_s
        rate_rps = alone.warm(capacity.tool, capacity.users, alone.experiment.warmup_s)
        load = alone.closed(capacity.tool, capacity.users, rate_rps, duration_s)
        done = alone.run(capacity.tool, load, duration_s)
        result = merged(alone.read(capacity.tool, done, f"capacity-{capacity.tool}"))
        if result.failed:
            raise ToolError(f"{capacity.tool}: {result.failed} requests failed while measuring the capacity")
        driver.loaded_s += alone.loaded_s
        known = driver.bench.capacities[key] = result.transactions / done.wall_s
    return known


def _rate_not_reached(own: Phase) -> list[Reason]:
    """Of each client: its part of the rate."""
    return [
        reason
        for part in own.parts
        if part.result.lateness_us is not None and isinstance(part.done.load, OpenLoad)
        for reason in gates.rate_not_reached(
            part.done.load.requests, part.done.load.rate_rps, part.result.lateness_us[-1], part.who
        )
    ]


def _latencies(phase: Phase) -> NDArray[np.int64]:
    if phase.result.latencies_us is None:
        raise ToolError(f"{phase.tool}: it logs no requests, so there is no response time")
    return phase.result.latencies_us


def _columns(own: Phase, deadline_ms: float) -> Row:
    """Per second: of the time from the first intended send to the last response."""
    result, latencies_us = own.result, _latencies(own)
    elapsed_s = result.elapsed_s or own.done.wall_s  # no answer at all
    columns = {
        "throughput_rps": result.transactions / elapsed_s,
        "goodput_rps": np.count_nonzero(latencies_us <= deadline_ms * 1000) / elapsed_s,
        **latency.summary("response_time", latencies_us),
    }
    if result.transferred_mb is not None:
        columns["throughput_mb_per_s"] = result.transferred_mb / elapsed_s
    if len(latencies_us):
        columns["response_time_max_us"] = float(latencies_us.max())
    if result.lateness_us is not None:
        columns["lateness_p99_us"] = latency.percentile_us(result.lateness_us, 990)
    return columns


def _bodies_mb(driver: Driver, load: OpenLoad, successful: int) -> float | None:
    """The bodies of a tool that does not count them, 10⁶ bytes: the mean size of what it asks for, by the manifest,
    times its successes. None for a page that is no file of the site: the server makes it.
    """
    sizes = {file["path"]: file["size_bytes"] for file in driver.bench.manifest["files"]}
    urls = itertools.islice(itertools.cycle(load.urls), load.requests)
    asked = [sizes.get(url.split("/", 4)[4]) for url in urls]
    known = [size for size in asked if size is not None]
    return sum(known) / len(asked) * successful / 1e6 if len(known) == len(asked) else None
