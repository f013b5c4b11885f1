"""Findings in words: what a gate saw, where, and its limit."""

from collections.abc import Callable

from vmtoll.model.finding import Code, Finding, Influence, Role
from vmtoll.model.payload import HostedMachine, OfferedRate, Ports, Successes, TimesKind, Unsent
from vmtoll.report.words.terms import number, percent, plural


def finding_text(finding: Finding) -> str:
    """One line: what was seen where, with its figure and the limit: `metal: background processes used 2.6% CPU
    (limit 1%), mainly rcu_preempt (PID 15)`.
    """
    role = "cross-check" if finding.role is Role.CROSSCHECK else ""
    source_parts = finding.machine, finding.tool if finding.code in _TOOL_FINDINGS or role else "", role
    source = ", ".join(dict.fromkeys(name for name in source_parts if name))
    text = _FINDINGS[finding.code](finding)
    return f"{source}: {text}" if source else text


INFLUENCES = {
    Influence.EXCLUDES: "excludes it",
    Influence.BOUNDS: "bounds its figure",
    Influence.DISTORTS: "distorts its figure",
    Influence.SYMPTOM: "is a symptom",
}

_TOOL_FINDINGS = frozenset({
    Code.CLIENT_SATURATED, Code.CLIENT_STARVED, Code.RATE_NOT_REACHED, Code.CLIENT_LATE, Code.START_SPREAD,
    Code.LITTLES_LAW, Code.MEAN_OVER_P99, Code.FAILED_REQUESTS,
})  # fmt: skip


def _with_value(text: str, unit: str = "%", decimals: int = 1) -> Callable[[Finding], str]:
    """A function that fills in `{value}`, `{sut}` and `{limit}`, the last empty where the gate has none."""

    def words(finding: Finding) -> str:
        value = "unknown" if finding.value is None else f"{finding.value:,.{decimals}f}{unit}"
        limit = f" (limit {finding.limit:,.3g}{unit})" if finding.limit else ""
        sut = finding.payload.sut if isinstance(finding.payload, HostedMachine) else ""
        return text.format(value=value, limit=limit, sut=sut)

    return words


def _with_process(text: str) -> Callable[[Finding], str]:
    value_text = _with_value(text)
    return lambda f: value_text(f) + (f", mainly {f.process.replace('(pid ', '(PID ')}" if f.process else "")


def _with_detail(text: str) -> Callable[[Finding], str]:
    return lambda f: f"{text}: {_detail(f)}" if f.detail else text


def _detail(finding: Finding) -> str:
    """The finding's detail without the machine, which starts the sentence."""
    return finding.detail.removeprefix(f"{finding.machine}: ").replace(" -> ", " → ")


def _with_count(text: str) -> Callable[[Finding], str]:
    count_text = _with_value(text, "", 0)
    return lambda f: count_text(f) + (f" ({f.detail})" if f.detail else "")


def _times_kind(finding: Finding) -> str:
    return finding.payload.kind.replace("_", " ") if isinstance(finding.payload, TimesKind) else "latency"


def _client_text(finding: Finding) -> str:
    if isinstance(finding.payload, Unsent):
        return f"could not send {plural(int(finding.value or 0), 'request')}: no descriptor or port was left"
    limit = f" (limit {percent(finding.limit)})" if finding.limit else ""
    partner = f", together with {finding.process}" if finding.process else ""
    return f"used {percent(finding.value)} of the CPU time available to its threads{limit}{partner}"


def _rate_text(finding: Finding) -> str:
    planned = " of the planned rate"
    if isinstance(finding.payload, OfferedRate):
        planned = f" of the {finding.payload.rate_rps:.10g} requests per second planned"
    return f"sent {percent(finding.value)}{planned} (limit {percent(finding.limit)})"


_FINDINGS: dict[Code, Callable[[Finding], str]] = {
    Code.CLIENT_SATURATED: _client_text,
    Code.CLIENT_STARVED: _with_process("background processes used {value} CPU{limit}"),
    Code.RATE_NOT_REACHED: _rate_text,
    Code.CLIENT_LATE: _with_value("the load generator sent up to {value} late at its p99{limit}", " µs", 0),
    Code.START_SPREAD: _with_value("the clients started {value} apart{limit}", " ms", 0),
    Code.LITTLES_LAW: lambda f: (
        f"{number(f.value)} requests in flight on average for {plural(int(f.limit or 0), 'user')}"
    ),
    Code.MEAN_OVER_P99: lambda f: f"{_times_kind(f)}: mean {number(f.value)} µs, above the p99 of {number(f.limit)} µs",
    Code.LINK_BOUND: _with_value("the link carried {value} of its line rate{limit}"),
    Code.RETRANSMITS: _with_value("{value} of the TCP segments were sent again{limit}", decimals=2),
    Code.LISTEN_DROPS: _with_count("the kernel turned away {value} connections"),
    Code.PORTS_EXHAUSTED: lambda f: (
        _with_value("{value} of the local ports were in use or in TIME_WAIT{limit}", decimals=0)(f)
        + (f": {f.payload.used} of {f.payload.available}" if isinstance(f.payload, Ports) else "")
    ),
    Code.STEAL: _with_value("the hypervisor took {value} of the CPU time{limit}", decimals=2),
    Code.BACKGROUND_CPU: _with_process("background processes used {value} CPU{limit}"),
    Code.HOST_BACKGROUND_CPU: _with_process("background processes used {value} of the CPUs of {sut}{limit}"),
    Code.FREQUENCY_SPREAD: _with_value("the CPUs' clock rate moved by {value}{limit}"),
    Code.CLOCK_SOURCE: _with_detail("the clock source changed"),
    Code.CLOCK_STEPPED: _with_value("the clock was set by {value}{limit}", " s", 3),
    Code.WARMUP_DRIFT: _with_value("the first third was {value} slower than the rest{limit}", decimals=0),
    Code.NOT_COLD: lambda f: f"read {number(f.value)} MB from disk, {number(f.limit)} MB at least were due",
    Code.STALLED: _with_value("no response for {value}{limit}", " s", 2),
    Code.SYSCTL: _with_detail("kernel parameters differ"),
    Code.FAILED_REQUESTS: lambda f: (
        f"{plural(int(f.value or 0), 'request')} failed"
        + (f", {f.payload.successful} of {f.payload.planned} succeeded" if isinstance(f.payload, Successes) else "")
        + (f" (limit {number(f.limit)})" if f.limit else "")
    ),
    Code.WRONG_BODY: lambda f: (
        f"{number(f.value)} wrong bod{'y' if f.value == 1 else 'ies'}" + (f", first {f.detail}" if f.detail else "")
    ),
    Code.LOST_MAIL: _with_value("{value} messages were lost or delivered twice", "", 0),
    Code.CAPACITY_UNKNOWN: _with_detail("no capacity to take a share of"),
    Code.FINGERPRINT: lambda f: f"{f.process + ': ' if f.process else ''}{_with_detail('these differ')(f)}",
    Code.TIMED_OUT: _with_detail("the load was not answered in time"),
    Code.TOOL_FAILED: _with_detail("the load tool failed"),
    Code.SERVER_FAILED: _with_detail("the server failed"),
    Code.HOST_LOST: _with_detail("the machine was lost"),
}
