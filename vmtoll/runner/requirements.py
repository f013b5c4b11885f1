"""Check that the machines of an inventory fit an experiment, and leave out what they cannot measure."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from vmtoll.machines import facts
from vmtoll.model.errors import ExperimentError, HostLostError, InventoryError, WrongLinkError
from vmtoll.model.experiment import Experiment
from vmtoll.model.inventory import Host, Inventory
from vmtoll.model.release import Release, release_of_name
from vmtoll.model.run import OneBoot, Skipped
from vmtoll.model.workload import ClosedWorkload, MailWorkload, listed, sends_alone
from vmtoll.spec.checks import check
from vmtoll.spec.experiment import Resolved

# The default number of boots is chosen so that each has this many blocks (docs/statistics.md, "How many boots").
BOOT_BLOCKS, MOST_BOOTS, FEWEST_BOOTS = 2, 5, 4


def check_inventory(resolved: Resolved, inventory: Inventory, inventory_path: Path) -> None:
    """Check the link, the clients' parts, the KVM host of each guest and, with several boots, that machines can reboot.

    Raises WrongLinkError, InventoryError, ExperimentError.
    """
    link = resolved.experiment.link
    if inventory.link != link:
        raise WrongLinkError(
            f"{resolved.file}: link: {link}, but in {inventory_path} the client {inventory.client.name} has "
            f"vmtoll_link: {inventory.link}; {_way_out(inventory, link)}, or choose an experiment with "
            f"`link: {inventory.link}`"
        )
    _check_clients(resolved, inventory)
    for host in inventory.under_test:
        if host.role == "kvm_guest" and (inventory.kvm_host(host) is None) != (host.guest_name is None):
            raise InventoryError(
                f"{host.name}: set both vmtoll_kvm_host and a variable that names the guest there, such as "
                "vmtoll_domain, or neither"
            )
    if resolved.experiment.boots > 1 or any(change.boots for change in resolved.experiment.changes.values()):
        _check_boots(inventory)
    if resolved.has_default_boots and (one_boot := next(_unbootable(inventory), None)):
        raise InventoryError(
            f"{inventory_path}: {one_boot.text}, and the run began with {resolved.experiment.boots} boots; restore the "
            "inventory as it was, or leave out --resume"
        )
    _check_variants(resolved.file, resolved.experiment, inventory)
    _check_guests(resolved.file, resolved.experiment, inventory)


@check
def _check_variants(_: Path, experiment: Experiment, inventory: Inventory) -> Iterator[str]:
    """The inventory has the machine of each change and operation, and the KVM host on which it is done."""
    for name, change in experiment.changes.items():
        yield from _nowhere(f"changes.{name}", name, change.of, inventory)
        for host in inventory.machines[name]:
            is_hosts = change.on == "host" or (change.values and host.role == "kvm_guest")
            if is_hosts and inventory.kvm_host(host) is None:
                key = "on" if change.on == "host" else "settings"
                yield (
                    f"changes.{name}.{key}: the inventory names no KVM host of {host.name}; set vmtoll_kvm_host and "
                    f"vmtoll_domain, or leave `{key}` out"
                )
    for name, operation in experiment.during.items():
        yield from _nowhere(f"during.{name}", name, operation.of, inventory)
        for host in inventory.machines[name] if operation.on == "kvm_host" else ():
            if inventory.kvm_host(host) is None:
                yield (
                    f"during.{name}: the inventory names no KVM host of {host.name}; set vmtoll_kvm_host and "
                    "vmtoll_domain"
                )
            if operation.do != "command" and not host.vars.domain:
                yield (
                    f"during.{name}: vmtoll does `{operation.do}` on guests of libvirt alone, and {host.name} has no "
                    "vmtoll_domain; use `do: command` with the commands of what runs it"
                )
            if operation.to:
                yield from _target_mistakes(f"during.{name}.to", operation.to, host, inventory)


@check
def _check_guests(_: Path, experiment: Experiment, inventory: Inventory) -> Iterator[str]:
    """The inventory names the KVM host of each guest that vmtoll must trace, start or pause there."""
    for host in (host for name in experiment.explained for host in inventory.machines.get(name, ())):
        if inventory.kvm_host(host) is None:
            yield (
                f"explain: the inventory names no KVM host of {host.name}; set vmtoll_kvm_host and vmtoll_domain, or "
                "leave `explain` out"
            )
        if host.vars.accelerator == "tcg":
            yield (
                f"explain: {host.name} is emulated (TCG) and has no exits; measure on a host with KVM, or leave "
                "`explain` out"
            )
    for host in (host for name in experiment.started for host in inventory.machines.get(name, ())):
        if not host.runtime and (inventory.kvm_host(host) is None or not host.guest_name):
            yield (
                f"first_answer: the inventory does not say what starts {host.name}; set vmtoll_kvm_host and "
                "vmtoll_domain, or leave `first_answer` out"
            )
    for host in inventory.under_test if experiment.density else ():
        if inventory.kvm_host(host) is None:
            yield (
                f"density: {host.name} has no vmtoll_kvm_host, so vmtoll cannot pause surplus guests; set "
                "vmtoll_kvm_host and vmtoll_domain"
            )


def _nowhere(key: str, name: str, environment: str, inventory: Inventory) -> Iterator[str]:
    """Yield that no machine is of the environment `name`, which is made of `environment`."""
    if name not in inventory.machines:
        yield (
            f"{key}: no machine of the inventory has vmtoll_environment: {environment}, so it has nowhere to run; add "
            "it to metal_hosts or kvm_guests"
        )


def _target_mistakes(key: str, name: str, guest: Host, inventory: Inventory) -> Iterator[str]:
    """Yield why a guest cannot move there: the target of a migration is another KVM host than the guest's."""
    target, source = inventory.kvm_hosts.get(name), inventory.kvm_host(guest)
    if target is None:
        yield f"{key}: {name!r} is not in the inventory's group `kvm_hosts`; add it there, or name a host of that group"
    elif source is not None and (target is source or target.argv() == source.argv()):
        yield f"{key}: {guest.name} runs on {name} already; name another KVM host"
    elif target.is_local and not target.vars.migration_uri:
        yield f"{key}: {name} is this machine, and other hosts have no address of it; set its vmtoll_migration_uri"


