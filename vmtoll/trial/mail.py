"""Mail: send messages until all are delivered, or read mailboxes. One request is one message in one session."""

import secrets
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vmtoll.loadgen import MailLoad, ToolResult
from vmtoll.machines.connection import AgentLine
from vmtoll.model.event import Phase
from vmtoll.model.finding import Role
from vmtoll.model.inventory import Host
from vmtoll.model.trial import Counts, Offered
from vmtoll.model.workload import MailWorkload
from vmtoll.trial import gates
from vmtoll.trial.execution import JointExecution
from vmtoll.trial.loads import LoadDriver, ToolRun, parse_results
from vmtoll.trial.measurement import TrialResults, base_measurement, tool_findings, with_service_times
from vmtoll.trial.merging import merge

PORTS = {"smtp": 25, "submission": 587, "imap": 143, "pop3": 110}
# Messages in each mailbox before it is read; requests of the first load, which finds the rate.
MESSAGES_PER_MAILBOX = 10
_FIRST_REQUESTS = 10
# If the queue is not empty by then, the messages left in it count as lost.
_DRAIN_LIMIT_S = 60.0
_LIMIT_S = 120.0


def measure(driver: LoadDriver, workload: MailWorkload) -> TrialResults:
    """Run the tool for its time; the clock stops when the server has delivered every message that it accepted.

    `service_time_*`: for sent messages, the server's own delay from the first accepted recipient to the mailbox; for
    mailboxes, the duration of a user's session. Raises ToolError, AgentError, HostLostError.
    """
    experiment, users, load = driver.experiment, workload.users, first_load(driver, workload, driver.sut.host)
    prepare(driver.sut, driver.scenario.server, workload, load.password)
    driver.watch.remote = (driver.watch.remote[0], load.port)
    driver.tell(Phase.PREPARING, tool=workload.tool, role=Role.PRIMARY)
    rate_rps = _warm(driver, workload, load, experiment.warmup_s)
    load = replace(
        load, tag=f"{driver.name}.measured", requests=_rounded_to_users(rate_rps * experiment.duration_s, users)
    )
    run = _measure_load(driver, workload, load, load.requests / rate_rps)
    measurement, findings, counts = base_measurement(run, run.execution.wall_s), tool_findings(run), Counts()
    measurement = replace(measurement, throughput_mb_per_s=measurement.throughput_mb_per_s or 0.0)
    if workload.sends:
        counts, delays_us = _count_delivered(driver, load, run.result)
        measurement = replace(measurement, throughput_rps=(counts.messages_delivered or 0) / run.execution.wall_s)
        run = replace(run, result=replace(run.result, latencies_us=delays_us, sent_us=None))
        run = replace(run, parts=[replace(part, result=run.result) for part in run.parts])
        findings += gates.lost_mail(counts)
    measurement = with_service_times(measurement, run.result.latencies_us)
    findings += gates.mean_over_p99(measurement)
    return TrialResults(Offered(users=users), [run], (measurement,), findings, counts)


def prepare(sut: AgentLine, server: str, workload: MailWorkload, password: str) -> None:
    """Empty the mail server of a machine, and fill its mailboxes if they are to be read. Raises AgentError,
    HostLostError.
    """
    sut.call(
        "mail_prepare", _LIMIT_S,
        name=server, password=password, messages=0 if workload.sends else MESSAGES_PER_MAILBOX,
        page=f"{workload.site}/{workload.page}",
    )  # fmt: skip


def _measure_load(driver: LoadDriver, workload: MailWorkload, load: MailLoad, expected_s: float) -> ToolRun:
    """Send the load under observation; its wall clock runs until the last message is delivered."""
    tool, before = workload.tool, driver.watch.read()
    driver.tell(Phase.MEASURING, tool=tool, role=Role.PRIMARY)
    with driver.traced():
        joint = driver.run(tool, load, expected_s)
        waited_s = _wait_for_delivery(driver) if workload.sends else 0.0
    after = driver.watch.read()
    parts = driver.store_and_parse(tool, joint, tool)
    result = merge(parts)
    driver.watch.record_load(Role.PRIMARY, tool, before, after, parts)
    joint = replace(joint, wall_s=_busy_s(result, joint, waited_s))
    driver.keep_rate(tool, max(result.transactions, 1) / joint.wall_s)
    return ToolRun(Role.PRIMARY, tool, load, joint, parts, result, before, after)


