"""Find the guests of a host that libvirt does not run, and diagnose them."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from vmtoll.agent.protocol import FoundGuest, Process
from vmtoll.guests.diagnosis import diagnose, limits, qm
from vmtoll.guests.diagnosis.options import PlainGuest, unchanged, with_options, with_quotas
from vmtoll.hypervisors import Line, qmp
from vmtoll.hypervisors import proxmox_config as config
from vmtoll.hypervisors.command_line import CommandLine, parse_command_line
from vmtoll.hypervisors.definition import Live, has_hpet, live_of, of_command_line, threads_of
from vmtoll.hypervisors.process import ProcessGuest
from vmtoll.hypervisors.process import definition as process_definition
from vmtoll.hypervisors.qemu import QUERIES
from vmtoll.model.diagnosis import Diagnosis, State, Step, Thread, Tuning
from vmtoll.model.errors import AgentError
from vmtoll.model.inventory import Host

_LIMIT_S = 60.0
_AT_ONCE = 8
WATCHED_S = 1.0
_MODEL = "query-cpu-model-expansion"


@dataclass(frozen=True)
class OtherGuests:
    """The guests of a host that libvirt does not run; `facts`: what the host shows, of all and of each process.
    `of_libvirt`: the processes that any libvirt runs.
    """

    line: Line
    guests: Sequence[FoundGuest]
    facts: Mapping[str, Any] = field(default_factory=dict)
    of_libvirt: Sequence[FoundGuest] = ()

    def named(self, name: str | None) -> list[FoundGuest]:
        """The guests with this name, PID, socket or unit; all if it is None."""
        return [guest for guest in self.guests if name is None or name in _names(guest)]

    def elsewhere(self, uuids: Sequence[str], name: str | None) -> list[str]:
        """Words for each guest, or each one of this name, of another libvirt than the one whose guests have `uuids`."""
        others = [guest for guest in self.of_libvirt if not set(guest["process"]["argv"]) & {*uuids}]  # type: ignore[index]
        return [
            f"{guest['name']} (PID {number_of(guest)}{', ' * bool(guest['session'])}{guest['session']})"
            for guest in others if name is None or name in _names(guest)
        ]  # fmt: skip

    def diagnosis(self, guest: FoundGuest, where: str) -> Diagnosis:
        """Diagnose a guest. Raises AgentError if its host does not answer."""
        return _BY_KIND[guest["kind"]](self, guest, where)

    def with_thread_shares(self, diagnosis: Diagnosis, guest: FoundGuest) -> Diagnosis:
        """The diagnosis with the CPU time and the waits of each thread of the guest in one second."""
        before = guest["process"]
        if before is None:
            return diagnosis
        time.sleep(WATCHED_S)
        after: Process = self.line.call("process_of", pid=before["pid"])
        return replace(diagnosis, threads=tuple(_thread_shares(before, after)))

    def diagnoses(self, guests: Sequence[FoundGuest], where: str, *, watch: bool) -> list[Diagnosis]:
        """Diagnose guests. `watch`: also measure their threads for a second.

        If there are several, one whose definition cannot be read has no steps.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            diagnoses = list(
                pool.map(lambda guest: self._diagnose_or_explain(guest, where, alone=len(guests) == 1), guests)
            )
            return list(pool.map(self.with_thread_shares, diagnoses, guests)) if watch else diagnoses

    def _diagnose_or_explain(self, guest: FoundGuest, where: str, *, alone: bool) -> Diagnosis:
        try:
            return self.diagnosis(guest, where)
        except (AgentError, ValueError, KeyError) as error:
            if alone and isinstance(error, AgentError):
                raise
            why = f"{guest['name']}: its definition cannot be read: {error}"
            if alone:
                raise AgentError(f"{self.line.host.name}: {why}") from error
            return make_diagnosis(guest, where, (), why)

    def used_cpus(self, asking: FoundGuest) -> list[int]:
        """CPUs that virtual CPUs of other guests have to themselves."""
        others = (guest["process"] for guest in self.guests if guest is not asking)
        pins = (live_of(process, process["online"], {}).pins for process in others if process)
        return sorted({cpu for guest_pins in pins for cpus in guest_pins.values() if len(cpus) == 1 for cpu in cpus})

    def facts_of(self, guest: FoundGuest) -> dict[str, Any]:
        """The facts that a diagnosis uses."""
        process = guest["process"]
        of_process = self.facts["processes"].get(str(process["pid"]), {}) if process else {}
        return {**self.facts["facts"], **of_process, "used": self.used_cpus(guest)}


