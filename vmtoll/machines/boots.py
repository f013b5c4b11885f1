"""Reboot the machines under test between groups of blocks, so that the effects of a boot vary within a run."""

import contextlib
import time
from collections.abc import Iterable, Sequence

from vmtoll import hypervisors
from vmtoll.agent.protocol import Done
from vmtoll.machines.connection import AgentLine
from vmtoll.machines.idle_guests import resume_all
from vmtoll.machines.recovery import restore
from vmtoll.machines.session import Session
from vmtoll.model.errors import AgentError, HostLostError, VmtollError
from vmtoll.model.event import Absence, Listener, MachineStep
from vmtoll.model.inventory import Host
from vmtoll.model.trial import TrialRecord

# How long a machine may take to go down; how long a guest may take before vmtoll destroys it.
DOWN_S, POWEROFF_S = 180.0, 60.0
# A guest is at rest when its QEMU uses less than the share RESTING of a CPU. vmtoll waits for that REST_S at most and
# checks every LOOK_S.
RESTING, REST_S, LOOK_S = 0.05, 60.0, 2.0


def is_reboot_due(boot: int, records: Iterable[TrialRecord]) -> bool:
    """Return whether the machines must reboot now: `boot` is not the first one, and has no trial yet."""
    return boot > 1 and all(record.boot < boot for record in records)


def reboot(session: Session, tell: Listener) -> None:
    """Reboot every machine under test, and every KVM host but the one that vmtoll runs on; wait until guests rest.

    A guest with a known host also gets a new QEMU process. Raises VmtollError when a machine does not reboot or come
    back.
    """
    resume_all(session)
    restore(session, tell)
    inventory = session.inventory
    hosts = {host.name: host for sut in inventory.under_test if (host := inventory.kvm_host(sut))}
    guests = [sut for sut in inventory.under_test if inventory.kvm_host(sut)]
    others = [*(sut for sut in inventory.under_test if sut not in guests), *_remote(hosts.values())]
    _boot(session, guests, others, tell)


def boot_machine(session: Session, sut: Host, tell: Listener) -> None:
    """Boot one machine under test; a guest with a known host also gets a new QEMU process.

    Raises VmtollError when it does not boot or come back.
    """
    is_guest = session.inventory.kvm_host(sut) is not None
    _boot(session, [sut] if is_guest else [], [] if is_guest else [sut], tell)


def _boot(session: Session, guests: Sequence[Host], others: Sequence[Host], tell: Listener) -> None:
    lines = [session.line(host) for host in (*guests, *others)]
    before = {line: _identity(line) for line in lines}
    for guest in guests:
        tell(MachineStep(guest.name, Absence.REBOOTING))
        _power_off(session, guest)
    for host in _distinct(others):
        tell(MachineStep(host.name, Absence.REBOOTING))
        _run_commands(session.line(host), host.vars.reboot or [["systemctl", "reboot", "--no-block"]])
    for line in lines:
        _wait_until_lost(line)
    restore(session, tell)
    for line in lines:
        if _identity(line) == before[line]:
            raise VmtollError(
                f"{line.host.name}: did not reboot: it answered again with the same boot; check vmtoll_reboot"
            )
        tell(MachineStep(line.host.name, Absence.REBOOTED))
    session.fully_checked -= {
        checked for checked in session.fully_checked if checked[0] in {line.host.name for line in lines}
    }
    wait_until_resting(session, guests)


def _distinct(hosts: Sequence[Host]) -> list[Host]:
    """Each machine once: a metal machine may also be a KVM host, under another name."""
    return list({host.name if host.is_local else host.ssh_host: host for host in hosts}.values())


def _remote(hosts: Iterable[Host]) -> list[Host]:
    return [host for host in hosts if not host.is_local]


def _identity(line: AgentLine) -> str:
    return str(line.call("boot")["boot"])


def _run_commands(line: AgentLine, commands: Sequence[Sequence[str]]) -> None:
    """Run commands that may cut the line. Raises VmtollError with the output of a command that failed."""
    with contextlib.suppress(HostLostError):
        for argv in commands:
            done: Done = line.call("exec", 200, argv=list(argv), limit_s=180)
            if done["exit_status"]:
                raise VmtollError(
                    f"{line.host.name}: {' '.join(argv)}: {(done['stderr'] or done['stdout']).strip()[:300]}"
                )


def _power_off(session: Session, guest: Host) -> None:
    """End a guest's QEMU: by `vmtoll_reboot` on its host, else by poweroff in the guest, else by its host.

    `restore` starts it again, unless `vmtoll_reboot` does.
    """
    kvm_host, on_host = session.inventory.kvm_host(guest), session.on_host(guest)
    if kvm_host is None or on_host is None:
        return
    if guest.vars.reboot is not None:
        _run_commands(session.line(kvm_host), guest.vars.reboot)
        return
    _run_commands(session.line(guest), [["systemctl", "poweroff", "--no-block"]])
    end_guest(on_host)


def end_guest(on_host: hypervisors.Guest) -> None:
    """Wait until a guest that was told to shut down is off; end it after POWEROFF_S. Raises VmtollError."""
    deadline = time.monotonic() + POWEROFF_S
    while not on_host.is_off():
        if time.monotonic() > deadline:
            try:
                with contextlib.suppress(HostLostError):
                    on_host.power_off()
            except VmtollError:
                if not on_host.is_off():  # else it has shut down by itself meanwhile
                    raise
            return
        time.sleep(0.5)


def _wait_until_lost(line: AgentLine) -> None:
    deadline = time.monotonic() + DOWN_S
    while not line.lost_because:
        with contextlib.suppress(HostLostError, AgentError):
            line.call("ping", 10)
        if time.monotonic() > deadline:
            raise VmtollError(
                f"{line.host.name}: did not shut down within {DOWN_S:g} s of the reboot command; check vmtoll_reboot"
            )
        time.sleep(0.2)


def wait_until_resting(session: Session, guests: Sequence[Host]) -> None:
    """Wait until each guest's QEMU uses little CPU, or REST_S is over: the rest of a boot would be background CPU."""
    deadline = time.monotonic() + REST_S
    for guest in guests:
        kvm_host = session.inventory.kvm_host(guest)
        used_s = float("-inf")
        while kvm_host and time.monotonic() < deadline:
            others = session.addresses([guest])
            query = {"domains": [guest.guest_name], "uri": kvm_host.libvirt_uri, "guests": others}
            now_s = session.line(kvm_host).call("usage", 60, **query)["domains"][guest.guest_name]["total_s"]
            if now_s - used_s < RESTING * LOOK_S:
                break
            used_s = now_s
            time.sleep(LOOK_S)
