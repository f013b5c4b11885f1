"""Conditions on the machines while a load ran, and the findings that they lead to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter

from vmtoll.agent.protocol import Reading, Samples
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.trial import Conditions, Measurement
from vmtoll.trial import gates, stalls
from vmtoll.trial.background_cpu import BackgroundCpu, background_cpu, steal_pct
from vmtoll.trial.usage import Usage, server_cpus

# Machine name → its samples.
Series = Mapping[str, Samples]


@dataclass(frozen=True)
class Sender:
    """A client's tool: its start by that client's clock, its duration, and the responses per second that it got."""

    started_at_s: float
    wall_s: float
    throughput_rps: float


@dataclass(frozen=True)
class ObservedLoad:
    """One load: its tool, the readings before and after it, and its clients by name."""

    role: Role
    tool: str
    before: Usage
    after: Usage
    senders: Mapping[str, Sender]


@dataclass(frozen=True)
class Names:
    """Names of the machines under test and of their host.

    `suts`: machine under test → its libvirt domain on `host`, empty if it is no guest. `contained`: all machines,
    clients included, that share the kernel of `host`; without a host that of a container runtime under test, whose
    agent runs outside of the container and sees what a host sees.
    """

    suts: Mapping[str, str]
    host: str | None
    contained: frozenset[str]

    def readings(self, load: ObservedLoad) -> dict[str, tuple[Reading, Reading]]:
        """Machine name → readings before and after."""
        pairs = {name: (old, load.after.clients[name]) for name, old in load.before.clients.items()}
        pairs |= {name: (old, load.after.suts[name]) for name, old in load.before.suts.items()}
        if self.host and load.before.host and load.after.host:
            pairs[self.host] = (load.before.host, load.after.host)
        return pairs

    def cpus(self, load: ObservedLoad, name: str) -> int:
        """Bit mask of a machine's CPUs that count: those that the server may use; on a client, those of its agent."""
        reading = self.readings(load)[name][1]
        return server_cpus(reading) if name in self.suts else reading["survey"]["cpus"]

    @property
    def observer(self) -> str | None:
        """The machine that sees every process on the kernel of `contained`; None without one."""
        return self.host or (next(iter(self.suts), None) if self.contained else None)

    def host_cpus(self, load: ObservedLoad, name: str) -> int | None:
        """Bit mask of the CPUs of `observer` that a machine runs on; None for a machine that is not on it."""
        guest = load.after.host["domains"].get(self.suts.get(name, "")) if load.after.host else None
        if self.observer is None or not (guest or name in self.contained):
            return None
        return guest["cpus"] if guest else self.cpus(load, name)

    @property
    def all_suts(self) -> str:
        """Names of the machines under test, for findings on all of them together."""
        return ", ".join(self.suts)


@dataclass(frozen=True)
class LoadObservations:
    """Observations of the machines during one load. `conditions`: None for what cannot be observed here. `figures`:
    further columns of the load's measurement, by name.
    """

    conditions: Conditions
    figures: Mapping[str, float | int | None]
    findings: Sequence[Finding]

    def add_to(self, measurement: Measurement) -> Measurement:
        """The measurement of this load, with these observations added."""
        shared = {field.name for field in fields(Measurement)}
        conditions = {name: value for name, value in vars(self.conditions).items() if name in shared}
        return replace(measurement, **conditions, **self.figures)  # type: ignore[arg-type]


