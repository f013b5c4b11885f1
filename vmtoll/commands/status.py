"""The commands `status` and `unprovision`: list what vmtoll changed on machines, and undo it."""

from collections.abc import Iterator

from vmtoll.agent.protocol import MachineChanges
from vmtoll.commands.answer import answer_changes, ask, print_json
from vmtoll.commands.help import describe
from vmtoll.commands.options import CheckOption, InventoryOption, JsonOption, LimitOption, YesOption
from vmtoll.lab import embedded
from vmtoll.machines.changed import ask_all
from vmtoll.model.errors import UserError
from vmtoll.provisioning.unprovision import UndoPlan
from vmtoll.provisioning.unprovision import unprovision as restore
from vmtoll.shell import Changes
from vmtoll.spec.inventory_faults import read_valid_inventory

describe(
    "status", "vmtoll status -i lab.yml", "vmtoll status -i lab.yml --json",
    exits={1: "a machine does not answer"},
)  # fmt: skip


def status(inventory: InventoryOption = None, limit: LimitOption = None, as_json: JsonOption = False) -> None:
    """List what vmtoll changed on each machine and has not undone.

    It lists what provisioning and tuning changed, the guests that vmtoll made, and what a killed run left: paused
    guests, running servers, a change. `vmtoll unprovision` restores all of it.
    """
    path = inventory or embedded.require()
    undo_plan = UndoPlan.of(read_valid_inventory(path, limit), path, limit)
    changed, unreachable = ask_all(undo_plan.machines)
    if as_json:
        print_json({"machines": changed, "silent": unreachable})
    else:
        width = max(map(len, changed), default=0)
        for machine in sorted(changed):
            for line in sentences(changed[machine]) or ["nothing"]:
                print(f"{machine:{width}}  {line}")
        for sentence in unreachable:
            print(f"not known: {sentence}")
        if any(map(sentences, changed.values())):
            option = f" --inventory {inventory}" if inventory else ""
            print(f"`vmtoll unprovision{option}` restores all of it.")
    raise SystemExit(1 if unreachable else 0)


def sentences(changed: MachineChanges) -> list[str]:
    """Sentences on what vmtoll changed on a machine; empty for nothing."""
    return list(_sentences(changed))


def _sentences(changed: MachineChanges) -> Iterator[str]:
    if changed["held_by"]:
        yield f"in use by {changed['held_by']}"
    if record := changed["provisioned"]:
        counts = (("packages", "package"), ("files", "file"), ("sysctls", "kernel parameter"))
        parts = [f"{len(record[key])} {noun}{'s' * (len(record[key]) != 1)}" for key, noun in counts if record[key]]  # type: ignore[literal-required]
        masked = f"; masked while active: {', '.join(record['units'])}" if record["units"] else ""
        yield f"provisioned since {record['since']}: {', '.join(parts)}{masked}"
    if changed["tuned"]:
        yield f"tuned: {', '.join(changed['tuned'])}"
    if changed["guests"]:
        yield f"guests made: {', '.join(changed['guests'])}"
    if not changed["held_by"]:
        if changed["paused"]:
            yield f"guests paused by a run that was killed: {', '.join(changed['paused'])}"
        if changed["servers"]:
            yield f"servers left by a run that was killed: {', '.join(changed['servers'])}"
        if changed["change"]:
            yield f"change left by a run that was killed: {changed['change']}"
    if changed["traces"]:
        yield f"traces of exits left by a run that was killed: {', '.join(changed['traces'])}"


describe("unprovision", "vmtoll unprovision -i lab.yml --check", "vmtoll unprovision -i lab.yml --yes")


def unprovision(
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    check: CheckOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Restore the machines to what they were before `vmtoll provision` and `vmtoll tune`.

    vmtoll recorded on each machine what it found: packages, files, unit masks, kernel parameters, settings. It keeps
    what you changed since then in other places. It removes the guests that it made, with their disks, and ends what a
    killed run left.
    """
    if inventory is None:
        raise UserError("the machines of the embedded lab go with it: vmtoll lab down; else give an --inventory")
    undo_plan = UndoPlan.of(read_valid_inventory(inventory, limit), inventory, limit)
    if not undo_plan.machines:
        raise UserError(f"{inventory}: no machine to restore; give an --inventory with hosts")
    names = ", ".join(host.name for host in undo_plan.machines)
    guests = ", ".join(vm.name for vm in undo_plan.guests)
    guests_text = f", and removes the guests {guests} with their disks" if guests else ""
    if not check:
        ask(f"vmtoll restores {names} to what they were before they were provisioned and tuned{guests_text}", yes=yes)
    changes: Changes | None = {} if as_json else None
    restore(undo_plan, check=check, changes=changes)
    if changes is not None:
        answer_changes(changes, check=check)
