"""The verbs `tune` and `untune`: hosts made steady, and set back to what they were."""

import json
from typing import Annotated

import typer

from vmtoll import lab
from vmtoll.options import InventoryOption, LimitOption
from vmtoll.shell import UserError, play
from workloads.runner.inventory import read_inventory

CheckOption = Annotated[bool, typer.Option("--check", help="Change nothing, say what would change.")]


def tune(inventory: InventoryOption = None, limit: LimitOption = None, check: CheckOption = False) -> None:
    """Make the hosts steady whose inventory says how in `vmtoll_tuning`: governor, turbo, SMT, interrupts, …

    What was is recorded on the host before the first change; `vmtoll untune` sets it back. What a host cannot do is
    said before anything is changed. docs/real-hosts.md has the settings.
    """
    path = inventory or lab.require()
    variables = read_inventory(path, limit)["_meta"]["hostvars"]
    if not any(facts.get("vmtoll_tuning") for facts in variables.values()):
        raise UserError(f"{path}: no host has vmtoll_tuning; docs/real-hosts.md says what it may hold.")
    _play(path, limit, check=check, state="tuned")


def untune(inventory: InventoryOption = None, limit: LimitOption = None, check: CheckOption = False) -> None:
    """Set every host back to what it was before `vmtoll tune`; one that was never tuned stays as it is."""
    _play(inventory or lab.require(), limit, check=check, state="restored")


def _play(path: object, limit: str | None, *, check: bool, state: str) -> None:
    options = ["-e", json.dumps({"host_tuning_state": state}), "--diff"]
    options += ["--check"] if check else []
    options += ["--limit", limit] if limit else []
    play("tune.yml", *options, inventory=str(path))