def observe_load(load: ObservedLoad, names: Names, series: Series, sources: Mapping[str, str]) -> LoadObservations:
    """Observations during one load. `sources`: machine name → its clock source at the start of the run."""
    client_pct, sut, host, findings = _background(load, names)
    retransmitted_pct, retransmission_columns, drops, ports_pct, new_findings = _network(load, names)
    findings += new_findings
    step_ms, new_findings = _clocks(load, names, sources)
    findings += new_findings
    spread_pct, new_findings = _frequency(load, names, series)
    findings += new_findings
    gap_ms, slower_pct, new_findings = _progress(load, names, series)
    findings += new_findings
    conditions = Conditions(
        client_background_cpu_pct=client_pct,
        background_cpu_pct=sut.share_pct if sut else None,
        host_background_cpu_pct=host.share_pct if host else None,
        cpu_mhz_spread_pct=spread_pct,
        clock_step_ms=step_ms,
        retransmitted_pct=retransmitted_pct,
        listen_drops=drops,
        ports_used_pct=ports_pct,
        longest_gap_ms=gap_ms,
        warmup_slower_pct=slower_pct,
    )
    figures = {
        "steal_pct": load.after.steal_pct(load.before),
        "host_steal_pct": _host_steal_pct(load, names),
        "cpus": sut.cpus if sut else None,
        "host_cpus": host.cpus if host else None,
        **retransmission_columns,
    }
    return LoadObservations(conditions, figures, findings)


def _host_steal_pct(load: ObservedLoad, names: Names) -> float | None:
    """CPU time stolen from the host on the CPUs that a machine under test runs on, in percent: the highest of all."""
    if not load.before.host or not load.after.host:
        return None
    surveys = load.before.host["survey"], load.after.host["survey"]
    cpus = [cpus for name in names.suts if (cpus := names.host_cpus(load, name)) is not None]
    return max((steal_pct([(*surveys, mask)]) for mask in cpus), default=None)


def _background(
    load: ObservedLoad, names: Names
) -> tuple[float | None, BackgroundCpu | None, BackgroundCpu | None, list[Finding]]:
    """Background CPU: the worst client's in percent, the worst machine's under test, the host's under it; findings."""
    surveys = {name: (old["survey"], new["survey"]) for name, (old, new) in names.readings(load).items()}
    own = str(surveys[names.observer][1]["namespace"]) if names.observer else ""
    namespaces = frozenset(str(surveys[name][1]["namespace"]) for name in names.contained) - {own}

    def background_on_host(name: str) -> BackgroundCpu | None:
        """Background CPU that the host sees on the CPUs that a machine runs on; None without a host."""
        cpus = names.host_cpus(load, name)
        return None if cpus is None else background_cpu(*surveys[str(names.observer)], cpus, namespaces)

    background_by_sut = {
        name: background_cpu(*surveys[name], names.cpus(load, name), namespaces - {str(surveys[name][1]["namespace"])})
        for name in names.suts
    }
    host_background_by_sut = {name: background for name in names.suts if (background := background_on_host(name))}
    findings = [
        f for name, background in background_by_sut.items() for f in gates.background_cpu(background, load.tool, name)
    ]
    for name, background in host_background_by_sut.items():
        findings += gates.background_cpu(background, load.tool, str(names.host), name)
    client_pct: float | None = None
    for name in [name for name in load.senders if name not in names.suts]:
        client, host_background = background_cpu(*surveys[name]), background_on_host(name)
        worst = host_background if host_background and host_background.spent_s > client.spent_s else client
        client_pct = max(worst.share_pct, client_pct or 0.0)
        findings += gates.client_starved(worst, load.role, load.tool, str(name if worst is client else names.observer))
    by_share = attrgetter("share_pct")
    return (
        client_pct,
        max(background_by_sut.values(), key=by_share, default=None),
        max(host_background_by_sut.values(), key=by_share, default=None),
        findings,
    )


