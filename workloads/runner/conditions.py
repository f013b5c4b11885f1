"""What the machines went through while a load ran: columns of the row, and the gates that these fire."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workloads.runner import machine_gates as gates
from workloads.runner import pulse
from workloads.runner.gates import Reason
from workloads.runner.neighbours import Others, others
from workloads.runner.usage import Usage

Columns = dict[str, float | None]
# Machine name → what its sampler gave.
Series = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Sender:
    """When a client's tool ran, by that client's clock, and the responses per second that it got."""

    started_at_s: float
    wall_s: float
    throughput_rps: float


@dataclass(frozen=True)
class Load:
    """One load: the tool that made it, the readings around it, and its clients by name.

    `twin`: it is not the trial's own tool.
    """

    tool: str
    before: Usage
    after: Usage
    senders: Mapping[str, Sender]
    twin: bool = False


@dataclass(frozen=True)
class Names:
    """Of the machines beside the clients, one of whom may be under test as well. `suts`: those under test, each with
    its libvirt domain on `outer`, empty where it is none; `contained`: all machines with the kernel of `outer`.
    """

    suts: Mapping[str, str]
    outer: str | None
    contained: frozenset[str]

    def readings(self, load: Load) -> dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Machine name → readings before and after."""
        found = {name: (old, load.after.clients[name]) for name, old in load.before.clients.items()}
        found |= {name: (old, load.after.suts[name]) for name, old in load.before.suts.items()}
        if self.outer and load.before.outer and load.after.outer:
            found[self.outer] = (load.before.outer, load.after.outer)
        return found

    @property
    def words(self) -> str:
        """Those under test, for what is seen of all of them together."""
        return " and ".join(self.suts)


def judge(load: Load, names: Names, series: Series, sources: Mapping[str, str]) -> tuple[Columns, list[Reason]]:
    """The columns, None where nothing here can tell, and the reasons.

    `sources`: machine name → its clock source at the start of the run.
    """
    columns: Columns = {}
    reasons: list[Reason] = []
    for found, fired in (
        _neighbours(load, names),
        _network(load, names),
        _clocks(load, names, sources),
        _frequency(load, names, series),
        _progress(load, names, series),
    ):
        columns |= found
        reasons += fired
    return columns, reasons


def _neighbours(load: Load, names: Names) -> tuple[Columns, list[Reason]]:
    surveys = {name: (old["survey"], new["survey"]) for name, (old, new) in names.readings(load).items()}
    own = frozenset(str(surveys[name][1]["namespace"]) for name in names.contained)

    def outside(name: str) -> Others | None:
        """What is seen on the CPUs of one machine by the machine that it runs on."""
        guest = (load.after.outer or {}).get("domains", {}).get(names.suts.get(name))
        if names.outer is None or not (guest or name in names.contained):
            return None
        return others(*surveys[names.outer], guest["cpus"] if guest else surveys[name][1]["cpus"], own)

    inside = {name: others(*surveys[name]) for name in names.suts}
    on_host = {name: seen for name in names.suts if (seen := outside(name))}
    columns: Columns = {
        "client_foreign_cpu_pct": None,
        "foreign_cpu_pct": max(seen.share_pct for seen in inside.values()),
        "host_foreign_cpu_pct": max((seen.share_pct for seen in on_host.values()), default=None),
    }
    reasons = [r for name, seen in inside.items() for r in gates.foreign_cpu(seen, name)]
    reasons += [r for name, seen in on_host.items() for r in gates.host_foreign_cpu(seen, str(names.outer), name)]
    for name in [name for name in load.senders if name not in names.suts]:
        client, beside = others(*surveys[name]), outside(name)
        worst = beside if beside and beside.spent_s > client.spent_s else client
        columns["client_foreign_cpu_pct"] = max(worst.share_pct, columns["client_foreign_cpu_pct"] or 0.0)
        where = str(name if worst is client else names.outer)
        reasons += gates.client_starved(worst, where, load.tool, twin=load.twin)
    return columns, reasons


def _network(load: Load, names: Names) -> tuple[Columns, list[Reason]]:
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
    columns: Columns = {
        "retransmitted_pct": max(lost.values()),
        "listen_drops": int(sum(drops.values())),
        "ports_used_pct": max(100 * used / available for used, available in ports.values()),
    }
    reasons = [r for name, share_pct in lost.items() for r in gates.retransmits(share_pct, name)]
    reasons += [r for name, count in drops.items() for r in gates.listen_drops(count, name)]
    reasons += [r for name, (used, available) in ports.items() for r in gates.ports_exhausted(used, available, name)]
    return columns, reasons


def _clocks(load: Load, names: Names, sources: Mapping[str, str]) -> tuple[Columns, list[Reason]]:
    reasons, steps = [], [0.0]
    for name, (old, new) in names.readings(load).items():
        step_s = new["clock"]["ahead_s"] - old["clock"]["ahead_s"]
        steps.append(abs(step_s) * 1000)
        reasons += gates.clock_stepped(step_s, name)
        reasons += gates.clock_source(sources.get(name, ""), new["clock"]["source"], name)
    return {"clock_step_ms": max(steps)}, reasons


def _frequency(load: Load, names: Names, series: Series) -> tuple[Columns, list[Reason]]:
    spreads = {}
    for name, (old, new) in names.readings(load).items():
        begin_s, end_s = old["machine"]["time_s"], new["machine"]["time_s"]
        rows = [row for row in series[name]["counters"] if begin_s <= row["time_s"] <= end_s and "mhz" in row]
        if (name in names.suts or name == names.outer) and len(rows) > 1:
            rates = [row["mhz"] for row in rows]
            spreads[name] = 100 * (1 - min(rates) / max(rates))
    reasons = [r for name, spread_pct in spreads.items() for r in gates.frequency_spread(spread_pct, name)]
    return {"cpu_mhz_spread_pct": max(spreads.values(), default=None)}, reasons


def _progress(load: Load, names: Names, series: Series) -> tuple[Columns, list[Reason]]:
    """As each client saw it; of a gate that fires for several, what the first of them says."""
    gaps_s, slower_pcts, reasons = [], [], dict[str, Reason]()
    for name, sender in load.senders.items():
        slices = pulse.slices(series[name]["pulse"], sender.started_at_s, sender.wall_s)
        gap_s, slower_pct = pulse.longest_gap_s(slices), pulse.slower_start_pct(slices)
        gaps_s += [gap_s] if gap_s is not None else []
        slower_pcts += [slower_pct] if slower_pct is not None else []
        fired = gates.stalled(gap_s, sender.throughput_rps, names.words) + gates.warmup_drift(slower_pct, names.words)
        reasons = {reason.code: reason for reason in fired} | reasons
    columns: Columns = {
        "longest_gap_ms": max(gaps_s) * 1000 if gaps_s else None,
        "warmup_slower_pct": max(slower_pcts, default=None),
    }
    return columns, list(reasons.values())
