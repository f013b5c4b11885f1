"""Mail: send messages until all are delivered, or read mailboxes. One request is one message in one session."""

import secrets
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vmtoll.loadgen import MailLoad, ToolResult
from vmtoll.model.event import Phase
from vmtoll.model.finding import Role
from vmtoll.model.trial import Counts, Offered
from vmtoll.model.workload import MailWorkload
from vmtoll.trial import gates
from vmtoll.trial.execution import Joint
from vmtoll.trial.loads import Driver, ToolRun, parsed
from vmtoll.trial.measurement import Measured, findings, measurement, with_service_times
from vmtoll.trial.merging import merged

PORTS = {"smtp": 25, "submission": 587, "imap": 143, "pop3": 110}
# Messages in each mailbox before it is read; requests of the first load, which finds the rate.
HELD = 10
_FIRST_REQUESTS = 10
# If the queue is not empty by then, the messages left in it count as lost.
_DRAIN_LIMIT_S = 60.0
_LIMIT_S = 120.0


def measure(driver: Driver, workload: MailWorkload) -> Measured:
    """Run the tool for its time; the clock stops when the server has delivered every message that it accepted.

    `service_time_*`: for sent messages, the server's own delay from the first accepted recipient to the mailbox; for
    mailboxes, the duration of a user's session. Raises ToolError, AgentError, HostLostError.
    """
    experiment, users, load = driver.experiment, workload.users, _load(driver, workload)
    driver.sut.call(
        "mail_prepare", _LIMIT_S,
        name=driver.scenario.server, password=load.password,
        messages=0 if workload.sends else HELD, page=f"{workload.site}/{workload.page}",
    )  # fmt: skip
    driver.watch.port = load.port
    driver.tell(Phase.PREPARING, tool=workload.tool, role=Role.PRIMARY)
    rate_rps = _warm(driver, workload, load, experiment.warmup_s)
    load = replace(load, tag=f"{driver.name}.measured", requests=_whole(rate_rps * experiment.duration_s, users))
    run = _measured(driver, workload, load, load.requests / rate_rps)
    measured, fired, counts = measurement(run, run.done.wall_s), findings(run), Counts()
    measured = replace(measured, throughput_mb_per_s=measured.throughput_mb_per_s or 0.0)
    if workload.sends:
        counts, delays_us = _delivered(driver, load, run.result)
        measured = replace(measured, throughput_rps=(counts.messages_delivered or 0) / run.done.wall_s)
        run = replace(run, result=replace(run.result, latencies_us=delays_us, sent_us=None))
        run = replace(run, parts=[replace(part, result=run.result) for part in run.parts])
        fired += gates.lost_mail(counts)
    measured = with_service_times(measured, run.result.latencies_us)
    fired += gates.mean_over_p99(measured)
    return Measured(Offered(users=users), [run], (measured,), fired, counts)


def _measured(driver: Driver, workload: MailWorkload, load: MailLoad, expected_s: float) -> ToolRun:
    """Send the load under observation; its wall clock runs until the last message is delivered."""
    tool, before = workload.tool, driver.watch.read()
    driver.tell(Phase.MEASURING, tool=tool, role=Role.PRIMARY)
    done = driver.run(tool, load, expected_s)
    waited_s = _drained(driver) if workload.sends else 0.0
    after = driver.watch.read()
    parts = driver.read(tool, done, tool)
    result = merged(parts)
    driver.watch.loaded(Role.PRIMARY, tool, before, after, parts)
    done = replace(done, wall_s=_busy_s(result, done, waited_s))
    driver.keep_rate(tool, max(result.transactions, 1) / done.wall_s)
    return ToolRun(Role.PRIMARY, tool, load, done, parts, result, before, after)


def _load(driver: Driver, workload: MailWorkload) -> MailLoad:
    """A first small load, with a password that exists for this trial only."""
    page = next(file for file in driver.session.content["files"] if file["path"] == workload.page)
    return MailLoad(
        host=driver.sut.host.seen_from(driver.client.host),
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


def _whole(requests: float, users: int) -> int:
    """`requests`, rounded to the same number for each user, at least one."""
    return max(1, round(requests / users)) * users


def _busy_s(result: ToolResult, done: Joint, waited_s: float) -> float:
    """Seconds from the first session to the last delivery; for a tool without a log, from the tool's start."""
    began_s = 0.0 if result.sent_us is None else float(result.sent_us.min()) / 1e6 - done.started_at_s
    return done.wall_s - began_s + waited_s


def _warm(driver: Driver, workload: MailWorkload, load: MailLoad, duration_s: float) -> float:
    """Send or read for about `duration_s` and until all is delivered; return the rate in requests per second.

    If no rate is known yet, a few requests find it first; they also start the server's processes.
    """
    rate_rps, spent_s = driver.known_rate_rps(workload.tool) or _rate_rps(driver, workload, load, None), 0.0
    while spent_s < duration_s * 0.6:
        requests = _whole(rate_rps * (duration_s - spent_s), workload.users)
        rate_rps = _rate_rps(driver, workload, replace(load, requests=requests), requests / rate_rps)
        spent_s += requests / rate_rps
    return rate_rps


def _rate_rps(driver: Driver, workload: MailWorkload, load: MailLoad, expected_s: float | None) -> float:
    """Send this load; return its rate in requests per second until the last delivery."""
    done = driver.run(workload.tool, load, expected_s)
    done.require(f"{workload.tool} (warm-up)")
    waited_s = _drained(driver) if workload.sends else 0.0
    [result] = parsed(workload.tool, done)  # mail is sent by one client
    return load.requests / _busy_s(result, done, waited_s)


def _drained(driver: Driver) -> float:
    """Wait until the server's queue is empty; return how long that took, in seconds."""
    driver.tell(Phase.DELIVERING)
    answer = driver.sut.call("mail_drain", _LIMIT_S, name=driver.scenario.server, limit_s=_DRAIN_LIMIT_S)
    driver.loaded_s += answer["waited_s"]
    return float(answer["waited_s"])


def _delivered(driver: Driver, load: MailLoad, result: ToolResult) -> tuple[Counts, NDArray[np.int64]]:
    """Counts of this load's messages in the mailboxes, and the server's own delay of each in µs."""
    driver.tell(Phase.COUNTING)
    seen = driver.sut.call("mail_delivered", _LIMIT_S, name=driver.scenario.server, tag=load.tag)
    counts = Counts(
        messages_accepted=result.successful,
        messages_delivered=seen["distinct"],
        messages_lost=max(0, result.successful - seen["distinct"]),
        messages_doubled=seen["found"] - seen["distinct"],
    )
    return counts, np.array(seen["delays_us"], dtype=np.int64)
