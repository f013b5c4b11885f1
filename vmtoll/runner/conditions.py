"""Conditions on the machines while a load ran, and the gates that they fire."""

from collections.abc import Mapping
from dataclasses import dataclass

from vmtoll.agent.protocol import Reading, Samples
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.trial import Conditions
from vmtoll.runner import gates, interference
from vmtoll.runner.interference import BackgroundCpu, background_cpu
from vmtoll.runner.usage import Usage

# Machine name → what its sampler gave.
Series = Mapping[str, Samples]


@dataclass(frozen=True)
class Sender:
    """A client's tool: its time by that client's clock, and the responses per second that it got."""

    started_at_s: float
    wall_s: float
    throughput_rps: float


@dataclass(frozen=True)
class ObservedLoad:
    """One load: the tool that made it, the readings around it, and its clients by name."""

    role: Role
    tool: str
    before: Usage
    after: Usage
    senders: Mapping[str, Sender]


@dataclass(frozen=True)
class Names:
    """Names of all machines but the clients, one of whom may be under test as well.

    `suts`: those under test, each with its libvirt domain on `host`, empty where it is none; `contained`: all machines
    with the kernel of `host`.
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

    @property
    def together(self) -> str:
        """Names of the machines under test, for observations of all of them together."""
        return ", ".join(self.suts)


def judge(
    load: ObservedLoad, names: Names, series: Series, sources: Mapping[str, str]
) -> tuple[Conditions, list[Finding]]:
    """The conditions, None where nothing here can tell, and the findings.

    `sources`: machine name → its clock source at the start of the run.
    """
    client_pct, sut_pct, host_pct, findings = _background(load, names)
    lost_pct, drops, ports_pct, fired = _network(load, names)
    findings += fired
    step_ms, fired = _clocks(load, names, sources)
    findings += fired
    spread_pct, fired = _frequency(load, names, series)
    findings += fired
    gap_ms, slower_pct, fired = _progress(load, names, series)
    findings += fired
    conditions = Conditions(
        client_background_cpu_pct=client_pct,
        background_cpu_pct=sut_pct,
        host_background_cpu_pct=host_pct,
        cpu_mhz_spread_pct=spread_pct,
        clock_step_ms=step_ms,
        retransmitted_pct=lost_pct,
        listen_drops=drops,
        ports_used_pct=ports_pct,
        longest_gap_ms=gap_ms,
        warmup_slower_pct=slower_pct,
    )
    return conditions, findings


def _background(load: ObservedLoad, names: Names) -> tuple[float | None, float, float | None, list[Finding]]:
    """Background CPU on the clients, on the machines under test and on their host, in percent."""
    surveys = {name: (old["survey"], new["survey"]) for name, (old, new) in names.readings(load).items()}
    namespaces = frozenset(str(surveys[name][1]["namespace"]) for name in names.contained)

    def outside(name: str) -> BackgroundCpu | None:
        """Background CPU on one machine's CPUs as the machine below sees it; None without one."""
        guest = load.after.host["domains"].get(names.suts.get(name, "")) if load.after.host else None
        if names.host is None or not (guest or name in names.contained):
            return None
        return background_cpu(*surveys[names.host], guest["cpus"] if guest else surveys[name][1]["cpus"], namespaces)

    inside = {name: background_cpu(*surveys[name]) for name in names.suts}
    on_host = {name: seen for name in names.suts if (seen := outside(name))}
    findings = [f for name, seen in inside.items() for f in gates.background_cpu(seen, load.tool, name)]
    for name, seen in on_host.items():
        findings += gates.background_cpu(seen, load.tool, str(names.host), name)
    client_pct: float | None = None
    for name in [name for name in load.senders if name not in names.suts]:
        client, around = background_cpu(*surveys[name]), outside(name)
        worst = around if around and around.spent_s > client.spent_s else client
        client_pct = max(worst.share_pct, client_pct or 0.0)
        findings += gates.client_starved(worst, load.role, load.tool, str(name if worst is client else names.host))
    sut_pct = max(seen.share_pct for seen in inside.values())
    return client_pct, sut_pct, max((seen.share_pct for seen in on_host.values()), default=None), findings


