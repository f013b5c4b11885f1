"""Check a lab before anything runs, and report all that is wrong with it.

Each check is a function of `CHECKS` that asks the agents on the machines of a lab and yields what it finds.
"""

import dataclasses
import html
import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial, wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vmtoll import hypervisors, loadgen
from vmtoll.agent.accelerator import KVM_PATIENCE_S
from vmtoll.agent.protocol import Done, KvmAnswer, Route, SpeedSettings, System
from vmtoll.agent.virsh import called
from vmtoll.guests import needs, profiles
from vmtoll.guests.inventory import guest as described_guest
from vmtoll.machines.clock import Offset, clock_offset
from vmtoll.machines.connection import AgentLine, diagnose_ssh
from vmtoll.machines.facts import merge_disclosure
from vmtoll.model.complaint import Complaint, Level, fail, ok, warn
from vmtoll.model.disclosure import OPERATOR, Disclosure
from vmtoll.model.errors import AgentError, HostLostError, VmtollError
from vmtoll.model.inventory import Host, Role
from vmtoll.model.release import NAMES, release_of_system
from vmtoll.model.transport import tls_port
from vmtoll.paths import LAB
from vmtoll.spec.inventory import read_inventory
from vmtoll.spec.inventory_faults import SUTS, InventoryData, faults
from vmtoll.statistics.thresholds import CLOCK_STEP_S

_SSH_FAILED = 255
_OLDEST_PYTHON = (3, 9)
_OLDEST_SYSTEMD = 247
# Sites and programs built on the controller take 60 MiB; the rest is for packages and for the load tools' logs.
_DISK_MIB = 512
# Load tools log to /tmp of a machine under test only for `client: localhost`. On Debian 13 /tmp is half of the memory.
_SUT_TMP_MIB = 256
_MEMORY_MIB = 256
# A trial's series have one value per second. An emulated guest starts up to a second behind: its hardware clock has
# whole seconds only.
_MOST_CLOCK_OFFSET_S = 2.0
_CLOCK_READINGS = 12
_MEASURED_WITHIN_S = 120.0
_LINK_TEST_S = 2
# At an MTU of 1500, TCP's payload gets 94% of the line's rate.
_LOWEST_LINK_SHARE = 0.85
_HIGHEST_LINK_SHARE = 1.05
_IPERF3_LISTENS_WITHIN_S = 30.0
_REFUSED = "Connection refused"
_NOT_INSTALLED = "absent"

# item → its version
Versions = dict[str, str]
_AT_ONCE = 16
# How long a command or an answer may take on a machine: an emulated one on two busy cores took more than a minute to
# start Python.
PATIENCE_S = 180.0


@dataclass
class Lab:
    """`data`: the output of ansible-inventory. `lines`: agents that the check `reach` started; a machine without one
    does not answer. `in_use`: machines that another run holds, or whose port is taken: the checks send them no load.
    """

    path: Path
    data: dict[str, Any]
    limited: bool = False
    say: Callable[[str], None] = lambda _: None
    lines: dict[str, AgentLine] = field(default_factory=dict)
    in_use: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path, limit: str | None, say: Callable[[str], None]) -> "Lab":
        """The lab of an inventory. Raises InventoryError."""
        return cls(path, read_inventory(path, limit), limit is not None, say)

    @cached_property
    def machines(self) -> InventoryData:
        return InventoryData(self.data, self.path)

    @property
    def by_role(self) -> dict[Role, list[Host]]:
        """The machines by role, without those that have a wrong variable."""
        wrong = self.machines.mistakes
        return {role: [h for h in hosts if h.name not in wrong] for role, hosts in self.machines.by_role.items()}

    @cached_property
    def hosts(self) -> Sequence[Host]:
        """All machines; under a limit only those KVM hosts that the others need."""
        hosts = [host for role, hosts in self.by_role.items() for host in hosts if role != "kvm_host"]
        needed = {name for host in hosts for name in (host.vars.kvm_host, host.vars.container_host)}
        return [*hosts, *(host for host in self.by_role["kvm_host"] if not self.limited or host.name in needed)]

    def answering_hosts(self, *roles: Role) -> list[Host]:
        """The machines that answer, of these roles or of any."""
        return [host for host in self.hosts if host.name in self.lines and (not roles or host.role in roles)]

    def pairs(self) -> list[tuple[Host, Host]]:
        """Each client with each machine that it would send load to; if the inventory has cells, those in its own."""
        return [
            (client, sut)
            for client in self.answering_hosts("client")
            for sut in self.answering_hosts(*SUTS)
            if self.machines.test_bed(client) == self.machines.test_bed(sut)
            and client.name != sut.name
            and sut.runtime is None  # nothing of it is there until a server runs
        ]

    def ask(self, host: Host, op: str, limit_s: float = PATIENCE_S, **args: Any) -> Any:
        """Ask the agent on a machine. Raises AgentError, HostLostError."""
        return self.lines[host.name].call(op, limit_s, **args)

    def run(self, host: Host, argv: Sequence[str], limit_s: float = PATIENCE_S) -> Done:
        """Run a command on a machine; see the agent's Commands.run."""
        done: Done = self.lines[host.name].call("exec", limit_s + 15, argv=argv, limit_s=limit_s)
        return done

    def on_each(self, hosts: Iterable[Host], check_host: Callable[[Host], Iterable[Complaint]]) -> Iterable[Complaint]:
        """Yield the results of `check_host`, run in parallel on each of these machines. A lost one yields an error."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for results in pool.map(lambda host: results_or_error(host.name, lambda: check_host(host)), hosts):
                yield from results

    def close(self) -> None:
        """End all agents."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(AgentLine.close, self.lines.values()))


