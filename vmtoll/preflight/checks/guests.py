"""Each guest is on its host, and the host has what the guests' profiles need."""

from collections.abc import Iterator, Sequence

from vmtoll import hypervisors
from vmtoll.guests import inventory, needs
from vmtoll.model.errors import AgentError, VmtollError
from vmtoll.model.inventory import Host
from vmtoll.preflight.lab import Lab
from vmtoll.preflight.result import CheckResult, fail, ok, warn

ORDER = 85


def check(lab: Lab) -> Iterator[CheckResult]:
    """Check libvirt's domains, guests of others, and with vmtoll/guests/needs.py what the host has."""
    for guest in lab.by_role["kvm_guest"]:
        if guest.vars.kvm_host is None:
            yield ok(guest.name, "its KVM host is not in the inventory: a run sees only the steal time of it")
    yield from lab.on_each(lab.answering_hosts("kvm_host"), lambda host: _check_host(lab, host))


def _check_host(lab: Lab, host: Host) -> Iterator[CheckResult]:
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
            yield fail(guest.name, f"the domain {domain} is shut off", f"Start it: `virsh start {domain}`.")
        elif guest.vars.profile:
            yield warn(guest.name, f"{host.name} has no domain {domain} yet", "`vmtoll provision` makes it.")
        else:
            yield fail(
                guest.name, f"{host.name} has no domain {domain}", "Correct vmtoll_domain or vmtoll_libvirt_uri."
            )
    yield from _check_needs(lab, host, [guest for guest in guests if guest.vars.profile], running)


def _check_other(lab: Lab, host: Host, guest: Host) -> CheckResult:
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


def _check_needs(lab: Lab, host: Host, guests: Sequence[Host], running: Sequence[str]) -> Iterator[CheckResult]:
    if not guests:
        return
    try:
        described = [inventory.guest(guest) for guest in guests]
        lacks = needs.lacking(described, lab.ask(host, "kvm_host"), running)
    except VmtollError as error:
        yield fail(host.name, str(error), "Correct it in the inventory.")
        return
    for lack in lacks:
        observation, _, way_out = lack.rpartition("; ")
        yield fail(host.name, observation, f"{way_out[0].upper()}{way_out[1:]}.")
    if not lacks:
        yield ok(host.name, f"has what the profiles need: {', '.join(sorted({guest.profile for guest in described}))}")
