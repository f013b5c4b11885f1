"""The command `provision`."""

from pathlib import Path

from vmtoll import loadgen
from vmtoll.builds.servers import definitions
from vmtoll.builds.suite import guest_release
from vmtoll.commands.answer import answer_changes, ask
from vmtoll.commands.help import describe
from vmtoll.commands.options import CheckOption, GuestSuiteOption, InventoryOption, JsonOption, LimitOption, YesOption
from vmtoll.lab import embedded
from vmtoll.machines.changed import active_units, ask_all
from vmtoll.model.errors import HostLostError
from vmtoll.provisioning.unprovision import UndoPlan
from vmtoll.shell import Changes
from vmtoll.spec.inventory_faults import read_valid_inventory

describe("provision", "vmtoll provision -i lab.yml --check")


def provision(
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    check: CheckOption = False,
    yes: YesOption = False,
    suite: GuestSuiteOption = None,
    as_json: JsonOption = False,
) -> None:
    """Install servers, sites and load tools on every machine (playbooks/site.yml).

    vmtoll masks the distribution's own units of these servers, so that a server which runs there stops and does not
    start again. It asks before it changes a machine for the first time, and records there what it changes;
    `vmtoll unprovision` restores it.
    """
    if inventory and not (yes or check):
        _ask(inventory, limit)
    release = guest_release(suite) if suite and inventory else None
    changes: Changes | None = {} if as_json else None
    embedded.provision(inventory, ["--check", "--diff"] if check else [], limit, release, changes=changes)
    if changes is not None:
        answer_changes(changes, check=check)


def _ask(inventory: Path, limit: str | None) -> None:
    """Ask before vmtoll changes machines for the first time. Raises UserError without consent, HostLostError for a
    machine that does not answer.
    """
    undo_plan = UndoPlan.of(read_valid_inventory(inventory, limit), inventory, limit)
    changed, unreachable = ask_all(undo_plan.machines)
    if unreachable:
        raise HostLostError("; ".join(unreachable))
    new_hosts = [host for host in undo_plan.machines if not changed[host.name]["provisioned"]]
    if not new_hosts:
        return
    units = sorted({*loadgen.masked_units(), *(unit for server in definitions() for unit in server.mask)})
    serving = [f"{unit} on {name}" for name, active in active_units(new_hosts, units).items() for unit in active]
    active = f"; of these run now: {', '.join(serving)}" if serving else ""
    names = ", ".join(host.name for host in new_hosts)
    ask(
        f"vmtoll provision changes {names} for the first time: it installs web servers "
        f"and load tools, sets kernel parameters, and masks {len(units)} units of the distribution, which do not start "
        f"again{active}. `vmtoll unprovision` restores all of it",
        yes=False,
    )
