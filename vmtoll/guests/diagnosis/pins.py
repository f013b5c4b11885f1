"""CPUs of the host for the virtual CPUs of a guest: what is wrong with pins, and which pins are better."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from vmtoll.guests.diagnosis.facts import Facts
from vmtoll.hypervisors.guest_config import Cell, GuestConfig, Pins, cpu_set


def count_pinned(pins: Pins, count: int) -> int:
    """Virtual CPUs that share no CPU. A set for the whole guest counts for all if it has as many CPUs."""
    if pins.together:
        return count if len(pins.together) >= count else 0
    return sum(len(cpus) == 1 for number, cpus in pins.each.items() if number < count)


def have_each_their_own(pins: Pins, count: int) -> bool:
    """Return whether no two virtual CPUs are pinned to the same CPU, and all are pinned."""
    singles = {cpus[0] for number, cpus in pins.each.items() if len(cpus) == 1 and number < count}
    return count_pinned(pins, count) == count and (bool(pins.together) or len(singles) == count)


def advised(chosen: Sequence[int], facts: Facts, *, as_set: bool) -> Pins:
    """The pins that the advice makes: each virtual CPU to its CPU, or a set for the whole guest."""
    if as_set:
        return Pins(together=tuple(sorted(chosen)))
    return Pins({number: (cpu,) for number, cpu in enumerate(chosen)}, emulator=tuple(others(chosen, facts)))


def others(chosen: Sequence[int], facts: Facts) -> list[int]:
    """CPUs for QEMU's other threads: of the same node if it has any left."""
    nodes, taken = facts.get("nodes", {}), set(chosen) | set(facts.get("used", ()))
    left = [cpu for cpu in facts["cpus"] if cpu not in taken] or [c for c in facts["cpus"] if c not in chosen]
    near = [cpu for cpu in left if nodes.get(str(cpu)) == nodes.get(str(chosen[0]))]
    return near or left or list(chosen)


def faults(guest: GuestConfig, pins: Pins, facts: Facts) -> dict[str, str]:
    """What is wrong with these pins, by kind. Of a set for the whole guest, each virtual CPU may use all."""
    count, cells = guest.vcpus.known, guest.cells.known
    chosen = list(pins.together) or [pins.each[number][0] for number in range(count)]
    online, nodes, cores = set(facts["cpus"]), facts.get("nodes", {}), facts.get("cores", {})
    found: dict[str, str] = {}
    if off := set(chosen) - online:
        found["online"] = f"not online: CPU {cpu_set(off)}"
    of_nodes = {nodes[str(cpu)] for cpu in chosen if str(cpu) in nodes}
    sizes = Counter(nodes.get(str(cpu), 0) for cpu in online)
    if len(of_nodes) > 1 and len(cells) < 2 and max(sizes.values(), default=0) >= count:
        found["span"] = f"the CPUs span {len(of_nodes)} NUMA nodes ({cpu_set(of_nodes)})"
    if far := _far_from_memory(cells, pins, nodes):
        found["memory"] = far
    of_cores = {cores.get(str(cpu), cpu) for cpu in chosen}
    enough = len({cores.get(str(cpu), cpu) for cpu in online}) >= count
    if enough and len(of_cores) < count and guest.threads.known < 2:
        found["cores"] = "two virtual CPUs share a core of the host, but the guest sees separate cores"
    if shared := set(chosen) & set(facts.get("used", ())):
        found["shared"] = f"another guest is pinned to CPU {cpu_set(shared)} as well"
    if pins.emulator and set(pins.emulator) <= set(chosen) and online - set(chosen):
        found["emulator"] = "QEMU's other threads are pinned to the same CPUs"
    return found