def results_or_error(name: str, check: Callable[[], Iterable[Complaint]]) -> list[Complaint]:
    """Return the results of `check`; an error if the machine is lost meanwhile, or cannot answer."""
    try:
        return list(check())
    except VmtollError as error:
        return [fail(name, f"the check broke off: {error}", "Correct that and check again.")]


Check = Callable[[Lab], Iterable[Complaint]]


def on_each(*roles: Role) -> Callable[[Callable[[Lab, Host], Iterable[Complaint]]], Check]:
    """Make a check of one machine a check of all that answer, of these roles or of any."""

    def decorated(check_host: Callable[[Lab, Host], Iterable[Complaint]]) -> Check:
        return wraps(check_host)(lambda lab: lab.on_each(lab.answering_hosts(*roles), partial(check_host, lab)))

    return decorated


def on_each_pair(check_pair: Callable[[Lab, Host, Host], Iterable[Complaint]]) -> Check:
    """Make a check of a client and a machine under test a check of all pairs, one after the other."""

    @wraps(check_pair)
    def check(lab: Lab) -> Iterator[Complaint]:
        for client, sut in lab.pairs():
            yield from results_or_error(f"{client.name}–{sut.name}", partial(check_pair, lab, client, sut))

    return check


def inventory(lab: Lab) -> Iterator[Complaint]:
    """Check values, groups, environments, guests' variables, variables that must be the same, unknown variables."""
    wrong = list(faults(lab.machines, limited=lab.limited))
    for fault in wrong:
        yield fault if fault.advice.endswith("?") else dataclasses.replace(fault, advice=f"{fault.advice}.")
    if not any(fault.level == "fail" for fault in wrong):
        parts = ", ".join(f"{len(hosts)} {role}" for role, hosts in lab.by_role.items() if hosts)
        yield ok("", f"{lab.path}: {parts}")


def reach(lab: Lab) -> Iterator[Complaint]:
    """Try SSH, sudo and Python, then start the agent that all other checks use."""
    yield from lab.on_each(lab.hosts, partial(_reach_of, lab))


