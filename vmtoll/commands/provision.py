"""The verb `provision`."""

from vmtoll.commands.options import CheckOption, InventoryOption, LimitOption, SuiteOption
from vmtoll.lab import embedded
from vmtoll.lab.suite import chosen


def provision(
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    check: CheckOption = False,
    suite: SuiteOption = None,
) -> None:
    """Bring every machine into the state in which it is measured (playbooks/site.yml).

    --suite is for the guests that vmtoll makes: what their image is made of.
    """
    release = chosen(suite) if suite and inventory else None
    embedded.provision(inventory, ["--check", "--diff"] if check else [], limit, release)
