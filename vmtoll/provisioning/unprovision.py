"""Run `playbooks/unprovision.yml` against an inventory: restore the machines to their state before vmtoll."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmtoll.guests.inventory import Guest
from vmtoll.machines.changed import check_reachable, lock_machines
from vmtoll.model.inventory import Host
from vmtoll.provisioning.containers import lists_of, made_containers
from vmtoll.provisioning.guests import guests_with_profile, role_entry
from vmtoll.shell import Changes, play, say
from vmtoll.spec.inventory import hosts_by_role, joined, names_in


@dataclass(frozen=True)
class UndoPlan:
    """What to undo: machines to restore, guests and containers to remove. `guests`: all have state `absent`."""

    machines: Sequence[Host]
    guests: Sequence[Guest]
    containers: Sequence[Host]
    pattern: str  # Ansible's host pattern of the machines to restore
    addresses: Sequence[str]  # of the guests and containers, as known_hosts names them
    inventory: Path

    @classmethod
    def of(cls, data: Mapping[str, Any], inventory: Path, limit: str | None) -> "UndoPlan":
        """What to undo in an inventory, or on its machines that `limit` matches; `data` has every KVM host even so.

        Raises UserError and InventoryError as guests_with_profile.
        """
        by_role = hosts_by_role(data, str(inventory))
        guests = [vm.model_copy(update={"state": "absent"}) for vm in guests_with_profile(data, inventory)]
        containers = made_containers(data, inventory)
        named_hosts = {*names_in(limit or ""), *(vm.kvm_host for vm in guests)}
        runtimes = [host for host in by_role["container"] if host.runtime]
        named_hosts |= {str(container.vars.container_host) for container in (*containers, *runtimes)}
        machines = {
            host.name: host
            for role, hosts in by_role.items()
            for host in hosts
            if not host.is_made and (role != "kvm_host" or not limit or host.name in named_hosts)
        }
        return cls(
            machines=list(machines.values()),
            guests=guests,
            containers=containers,
            pattern=joined(
                limit or "all",
                *(
                    f"!{name}"
                    for name in (*(vm.name for vm in guests), *(host.name for host in (*containers, *runtimes)))
                ),
            ),
            addresses=[
                *(host.address for host in by_role["kvm_guest"] if host.vars.profile),
                *map(_known_as, containers),
            ],
            inventory=inventory,
        )

    def variables(self) -> dict[str, object]:
        """The extra variables of unprovision.yml."""
        hosts = dict.fromkeys(vm.kvm_host for vm in self.guests)
        return {
            "kvm_guest_lists": {host: [role_entry(vm) for vm in self.guests if vm.kvm_host == host] for host in hosts},
            "podman_container_lists": lists_of(self.containers, state="absent"),
            "kvm_guest_addresses": list(self.addresses),
            "unprovision_machines": self.pattern,
        }


def _known_as(host: Host) -> str:
    """The name of a container in known_hosts."""
    return host.ssh_host if host.ansible.port in (None, 22) else f"[{host.ssh_host}]:{host.ansible.port}"


def unprovision(undo_plan: UndoPlan, *, check: bool, changes: Changes | None = None) -> None:
    """Restore what `provision` and `tune` changed, remove the guests that vmtoll made, end what a killed run left.

    With `check`, only print what would change. Raises UserError if a run is using a machine or a machine could not be
    restored; HostLostError naming every machine that does not answer.
    """
    with ExitStack() as stack:
        if check:
            check_reachable(undo_plan.machines)
        else:
            for message in stack.enter_context(lock_machines(undo_plan.machines, "vmtoll unprovision")):
                say(message)
        options = ["--diff", *(["--check"] if check else [])]
        variables = json.dumps(undo_plan.variables())
        play("unprovision.yml", "-e", variables, *options, inventory=undo_plan.inventory, changes=changes)