def _reach_of(lab: Lab, host: Host) -> Iterator[Complaint]:
    without_sudo = dataclasses.replace(host, variables={**host.variables, "ansible_become": False})
    ssh_argv, become_argv, python = without_sudo.argv()[:-1], host.argv()[:-1], host.argv()[-1]
    if not host.is_local and (done := _run([*ssh_argv, "true"])).returncode:
        problem, advice = diagnose_ssh(host, done.stderr)
        provision_hint = "if it has not been made yet, `vmtoll provision` does it; else " if host.is_made else ""
        yield fail(host.name, problem, _sentence(provision_hint + advice))
        return
    if become_argv != ssh_argv and (done := _run([*become_argv, "true"])).returncode:
        yield fail(
            host.name, f"sudo does not work without a password: {_last_line(done)}", "Allow it: NOPASSWD in sudoers."
        )
        return
    program = "import os,sys;print(os.geteuid(),*sys.version_info[:2])"
    done = _run([*become_argv, python, "-c", program if host.is_local else f"'{program}'"])
    if done.returncode:
        advice = "Install python3, or correct ansible_python_interpreter."
        yield fail(host.name, f"{python} does not run: {_last_line(done)}", advice)
        return
    user, *version = (int(word) for word in done.stdout.split())
    release = ".".join(map(str, version))
    if tuple(version) < _OLDEST_PYTHON:
        advice = "Install Python 3.9 or newer and name it in ansible_python_interpreter."
        yield fail(host.name, f"{python} is Python {release}", advice)
        return
    if user != 0:
        user_name = host.ansible.user or "the user"
        yield fail(host.name, f"{user_name} is not root there", "Set ansible_become: true, or ansible_user: root.")
        return
    line = AgentLine(host)
    line.open(PATIENCE_S)
    lab.lines[host.name] = line
    yield ok(host.name, f"root by {'local connection' if host.is_local else 'SSH'}, Python {release}")


def _run(argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, _SSH_FAILED, "", f"no answer within {PATIENCE_S:g} s")
    except OSError as error:
        return subprocess.CompletedProcess(argv, 127, "", str(error))


def _last_line(done: "subprocess.CompletedProcess[str]") -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


@on_each("client", *SUTS)
def free(lab: Lab, host: Host) -> Iterator[Complaint]:
    """Take the lock that a run takes, until the preflight ends."""
    held_by = lab.lines[host.name].call("lock", owner=f"preflight (process {os.getpid()})")["held_by"]
    if held_by:
        lab.in_use.add(host.name)
        yield fail(host.name, f"in use by {held_by}", "Wait for its end.")
    elif host.role in SUTS and (port_problem := _port_in_use(lab, host)):
        lab.in_use.add(host.name)
        yield fail(host.name, f"port {port_problem}", "Stop what listens there, or set vmtoll_http_port.")
    else:
        yield ok(host.name, "no run on it" + (f", port {host.port} free" if host.role in SUTS else ""))


def _port_in_use(lab: Lab, host: Host) -> str:
    """The first port, plain or TLS, that a server could not listen on, and why; empty if all are free."""
    ports = (host.port, *(tls_port(host.port, resumption=resumption) for resumption in (False, True)))
    reasons = ((port, lab.ask(host, "port_problem", port=port)) for port in ports)
    return next((f"{port} is taken ({why})" for port, why in reasons if why), "")


@on_each("client", *SUTS)
def system(lab: Lab, host: Host) -> Iterator[Complaint]:
    """Check distribution and systemd of the machines that are provisioned: clients and systems under test."""
    system: System = lab.ask(host, "system")
    name, systemd = f"{system['id']} {system['version']}", system["systemd"]
    if not system["apt"]:
        yield fail(host.name, f"{name} has no apt-get", f"Install {NAMES}: packages come by apt.")
    elif host.runtime:  # the agent of its host starts the server itself
        yield ok(host.name, f"{name}, on {host.vars.container_host}")
    elif systemd is None or not system["booted"]:
        yield fail(host.name, f"{name} was not started by systemd", "Boot it with systemd: servers are its units.")
    elif systemd < _OLDEST_SYSTEMD:
        yield fail(host.name, f"systemd is {systemd}", f"Install a system with systemd {_OLDEST_SYSTEMD} or newer.")
    elif release_of_system(system["id"], system["version"]) is None:
        yield warn(host.name, f"{name}, systemd {systemd}", f"vmtoll is written for {NAMES}; this is untested.")
    else:
        yield ok(host.name, f"{name}, systemd {systemd}")


@on_each("client", *SUTS)
def space(lab: Lab, host: Host) -> Iterator[Complaint]:
    """Check free disk and memory of clients and systems under test."""
    needed = {"/var": _DISK_MIB, "/srv": _DISK_MIB, "/tmp": _DISK_MIB if host.role == "client" else _SUT_TMP_MIB}
    space = lab.ask(host, "space", folders=list(needed))
    short_folders = {folder: mib for folder, mib in space["free_mib"].items() if mib < needed[folder]}
    for folder, mib in short_folders.items():
        yield fail(host.name, f"{folder} has {mib} MiB left", f"Make room: {needed[folder]} MiB at least.")
    if space["memory_mib"] < _MEMORY_MIB:
        observation = f"{space['memory_mib']} MiB of memory are available"
        yield fail(host.name, observation, f"Stop something, or give it more: {_MEMORY_MIB} MiB at least.")
    elif not short_folders:
        yield ok(host.name, f"{min(space['free_mib'].values())} MiB of disk and {space['memory_mib']} of memory free")


