"""The command `diagnose`: what holds an existing guest back."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from vmtoll.commands import values
from vmtoll.commands.answer import print_json
from vmtoll.commands.help import describe
from vmtoll.commands.measure_step import measure_step
from vmtoll.commands.options import (
    AtMostOption,
    InventoryOption,
    JsonOption,
    ResultsOption,
    UntilOption,
    YesOption,
    own_inventory,
)
from vmtoll.guests import diagnosis as domains
from vmtoll.guests.diagnosis.apply import candidates, tried, unchanged
from vmtoll.guests.diagnosis.others import OtherGuests, find_guests, found_guest, number_of
from vmtoll.guests.steps import gained
from vmtoll.hypervisors.guest_config import cpus
from vmtoll.hypervisors.libvirt_xml import parsed
from vmtoll.machines.connection import AgentLine
from vmtoll.model.diagnosis import LIMITS, Diagnosis, State, Tuning
from vmtoll.model.errors import UserError
from vmtoll.model.inventory import Host
from vmtoll.paths import INVENTORY, RESULTS, SHIPPED_RESULTS
from vmtoll.spec.catalog import unknown
from vmtoll.spec.inventory import hosts_by_role
from vmtoll.spec.inventory_faults import read_valid_inventory

_LIMIT_S = 75.0


describe(
    "diagnose",
    "vmtoll diagnose web1",
    "vmtoll diagnose 101",
    "vmtoll diagnose --all",
    "vmtoll diagnose web1 -i lab.yml --on kvm1 --json",
    "vmtoll diagnose web1 -i lab.yml --measure multiqueue --server nginx --until 2,30",
)


def diagnose(
    guest: Annotated[
        str | None,
        typer.Argument(
            help="Name of the guest in libvirt, QEMU, Proxmox (or its VMID) or the inventory.",
            autocompletion=values.hosts,
        ),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="List every guest of the host on one line, the worst first.")
    ] = False,
    inventory: InventoryOption = None,
    kvm_host: Annotated[
        str | None,
        typer.Option(
            "--on",
            help="KVM host of the inventory that runs the guest (default: this machine).",
            autocompletion=values.hosts,
        ),
    ] = None,
    connect: Annotated[
        str | None,
        typer.Option(
            "--connect",
            "-c",
            help="libvirt URI (default: qemu:///system, or the inventory's); then lists libvirt's guests only.",
        ),
    ] = None,
    measure: Annotated[
        Tuning | None,
        typer.Option(
            help="Measure this step: apply and undo it alternately, under load. The guest needs a client in the "
            "inventory, and a server from vmtoll (`vmtoll provision`)."
        ),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(help="With --measure: server (repeatable; default: nginx).", autocompletion=values.servers),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            help="With --measure: workload (repeatable; default: site-steady).", autocompletion=values.workloads
        ),
    ] = None,
    blocks: Annotated[int, typer.Option(help="With --measure: number of blocks (paired trials).", min=6)] = 8,
    duration_s: Annotated[float, typer.Option(help="With --measure: seconds of load in a trial.", min=0.1)] = 2.0,
    until: UntilOption = None,
    at_most_min: AtMostOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --measure: print the plan; change nothing.")] = False,
    yes: YesOption = False,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """List what holds a guest back: limits, and tuning steps that it lacks, with their measured gain and the commands.

    It reads the guest's definition and its host, and changes nothing; with --measure it changes the guest, and restores
    it. libvirt, Proxmox VE or plain QEMU may run the guest; for other monitors (Cloud Hypervisor, Firecracker) it shows
    limits and threads. For a libvirt guest, libvirt tries each change on a copy first. The gains come from the newest
    tuning run measured here, else from the one committed with vmtoll; the output names the run.
    """
    from vmtoll.report.diagnosis import lines, summary_lines  # noqa: PLC0415 (loads the analysis)

    if all_ == (guest is not None):
        raise UserError("name one guest, or give --all for every guest of the host")
    if all_ and measure:
        raise UserError("--measure changes one guest: name it")
    if inventory == own_inventory() and not kvm_host and (connect or not _has_kvm_hosts(inventory)):
        inventory = None  # it was not named, and the guest is on this machine
    host, selection = _host(guest, inventory, kvm_host)
    if connect:
        selection = replace(selection, in_others=False)
    uri = connect or host.libvirt_uri
    where = uri if inventory is None else f"{host.name} ({uri})"
    with _Host(host, uri) as there:
        diagnoses = list(there.diagnoses(selection, where, results, tell=as_json or not all_))
    if measure:
        loads = {"servers": server, "workloads": workload, "blocks": blocks, "duration_s": duration_s}
        measure_step(
            measure, loads, diagnoses[0], str(guest), host, uri, inventory, results, until, at_most_min,
            dry_run=dry_run, yes=yes, as_json=as_json,
        )  # fmt: skip
        return
    diagnoses.sort(key=_badness, reverse=True)
    if as_json:
        adapter = TypeAdapter(list[Diagnosis])
        answers = adapter.dump_python(diagnoses, mode="json")
        print_json(answers if all_ else answers[0])
    elif all_:
        print("\n".join(summary_lines(diagnoses)))
        print("\n`vmtoll diagnose GUEST` says what to change, and what each change is worth.")
    else:
        print("\n".join(lines(diagnoses[0])))


def _has_kvm_hosts(inventory: Path | None) -> bool:
    return inventory is not None and bool(hosts_by_role(read_valid_inventory(inventory), str(inventory))["kvm_host"])


def _badness(diagnosis: Diagnosis) -> tuple[int, int]:
    """Sort key: the number of lacking limits, which no other step makes up for, then of all lacking steps."""
    lacking = {step.tuning for step in diagnosis.steps if step.state is State.LACKING}
    return len(lacking & LIMITS), len(lacking)


@dataclass(frozen=True)
class _Selection:
    """The guests to diagnose: one by name, or all (None), among those of libvirt and among the others.

    `process`: a guest of the inventory whose variables name its process.
    """

    name: str | None
    in_libvirt: bool = True
    in_others: bool = True
    process: Host | None = None


def _host(guest: str | None, inventory: Path | None, kvm_host: str | None) -> tuple[Host, _Selection]:
    """The KVM host, and the guests to diagnose on it."""
    if inventory is None:
        if kvm_host:
            raise UserError(f"--on {kvm_host} needs --inventory: give the inventory that contains this host")
        return Host("localhost", "kvm_host", {"ansible_connection": "local"}), _Selection(guest)
    by_role = hosts_by_role(read_valid_inventory(inventory), str(inventory))
    hosts = {host.name: host for host in by_role["kvm_host"]}
    known = next((host for host in by_role["kvm_guest"] if host.name == guest), None)
    name = kvm_host or (known.vars.kvm_host if known else None) or (next(iter(hosts)) if len(hosts) == 1 else None)
    if name is None:
        names = ", ".join(sorted(hosts)) or "none"
        problem = "it has several KVM hosts" if guest is None else f"{guest} is not in it"
        raise UserError(f"{inventory}: {problem}; choose the KVM host with --on (there are: {names})")
    if name not in hosts:
        raise UserError(f"{inventory}: {unknown('KVM host', name, sorted(hosts))}")
    return hosts[name], _selection_of(known) if known else _Selection(guest)


def _selection_of(guest: Host) -> _Selection:
    """The selection of a guest of the inventory, by its name on its host."""
    if guest.vars.domain:
        return _Selection(guest.vars.domain, in_others=False)
    if name := guest.vars.qmp_socket or (str(guest.vars.vmid) if guest.vars.vmid is not None else None):
        return _Selection(name, in_libvirt=False)
    return _Selection(guest.name, in_libvirt=guest.guest_name is None, process=guest if guest.guest_name else None)


def _way_out(cause: str) -> str:
    """What helps where virsh failed for this cause, in the words of libvirt and its C library."""
    if cause.startswith("virsh: "):
        return "install libvirt-clients there, or name a guest of QEMU or Proxmox VE"
    if any(word in cause for word in ("Permission denied", "authenticat", "not authorized", "access denied")):
        return "connect as root, or as a member of the group libvirt"
    if "ocket" in cause and any(word in cause for word in ("No such file", "Connection refused")):
        return "start libvirtd (or virtqemud), or give another --connect"
    return "correct that, or give another --connect"


class _Host:
    """A KVM host, with a connection that answers questions about its guests."""

    def __init__(self, host: Host, uri: str) -> None:
        self.host, self.uri = host, uri
        self.line = AgentLine(host)
        self.answer: dict[str, Any] = {}

    def __enter__(self) -> "_Host":
        self.line.open(_LIMIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.line.close()

    def diagnoses(self, selection: _Selection, where: str, results: Path, *, tell: bool) -> Iterator[Diagnosis]:
        """Diagnose the selected guests. `tell`: also the commands that change them, and what each change is worth.

        Raises UserError if there is no such guest, or none.
        """
        named = [found_guest(selection.process, self.line)] if selection.process else []
        others = find_guests(self.line, named) if selection.in_others else OtherGuests(self.line, ())
        matching = others.named(selection.name)
        if selection.name and len(matching) > 1:
            numbers = ", ".join(number_of(guest) for guest in matching)
            raise UserError(
                f"{self.host.name}: several guests are called {selection.name}; give one by number ({numbers})"
            )
        for diagnosis in others.diagnoses(matching, self.host.name, watch=selection.name is not None):
            yield self._with_worth(diagnosis, results, tell=tell)
        if selection.in_libvirt and not (selection.name and matching):
            for facts in self._of_libvirt(selection.name, others):
                yield self.diagnosis(facts, where, results, tell=tell)
        elif not matching:
            names = sorted(guest["name"] for guest in others.guests)
            raise UserError(
                f"{self.host.name}: {unknown('guest', str(selection.name), names)}; vmtoll sees only guests that run"
            )

    def _of_libvirt(self, domain: str | None, others: OtherGuests) -> list[dict[str, Any]]:
        """Facts of this guest of libvirt, or of all; names the guests of another libvirt. If others run guests here,
        libvirt may be missing.
        """
        guests, error = [], None
        try:
            guests = self.guests(domain)
        except UserError as complaint:
            error = complaint
        elsewhere = [] if guests and domain else others.elsewhere(self.answer["uuids"], domain)
        if elsewhere:
            text = f"another libvirt than {self.uri} runs {', '.join(elsewhere)}; give its URI by --connect"
            if error and (domain or not others.guests):
                raise UserError(f"{self.host.name}: {text}") from error
            print(f"vmtoll: {self.host.name}: {text}", file=sys.stderr)
        if error and not others.guests:
            raise error
        if error and domain:
            names = sorted([*self.answer["domains"], *(guest["name"] for guest in others.guests)])
            raise UserError(f"{self.host.name}: {unknown('guest', domain, names)}") from error
        if error and self.answer["error"] and not self.answer["error"].startswith("virsh: No such file"):
            print(f"vmtoll: {error}", file=sys.stderr)
        return guests

    def guests(self, domain: str | None) -> list[dict[str, Any]]:
        """Facts of this guest, or of all. Raises UserError without an answer or such a guest."""
        self.answer = self.line.call("libvirt_guests", _LIMIT_S, uri=self.uri, domain=domain)
        answer, where = self.answer, f"{self.host.name}: libvirt at {self.uri}"
        if answer["error"]:
            cause = answer["error"]
            raise UserError(f"{where}: {cause[:1].lower()}{cause[1:]}; {_way_out(cause)}")
        if not answer["domains"]:
            lab = f" (the embedded lab's is {INVENTORY})" if INVENTORY.exists() else ""
            raise UserError(f"{where} has no guest; give another --connect, or an --inventory{lab}")
        if not answer["guests"]:
            raise UserError(f"{where}: {unknown('guest', str(domain), answer['domains'])}")
        return list(answer["guests"])

    def diagnosis(self, guest: dict[str, Any], where: str, results: Path, *, tell: bool) -> Diagnosis:
        """Diagnose a guest. `tell`: also the commands that change it, and what each change is worth."""
        name, pins = guest["name"], self.answer["pins"]
        used = {cpu for other, sets in pins.items() if other != name for text in sets for cpu in cpus(text)}
        facts: Any = {**self.answer["facts"], **guest["facts"], "used": sorted(used)}
        now = guest.get("next_xml", guest["xml"])
        steps = domains.diagnose(guest["xml"], facts, now)
        if not tell:
            return Diagnosis(name, where, guest["running"], steps, {}, ())
        handle = parsed(now).findtext("uuid", name) if name.startswith("-") else name  # not an option of virt-xml
        refusals = self.line.call("refusals", _LIMIT_S, uri=self.uri, definitions=candidates(now, steps))
        steps = tried(steps, refusals, self.uri, handle)
        save, restore = unchanged(self.uri, name)
        diagnosis = Diagnosis(
            name, where, guest["running"], steps, {}, (), refusals[0], save_command=save, restore_command=restore
        )
        return self._with_worth(diagnosis, results, tell=tell)

    def _with_worth(self, diagnosis: Diagnosis, results: Path, *, tell: bool) -> Diagnosis:
        """The diagnosis with the measured effects of the steps that the guest lacks."""
        from vmtoll.analysis.step_worth import tuning_runs, worth_of  # noqa: PLC0415 (loads the analysis)

        if not tell:
            return diagnosis
        lacking = list(dict.fromkeys(step.tuning for step in diagnosis.steps if step.state is State.LACKING))
        worth, runs = worth_of(lacking, tuning_runs(results, SHIPPED_RESULTS), gained)
        return replace(diagnosis, worth=worth, runs=runs)
