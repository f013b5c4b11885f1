"""Rungs of a ladder that the machines at hand do not have: left out of the run, and said."""

from workloads.runner.documents import read
from workloads.runner.errors import InventoryError
from workloads.runner.experiment import Resolved
from workloads.runner.inventory import Inventory
from workloads.runner.registry import Registry


def without_absent(resolved: Resolved, inventory: Inventory, registry: Registry) -> Resolved:
    """The experiment without the guests of its ladder that the inventory lacks.

    A host that cannot give a profile what it needs has no such guest. Raises InventoryError when no two are left.
    """
    if resolved.experiment.ladder is None:
        return resolved
    wanted = resolved.experiment.ladder.environments
    absent = {name: _why(registry, name) for name in wanted if name not in inventory.machines}
    if len(wanted) - len(absent) < 2:
        raise InventoryError(
            f"experiment {resolved.experiment.name} compares guests with each other; of its ladder "
            f"({', '.join(wanted)}) the inventory has fewer than two: add guests of these profiles"
        )
    return resolved.model_copy(update={"absent": absent})


def _why(registry: Registry, profile: str) -> str:
    needs = _needs(registry, profile)
    return "the inventory has no such guest" + (f"; it needs {', '.join(needs)}" if needs else "")


def _needs(registry: Registry, profile: str) -> list[str]:
    """What a profile, and those that it is made of, need of the host."""
    document = read(registry.guest_file(profile))
    made_of = [need for part in document.get("of", []) for need in _needs(registry, part)]
    return list(dict.fromkeys([*made_of, *document.get("needs", [])]))