def clock(lab: Lab) -> Iterator[Complaint]:
    """Compare every machine's clock with that of the first that answers; whether that one is right does not matter."""
    offsets: dict[str, Offset] = {}
    for host in lab.answering_hosts():  # one after the other: a busy machine answers late
        try:
            offsets[host.name] = clock_offset(lab.lines[host.name], _CLOCK_READINGS, _MEASURED_WITHIN_S)
        except HostLostError as error:
            yield fail(host.name, f"does not tell the time: {error}", "See what keeps it busy.")
    first = next(iter(offsets), "")
    for name, offset in offsets.items():
        ahead_s, error_s = offset.ahead_s - offsets[first].ahead_s, offset.error_s + offsets[first].error_s
        yield judge_clock(name, first, ahead_s, error_s)


def judge_clock(name: str, first: str, ahead_s: float, error_s: float) -> Complaint:
    """Judge a clock by its offset from the first machine's, give or take the error."""
    if name == first:
        return ok(name, "the clock that the others are compared with")
    observation = (
        f"{abs(ahead_s) * 1000:.1f} ms {'ahead of' if ahead_s > 0 else 'behind'} {first} (± {error_s * 1000:.1f})"
    )
    least_offset_s = abs(ahead_s) - error_s
    advice = "Let chrony or systemd-timesyncd set the clocks of all machines."
    if least_offset_s > _MOST_CLOCK_OFFSET_S:
        return fail(name, observation, advice)
    return warn(name, observation, advice) if least_offset_s > CLOCK_STEP_S else ok(name, observation)


@on_each_pair
def network(lab: Lab, client: Host, sut: Host) -> list[Complaint]:
    """Check from both ends: the route, the neighbour's hardware address, the MTU."""
    pair = f"{client.name}–{sut.name}"
    outbound: Route = lab.ask(client, "route", name=sut.address)
    if outbound["error"]:
        observation = f"{client.name} has no way to {sut.address}: {outbound['error']}"
        return [fail(pair, observation, "Correct vmtoll_address, the route or the cable.")]
    inbound: Route = lab.ask(sut, "route", name=outbound["address"])
    if inbound["error"]:
        observation = f"{sut.name} has no way back to {outbound['address']}: {inbound['error']}"
        return [fail(pair, observation, "Correct its route, or give both an address on one network.")]
    return judge_network(client.name, sut.name, outbound, inbound)


def judge_network(client: str, sut: str, outbound: Route, inbound: Route) -> list[Complaint]:
    """Compare what the two ends see of each other."""
    pair, results = f"{client}–{sut}", list[Complaint]()
    if outbound["mtu"] != inbound["mtu"]:
        text = f"the MTU is {outbound['mtu']} on {client}, {inbound['mtu']} on {sut}"
        results.append(warn(pair, text, "Give both interfaces the same MTU."))
    if not (outbound["on_link"] and inbound["on_link"]):
        router = outbound["gateway"] or inbound["gateway"]
        results.append(warn(pair, f"a router is between them ({router})", "Put both on one switch and one subnet."))
    elif outbound["neighbour"] != inbound["mac"]:
        text = f"at {outbound['remote']} {client} sees {outbound['neighbour']}, not {sut}'s own {inbound['mac']}"
        results.append(warn(pair, text, "Something answers for it (proxy ARP); put both on one switch."))
    return results or [
        ok(pair, f"one network segment ({outbound['interface']}, {inbound['interface']}), MTU {outbound['mtu']}")
    ]