def first_load(driver: LoadDriver, workload: MailWorkload, to: Host) -> MailLoad:
    """A first small load on a machine, with a password that exists for this trial only."""
    page = next(file for file in driver.session.content["files"] if file["path"] == workload.page)
    return MailLoad(
        host=to.seen_from(driver.client.host),
        port=PORTS[workload.protocol],
        protocol=workload.protocol,
        domain="vmail.test",
        users=workload.users,
        requests=_FIRST_REQUESTS,
        message_bytes=page["size_bytes"],
        tag=f"{driver.name}.warm-up",
        password=secrets.token_urlsafe(18),
        body_sha256=page["sha256"],
    )


def _rounded_to_users(requests: float, users: int) -> int:
    """`requests`, rounded to the same number for each user, at least one."""
    return max(1, round(requests / users)) * users


def _busy_s(result: ToolResult, joint: JointExecution, waited_s: float) -> float:
    """Seconds from the first session to the last delivery; for a tool without a log, from the tool's start."""
    begin_s = 0.0 if result.sent_us is None else float(result.sent_us.min()) / 1e6 - joint.started_at_s
    return joint.wall_s - begin_s + waited_s


def _warm(driver: LoadDriver, workload: MailWorkload, load: MailLoad, duration_s: float) -> float:
    """Send or read for about `duration_s` and until all is delivered; return the rate in requests per second.

    If no rate is known yet, a few requests find it first; they also start the server's processes.
    """
    rate_rps, spent_s = driver.known_rate_rps(workload.tool) or _measure_rate_rps(driver, workload, load, None), 0.0
    while spent_s < duration_s * 0.6:
        requests = _rounded_to_users(rate_rps * (duration_s - spent_s), workload.users)
        rate_rps = _measure_rate_rps(driver, workload, replace(load, requests=requests), requests / rate_rps)
        spent_s += requests / rate_rps
    return rate_rps


def _measure_rate_rps(driver: LoadDriver, workload: MailWorkload, load: MailLoad, expected_s: float | None) -> float:
    """Send this load; return its rate in requests per second until the last delivery."""
    joint = driver.run(workload.tool, load, expected_s)
    joint.raise_if_killed(f"{workload.tool} (warm-up)")
    waited_s = _wait_for_delivery(driver) if workload.sends else 0.0
    [result] = parse_results(workload.tool, joint)  # mail is sent by one client
    return load.requests / _busy_s(result, joint, waited_s)


def _wait_for_delivery(driver: LoadDriver) -> float:
    """Wait until the server's queue is empty; return how long that took, in seconds."""
    driver.tell(Phase.DELIVERING)
    answer = driver.sut.call("mail_drain", _LIMIT_S, name=driver.scenario.server, limit_s=_DRAIN_LIMIT_S)
    driver.loaded_s += answer["waited_s"]
    return float(answer["waited_s"])


def _count_delivered(driver: LoadDriver, load: MailLoad, result: ToolResult) -> tuple[Counts, NDArray[np.int64]]:
    """Counts of this load's messages in the mailboxes, and the server's own delay of each in µs."""
    driver.tell(Phase.COUNTING)
    delivered = driver.sut.call("mail_delivered", _LIMIT_S, name=driver.scenario.server, tag=load.tag)
    counts = Counts(
        messages_accepted=result.successful,
        messages_delivered=delivered["distinct"],
        messages_lost=max(0, result.successful - delivered["distinct"]),
        messages_doubled=delivered["found"] - delivered["distinct"],
    )
    return counts, np.array(delivered["delays_us"], dtype=np.int64)
