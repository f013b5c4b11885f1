"""How a guest is brought into the state before a start, how it is started, and how it is made to run whatever happens:
commands for its host.
"""

import shlex
from dataclasses import dataclass

from vmtoll.agent.virsh import called
from vmtoll.hypervisors.base import Guest
from vmtoll.hypervisors.libvirt import LibvirtGuest
from vmtoll.hypervisors.operations import end_job
from vmtoll.hypervisors.proxmox import ProxmoxGuest
from vmtoll.hypervisors.qemu import QemuGuest
from vmtoll.model.errors import AgentError
from vmtoll.model.first_answer import Way

# How long a guest that was told to shut down may take until `undo` gives up waiting for its end.
_DOWN_S = 90


@dataclass(frozen=True)
class StartCommands:
    """`leave`: brings the running guest into the state, by a shell; empty for a boot, whose guest shuts itself down.
    `start`: starts it. `undo`: by a shell, makes it run if it does not, also in the middle of either.
    """

    leave: str
    start: list[str]
    undo: str


def start_commands(way: Way, guest: Guest) -> StartCommands:
    """The commands of a way for a running guest. Raises AgentError for a guest that cannot go it, HostLostError."""
    if isinstance(guest, LibvirtGuest):
        return _of_libvirt(way, guest)
    if isinstance(guest, ProxmoxGuest):
        return _of_proxmox(way, guest)
    if isinstance(guest, QemuGuest) and way == "boot":
        start = guest.start_command()
        unit = shlex.quote(start[-1])
        process = f"$(systemctl show -p MainPID --value {unit})"
        return StartCommands("", start, _once_down(process, guest.run(_shell(f"echo {process}")), shlex.join(start)))
    raise AgentError(
        f"{guest.name}: vmtoll cannot {way} what runs this guest; `restore` and `resume` need libvirt or Proxmox VE, "
        "`boot` also does plain QEMU with vmtoll_unit"
    )


def _of_libvirt(way: Way, guest: LibvirtGuest) -> StartCommands:
    words = ["env", "LC_ALL=C", *guest.virsh.words()]
    virsh, domain = shlex.join(words), shlex.join(called(guest.name))
    run = (
        f'case "$({virsh} domstate {domain})" in running) ;; paused) {virsh} resume {domain};; "shut off") '
        f"{virsh} start {domain};; *) exit 1;; esac"
    )
    if way == "boot":
        process = f"$({virsh} domid {domain})"
        undo = _once_down(process, guest.run(_shell(f"echo {process}")), run)
        return StartCommands("", [*words, "start", *called(guest.name)], undo)
    if way == "restore":
        is_off = f'[ "$({virsh} domstate {domain})" = "shut off" ]'
        undo = f"{is_off} || {{ {end_job(virsh, domain)}:; }}; {run}"
        return StartCommands(f"{virsh} managedsave {domain}", [*words, "start", *called(guest.name)], undo)
    return StartCommands(f"{virsh} suspend {domain}", [*words, "resume", *called(guest.name)], run)


def _of_proxmox(way: Way, guest: ProxmoxGuest) -> StartCommands:
    state = f"$(qm status {guest.vmid} --verbose)"
    run = (
        f'case "{state}" in *"qmpstatus: paused"*) qm resume {guest.vmid};; *"status: stopped"*) '
        f'qm start {guest.vmid};; *"status: running"*) ;; *) exit 1;; esac'
    )
    if way == "boot":
        process = f"$(qm status {guest.vmid} --verbose | sed -n 's/^pid: //p')"
        return StartCommands(
            "", guest.start_command(), _once_down(process, guest.run(_shell(f"echo {process}")), run)
        )  # fmt: skip
    if way == "restore":
        return StartCommands(f"qm suspend {guest.vmid} --todisk 1", guest.start_command(), run)
    return StartCommands(f"qm suspend {guest.vmid}", ["qm", "resume", guest.vmid], run)


def _once_down(process: str, before: str, run: str) -> str:
    """Wait while the guest's process is still the one that was told to shut down, then make it run."""
    return (
        f'n=0; while [ "{process}" = {shlex.quote(before)} ] && [ $((n += 1)) -le {2 * _DOWN_S} ]; do sleep 0.5; done; '
        f"{run}"
    )


def _shell(command: str) -> list[str]:
    return ["sh", "-c", command]