@on_each_pair
def link(lab: Lab, client: Host, sut: Host) -> list[Complaint]:
    """Run iperf3 in both directions, only between machines that are not in use."""
    if {client.name, sut.name} & lab.in_use:
        return []
    lab.say(f"preflight: load between {client.name} and {sut.name}, twice {_LINK_TEST_S} s")
    pair = f"{client.name}–{sut.name}"
    for host in (client, sut):
        try:
            lab.run(host, ["iperf3", "--version"])
        except AgentError:
            observation = f"not measured, {host.name} has no iperf3"
            return [warn(pair, observation, "`vmtoll provision` installs it; check again.")]
    outbound_mbit, inbound_mbit = (_rate_mbit(lab, client, sut, *direction) for direction in ((), ("--reverse",)))
    nics = [nic for nic in (_nic_mbit(lab, client, sut.address), _nic_mbit(lab, sut, client.address)) if nic]
    return [judge_link(client.name, sut, outbound_mbit, inbound_mbit, client.vars.link_mbit, min(nics, default=None))]


def _rate_mbit(lab: Lab, client: Host, sut: Host, *direction: str) -> float:
    """Megabits per second that arrive. The iperf3 server takes one client and ends. Raises AgentError."""
    port = ["--port", str(sut.port)]
    server = lab.lines[sut.name].ask(
        "exec", argv=["iperf3", "--server", "--one-off", *port], limit_s=_MEASURED_WITHIN_S
    )
    ask = ["iperf3", "--json", "--connect-timeout", "3000", "--time", str(_LINK_TEST_S)]
    argv = [*ask, "--client", sut.address, *port, *direction]
    deadline = time.monotonic() + _IPERF3_LISTENS_WITHIN_S
    try:
        while True:
            answer: dict[str, Any] = json.loads(lab.run(client, argv, _MEASURED_WITHIN_S)["stdout"] or "{}")
            error = str(answer.get("error", ""))
            if _REFUSED not in error or time.monotonic() > deadline:
                break
        if error or "end" not in answer:
            reason = error or "iperf3 printed nothing"
            raise AgentError(f"{client.name}: no data to {sut.address}, port {sut.port}: {reason}")
        return float(answer["end"]["sum_received"]["bits_per_second"]) / 1e6
    finally:
        lab.lines[sut.name].call("kill")
        server.wait(_MEASURED_WITHIN_S)


def _nic_mbit(lab: Lab, host: Host, remote: str) -> float | None:
    """The rate of the interface toward an address, from its driver; None for a virtual one."""
    route: Route = lab.ask(host, "route", name=remote)
    return route.get("speed_mbit")


def judge_link(
    client: str, sut: Host, outbound_mbit: float, inbound_mbit: float, stated_mbit: float | None, nic_mbit: float | None
) -> Complaint:
    """Compare the measured rates with the line's: that of the inventory, else that of the slower interface."""
    pair, slower_mbit = f"{client}–{sut.name}", min(outbound_mbit, inbound_mbit)
    slower_direction = "there" if outbound_mbit < inbound_mbit else "back"
    observation = f"{outbound_mbit:.0f} Mbit/s there, {inbound_mbit:.0f} back"
    if stated_mbit is not None and max(outbound_mbit, inbound_mbit) > _HIGHEST_LINK_SHARE * stated_mbit:
        return fail(pair, f"{observation}; vmtoll_link_mbit says {stated_mbit:g}", "Correct it, or shape the link.")
    line_mbit = stated_mbit if stated_mbit is not None else nic_mbit
    if line_mbit is None or slower_mbit >= _LOWEST_LINK_SHARE * line_mbit:
        return ok(pair, observation)
    line_source = "vmtoll_link_mbit says" if stated_mbit is not None else "the interfaces could do"
    observation = f"{observation}; {line_source} {line_mbit:g}, the direction {slower_direction} is slower"
    if sut.role == "kvm_guest":
        advice = "If its host reaches the rate, the guest's network device is the cause; else repair cable or switch."
        return warn(pair, observation, advice)
    result_of = fail if stated_mbit is not None else warn
    return result_of(
        pair, observation, "Look at cable, switch and `ethtool`, or set vmtoll_link_mbit to the real rate."
    )


@on_each("kvm_host")
def kvm(lab: Lab, host: Host) -> Iterator[Complaint]:
    """Run code on a virtual CPU of each KVM host, and boot the kernels of its guests there."""
    embedded = host.is_local and host.vars.lab == "embedded"
    kernel = f"{json.loads((LAB / 'built.json').read_text())['image']}/vmlinuz" if embedded else ""
    for path in _guest_kernels(lab, host) or [kernel]:
        answer: KvmAnswer = lab.ask(host, "kvm_works", KVM_PATIENCE_S + PATIENCE_S, kernel=path)
        yield judge_kvm(host.name, answer, embedded=embedded)


