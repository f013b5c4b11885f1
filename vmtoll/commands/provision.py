"""The command `provision`."""

from vmtoll.builds.suite import of_guests
from vmtoll.commands.answer import answer_changes
from vmtoll.commands.help import describe
from vmtoll.commands.options import CheckOption, InventoryOption, JsonOption, LimitOption, SuiteOption
from vmtoll.lab import embedded
from vmtoll.shell import Changes

describe("provision", "vmtoll provision --inventory hosts.yml --check")


def provision(
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    check: CheckOption = False,
    suite: SuiteOption = None,
    as_json: JsonOption = False,
) -> None:
    """Install servers, sites and load tools on every machine (playbooks/site.yml).

    --suite is for the guests of an inventory that vmtoll makes: their image has this machine's release by default.
    """
    release = of_guests(suite) if suite and inventory else None
    changes: Changes | None = {} if as_json else None
    embedded.provision(inventory, ["--check", "--diff"] if check else [], limit, release, changes=changes)
    if changes is not None:
        answer_changes(changes, check=check)
