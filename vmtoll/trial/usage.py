"""Resources that a server, its host and the machines used between two readings."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vmtoll.agent.protocol import Counters, Reading
from vmtoll.agent.waits import growth_ns
from vmtoll.machines.connection import AgentLine, Pending
from vmtoll.machines.session import Machines
from vmtoll.model.machine_cpu import MachineCpu
from vmtoll.model.trial import Measurement, Resources
from vmtoll.trial.background_cpu import steal_pct
from vmtoll.trial.machine_cpu import machine_cpu

_LIMIT_S = 30.0


@dataclass(frozen=True)
class Usage:
    """One reading of each machine.

    `clients`, `suts` (the machines under test; none of a service that is not seen): by name. `host`: the KVM host of
    guests, or the machine whose kernel a container shares. A client on the machine under test shares that machine's
    reading. `sees_machine`: whether one of the readings is of the physical machine that the server runs on.
    `groups_only`: CPU time counts only by the account of a control group, which all environments of the run have.
    """

    clients: Mapping[str, Reading]
    suts: Mapping[str, Reading]
    host: Reading | None
    sees_machine: bool = True
    groups_only: bool = False

    @property
    def pss_kib(self) -> int | None:
        return sum(sut["server"]["pss_kib"] for sut in self.suts.values()) if self.suts else None

    @property
    def processes(self) -> int | None:
        return sum(sut["server"]["processes"] for sut in self.suts.values()) if self.suts else None

    @property
    def is_client_on_sut(self) -> bool:
        """Return whether the client is on the machine under test."""
        return any(reading is sut for reading in self.clients.values() for sut in self.suts.values())

    @property
    def energy_uj(self) -> Mapping[str, list[int]]:
        """Energy of the physical machine that the server ran on; see the agent's `energy_uj`."""
        reading = self.host or next(iter(self.suts.values()), None)
        return reading["energy"] if reading else {}

    @property
    def domain_s(self) -> float | None:
        """CPU seconds of the guests' QEMU and vhost threads; None without guests, or with the client on the guest."""
        if self.is_client_on_sut or not self.host or not self.host["domains"]:
            return None
        return float(sum(domain["total_s"] for domain in self.host["domains"].values()))

    @property
    def container_s(self) -> float | None:
        """CPU seconds of the containers' control groups; None without containers, or with the client in one."""
        if self.is_client_on_sut or not self.host or not (containers := self.host.get("containers")):
            return None
        return float(sum(container["total_s"] for container in containers.values()))

    @property
    def arm_s(self) -> float | None:
        """CPU seconds of what ran the server on its physical machine; see MachineCpu. None if that is not seen, or if
        the client is on the machine under test.
        """
        if self.is_client_on_sut or not self.sees_machine:
            return None
        if self.domain_s is not None or self.container_s is not None:
            return (self.domain_s or 0.0) + (self.container_s or 0.0)
        return float(sum(sut["server"]["total_s"] for sut in self.suts.values())) if self.suts else None

    @property
    def physical(self) -> Reading | None:
        """The reading of the physical machine: the host's, else that of the one machine under test."""
        return self.host or (next(iter(self.suts.values())) if len(self.suts) == 1 else None)

    @property
    def without_domains(self) -> "Usage":
        """The same without what the host knows of the guests' processes."""
        return replace(self, host={**self.host, "domains": {}}, sees_machine=False) if self.host else self

    def steal_pct(self, before: "Usage") -> float | None:
        """CPU time stolen since `before`, in percent of the CPUs that the server may use, on all machines together."""
        if not self.suts:
            return None
        return steal_pct(
            (before.suts[name]["survey"], sut["survey"], server_cpus(sut)) for name, sut in self.suts.items()
        )


def server_cpus(sut: Reading) -> int:
    """Bit mask of the CPUs that the server may use; on a machine without server processes, those of the agent."""
    return sut["server"]["cpus"] or sut["survey"]["cpus"]


def mbit(before: Reading, after: Reading, wall_s: float) -> float:
    """Mbit/s on a machine's interfaces between two readings, in the busier direction."""
    old, new = before["machine"], after["machine"]
    return float(max(new[k] - old[k] for k in ("rx_bytes", "tx_bytes"))) * 8 / 1e6 / wall_s


def read_usage(machines: Machines, server: str, remote: tuple[str, int], *, has_guests: bool = True) -> Usage:
    """Read all machines at once. `remote`: address and port of the load; `has_guests`: whether the host runs them.
    Raises AgentError, HostLostError.
    """
    clients, suts, host = machines.clients, machines.suts, machines.host
    of_guests = machines.domain_args if has_guests else {}
    host_answer = host.ask("usage", **of_guests, contained=machines.container_names) if host else None
    pending = [(line, _ask_usage(machines, line, server, remote)) for line in suts]
    pending += [(line, line.ask("usage", remote=remote)) for line in clients if line not in suts]
    readings = {line.host.name: answer.wait(_LIMIT_S) for line, answer in pending}
    return Usage(
        suts={line.host.name: readings[line.host.name] for line in suts},
        clients={line.host.name: readings[line.host.name] for line in clients},
        host=host_answer.wait(_LIMIT_S) if host_answer else None,
        sees_machine=(host is not None and has_guests) or all(map(_is_on_machine, suts)),
        groups_only=machines.groups_only,
    )