def _guest_kernels(lab: Lab, host: Host) -> list[str]:
    """The files on a KVM host that libvirt's guests there boot as their kernel, each once; empty where they boot from
    their disks, or are not made yet.
    """
    virsh, kernels = hypervisors.Virsh(lab.lines[host.name]), list[str]()
    for guest in (guest for guest in lab.by_role["kvm_guest"] if guest.vars.kvm_host == host.name):
        if domain := guest.vars.domain or (guest.vars.profile and guest.name):
            kernels += re.findall(r"<kernel>([^<]+)</kernel>", virsh.output("dumpxml", *called(domain))["stdout"])
    return sorted({html.unescape(kernel) for kernel in kernels})


def judge_kvm(machine: str, answer: KvmAnswer, *, embedded: bool) -> Complaint:
    """Judge whether KVM works, by the agent's answer; the embedded lab can do without KVM."""
    module = needs.module_text(answer)
    if answer["why"]:
        level: Level = "warn" if embedded else "fail"
        lab_advice = "The lab's guests are emulated: compare their numbers only with each other."
        why = f"KVM does not work: {answer['why']}{module}"
        return Complaint(machine, level, why, lab_advice if embedded else answer["advice"])
    boot_text = f", and boots {answer['booted']}" if answer["booted"] else "; no kernel was booted"
    return ok(machine, f"KVM runs code{boot_text}{module}")


def guests(lab: Lab) -> Iterator[Complaint]:
    """Check libvirt's domains, guests of others, and with vmtoll/guests/needs.py what the host has."""
    for guest in lab.by_role["kvm_guest"]:
        if guest.vars.kvm_host is None:
            yield ok(guest.name, "its KVM host is not in the inventory: a run sees only the steal time of it")
    yield from lab.on_each(lab.answering_hosts("kvm_host"), lambda host: _guests_of(lab, host))


def _guests_of(lab: Lab, host: Host) -> Iterator[Complaint]:
    guests = [guest for guest in lab.by_role["kvm_guest"] if guest.vars.kvm_host == host.name]
    if not guests:
        return
    for guest in guests:
        if guest.guest_name and not guest.vars.domain:
            yield _check_other(lab, host, guest)
    guests = [guest for guest in guests if guest.vars.domain or not guest.guest_name]
    if not guests:
        return
    virsh = hypervisors.Virsh(lab.lines[host.name])
    running, defined = virsh.names("list", "--name"), virsh.names("list", "--name", "--all")
    for guest in guests:
        domain = guest.vars.domain or guest.name
        if domain in running:
            yield ok(guest.name, f"the domain {domain} runs on {host.name}")
        elif domain in defined:
            yield fail(
                guest.name, f"the domain {domain} is shut off", f"Start it: `virsh start {shlex.join(called(domain))}`."
            )
        elif guest.vars.profile:
            yield warn(guest.name, f"{host.name} has no domain {domain} yet", "`vmtoll provision` makes it.")
        else:
            yield fail(
                guest.name, f"{host.name} has no domain {domain}", "Correct vmtoll_domain or vmtoll_libvirt_uri."
            )
    yield from _check_needs(lab, host, [guest for guest in guests if guest.vars.profile], running)


def _check_other(lab: Lab, host: Host, guest: Host) -> Complaint:
    """Check a guest that libvirt does not run."""
    on_host = hypervisors.of(guest, lab.lines[host.name])
    try:
        if on_host.is_off():
            return fail(
                guest.name, f"it does not run on {host.name}", "Start it, or correct its name in the inventory."
            )
        on_host.definition()
    except AgentError as error:
        return fail(guest.name, str(error), "A run reads the same: correct that first.")
    return ok(guest.name, f"it runs on {host.name}")


def _check_needs(lab: Lab, host: Host, guests: Sequence[Host], running: Sequence[str]) -> Iterator[Complaint]:
    if not guests:
        return
    try:
        described = [described_guest(guest) for guest in guests]
        lacks = needs.lacking(described, lab.ask(host, "kvm_host"), running)
    except VmtollError as error:
        yield fail(host.name, str(error), "Correct it in the inventory.")
        return
    for lack in lacks:
        observation, _, way_out = lack.rpartition("; ")
        yield fail(host.name, observation, f"{way_out[0].upper()}{way_out[1:]}.")
    if not lacks:
        yield ok(host.name, f"has what the profiles need: {', '.join(sorted({guest.profile for guest in described}))}")


