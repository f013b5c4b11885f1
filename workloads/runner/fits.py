"""Whether the machines of an inventory can answer the question of an experiment."""

from pathlib import Path

from workloads.runner.errors import InventoryError, WrongLinkError
from workloads.runner.experiment import Resolved
from workloads.runner.fleet import check_clients
from workloads.runner.inventory import Inventory


def check_inventory(resolved: Resolved, inventory: Inventory, experiment_file: Path, inventory_path: Path) -> None:
    """The link is the one that is asked for, every client has a part, guests can be looked at from their hosts.

    Raises WrongLinkError, InventoryError, ExperimentError.
    """
    link = resolved.experiment.link
    if inventory.link != link:
        raise WrongLinkError(
            f"{experiment_file}: link: {link}, but in {inventory_path} the client {inventory.client.name} has "
            f"vmtoll_link: {inventory.link}; {_way_out(inventory, link)}, or choose an experiment with "
            f"`link: {inventory.link}`"
        )
    check_clients(resolved, inventory)
    for host in (host for under_test in inventory.machines.values() for host in under_test):
        if host.role == "kvm_guest" and (inventory.kvm_host(host) is None or not host.get("vmtoll_domain")):
            raise InventoryError(
                f"{host.name}: a guest needs vmtoll_kvm_host and vmtoll_domain, to tell KVM from emulation"
            )


def _way_out(inventory: Inventory, link: str) -> str:
    if inventory.client.get("vmtoll_lab") == "embedded":
        return f"run `vmtoll lab up --link {link}`"
    change = "take the limit off its link" if link == "unshaped" else f"limit its link to {link}"
    return f"{change} and set vmtoll_link (and vmtoll_link_mbit) so"
