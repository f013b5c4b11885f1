"""Choose the machines of a run from an inventory."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from vmtoll.model.errors import InventoryError
from vmtoll.model.inventory import Host, Inventory
from vmtoll.spec.inventory import hosts_by_role, read_inventory
from vmtoll.spec.inventory_faults import InventoryData, Purpose, check_inventory


def from_data(
    data: Mapping[str, Any],
    environments: list[str],
    source: str = "inventory",
    guests: int = 1,
    optional: Collection[str] = (),
    targets: Collection[str] = (),
) -> Inventory:
    """Return the machines of these environments: for a guest environment `guests` of them, all on one KVM host.

    An `optional` environment without machines is left out. `targets`: KVM hosts that guests move to, by name; one that
    the inventory lacks is left out. Raises InventoryError when another has no machine, too few
    guests, or more machines than it can distinguish, and for a variable with a wrong value.
    """
    by_role = hosts_by_role(data, source)
    if not by_role["client"]:
        raise InventoryError(f"{source}: the group `clients` is empty: nothing would send load")
    candidates = by_role["metal"] + by_role["container"] + by_role["kvm_guest"]
    present = {host.vars.environment for host in candidates}
    environments = [name for name in environments if name in present or name not in optional]
    machines = {environment: _machines(candidates, environment, source, guests) for environment in environments}
    clients, under_test = by_role["client"], [host for hosts in machines.values() for host in hosts]
    needed = {host.vars.kvm_host for host in under_test if host.role == "kvm_guest"}
    needed |= {host.vars.container_host for host in (*clients, *under_test)}
    kvm_hosts = {host.name: host for host in by_role["kvm_host"] if host.name in needed | set(targets)}
    if missing := sorted(name for name in needed if name and name not in kvm_hosts):
        raise InventoryError(f"{source}: host {missing[0]!r} of a guest or container is not in the group `kvm_hosts`")
    others = [host for host in by_role["kvm_host"] if host.name not in kvm_hosts]
    inventory = Inventory(clients, machines, kvm_hosts, others)
    for host in inventory.hosts():
        host.check()
    return inventory


def _machines(candidates: Sequence[Host], environment: str, source: str, guests: int) -> list[Host]:
    """The machines of one environment: one machine, or the first `guests` of a KVM host's guests."""
    matching = [host for host in candidates if host.vars.environment == environment]
    carriers = {host.vars.kvm_host for host in matching if host.role == "kvm_guest"}
    on_one_host = len(carriers) == 1 and None not in carriers and all(h.role == "kvm_guest" for h in matching)
    if not matching or not (on_one_host or len(matching) == 1):
        present = sorted({str(host.vars.environment) for host in candidates})
        raise InventoryError(
            f"{source}: {len(matching)} hosts have vmtoll_environment {environment!r}, one is needed "
            f"(choose with --limit); in the groups `metal_hosts`, `containers` and `kvm_guests` there are: "
            f"{', '.join(present) or 'none'}"
        )
    needed = guests if on_one_host else 1
    if len(matching) < needed:
        raise InventoryError(
            f"{source}: {len(matching)} guests on one host have vmtoll_environment {environment!r}, {needed} are needed"
        )
    return matching[:needed]


def load_inventory(
    path: Path,
    environments: list[str],
    guests: int = 1,
    limit: str | None = None,
    optional: Collection[str] = (),
    purpose: Purpose = "load",
    targets: Collection[str] = (),
) -> Inventory:
    """Read the inventory and find the machines of these environments; see from_data. Raises InventoryError.

    `purpose`: `machines` for a service, whose machine need not be in the inventory.
    """
    data = read_inventory(path, limit)
    check_inventory(InventoryData(data, path), environments, limited=limit is not None, purpose=purpose)
    source = f"{path} with --limit {limit}" if limit else str(path)
    return from_data(data, environments, source, guests, optional, targets)