def _is_on_machine(sut: AgentLine) -> bool:
    """Return whether the agent of a machine under test runs on the physical machine itself."""
    return sut.host.role == "metal" or sut.host.runtime is not None


def _ask_usage(machines: Machines, sut: AgentLine, server: str, remote: tuple[str, int]) -> Pending:
    is_client = sut in machines.clients
    return sut.ask("usage", server=machines.server_on(sut, server), remote=remote if is_client else None)


def growth(before: Usage, after: Usage, figure: Callable[[Reading], float]) -> float:
    """Growth of a figure, summed over the machines under test."""
    return float(sum(figure(after.suts[name]) - figure(old) for name, old in before.suts.items()))


# What CPU seconds are read from: the control group counts every process, those that have ended included.
_GROUPS = ("cgroup", "cpuacct")


def with_cpu(measurement: Measurement, before: Usage, after: Usage) -> Measurement:
    """The measurement with the CPU time of the server's processes; for guests of their QEMU and vhost threads, for
    containers of their control groups; and of the physical machine; in total and per request.

    The exact total is split into user and system time in the ratio of the machine's coarser counters.
    """
    if not after.suts:
        return measurement
    if after.groups_only and any(sut["server"]["method"] not in _GROUPS for sut in after.suts.values()):
        return measurement
    total = growth(before, after, lambda sut: sut["server"]["total_s"])
    user = growth(before, after, lambda sut: sut["server"]["user_s"])
    system = growth(before, after, lambda sut: sut["server"]["system_s"])
    share, requests = user / (user + system) if user + system > 0 else 0.0, measurement.transactions
    host_s = None
    if before.domain_s is not None and after.domain_s is not None:
        host_s = after.domain_s - before.domain_s
    elif before.container_s is not None and after.container_s is not None:
        host_s = after.container_s - before.container_s
    return replace(
        measurement,
        server_cpu_user_s=total * share,
        server_cpu_system_s=total * (1 - share),
        server_cpu_us_per_request=total * 1e6 / requests if requests else None,
        host_cpu_s=host_s,
        host_cpu_us_per_request=host_s * 1e6 / requests if host_s is not None and requests else None,
        machine_cpu=_machine_cpu(before, after),
    )


def _machine_cpu(before: Usage, after: Usage) -> MachineCpu | None:
    """What the physical machine spent on the arm; None where no reading shows it."""
    old, new = before.physical, after.physical
    if before.arm_s is None or after.arm_s is None or not old or not new or "survey" not in old:
        return None
    return machine_cpu(after.arm_s - before.arm_s, old["survey"], new["survey"])


def energy_j(before: Usage, after: Usage) -> float | None:
    """Joules that the machine's processors and memory have drawn; None if it has no such counters.

    Assumes that a counter wraps at most once between two readings: that takes minutes at full power.
    """
    old, new = before.energy_uj, after.energy_uj
    if not old or old.keys() != new.keys():
        return None
    return sum((new[zone][0] - old[zone][0]) % new[zone][1] for zone in new) / 1e6


@dataclass(frozen=True)
class Telemetry:
    """Growth between two readings, summed over the guests: CPU seconds by kind of QEMU thread, KVM's counters,
    interrupts.
    """

    requests: int
    threads_s: Counters
    # time that the threads of each kind waited for a CPU; None if the host's kernel keeps no such figure
    waits_s: Counters | None
    kvm: Counters | None  # None if KVM does not run the guests, or its counters cannot be read
    host_interrupts: Counters
    guest_interrupts: Counters


def telemetry(before: Usage, after: Usage, requests: int) -> Telemetry | None:
    """Growth between the readings; None without guests, or if the client runs on the guest: it would be included."""
    if before.host is None or after.host is None or after.domain_s is None:
        return None
    old, new = before.host["domains"].values(), after.host["domains"].values()
    return Telemetry(
        requests=requests,
        threads_s=_counter_growth(_sum(d["threads_s"] for d in old), _sum(d["threads_s"] for d in new)),
        waits_s=_waits_s(before.host, after.host),
        kvm=_nonzero_growth(_sum(d["kvm"] for d in old), _sum(d["kvm"] for d in new)) or None,
        host_interrupts=_nonzero_growth(before.host["interrupts"], after.host["interrupts"]),
        guest_interrupts=_nonzero_growth(
            _sum(sut["interrupts"] for sut in before.suts.values()),
            _sum(sut["interrupts"] for sut in after.suts.values()),
        ),
    )


