"""`diagnose --measure`: take a tuning step of an existing guest and go back by turns, under load."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vmtoll.commands.adhoc import Adhoc, pair_keys
from vmtoll.commands.answer import ask, print_json
from vmtoll.commands.conclude import conclude
from vmtoll.commands.plans import cost_text, show
from vmtoll.guests.diagnosis.measure import change_of
from vmtoll.model.change import Change
from vmtoll.model.diagnosis import Diagnosis, State, Tuning
from vmtoll.model.errors import UserError
from vmtoll.model.inventory import Host
from vmtoll.model.until import Until
from vmtoll.runner.plan import change_boots
from vmtoll.runner.run import Plan
from vmtoll.spec.inventory import hosts_by_role
from vmtoll.spec.inventory_faults import read_valid_inventory


def measure_step(
    step: Tuning, keys: Mapping[str, Any], diagnosis: Diagnosis, guest: str, kvm_host: Host, uri: str,
    inventory: Path | None, results: Path, until: Until | None, at_most_min: float | None,
    *, dry_run: bool, yes: bool, as_json: bool,
) -> None:  # fmt: skip
    """Measure a step of the guest with this diagnosis, print the answer, and leave the guest as it was.

    `keys`: the loads under which it is measured, see `pair_keys`; `guest`: its name as the user gave it. Raises
    UserError where it cannot be measured, or without consent.
    """
    if inventory is None:
        raise UserError(
            f"--measure {step}: load comes from a client, so give an --inventory with the guest and a client "
            "(`vmtoll init` makes one)"
        )
    change = change_of(diagnosis, step, uri=uri, root=kvm_host.root)
    sut, limit, link = _machine(inventory, guest)
    pair = pair_keys(str(sut.vars.environment), f"with-{step}", **keys, link=link, change=change)
    adhoc = Adhoc(pair, results, inventory, limit)
    planned = adhoc.plan(until, at_most_min)
    if dry_run:
        show(planned, resumed=False, as_json=as_json)
        return
    ask(f"{_effects(sut, kvm_host, change, planned)}; {cost_text(planned)}", yes=yes)
    conclusion = conclude(adhoc.measure(planned))
    commands = [each.apply for each in diagnosis.steps if each.tuning is step and each.state is State.LACKING]
    if as_json:
        print_json(conclusion.document() | {"step": str(step), "apply": commands})
    else:
        conclusion.show()
        print("\n".join([f"\n{sut.name} is as it was. The step is taken by", *commands]))


def _machine(inventory: Path, name: str) -> tuple[Host, str | None, str]:
    """The guest in the inventory by its name there or on its host; the pattern that leaves it alone of its
    environment, None if it is; the clients' link. Raises UserError.
    """
    by_role = hosts_by_role(read_valid_inventory(inventory), str(inventory))
    named = [host for host in by_role["kvm_guest"] if name in (host.name, host.vars.domain, str(host.vars.vmid))]
    if len(named) != 1 or not named[0].vars.environment:
        raise UserError(
            f"{inventory}: --measure needs {name} among the kvm_guests, with vmtoll_environment and vmtoll_kvm_host"
        )
    if not by_role["client"]:
        raise UserError(f"{inventory}: --measure needs a client that sends load; add one to the group clients")
    same = [host for host in by_role["kvm_guest"] if host.vars.environment == named[0].vars.environment]
    limit = ":".join([*(host.name for host in by_role["client"]), named[0].name]) if len(same) > 1 else None
    return named[0], limit, by_role["client"][0].vars.link


def _effects(sut: Host, kvm_host: Host, change: Change, planned: Plan) -> str:
    """What happens to the guest, in words."""
    boots = change_boots(planned.resolved, planned.trials).get(str(sut.vars.environment), 0)
    restarts = f"shuts {sut.name} down and starts it again about {boots} times, " if boots else ""
    return f"{restarts}changes it on {kvm_host.name} by `{change.apply}`, and back by `{change.revert}`"
