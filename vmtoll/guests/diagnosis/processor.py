"""Virtual CPUs: what runs them, their model, their timers, the CPUs that they are pinned to, how they wait."""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from vmtoll.guests.diagnosis.definition import attribute, cpu_set, cpus, find, is_kvm, is_x86, shown, vcpus
from vmtoll.guests.diagnosis.facts import Facts
from vmtoll.model.diagnosis import Edit, State, Step, Tuning

# CPU models that leave the host's newer instructions out: QEMU's own of x86 (qemu64, kvm64, …) and those of 2008.
_GENERIC = re.compile(
    r"(qemu|kvm)(32|64)|486|pentium[23]?|core2duo|coreduo|n270|athlon|phenom|Conroe|Penryn|Nehalem|Opteron_G[123]"
)
# Instructions that a web server's work uses: encryption, checksums, compression, copying, searching; and those that
# help the guest's kernel (pcid, invpcid). By Linux's names; then libvirt's, where they differ.
USEFUL = ("aes", "pclmulqdq", "sha_ni", "avx", "avx2", "avx512f", "vaes", "ssse3", "sse4_1", "sse4_2", "popcnt",
           "bmi2", "adx", "rdrand", "erms", "fsrm", "pcid", "invpcid")  # fmt: skip
_LIBVIRTS = {"pclmulqdq": "pclmuldq", "sha_ni": "sha-ni", "sse4_1": "sse4.1", "sse4_2": "sse4.2"}
_POLLING = re.compile(r"(?:^|\s)idle=poll(?:\s|$)")