def _far_from_memory(cells: Sequence[Cell], pins: Pins, nodes: Mapping[str, int]) -> str:
    """The first cell whose virtual CPUs may run elsewhere than its memory is; empty if there is none."""
    everywhere = {node for cell in cells for node in cell.nodes}
    for cell in cells:
        cpus = pins.together or [cpu for number in cell.vcpus for cpu in pins.each.get(number, ())]
        memory = everywhere if pins.together else cell.nodes
        of_nodes = {nodes[str(cpu)] for cpu in cpus if str(cpu) in nodes}
        if cell.nodes and of_nodes and not of_nodes <= memory:
            return f"the CPUs are on NUMA node {cpu_set(of_nodes)}, the guest's memory on {cpu_set(memory)}"
    return ""


def chosen(guest: GuestConfig, facts: Facts) -> list[int]:
    """Choose a CPU for each virtual CPU; [] if there are too few. Each cell gets CPUs of the nodes of its memory, as
    far as these have enough.
    """
    count, cells = guest.vcpus.known, guest.cells.known
    bound = [cell for cell in cells if cell.nodes and cell.vcpus]
    by_number: dict[int, int] = {}
    if len(bound) > 1 or (bound and len(bound[0].vcpus) < count):
        for cell in bound:
            cpus = _chosen(guest, facts, len(cell.vcpus), cell.nodes, {*by_number.values()})
            by_number |= dict(zip(cell.vcpus, cpus, strict=False))
    left = [number for number in range(count) if number not in by_number]
    memory = (
        frozenset[int]().union(*(cell.nodes for cell in bound)) if len(bound) == 1 or not by_number else frozenset()
    )
    rest = _chosen(guest, facts, len(left), memory, {*by_number.values()}) if left else []
    by_number |= dict(zip(left, rest, strict=False))
    return [by_number[number] for number in range(count)] if len(by_number) == count else []


def _chosen(guest: GuestConfig, facts: Facts, count: int, memory: frozenset[int], taken: set[int]) -> list[int]:
    """Choose CPUs, first among those that the definition allows; [] if there are too few.

    In one NUMA node if possible, first that of the memory if it is bound to one. If CPUs are too few, gives up, in this
    order: sparing the host's first core, which serves interrupts; a core for each; CPUs that no other guest uses.
    """
    online = [cpu for cpu in facts["cpus"] if cpu not in taken]
    if not online:
        return []
    allowed = guest.pins.known.allowed or online
    nodes, cores, used = facts.get("nodes", {}), facts.get("cores", {}), set(facts.get("used", ()))
    first = facts["cpus"][0]

    def core(cpu: int) -> int:
        return cores.get(str(cpu), cpu)

    def of_each_core(numbers: Sequence[int]) -> list[int]:
        return sorted({core(cpu): cpu for cpu in reversed(numbers)}.values())

    def candidates(within: Sequence[int]) -> Iterator[list[int]]:
        free = [cpu for cpu in within if cpu not in used]
        but_first = [cpu for cpu in free if core(cpu) != core(first)]
        asked = [[cpu for cpu in pool if cpu in allowed] for pool in (but_first, free, within)]
        for pools, of_pool in (
            ([*asked[:2], but_first, free], of_each_core), ([*asked[:2], but_first, free], list),
            ([asked[2], within], of_each_core), ([within], list),
        ):  # fmt: skip
            yield from (of_pool(numbers) for pool in pools for numbers in _by_node(pool, nodes))

    near = [cpu for cpu in online if nodes.get(str(cpu)) in memory]
    found = (
        numbers[:count] for numbers in [*candidates(near), near, *candidates(online), online] if len(numbers) >= count
    )
    return next(found, [])


def _by_node(pool: Sequence[int], nodes: Mapping[str, int]) -> list[list[int]]:
    """The CPUs of each NUMA node, the largest first."""
    groups: dict[int, list[int]] = {}
    for cpu in pool:
        groups.setdefault(nodes.get(str(cpu), 0), []).append(cpu)
    return sorted(groups.values(), key=lambda numbers: (-len(numbers), numbers))
