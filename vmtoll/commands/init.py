"""The command `init`: a folder of your own, with your machines, for your experiments."""

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from vmtoll.commands.answer import print_json
from vmtoll.commands.help import describe
from vmtoll.commands.options import JsonOption
from vmtoll.folder.machines import LabMachines, Machine, MeasuredGuest
from vmtoll.folder.make import FIRST, check_empty, make
from vmtoll.folder.sources import SSH_CONFIG, ListedGuest, SshConfig, libvirt_guests, proxmox_guests
from vmtoll.model.errors import UserError
from vmtoll.shell import say
from vmtoll.spec.catalog import unknown

describe(
    "init",
    "vmtoll init my-lab",
    "vmtoll init my-lab --client load1 --metal big1 --from-libvirt big1 --guest web1",
    "vmtoll init my-lab --client load1 --from-proxmox root@pve1 --guest web1 --guest web2",
    "vmtoll init my-lab --embedded",
)

_MACHINE = "[NAME=][USER@]ADDRESS[:PORT]"


def init(
    folder: Annotated[Path, typer.Argument(help="Folder to create; must be new or empty.")],
    client: Annotated[
        list[str] | None,
        typer.Option("--client", metavar=_MACHINE, help="Machine that sends the load (repeatable)."),
    ] = None,
    metal: Annotated[str | None, typer.Option("--metal", metavar=_MACHINE, help="Bare metal to measure.")] = None,
    guest: Annotated[
        list[str] | None,
        typer.Option(
            "--guest",
            metavar=_MACHINE,
            help="Guest to measure (repeatable); with --from-*, its name or VMID on that host.",
        ),
    ] = None,
    from_libvirt: Annotated[
        str | None,
        typer.Option(
            "--from-libvirt", metavar=_MACHINE, help="KVM host of the guests; vmtoll runs `virsh list` there."
        ),
    ] = None,
    from_proxmox: Annotated[
        str | None,
        typer.Option(
            "--from-proxmox", metavar=_MACHINE, help="Proxmox VE host of the guests; vmtoll runs `qm list` there."
        ),
    ] = None,
    from_ssh_config: Annotated[
        Path | None,
        typer.Option(
            "--from-ssh-config",
            help="Configuration of ssh that has the machines, such as ~/.ssh/config; also gives their users.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    connect: Annotated[
        str | None, typer.Option("--connect", "-c", help="libvirt URI of --from-libvirt (default: qemu:///system).")
    ] = None,
    user: Annotated[str, typer.Option(help="SSH user; needs sudo without a password unless it is root.")] = "root",
    link_mbit: Annotated[float, typer.Option(min=0.001, help="Rate of the clients' link in Mbit/s.")] = 1000,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Name no machine: measure in the embedded lab of this machine.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Create your folder, with your machines (lab.yml) and a first experiment.

    Without options it asks for the role of each machine. In this folder, or below it, every vmtoll command reads
    lab.yml, prefers the folder's experiments, workloads, sites, servers and environments to the shipped ones, and
    writes to results/.
    """
    check_empty(folder)
    given = (client, metal, guest, from_libvirt, from_proxmox, embedded or None)
    if from_libvirt and from_proxmox:
        raise UserError("--from-libvirt and --from-proxmox: give one of them; add other guests to lab.yml by hand")
    if embedded and any(given[:-1]):
        raise UserError("--embedded names no machine; leave it out, or the other options")
    config = SshConfig(from_ssh_config.absolute()) if from_ssh_config else None
    ssh_file = config.file if config and config.file != SSH_CONFIG.expanduser() else None
    machines = LabMachines(user=user, link_mbit=link_mbit, libvirt_uri=connect, ssh_config=ssh_file)
    if not any(given):
        machines = _asked(machines, config)
    elif not embedded:
        source = _source(from_libvirt, from_proxmox, machines, config)
        machines = replace(
            machines,
            clients=[_reached(text, "--client", config) for text in client or ()],
            metal=_reached(metal, "--metal", config) if metal else None,
            kvm_host=source[0] if source else None,
            guests=_chosen(guest, source, config),
        )
    if not machines.are_none:
        machines.refuse_gaps()
    files = make(folder, machines)
    if as_json:
        print_json({"folder": folder.absolute(), "files": files, "environments": machines.environments})
        return
    print(f"made: {folder}: {', '.join(str(file.relative_to(folder.absolute())) for file in files)}")
    print(f"next: {'; '.join(_next(folder, machines))}")


def _next(folder: Path, machines: LabMachines) -> list[str]:
    steps = ["sudo vmtoll lab up"] if machines.are_none else ["vmtoll preflight", "vmtoll provision"]
    first = f"{'sudo ' * machines.are_none}vmtoll run {FIRST}"
    return [*([] if folder.absolute() == Path.cwd() else [f"cd {folder}"]), *steps, first]


_Source = tuple[Machine, list[ListedGuest]]


def _source(
    libvirt: str | None, proxmox: str | None, machines: LabMachines, config: SshConfig | None
) -> _Source | None:
    """The KVM host that was named, and its guests."""
    if libvirt:
        host = _reached(libvirt, "--from-libvirt", config)
        return host, libvirt_guests(host.host(machines))
    if proxmox:
        host = _reached(proxmox, "--from-proxmox", config)
        return host, proxmox_guests(host.host(replace(machines, libvirt_uri=None)))
    return None


def _reached(text: str, option: str, config: SshConfig | None) -> Machine:
    """A machine as it was named, with the user whom ssh's configuration gives for it where none was named.

    Raises UserError for a machine that the configuration does not have.
    """
    machine = Machine.of(text, option)
    if config is None:
        return machine
    if not config.knows(machine.address):
        raise UserError(f"--from-ssh-config: {unknown('host', machine.address, config.names)}")
    user = None if machine.user else config.user_of(machine.address)
    if user is None:
        return machine
    say(f"{machine.name}: SSH user {user}, from {config.file}; {option} USER@{machine.address} takes another")
    return replace(machine, user=user)


def _chosen(texts: Sequence[str] | None, source: _Source | None, config: SshConfig | None) -> list[MeasuredGuest]:
    """The guests that were named; of a host's guests with the address that it knows. Raises UserError."""
    if source is None:
        return [MeasuredGuest(_reached(text, "--guest", config)) for text in texts or ()]
    host, listed = source
    if not texts:
        raise UserError(f"{host.name}: name the guests to be measured with --guest: {_listed(listed)}")
    return [_guest(text, listed) for text in texts]


def _guest(text: str, listed: Sequence[ListedGuest]) -> MeasuredGuest:
    """The guest that is named, perhaps with its own address. Raises UserError."""
    if guest := _of_host(text, listed):
        return MeasuredGuest(_machine(guest, listed), guest)
    machine = Machine.of(text, "--guest")
    guest = _of_host(machine.name, listed)
    if guest is None:
        raise UserError(f"--guest {unknown('guest', machine.name, sorted(each.name for each in listed))}")
    return MeasuredGuest(replace(machine, name=_name(guest, listed)), guest)


def _of_host(name: str, listed: Sequence[ListedGuest]) -> ListedGuest | None:
    """The guest of this name or VMID. Raises UserError where several have the name, as Proxmox VE allows."""
    matching = [each for each in listed if each.name == name or (each.vmid and str(each.vmid) == name)]
    if len(matching) > 1:
        raise UserError(f"--guest {name}: several have this name; give a VMID: {_listed(matching)}")
    return matching[0] if matching else None


def _machine(guest: ListedGuest, listed: Sequence[ListedGuest]) -> Machine:
    """A guest of a host, at the address that the host knows."""
    name = _name(guest, listed)
    if guest.address is None:
        say(f"{guest.name}: its host knows no address of it; lab.yml has its name, correct ansible_host there")
    return Machine(name, guest.address or name)


def _name(guest: ListedGuest, listed: Sequence[ListedGuest]) -> str:
    """A guest's name in lab.yml; libvirt's may have any character, and two of Proxmox VE may have the same."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", guest.name).strip("-.") or "guest"
    return f"{name}-{guest.vmid}" if sum(each.name == guest.name for each in listed) > 1 else name


def _listed(guests: Sequence[ListedGuest]) -> str:
    return ", ".join(f"{_named(each)} ({each.state})" for each in guests) or "it has none"


def _named(guest: ListedGuest) -> str:
    return guest.name if guest.vmid is None else f"{guest.vmid} {guest.name}"


def _asked(machines: LabMachines, config: SshConfig | None) -> LabMachines:
    """The machines that a user at a terminal names. Raises UserError where there is none."""
    if not sys.stdin.isatty():
        raise UserError("name the machines: --client, with --guest or --metal; or --embedded")
    if config is None and (own := SSH_CONFIG.expanduser()).is_file():
        say(f"ssh knows {', '.join(SshConfig(own).names) or 'no host by name'}")
    elif config:
        say(f"ssh knows {', '.join(config.names)}")
    say(f"give each machine as {_MACHINE}")
    clients = _words("Machines that send the load (none: the embedded lab on this machine)")
    if not clients:
        return machines
    machines = replace(machines, clients=[_reached(text, "client", config) for text in clients])
    kvm_host, source = _word("KVM host of the guests (none: you do not reach it)"), None
    is_libvirt = not kvm_host or typer.prompt("Its guests are listed by (virsh, qm)", default="virsh", err=True) != "qm"
    if kvm_host:
        source = _source(kvm_host if is_libvirt else None, None if is_libvirt else kvm_host, machines, config)
    if source:
        say(f"guests of {source[0].name}: {_listed(source[1])}")
    guests = _words("Guests to be measured (none: only metal)")
    metal = _word("Bare metal to be measured (none: only guests)")
    return replace(
        machines,
        kvm_host=source[0] if source and guests else None,
        guests=_chosen(guests, source if guests else None, config),
        metal=_reached(metal, "metal", config) if metal else None,
        link_mbit=typer.prompt("Rate of the clients' line in Mbit/s", default=machines.link_mbit, type=float, err=True),
    )


def _word(question: str) -> str:
    return str(typer.prompt(question, default="", show_default=False, err=True)).strip()


def _words(question: str) -> list[str]:
    return _word(f"{question}, separated by blanks").replace(",", " ").split()