def versions(lab: Lab) -> Iterator[Complaint]:
    """Compare servers and sites on the systems under test, load tools on these and the clients.

    A system under test may lack a compiled load tool: the embedded lab copies it only to the machines that send with
    it.
    """
    servers: dict[str, Versions] = {}
    programs: dict[str, Versions] = {}
    releases: dict[str, str] = {}
    packaged = {name for name in loadgen.names() if loadgen.get(name).package}

    def gather(host: Host) -> list[Complaint]:
        # "." is all sites: one digest over everything that the servers serve.
        facts = lab.lines[host.name].call("facts", PATIENCE_S, **({"site": "."} if host.role in SUTS else {}))
        releases[host.name] = facts["release"]
        programs[host.name] = _tools(lab, host, facts["packages"])
        if host.role in SUTS:
            servers[host.name] = _servers(facts)
            packaged.update(_packaged(facts))
        return []

    yield from lab.on_each(lab.answering_hosts("client", *SUTS), gather)
    compiled = [name for name in loadgen.names() if name not in packaged]
    chosen = {host.name for host in lab.answering_hosts(*SUTS) if has_own_release(host)}
    yield from judge_releases({machine: release for machine, release in releases.items() if machine not in chosen})
    for kind, versions_by_machine in (("servers and sites", servers), ("load tools", programs)):
        yield from judge_versions(kind, versions_by_machine, dict.fromkeys(servers, compiled), releases, packaged)


def has_own_release(host: Host) -> bool:
    """Return whether the profile of a guest says its release, which then differs from others' by design."""
    environment = host.vars.environment or ""
    return environment in profiles.names() and bool(profiles.load(environment).values["release"])


def judge_releases(releases: Mapping[str, str]) -> Iterator[Complaint]:
    """Judge whether all machines have the same release. If not, packages are compared within each."""
    machines: dict[str, list[str]] = {}
    for machine, release in releases.items():
        machines.setdefault(release, []).append(machine)
    if len(machines) > 1:
        observation = "; ".join(f"{release} on {', '.join(names)}" for release, names in machines.items())
        advice = "Their packages differ too. `vmtoll provision --suite` sets the release of guests that vmtoll makes."
        yield fail("", observation, advice)


def _packaged(facts: Mapping[str, Any]) -> set[str]:
    """Items of `_servers` that come with a distribution's package, and so differ between releases."""
    parts = "packages", "binary", "configuration", "worker count"
    return {f"{name}'s {part}" for name, server in facts["servers"].items() if server["version"] for part in parts}


def _servers(facts: Mapping[str, Any]) -> Versions:
    versions: Versions = {}
    for name, server in facts["servers"].items():
        versions[f"{name}'s packages"] = server["version"] or "its own build"
        versions[f"{name}'s binary"] = server["binary_sha256"][:12]
        versions[f"{name}'s configuration"] = server["config_sha256"][:12]
        versions[f"{name}'s worker count"] = str(server["workers"])
    return versions | ({"the sites' content": facts["content_digest"][:12]} if versions else {})


def _tools(lab: Lab, host: Host, packages: Mapping[str, str]) -> Versions:
    names = {name: loadgen.get(name).package for name in loadgen.names()}
    versions = {name: packages[package] for name, package in names.items() if package and package in packages}
    built_files = [f"/usr/local/bin/{name}" for name, package in names.items() if package is None]
    for line in lab.run(host, ["sha256sum", *built_files])["stdout"].splitlines():
        digest, path = line.split()
        versions[path.rpartition("/")[2]] = digest[:12]
    return versions