def _names(guest: FoundGuest) -> list[str]:
    """Names for a guest: its name, its PID, the path of its QMP socket, its unit."""
    process = guest["process"]
    of_process = [str(process["pid"]), *parse_command_line(process["argv"]).qmp_sockets] if process else []
    called = [config.parse_config("", guest["config"]).name] if guest["config"] else []
    return [guest["name"], *called, *of_process, *filter(None, [guest["unit"], guest["unit"].removesuffix(".service")])]


def number_of(guest: FoundGuest) -> str:
    """The VMID of a guest of Proxmox VE, the PID of any other guest."""
    process = guest["process"]
    return guest["name"] if guest["kind"] == "proxmox" or process is None else str(process["pid"])


def found_guest(guest: Host, line: Line) -> FoundGuest:
    """A guest of the inventory that is a process on its host. Raises AgentError if it does not run."""
    process = ProcessGuest(guest, line).process()
    program = process["argv"][0].rpartition("/")[2]
    return {"kind": "process", "name": guest.name, "program": program, "unit": guest.vars.unit or "", "config": "",
            "process": process, "session": ""}  # fmt: skip


def find_guests(line: Line, named: Sequence[FoundGuest] = ()) -> OtherGuests:
    """Find the guests of a host that libvirt does not run. Raises AgentError.

    `named`: guests that are known already; they come first.
    """
    listed: list[FoundGuest] = line.call("guests", _LIMIT_S)
    named_pids = {guest["process"]["pid"] for guest in named if guest["process"]}
    others = (guest for guest in listed if guest["process"] is None or guest["process"]["pid"] not in named_pids)
    listed = [*named, *others]
    of_libvirt = [guest for guest in listed if guest["kind"] == "libvirt"]
    listed = [guest for guest in listed if guest["kind"] != "libvirt"]
    guests = [guest for guest in listed if not config.parse_config("", guest["config"]).is_template]
    pids = [guest["process"]["pid"] for guest in guests if guest["process"]]
    facts = line.call("guest_processes", _LIMIT_S, pids=pids) if guests else {}
    return OtherGuests(line, guests, facts, of_libvirt)


def _of_qemu(host: OtherGuests, guest: FoundGuest, where: str) -> Diagnosis:
    process = guest["process"]
    if process is None:
        raise AgentError(f"{guest['name']}: it does not run, and plain QEMU stores no definition; start it")
    line, facts = parse_command_line(process["argv"]), host.facts_of(guest)
    answers, why = ask_monitor(host.line, line)
    live = live_of(process, process["online"], answers)
    definition = of_command_line(line, guest["name"], live)
    facts["model_flags"] = model_flags(answers)
    steps = diagnose(definition.xml, facts)  # type: ignore[arg-type]
    plain = PlainGuest(line, definition, process, facts, threads_of(process, answers))  # type: ignore[arg-type]
    return make_diagnosis(guest, where, with_options(steps, plain), why, unchanged(process["pid"], guest["name"]))