def with_telemetry(resources: Resources, figures: Telemetry | None) -> Resources:
    """The resources with the KVM host's work per request; unchanged without telemetry or requests."""
    if not figures or not figures.requests:
        return resources
    requests, threads_s, kvm = figures.requests, figures.threads_s, figures.kvm or {}
    wait_us = {kind: wait_s * 1e6 / requests for kind, wait_s in (figures.waits_s or {}).items()}
    return replace(
        resources,
        host_exits_per_request=kvm["exits"] / requests if "exits" in kvm else None,
        host_vcpu_cpu_us_per_request=threads_s["vcpu"] * 1e6 / requests,
        host_qemu_cpu_us_per_request=threads_s["qemu"] * 1e6 / requests,
        host_vhost_cpu_us_per_request=threads_s["vhost"] * 1e6 / requests,
        host_vcpu_wait_us_per_request=wait_us.get("vcpu"),
        host_qemu_wait_us_per_request=wait_us.get("qemu"),
        host_iothread_wait_us_per_request=wait_us.get("iothread"),
        host_vhost_wait_us_per_request=wait_us.get("vhost"),
        host_irqs_per_request=sum(figures.host_interrupts.values()) / requests,
        guest_irqs_per_request=sum(figures.guest_interrupts.values()) / requests,
    )


def resources(loads: Sequence[tuple[Usage, Usage]], requests: int) -> Resources:
    """Resources of a trial, from the readings before and after each of its loads: memory and processes are the highest
    of all readings, the rest is from the first load, which had these requests.
    """
    before, after = loads[0]
    readings = [reading for load in loads for reading in load]
    sut_mb, host_mb = read_mb(before, after)
    figures = Resources(
        memory_pss_kib=max((kib for reading in readings if (kib := reading.pss_kib) is not None), default=None),
        processes=max((count for reading in readings if (count := reading.processes) is not None), default=None),
        read_mb=sut_mb,
        host_read_mb=host_mb,
        host_energy_j=energy_j(before, after),
        steal_pct=after.steal_pct(before),
        server_wait_us_per_request=server_wait_us_per_request(before, after, requests),
    )
    return with_telemetry(figures, telemetry(before, after, requests))


def server_wait_us_per_request(before: Usage, after: Usage, requests: int) -> float | None:
    """Time that the server's threads waited for a CPU of their own machine, all machines under test together.

    None without requests, without a machine that is seen, and where a kernel keeps no such figure.
    """
    waits = [(before.suts[name]["server"]["waits_ns"], sut["server"]["waits_ns"]) for name, sut in after.suts.items()]
    growths_ns = [growth_ns(old, new) for old, new in waits if old is not None and new is not None]
    return sum(growths_ns) / 1e3 / requests if requests and waits and len(growths_ns) == len(waits) else None


def _waits_s(before: Reading, after: Reading) -> Counters | None:
    """Kind of thread → seconds that the guests' threads waited for a CPU of their host."""
    total: Counters = {}
    for name, domain in after["domains"].items():
        old, new = before["domains"][name]["waits_ns"], domain["waits_ns"]
        if old is None or new is None:
            return None
        for kind, waits in new.items():
            total[kind] = total.get(kind, 0) + growth_ns(old.get(kind, {}), waits) / 1e9
    return total


def _sum(parts: Iterable[Mapping[str, float]]) -> Counters:
    total: Counters = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def _counter_growth(old: Mapping[str, float], new: Mapping[str, float]) -> Counters:
    # Threads are read one after the other, so a figure that is the total less some threads may shrink a little.
    return {name: max(0.0, value - old.get(name, 0)) for name, value in new.items()}


def _nonzero_growth(old: Mapping[str, float], new: Mapping[str, float]) -> Counters:
    """Growth of each counter that grew."""
    return {name: times for name, times in _counter_growth(old, new).items() if times > 0}


# Seconds: the kernel writes dirty pages back first.
_COLD_LIMIT_S = 120.0


def drop_page_caches(kernels: Sequence[AgentLine]) -> None:
    """Empty the page caches of these machines, guests before their host. Raises AgentError, HostLostError."""
    for line in kernels:
        line.call("drop_caches", _COLD_LIMIT_S)


def read_mb(before: Usage, after: Usage) -> tuple[float | None, float | None]:
    """10⁶ bytes that the machines under test read from disk; the same for a guest's host. None for what is not seen."""
    if not after.suts:
        return None, None
    sut_mb = growth(before, after, lambda sut: sut["read_kib"]) * 1024 / 1e6
    if before.domain_s is None or not before.host or not after.host:
        return sut_mb, None
    return sut_mb, (after.host["read_kib"] - before.host["read_kib"]) * 1024 / 1e6