def _check_boots(inventory: Inventory) -> None:
    """Raise InventoryError if a reboot in mid-run would hit the machine that vmtoll runs on, or undo a tuning."""
    for host in inventory.under_test:
        if host.is_local and host.vars.reboot is None and inventory.kvm_host(host) is None:
            raise InventoryError(
                f"{host.name}: `boots` would boot the machine that vmtoll runs on; set vmtoll_reboot for it, "
                "or leave `boots` out"
            )
    for host in (*inventory.under_test, *inventory.kvm_hosts.values()):
        if host.vars.tuning and not host.is_local:
            raise InventoryError(
                f"{host.name}: what `vmtoll tune` sets (vmtoll_tuning) is lost at a reboot; use boots: 1, or make the "
                "settings part of the machine"
            )


def with_default_boots(resolved: Resolved, inventory: Inventory | None) -> Resolved:
    """The experiment with several boots, if its scale is full, it does not set `boots` and vmtoll may restart every
    machine under test and its host; else the same with the reason for one boot. None: the embedded lab, not yet up.
    """
    experiment = resolved.experiment
    if experiment.scale != "full" or "boots" in experiment.model_fields_set:
        return resolved
    boots = min(MOST_BOOTS, experiment.blocks // BOOT_BLOCKS)
    one_boot = _one_boot_of_experiment(resolved, boots)
    if one_boot is None and inventory is not None:
        one_boot = next(_unbootable(inventory), None)
    if one_boot:
        return replace(resolved, one_boot=one_boot)
    return replace(resolved, experiment=experiment.model_copy(update={"boots": boots}), has_default_boots=True)


def _one_boot_of_experiment(resolved: Resolved, boots: int) -> OneBoot | None:
    experiment = resolved.experiment
    if resolved.requests:
        return OneBoot(why="vmtoll does not restart the machines of a service")
    if booting := [name for name, change in experiment.changes.items() if change.boots]:
        return OneBoot(why=f"the change {booting[0]} boots its machine itself")
    if boots < FEWEST_BOOTS:
        return OneBoot(why=f"{experiment.blocks} blocks are too few for {FEWEST_BOOTS} boots")
    if experiment.until and experiment.blocks % boots:
        return OneBoot(why=f"{experiment.blocks} blocks up to the first look are not a multiple of {boots}")
    return None


def _unbootable(inventory: Inventory) -> Iterator[OneBoot]:
    """What keeps vmtoll from restarting the machines under test and their hosts. It restarts guests and containers by
    itself, metal and hosts only where the inventory sets vmtoll_reboot. In the embedded lab it restarts no host.
    """
    hosts = [host for sut in inventory.under_test if (host := inventory.host(sut))]
    for machine in (*inventory.under_test, *hosts):
        if machine.vars.tuning:
            yield OneBoot(machine=machine.name, why="is tuned and a boot would undo that")
    for sut in inventory.under_test:
        if sut.is_local:
            yield OneBoot(machine=sut.name, why="is this machine")
    if all(host.is_local for host in hosts) and all(host.vars.lab == "embedded" for host in inventory.hosts()):
        return
    for sut in inventory.under_test:
        if sut.role != "metal" and inventory.host(sut) is None:
            yield OneBoot(machine=sut.name, why="has no host in the inventory that vmtoll could restart")
        elif sut.role == "kvm_guest" and not _is_restartable(sut):
            yield OneBoot(machine=sut.name, why="is a guest that vmtoll cannot stop and start (vmtoll_revive)")
    yield from _unbootable_hosts(inventory, hosts)


def _unbootable_hosts(inventory: Inventory, hosts: Sequence[Host]) -> Iterator[OneBoot]:
    """What keeps vmtoll from restarting metal and these hosts of guests and containers."""
    metal = [sut for sut in inventory.under_test if sut.role == "metal"]
    restarted = [*metal, *(host for sut in inventory.under_test if (host := inventory.kvm_host(sut)))]
    for host in (*metal, *hosts):
        if host.is_local:
            yield OneBoot(machine=host.name, why="is this machine")
        elif host.vars.reboot is None:
            yield OneBoot(machine=host.name, why="may not be restarted (vmtoll_reboot)")
        elif not any(_is_same(host, each) for each in restarted):
            yield OneBoot(machine=host.name, why="carries containers alone and vmtoll restarts hosts of guests only")
        elif any(_carries(host, client, inventory) for client in inventory.clients):
            yield OneBoot(machine=host.name, why="is the client's machine too")


def _carries(host: Host, client: Host, inventory: Inventory) -> bool:
    """Return whether a client is this host, a container of it or its guest."""
    carrier = inventory.host(client)
    return _is_same(host, client) or host.name == client.vars.kvm_host or bool(carrier and _is_same(host, carrier))


def _is_same(host: Host, other: Host) -> bool:
    """Return whether two names of the inventory are one machine."""
    return host.name == other.name or (not host.is_local and not other.is_local and host.ssh_host == other.ssh_host)


def _is_restartable(guest: Host) -> bool:
    """Return whether vmtoll can stop and start a guest, by the variables that name it on its host."""
    variables = guest.vars
    is_managed = variables.domain is not None or variables.vmid is not None
    starts = is_managed or variables.revive is not None or (variables.qmp_socket and variables.unit)
    stops = is_managed or variables.reboot is not None or variables.qmp_socket
    return bool(starts and stops)


def _way_out(inventory: Inventory, link: str) -> str:
    if inventory.client.vars.lab == "embedded":
        return f"run `vmtoll lab up --link {link}`"
    change = "take the limit off its link" if link == "unshaped" else f"limit its link to {link}"
    return f"{change} and set vmtoll_link (and vmtoll_link_mbit) so"


def without_absent(resolved: Resolved, inventory: Inventory) -> Resolved:
    """The experiment without the tuning steps whose guests the inventory lacks.

    A guest is missing if its host cannot provide what its profile needs. Raises InventoryError if fewer than two steps
    are left.
    """
    if resolved.experiment.tuning_steps is None:
        return resolved
    environments = resolved.experiment.tuning_steps.environments
    absent = [
        Skipped(environment=name, why=_why_absent(resolved.needs.get(name, ())))
        for name in environments
        if name not in inventory.machines
    ]
    if len(environments) - len(absent) < 2:
        raise InventoryError(
            f"experiment {resolved.experiment.name} compares guests with each other; of its tuning steps "
            f"({', '.join(environments)}) the inventory has fewer than two: add guests of these profiles"
        )
    return replace(resolved, skipped=(*resolved.skipped, *absent))


def without_unshipped(
    resolved: Resolved, inventory: Inventory, release_of: Callable[[Host], str] = facts.release_of
) -> Resolved:
    """The experiment without servers that the operating system of any machine under test does not ship.

    vmtoll asks machines for their release only if some release lacks a server of the experiment. Raises ExperimentError
    if no server is left, HostLostError, AgentError.
    """
    unshipped_suites = {name: definition.not_in for name, definition in resolved.definitions.items()}
    if not any(unshipped_suites.values()):
        return resolved
    with ThreadPoolExecutor(16) as pool:
        releases = list(pool.map(lambda host: _release(host, release_of), inventory.under_test))
    unshipped = dict[str, str]()
    for release in filter(None, releases):
        for server in (name for name, suites in unshipped_suites.items() if release.suite in suites):
            unshipped.setdefault(server, release.name)
    skipped = [Skipped(server=server, why=f"not in {name}", release=name) for server, name in unshipped.items()]
    return resolved.without(skipped)


def _release(host: Host, release_of: Callable[[Host], str]) -> Release | None:
    """Release of a machine; None for an unknown system, and for a guest that an interrupted run left paused."""
    try:
        return release_of_name(release_of(host))
    except HostLostError:
        if host.role != "kvm_guest":
            raise
        return None  # the run resumes the guest, or reports it as lost


def without_kernel_tls(
    resolved: Resolved, inventory: Inventory, has_tls: Callable[[Host], bool] = facts.kernel_has_tls
) -> Resolved:
    """The experiment without servers that need kernel TLS, if the kernel of any machine under test has none.

    vmtoll asks machines only if there is such a server. Raises ExperimentError if no server is left, HostLostError,
    AgentError.
    """
    definitions = [resolved.definitions[name] for name in resolved.servers if name in resolved.definitions]
    servers = [definition.name for definition in definitions if definition.kernel_tls]
    if not servers:
        return resolved
    lacking = [name for name, hosts in inventory.machines.items() if not all(map(has_tls, hosts))]
    if not lacking:
        return resolved
    why = f"the kernel of {', '.join(lacking)} has no TLS"
    skipped = [Skipped(server=server, why=why) for server in servers]
    return resolved.without(skipped)


def _why_absent(needs: Sequence[str]) -> str:
    return "the inventory has no such guest" + (f"; it needs {', '.join(needs)}" if needs else "")


def _check_clients(resolved: Resolved, inventory: Inventory) -> None:
    """Check that all clients have one link, and a part in every load. Raises ExperimentError, InventoryError."""
    first, *others = inventory.clients
    for other in others:
        links = {
            "vmtoll_link": (other.vars.link, first.vars.link),
            "vmtoll_link_mbit": (other.vars.link_mbit, first.vars.link_mbit),
        }
        for key, (own_value, first_value) in links.items():
            if own_value != first_value:
                raise InventoryError(
                    f"{other.name}: {key} is {own_value!r}, that of {first.name} is {first_value!r}: "
                    "one load needs one link; choose clients with --limit"
                )
    for name, workload in resolved.workloads.items():
        capacity = None if isinstance(workload, MailWorkload) else workload.capacity
        loops = {
            "users": min(listed(workload.users)) if isinstance(workload, ClosedWorkload) else None,
            "capacity.users": capacity.users if capacity else None,
        }
        for key, users in loops.items():
            if users and users <= len(others) and not sends_alone(workload):
                raise ExperimentError(
                    f"workload {name}: {key}: {users} users are too few for {len(inventory.clients)} clients, each of "
                    "which needs one; choose fewer with --limit"
                )