def judge_versions(
    kind: str,
    versions_by_machine: Mapping[str, Versions],
    may_lack: Mapping[str, Collection[str]] = MappingProxyType({}),
    releases: Mapping[str, str] = MappingProxyType({}),
    packaged: Collection[str] = (),
) -> Iterator[Complaint]:
    """Judge whether each item has the same version on all machines; a packaged one, on all of a release.

    `may_lack`: machine → items; `releases`: machine → release.
    """
    for machine in (machine for machine, versions in versions_by_machine.items() if not versions):
        yield warn(machine, f"it has no {kind} yet", "`vmtoll provision` brings them.")
    provisioned = {machine: versions for machine, versions in versions_by_machine.items() if versions}
    has_differences = False
    items = {
        (item, releases.get(machine) if item in packaged else None)
        for machine, versions in provisioned.items()
        for item in versions
    }
    for item, release in sorted(items, key=str):
        versions_of_item = {
            machine: versions.get(item, _NOT_INSTALLED)
            for machine, versions in provisioned.items()
            if release in (None, releases.get(machine)) and (item in versions or item not in may_lack.get(machine, ()))
        }
        if len(set(versions_of_item.values())) > 1:
            has_differences = True
            versions_text = ", ".join(f"{version} on {machine}" for machine, version in versions_of_item.items())
            yield fail("", f"{item} is {versions_text}", "Run `vmtoll provision` for all of them.")
    if provisioned and not has_differences and len(set(map(releases.get, provisioned))) == 1:
        yield ok("", f"{kind} are the same on {', '.join(provisioned)}")


def disclosure(lab: Lab) -> Iterator[Complaint]:
    """Ask every machine; report the items that neither it nor the inventory discloses."""
    hosts = lab.answering_hosts()
    yield from lab.on_each(hosts, lambda host: [judge_disclosure(host, lab.ask(host, "disclosure"))])
    if not any(OPERATOR in (host.vars.disclosure or {}) for host in lab.hosts):
        yield warn("", "nobody is named as who runs it", _advice(OPERATOR, "Jane Doe, Example University"))


def judge_disclosure(host: Host, items: dict[str, str]) -> Complaint:
    """Judge the items that one machine discloses; the advice has an example for the first item that it lacks."""
    disclosure_block: Disclosure = merge_disclosure([host], {host.name: items})
    missing = disclosure_block.missing(host.name)
    if not missing:
        return ok(host.name, f"discloses {len(disclosure_block.machines[host.name])} items")
    observation = f"not disclosed: {', '.join(item.label for item in missing)}"
    return warn(host.name, observation, _advice(missing[0].name, missing[0].example))


def _advice(name: str, example: str) -> str:
    return f"State what you know in vmtoll_disclosure of the inventory, such as {{{name}: '{example}'}}."


@on_each("container")
def runtimes(lab: Lab, host: Host) -> Iterator[Complaint]:
    """Start a program in each container runtime on its host's kernel; one that is missing or too old says so."""
    if host.runtime and (version := lab.ask(host, "sandbox_works")):
        yield ok(host.name, f"{version} starts containers on this kernel")


@on_each("metal", "kvm_host")
def settings(lab: Lab, host: Host) -> Iterator[Complaint]:
    """Check metal and KVM hosts; containers and guests have their host's settings."""
    if not host.vars.container_host:
        yield judge_settings(host, lab.ask(host, "speed_settings"))


def judge_settings(host: Host, settings: SpeedSettings) -> Complaint:
    """Return one result that names every setting that lets the speed vary."""
    variable_settings = []
    governors = set(settings["governors"]) - {"performance"}
    if governors:
        variable_settings.append(f"governor {', '.join(sorted(governors))}")
    if settings["turbo"]:
        variable_settings.append("turbo on")
    if settings["smt"] == "on":
        variable_settings.append("SMT on")
    if settings["irqbalance"]:
        variable_settings.append("irqbalance runs")
    if not variable_settings:
        clock_text = "" if settings["governors"] else "; it does not govern its clock rate"
        return ok(host.name, f"no setting changes the clock rate between trials{clock_text}")
    advice = "Run `vmtoll tune`." if host.vars.tuning else "Set vmtoll_tuning (docs/real-hosts.md), then tune."
    return warn(host.name, ", ".join(variable_settings), advice)


CHECKS: tuple[Check, ...] = (
    inventory, reach, free, system, space, clock, network, link, kvm, guests, runtimes, versions, disclosure, settings,
)  # fmt: skip


def results(lab: Lab) -> Iterator[tuple[str, Complaint]]:
    """Yield (name of the check, result) as they come. A check that breaks off yields an error, and the next runs."""
    for check in CHECKS:
        try:
            for result in check(lab):
                yield check.__name__, result
        except VmtollError as error:
            yield check.__name__, fail("", f"the check broke off: {error}", "Correct that and check again.")
