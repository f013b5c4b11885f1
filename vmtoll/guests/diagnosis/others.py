"""Find the guests of a host that libvirt does not run, and diagnose them."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from vmtoll.agent.protocol import FoundGuest, Process
from vmtoll.guests.diagnosis import steps_of
from vmtoll.guests.diagnosis.options import OptionsWriter, unchanged, with_quotas
from vmtoll.guests.diagnosis.qm import QmWriter
from vmtoll.guests.diagnosis.qm import unchanged as qm_unchanged
from vmtoll.guests.diagnosis.rules import LIMITS_OF_A_PROCESS, USEFUL, findings
from vmtoll.hypervisors import Line
from vmtoll.hypervisors import proxmox_config as config
from vmtoll.hypervisors.base import output_on
from vmtoll.hypervisors.command_line import parse_command_line
from vmtoll.hypervisors.guest_config import GuestConfig, Known, flag_name
from vmtoll.hypervisors.process import ProcessGuest, guest_of_process
from vmtoll.hypervisors.qemu import ask_monitor, read_line
from vmtoll.hypervisors.qemu_config import guest_of_line, pins_of, threads_of
from vmtoll.model.diagnosis import Diagnosis, State, Step, Thread, Tuning
from vmtoll.model.errors import AgentError
from vmtoll.model.inventory import Host

_LIMIT_S = 60.0
_AT_ONCE = 8
WATCHED_S = 1.0
# QEMU's names of the features that matter here.
_FLAGS = tuple({"sse4_1": "sse4.1", "sse4_2": "sse4.2"}.get(flag, flag.replace("_", "-")) for flag in USEFUL)
# Asks a QEMU of the host that runs no guest what a CPU model has.
_ASK_QEMU = """for qemu in "$0" kvm qemu-kvm qemu-system-x86_64; do command -v "$qemu" >/dev/null && break; done
model='{"type":"full","model":{"name":"'"$1"'"}}'
printf '{"execute":"%s","arguments":%s}' qmp_capabilities {} query-cpu-model-expansion "$model" quit {} |
timeout 20 "$qemu" -S -M none -nodefaults -display none -accel tcg -qmp stdio"""


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
        pins = (fact.known for process in others if process and isinstance(fact := pins_of(process, {}), Known))
        return sorted({cpu for known in pins for cpus in known.each.values() if len(cpus) == 1 for cpu in cpus})

    def facts_of(self, guest: FoundGuest) -> Any:
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
    process, facts = guest["process"], host.facts_of(guest)
    if process is None:
        raise AgentError(f"{guest['name']}: it does not run, and plain QEMU stores no definition; start it")
    line = read_line(host.line, process)
    answers, why = ask_monitor(host.line, line, _FLAGS)
    found = guest_of_line(line, guest["name"], process, answers, facts.get("architecture", ""))
    found = _with_model_flags(host.line, found, f"/proc/{process['pid']}/exe")
    writer = OptionsWriter(line, found, facts, process, threads_of(process, answers))
    steps = steps_of(found, facts, writer)
    return make_diagnosis(guest, where, steps, why, unchanged(process["pid"], guest["name"]))


def _of_proxmox(host: OtherGuests, guest: FoundGuest, where: str) -> Diagnosis:
    """Diagnose by the process if the guest runs, and by the configuration, whose pending changes are its next start."""
    process, facts = guest["process"], host.facts_of(guest)
    models = None
    if "custom-" in guest["config"]:
        done = output_on(host.line, ["cat", str(PurePosixPath(host.line.host.root, config.MODELS))])
        models = None if done["exit_status"] else done["stdout"]
    now = config.parse_config(guest["name"], guest["config"], models)
    next_one, why = now.later or now, ""
    kind = facts.get("architecture", "")
    found, later = (_with_model_flags(host.line, config.guest_of_config(one, kind)) for one in (now, next_one))
    if process:
        line = read_line(host.line, process)
        answers, why = ask_monitor(host.line, line, _FLAGS)
        found = config.while_running(found, guest_of_line(line, guest["name"], process, answers, kind))
    writer = QmWriter(next_one, later, facts)
    steps = steps_of(found, facts, writer, later if now.later else None)
    return replace(make_diagnosis(guest, where, steps, why, qm_unchanged(guest["name"])), title=now.name)


def _with_model_flags(line: Line, guest: GuestConfig, program: str = "kvm") -> GuestConfig:
    """The guest with the features of its CPU model, by a QEMU of the host, where nothing else has them."""
    if not isinstance(guest.cpu, Known) or guest.cpu.known.mode != "custom" or not guest.cpu.known.model.isascii():
        return guest
    if isinstance(guest.model_flags, Known) or isinstance(guest.seen_flags, Known):
        return guest
    done = output_on(line, ["sh", "-c", _ASK_QEMU, program, guest.cpu.known.model])
    for text in done["stdout"].splitlines():
        if '"model"' in text:
            properties = json.loads(text)["return"]["model"]["props"].items()
            flags = frozenset(flag_name(name) for name, value in properties if value is True)
            return replace(guest, model_flags=Known(flags, "QEMU's model list"))
    return guest


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
    found = findings(guest_of_process(process, guest["name"]), facts)
    steps = (finding.step for finding in found if finding.step.tuning in LIMITS_OF_A_PROCESS)
    with_commands = (with_quotas(step, facts) if _is_lacking_cpu(step) else step for step in steps)
    return replace(make_diagnosis(guest, where, tuple(with_commands)), program=guest["program"])


def _is_lacking_cpu(step: Step) -> bool:
    return step.tuning is Tuning.CPU_LIMIT and step.state is State.LACKING


_BY_KIND = {"qemu": _of_qemu, "proxmox": _of_proxmox, "process": _of_process}