def kvm(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    kind, host = domain.get("type", ""), {"kvm": int(facts["kvm_device"])}
    if is_kvm(domain):
        yield Step(Tuning.KVM, State.TAKEN, current=kind, host=host)
    else:
        changes = (Edit("./@type", "kvm"),)
        yield Step(Tuning.KVM, State.LACKING, "", kind, shown(domain, changes), host, changes)


def model(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """Lacking if the guest does not see a useful instruction that the host has, or if the model is generic."""
    cpu = domain.find("cpu")
    mode = "custom" if cpu is None else cpu.get("mode", "custom")
    name = ((cpu.findtext("model") if cpu is not None else None) or "qemu64").strip()
    missing = _missing(cpu, mode, facts)
    lacking = bool(missing) or (mode == "custom" and bool(_GENERIC.fullmatch(name)))
    current = (name if mode == "custom" else mode) + (f", without {' '.join(missing)}" if missing else "")
    if not lacking:
        yield Step(Tuning.CPU_MODEL, State.TAKEN, current=current)
        return
    changes = tuple(_with_the_hosts_cpu(cpu, "host-passthrough" if is_kvm(domain) else "maximum"))
    yield Step(Tuning.CPU_MODEL, State.LACKING, "", current, shown(domain, changes), changes=changes)


def _with_the_hosts_cpu(cpu: ET.Element | None, mode: str) -> Iterator[Edit]:
    """Changes that replace the model by the host's CPU. Topology, NUMA and features that the definition disables on
    purpose stay, except for useful instructions.
    """
    features = [] if cpu is None else cpu.findall("feature")
    for number, feature in reversed(list(enumerate(features, start=1))):
        name = feature.get("name", "")
        useful = name in USEFUL or name in _LIBVIRTS.values()
        if useful or feature.get("policy") not in ("disable", "forbid"):
            yield Edit(f"./cpu/feature[{number}]")
    if cpu is not None:
        yield from (Edit(f"./cpu/{name}") for name in ("model", "vendor") if cpu.find(name) is not None)
        yield from (Edit(f"./cpu/@{name}") for name in ("match", "check") if cpu.get(name))
        mode = mode if cpu.get("mode", "custom") == "custom" else cpu.get("mode", mode)
    yield Edit("./cpu/@mode", mode)


def _missing(cpu: ET.Element | None, mode: str, facts: Facts) -> list[str]:
    """Useful instructions that the host has and the guest does not see, where both are known."""
    useful = [flag for flag in USEFUL if flag in facts.get("flags", ())]
    policies = {} if cpu is None else {one.get("name"): one.get("policy", "require") for one in cpu.iterfind("feature")}

    def policy(flag: str) -> str:
        return policies.get(flag) or policies.get(_LIBVIRTS.get(flag, "")) or ""

    named = facts.get("model_flags") if mode == "custom" else useful
    if named is None:
        return [flag for flag in useful if policy(flag) in ("disable", "forbid")]
    sees = {flag for flag in useful if flag in named or _LIBVIRTS.get(flag) in named}
    sees |= {flag for flag in useful if policy(flag) in ("require", "force", "optional")}
    sees -= {flag for flag in useful if policy(flag) in ("disable", "forbid")}
    return [flag for flag in useful if flag not in sees]


def timers(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """kvmclock is KVM's own clock source, on unless a definition says no. So is the HPET: Linux uses it while
    it boots, and QEMU wakes up for it 260 times a second ever after (measured with QEMU 10.0 and Linux 6.12).
    """
    if not is_x86(domain):
        yield Step(Tuning.TIMERS, State.INAPPLICABLE)
        return
    named = {timer.get("name"): timer.get("present") for timer in domain.iterfind("clock/timer")}
    numbers = {timer.get("name"): n for n, timer in enumerate(domain.iterfind("clock/timer"), start=1)}
    found, changes = [], list[Edit]()
    if is_kvm(domain) and named.get("kvmclock") == "no":
        found.append("no kvmclock")
        changes.append(Edit(f"./clock/timer[{numbers['kvmclock']}]/@present", "yes"))
    if named.get("hpet") != "no":
        found.append("HPET")
        which = numbers.get("hpet", len(numbers) + 1)
        if domain.find("clock") is None:
            changes.append(Edit("./clock/@offset", "utc"))
        if "hpet" not in numbers:
            changes.append(Edit(f"./clock/timer[{which}]/@name", "hpet"))
        changes.append(Edit(f"./clock/timer[{which}]/@present", "no"))
    state = State.LACKING if found else State.TAKEN
    xml = shown(domain, changes) if changes else ""
    yield Step(Tuning.TIMERS, state, "", ", ".join(found), xml, changes=tuple(changes))


def pinning(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """Taken when each virtual CPU has its own core, all in one NUMA node, and nothing else has them."""
    count = vcpus(domain)
    pins = {pin.get("vcpu"): cpus(pin.get("cpuset", "")) for pin in domain.iterfind("cputune/vcpupin")}
    pinned_to = [pins.get(str(number), []) for number in range(count)]
    pinned = sum(len(of_one) == 1 for of_one in pinned_to)
    host: dict[str, int | str] = {"cpus": len(facts["cpus"])}
    if pinned == count and len({of_one[0] for of_one in pinned_to}) == count:
        faults = _faults(domain, [of_one[0] for of_one in pinned_to], facts)
        if not faults:
            yield Step(Tuning.PINNING, State.TAKEN, current=f"{pinned}")
            return
        host["faults"] = "; ".join(faults)
    chosen = _chosen(domain, facts)
    if not chosen:
        state = State.LACKING if "faults" in host else State.INAPPLICABLE
        yield Step(Tuning.PINNING, state, current=f"{pinned}", host=host)
        return
    changes = tuple(_pins(domain, chosen, facts))
    yield Step(Tuning.PINNING, State.LACKING, "", f"{pinned}", shown(domain, changes), host, changes)


def _faults(domain: ET.Element, chosen: Sequence[int], facts: Facts) -> list[str]:
    """What is wrong with these pins, one CPU for each virtual CPU."""
    online, nodes, cores = set(facts["cpus"]), facts.get("nodes", {}), facts.get("cores", {})
    faults = []
    if off := set(chosen) - online:
        faults.append(f"not online: CPU {cpu_set(off)}")
    of_nodes = {nodes[str(cpu)] for cpu in chosen if str(cpu) in nodes}
    sizes = Counter(nodes.get(str(cpu), 0) for cpu in online)
    if len(of_nodes) > 1 and domain.find("cpu/numa") is None and max(sizes.values()) >= len(chosen):
        faults.append(f"the CPUs span {len(of_nodes)} NUMA nodes ({cpu_set(of_nodes)})")
    memory = _memory_nodes(domain)
    if memory and of_nodes and not of_nodes <= memory:
        faults.append(f"the CPUs are on NUMA node {cpu_set(of_nodes)}, the guest's memory on {cpu_set(memory)}")
    of_cores = [cores[str(cpu)] for cpu in chosen if str(cpu) in cores]
    enough = len({cores.get(str(cpu), cpu) for cpu in online}) >= len(chosen)
    if enough and len(set(of_cores)) < len(of_cores) and int(attribute(domain, "cpu/topology", "threads") or 1) < 2:
        faults.append("two virtual CPUs share a core of the host, but the guest sees separate cores")
    if shared := set(chosen) & set(facts.get("used", ())):
        faults.append(f"another guest is pinned to CPU {cpu_set(shared)} as well")
    emulator = set(cpus(attribute(domain, "cputune/emulatorpin", "cpuset")))
    if emulator and emulator <= set(chosen) and online - set(chosen):
        faults.append("QEMU's other threads are pinned to the same CPUs")
    return faults


def _memory_nodes(domain: ET.Element) -> set[int]:
    nodes = attribute(domain, "numatune/memory", "nodeset")
    return set(cpus(nodes)) if nodes and "$" not in nodes else set()


def _chosen(domain: ET.Element, facts: Facts) -> list[int]:
    """Choose a CPU for each virtual CPU, first among those that the definition allows; [] if there are too few.

    In one NUMA node if possible, first that of the guest's memory if it is bound to one. If CPUs are too few, gives up,
    in this order: sparing the host's first core, which serves interrupts; a core for each; CPUs that no other guest
    uses.
    """
    count, online = vcpus(domain), facts["cpus"]
    allowed = cpus(attribute(domain, "vcpu", "cpuset")) or online
    nodes, cores, used = facts.get("nodes", {}), facts.get("cores", {}), set(facts.get("used", ()))
    memory = _memory_nodes(domain)

    def core(cpu: int) -> int:
        return cores.get(str(cpu), cpu)

    def of_each_core(numbers: Sequence[int]) -> list[int]:
        return sorted({core(cpu): cpu for cpu in reversed(numbers)}.values())

    def candidates(within: Sequence[int]) -> Iterator[list[int]]:
        free = [cpu for cpu in within if cpu not in used]
        but_first = [cpu for cpu in free if core(cpu) != core(online[0])]
        asked = [[cpu for cpu in pool if cpu in allowed] for pool in (but_first, free, within)]
        for pools, of_pool in (
            ([*asked[:2], but_first, free], of_each_core), ([*asked[:2], but_first, free], list),
            ([asked[2], within], of_each_core), ([within], list),
        ):  # fmt: skip
            yield from (of_pool(numbers) for pool in pools for numbers in _by_node(pool, nodes))

    near = [cpu for cpu in online if nodes.get(str(cpu)) in memory]
    found = (numbers[:count] for numbers in [*candidates(near), *candidates(online), online] if len(numbers) >= count)
    return next(found, [])


def _by_node(pool: Sequence[int], nodes: Mapping[str, int]) -> list[list[int]]:
    """The CPUs of each NUMA node, the largest first."""
    groups: dict[int, list[int]] = {}
    for cpu in pool:
        groups.setdefault(nodes.get(str(cpu), 0), []).append(cpu)
    return sorted(groups.values(), key=lambda numbers: (-len(numbers), numbers))


def _pins(domain: ET.Element, chosen: Sequence[int], facts: Facts) -> Iterator[Edit]:
    """Changes that replace all pins. QEMU's other threads get the other CPUs of the same node."""
    old = [pin.get("vcpu") for pin in domain.iterfind("cputune/vcpupin")]
    yield from (Edit(f"./cputune/vcpupin[{n}]") for n in range(len(old), 0, -1))
    if domain.find("cputune/emulatorpin") is not None:
        yield Edit("./cputune/emulatorpin")
    for number, cpu in enumerate(chosen):
        yield Edit(f"./cputune/vcpupin[{number + 1}]/@vcpu", str(number))
        yield Edit(f"./cputune/vcpupin[{number + 1}]/@cpuset", str(cpu))
    nodes, taken = facts.get("nodes", {}), set(chosen) | set(facts.get("used", ()))
    others = [cpu for cpu in facts["cpus"] if cpu not in taken] or [c for c in facts["cpus"] if c not in chosen]
    near = [cpu for cpu in others if nodes.get(str(cpu)) == nodes.get(str(chosen[0]))]
    yield Edit("./cputune/emulatorpin/@cpuset", cpu_set(near or others or chosen))


def halt_polling(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """Judge by the kernel command line in the definition; a guest that boots from its disk has its own inside."""
    poll = facts.get("halt_poll_ns")
    host = {} if poll is None else {"halt_poll_ns": poll}
    if not is_kvm(domain):
        yield Step(Tuning.HALT_POLLING, State.INAPPLICABLE, host=host)
        return
    line = (domain.findtext("os/cmdline") or "").strip()
    if _POLLING.search(line):
        yield Step(Tuning.HALT_POLLING, State.TAKEN, current="idle=poll", host=host)
    elif find(domain, "./os/kernel") is not None:
        changes = (Edit("./os/cmdline", f"{line} idle=poll".strip()),)
        yield Step(Tuning.HALT_POLLING, State.LACKING, "", "", shown(domain, changes), host, changes)
    else:
        state = State.LACKING if poll == 0 else State.UNKNOWN
        yield Step(Tuning.HALT_POLLING, state, host=host)