def _of_proxmox(host: OtherGuests, guest: FoundGuest, where: str) -> Diagnosis:
    """Diagnose by the configuration, and by the process if the guest runs."""
    parameters, process, facts = (
        config.parse_config(guest["name"], guest["config"]),
        guest["process"],
        host.facts_of(guest),
    )
    line = parse_command_line(process["argv"]) if process else None
    answers, why = ask_monitor(host.line, line) if line else ({}, "")
    live = live_of(process, process["online"], answers) if process else Live()
    hpet = has_hpet(line) if line else config.has_hpet(parameters)
    flags = config.model_flags(parameters)  # None for a model of QEMU, which knows its flags
    facts["model_flags"] = model_flags(answers) if flags is None else flags
    steps = diagnose(config.definition(parameters, live, hpet=hpet is not False).xml, facts)  # type: ignore[arg-type]
    if hpet is None:
        steps = tuple(replace(step, state=State.UNKNOWN) if step.tuning is Tuning.TIMERS else step for step in steps)
    changed = qm.with_commands(steps, parameters, facts)  # type: ignore[arg-type]
    return replace(make_diagnosis(guest, where, changed, why, qm.unchanged(guest["name"])), title=parameters.name)


def make_diagnosis(
    guest: FoundGuest, where: str, steps: tuple[Step, ...], why: str = "", ways: tuple[str, str] = ("", "")
) -> Diagnosis:
    """A diagnosis with these steps. `why`: why QEMU's monitor did not answer. `ways`: the commands that save the
    definition and restore it.
    """
    return Diagnosis(
        guest["name"], where, guest["process"] is not None, steps, {}, (), kind=guest["kind"], save_command=ways[0],
        restore_command=ways[1], monitor=why, threads=tuple(_threads(guest)),
    )  # fmt: skip


def _threads(guest: FoundGuest) -> Iterator[Thread]:
    for thread in guest["process"]["threads"] if guest["process"] else ():
        yield Thread(thread["tid"], thread["name"], thread["cpu_s"], thread["wait_s"])


def _thread_shares(before: Process, after: Process) -> Iterator[Thread]:
    """The threads with their CPU time and waits between two readings, in percent."""
    old = {thread["tid"]: thread for thread in before["threads"]}
    duration_s = after["time_s"] - before["time_s"]
    for thread in after["threads"]:
        earlier = old.get(thread["tid"])
        shares = [100 * (thread[key] - earlier[key]) / duration_s if earlier else None for key in ("cpu_s", "wait_s")]
        yield Thread(thread["tid"], thread["name"], thread["cpu_s"], thread["wait_s"], *shares)


def _of_process(host: OtherGuests, guest: FoundGuest, where: str) -> Diagnosis:
    """Diagnose only limits: the host shows nothing else of another monitor's guest."""
    facts, process = host.facts_of(guest), guest["process"]
    if process is None:
        raise AgentError(f"{guest['name']}: it does not run; start it")
    domain = process_definition(process, guest["name"]).domain
    checks = (limits.cpu, limits.memory)
    steps = [step for check in checks for step in check(domain, facts)]  # type: ignore[arg-type]
    with_commands = (with_quotas(step, facts) if _is_lacking_cpu(step) else step for step in steps)  # type: ignore[arg-type]
    return replace(make_diagnosis(guest, where, tuple(with_commands)), program=guest["program"])


def _is_lacking_cpu(step: Step) -> bool:
    return step.tuning is Tuning.CPU_LIMIT and step.state is State.LACKING


_BY_KIND = {"qemu": _of_qemu, "proxmox": _of_proxmox, "process": _of_process}


def ask_monitor(host: Line, line: CommandLine) -> tuple[dict[str, Any], str]:
    """Answers of QEMU's monitor by query; and why there are none, else empty."""
    sockets = line.qmp_sockets
    if not sockets:
        return {}, "its command line names no QMP socket"
    cpu = line.last("cpu")
    model = {"name": cpu.get("model", default="qemu64") if cpu else "qemu64"}
    try:
        return qmp.ask_accepted(host.host, sockets[0], *QUERIES, (_MODEL, {"type": "full", "model": model})), ""
    except AgentError as error:
        return {}, str(error)


def model_flags(answers: Mapping[str, Any]) -> list[str] | None:
    """The features of the CPU model; None if QEMU did not answer with them."""
    properties = (answers.get(_MODEL) or {}).get("model", {}).get("props")
    return None if properties is None else [name for name, value in properties.items() if value is True]
