"""The verb `provision`."""

from vmtoll.commands.options import CheckOption, InventoryOption, LimitOption, SuiteOption
from vmtoll.lab import embedded
from vmtoll.lab.suite import of_guests


def provision(
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    check: CheckOption = False,
    suite: SuiteOption = None,
) -> None:
    """Install servers, sites and load tools on every machine (playbooks/site.yml).

    --suite is for the guests of an inventory that vmtoll makes: their image has this machine's release by default.
    """
    release = of_guests(suite) if suite and inventory else None
    embedded.provision(inventory, ["--check", "--diff"] if check else [], limit, release)
