"""A rung of a ramp: connections at a constant rate, and what came within the deadline; the rest is given up."""

from dataclasses import replace

from workloads.runner import gates
from workloads.runner.driver import Driver
from workloads.runner.gates import Reason
from workloads.runner.measured import Measured
from workloads.runner.open_loop import offered
from workloads.runner.workload import RampWorkload


def measure(driver: Driver, workload: RampWorkload) -> Measured:
    """The tool at this rate, with the deadline as its timeout. What is late is no failure: it is what a ramp looks for.

    Such a tool may spin while it waits, so its CPU is not judged; what it could not send is. Raises ToolError,
    HostLostError.
    """
    experiment, tool, row = driver.experiment, workload.tool, offered(driver, workload)
    driver.tell(tool)
    driver.run(tool, driver.opened(row["offered_rps"], experiment.warmup_s), experiment.warmup_s)
    load = replace(driver.opened(row["offered_rps"], experiment.duration_s), timeout_s=workload.deadline_ms / 1000)
    own = driver.measured(tool, load, experiment.duration_s)
    seen, elapsed_s = own.result, own.result.elapsed_s or own.done.wall_s
    row |= {
        "throughput_rps": seen.transactions / elapsed_s,
        "goodput_rps": seen.successful / elapsed_s,
        "response_time_mean_ms": seen.response_time_mean_ms,
        **seen.columns,
    }
    expected = seen.transactions + seen.failed
    reasons = gates.failed_requests(expected, seen.transactions, seen.successful, seen.failed, tool)
    if seen.unsent:
        lacked = f"{tool} had no descriptor or port left for {seen.unsent} of {load.requests} requests"
        reasons.append(Reason("client-saturated", lacked))
    return Measured(row, reasons, [own], own.results)