def _network(load: ObservedLoad, names: Names) -> tuple[float, int, float, list[Finding]]:
    """Segments sent again in percent, connections turned away, local ports in use in percent."""
    readings = names.readings(load)
    grown = {
        name: {key: readings[name][1]["network"][key] - old for key, old in readings[name][0]["network"].items()}
        for name in dict.fromkeys([*load.senders, *names.suts])
    }
    lost = {name: 100 * g["RetransSegs"] / max(g["OutSegs"], 1) for name, g in grown.items()}
    drops = {
        name: max(grown[name]["ListenDrops"], grown[name]["ListenOverflows"]) + grown[name]["TCPReqQFullDrop"]
        for name in names.suts
    }
    ports = {name: (seen["ports"]["used"], seen["ports"]["available"]) for name, seen in load.after.clients.items()}
    findings = [f for name, share_pct in lost.items() for f in gates.retransmits(share_pct, load.tool, name)]
    findings += [f for name, count in drops.items() for f in gates.listen_drops(count, load.tool, name)]
    for name, (used, available) in ports.items():
        findings += gates.ports_exhausted(used, available, load.tool, name)
    used_pct = max(100 * used / available for used, available in ports.values())
    return max(lost.values()), int(sum(drops.values())), used_pct, findings


def _clocks(load: ObservedLoad, names: Names, sources: Mapping[str, str]) -> tuple[float, list[Finding]]:
    """The largest step of any machine's clock, in ms."""
    findings, steps_ms = [], [0.0]
    for name, (old, new) in names.readings(load).items():
        step_s = new["clock"]["ahead_s"] - old["clock"]["ahead_s"]
        steps_ms.append(abs(step_s) * 1000)
        findings += gates.clock_stepped(step_s, load.tool, name)
        findings += gates.clock_source(sources.get(name, ""), new["clock"]["source"], load.tool, name)
    return max(steps_ms), findings


def _frequency(load: ObservedLoad, names: Names, series: Series) -> tuple[float | None, list[Finding]]:
    """Decrease of a machine's clock rate below its highest, in percent."""
    spreads = {}
    for name, (old, new) in names.readings(load).items():
        begin_s, end_s = old["machine"]["time_s"], new["machine"]["time_s"]
        rows = [row for row in series[name]["counters"] if begin_s <= row["time_s"] <= end_s and "mhz" in row]
        if (name in names.suts or name == names.host) and len(rows) > 1:
            rates = [row["mhz"] for row in rows]
            spreads[name] = 100 * (1 - min(rates) / max(rates))
    findings = [f for name, spread_pct in spreads.items() for f in gates.frequency_spread(spread_pct, load.tool, name)]
    return max(spreads.values(), default=None), findings


def _progress(
    load: ObservedLoad, names: Names, series: Series
) -> tuple[float | None, float | None, list[Finding]]:  # fmt: skip
    """The longest gap in ms and the slower start in percent, as each client saw it; of a gate that fires for several
    clients, the first's finding.
    """
    gaps_s, slower_pcts, findings = [], [], dict[Code, Finding]()
    for name, sender in load.senders.items():
        slices = interference.slices(series[name]["pulse"], sender.started_at_s, sender.wall_s)
        gap_s, slower_pct = interference.longest_gap_s(slices), interference.slower_start_pct(slices)
        gaps_s += [gap_s] if gap_s is not None else []
        slower_pcts += [slower_pct] if slower_pct is not None else []
        fired = gates.stalled(gap_s, sender.throughput_rps, load.tool, names.together)
        fired += gates.warmup_drift(slower_pct, load.tool, names.together)
        findings = {finding.code: finding for finding in fired} | findings
    return max(gaps_s) * 1000 if gaps_s else None, max(slower_pcts, default=None), list(findings.values())