def _network(load: ObservedLoad, names: Names) -> tuple[float, dict[str, int | None], int | None, float, list[Finding]]:
    """Retransmitted segments in percent, columns that count them, connections turned away, local ports in use in
    percent, and findings.
    """
    readings = names.readings(load)
    growth = {
        name: {key: readings[name][1]["network"][key] - old for key, old in readings[name][0]["network"].items()}
        for name in dict.fromkeys([*load.senders, *names.suts])
        if readings[name][0]["network"] and readings[name][1]["network"]  # a sandbox's own TCP is not visible
    }
    retransmitted_pct = {name: 100 * g["RetransSegs"] / max(g["OutSegs"], 1) for name, g in growth.items()}
    drops = {
        name: max(growth[name]["ListenDrops"], growth[name]["ListenOverflows"]) + growth[name]["TCPReqQFullDrop"]
        for name in names.suts
        if name in growth
    }
    ports = {
        name: (reading["ports"]["used"], reading["ports"]["available"]) for name, reading in load.after.clients.items()
    }
    findings = [
        f for name, share_pct in retransmitted_pct.items() for f in gates.retransmits(share_pct, load.tool, name)
    ]
    findings += [f for name, count in drops.items() for f in gates.listen_drops(count, load.tool, name)]
    for name, (used, available) in ports.items():
        findings += gates.ports_exhausted(used, available, load.tool, name)
    used_pct = max(100 * used / available for used, available in ports.values())
    is_whole = growth.keys() >= names.suts.keys()
    retransmission_columns = {
        "retransmitted_segments": sum(g["RetransSegs"] for g in growth.values()) if is_whole else None,
        "retransmission_timeouts": sum(g["TCPTimeouts"] + g["TCPLossProbes"] for g in growth.values())
        if is_whole
        else None,
    }
    turned_away = int(sum(drops.values())) if drops else None
    return max(retransmitted_pct.values()), retransmission_columns, turned_away, used_pct, findings


def _clocks(load: ObservedLoad, names: Names, sources: Mapping[str, str]) -> tuple[float, list[Finding]]:
    """The largest step of any machine's clock in ms, and findings."""
    findings, steps_ms = [], [0.0]
    for name, (old, new) in names.readings(load).items():
        step_s = new["clock"]["ahead_s"] - old["clock"]["ahead_s"]
        steps_ms.append(abs(step_s) * 1000)
        findings += gates.clock_stepped(step_s, load.tool, name)
        findings += gates.clock_source(sources.get(name, ""), new["clock"]["source"], load.tool, name)
    return max(steps_ms), findings


def _frequency(load: ObservedLoad, names: Names, series: Series) -> tuple[float | None, list[Finding]]:
    """How far the clock rate fell below its highest, in percent, on the worst machine; and findings."""
    spreads = {}
    for name, (old, new) in names.readings(load).items():
        begin_s, end_s = old["machine"]["time_s"], new["machine"]["time_s"]
        rates = [mhz for time_s, mhz in series[name]["mhz"] if begin_s <= time_s <= end_s]
        if (name in names.suts or name == names.host) and len(rates) > 1:
            spreads[name] = 100 * (1 - min(rates) / max(rates))
    findings = [f for name, spread_pct in spreads.items() for f in gates.frequency_spread(spread_pct, load.tool, name)]
    return max(spreads.values(), default=None), findings


def _progress(
    load: ObservedLoad, names: Names, series: Series
) -> tuple[float | None, float | None, list[Finding]]:  # fmt: skip
    """The longest gap in ms, the slower start in percent (both: the worst client's), and findings. A gate that fires
    for several clients yields the first client's finding.
    """
    gaps_s, slower_pcts, findings = [], [], dict[Code, Finding]()
    for name, sender in load.senders.items():
        parts = stalls.slices(series[name]["pulse"], sender.started_at_s, sender.wall_s)
        gap_s, slower_pct = stalls.longest_gap_s(parts), stalls.slower_start_pct(parts)
        gaps_s += [gap_s] if gap_s is not None else []
        slower_pcts += [slower_pct] if slower_pct is not None else []
        client_findings = gates.stalled(gap_s, sender.throughput_rps, load.tool, names.all_suts)
        client_findings += gates.warmup_drift(slower_pct, load.tool, names.all_suts)
        findings = {finding.code: finding for finding in client_findings} | findings
    return max(gaps_s) * 1000 if gaps_s else None, max(slower_pcts, default=None), list(findings.values())
