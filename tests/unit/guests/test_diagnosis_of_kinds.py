"""What holds a guest back besides the steps of tuning: limits, timers, switches, bad pins, the wrong CPU model."""

import random
import shlex
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from tests.unit.guests.test_diagnosis import FACTS, TUNED, UNTUNED, step
from vmtoll.guests.diagnosis import diagnose
from vmtoll.guests.diagnosis.apply import candidates, tried, virt_xml
from vmtoll.guests.diagnosis.definition import edited, text_of
from vmtoll.guests.diagnosis.pins import faults
from vmtoll.hypervisors.guest_config import cpu_set
from vmtoll.hypervisors.libvirt_xml import guest_of_xml, parsed
from vmtoll.model.diagnosis import Edit, State, Tuning


def lacking(xml: str, **facts: object) -> dict[Tuning, str]:
    """What the guest lacks, with what it has instead."""
    steps = diagnose(xml, FACTS | facts)
    return {one.tuning: one.current for one in steps if one.state is State.LACKING}


def whole(domain: ET.Element) -> str:
    return ET.tostring(domain, encoding="unicode")


def taken_back(old: str, new: str) -> str:
    """The tuned guest with one thing changed."""
    assert old in TUNED
    return TUNED.replace(old, new)


@pytest.mark.parametrize(
    ("xml", "tuning", "current"),
    [
        (taken_back("<cputune>", "<cputune><quota>25000</quota>"), Tuning.CPU_LIMIT,
         "0.25 of a CPU for each virtual CPU"),
        (taken_back("<cputune>", "<cputune><global_period>50000</global_period><global_quota>25000</global_quota>"),
         Tuning.CPU_LIMIT, "0.5 of a CPU for the whole guest"),
        (taken_back("<cputune>", "<cputune><emulator_quota>1000</emulator_quota>"), Tuning.CPU_LIMIT,
         "0.01 of a CPU for QEMU's other threads"),
        (taken_back("<cputune>", "<memtune><hard_limit unit='GiB'>4</hard_limit></memtune><cputune>"),
         Tuning.MEMORY_LIMIT, "4096 MiB (hard_limit)"),
        (taken_back("bus='virtio'/>", "bus='virtio'/><iotune><total_iops_sec>200</total_iops_sec></iotune>"),
         Tuning.DISK_LIMIT, "total_iops_sec 200"),
        (taken_back("<cputune>", "<blkiotune><device><path>/dev/sda</path><write_bytes_sec>10000</write_bytes_sec>"
         "</device></blkiotune><cputune>"), Tuning.DISK_LIMIT, "/dev/sda: write_bytes_sec 10000"),
        (taken_back("<source bridge='br0'/>", "<source bridge='br0'/><bandwidth><outbound average='625'/></bandwidth>"),
         Tuning.NETWORK_LIMIT, "625 KiB/s outbound"),
        (taken_back("name='hpet' present='no'", "name='hpet' present='yes'"), Tuning.TIMERS, "HPET"),
        (taken_back("<clock offset='utc'>", "<clock offset='utc'><timer name='kvmclock' present='no'/>"),
         Tuning.TIMERS, "no kvmclock"),
        (taken_back("queues='2'/>", "queues='2' ioeventfd='off' event_idx='off'/>"), Tuning.NOTIFICATIONS,
         "ioeventfd='off' event_idx='off'"),
        (taken_back("cache='none'/>", "cache='none' ioeventfd='off'/>"), Tuning.NOTIFICATIONS, "ioeventfd='off'"),
        (taken_back("queues='2'/>", "queues='2'><host tso4='off' gso='on'/><guest csum='off'/></driver>"),
         Tuning.OFFLOADS, "host tso4, guest csum"),
        (taken_back("queues='2'/>", "queues='2' iommu='on' ats='on'/>"), Tuning.IOMMU, "iommu='on'"),
        (taken_back("<cpu mode='host-passthrough'/>",
         "<cpu mode='custom'><model>Nehalem</model></cpu>"), Tuning.CPU_MODEL, "Nehalem"),
    ],
)  # fmt: skip
def test_what_holds_it_back_is_found_and_its_changes_take_it_away(xml: str, tuning: Tuning, current: str) -> None:
    assert lacking(xml) == {tuning: current}
    found = [one for one in diagnose(xml, FACTS) if one.tuning is tuning and one.state is State.LACKING]
    domain = parsed(xml)
    for one in found:
        assert one.changes
        domain = edited(domain, one.changes)
    assert lacking(whole(domain)) == {}


def test_a_card_whose_link_is_down_lacks_nothing() -> None:
    one_queue = taken_back("queues='2'/>", "queues='1'/>")
    assert lacking(one_queue) == {Tuning.MULTIQUEUE: "1"}
    down = one_queue.replace("queues='1'/>", "queues='1'/><link state='down'/>")
    assert lacking(down) == {}
    assert [one.state for one in diagnose(down, FACTS) if one.tuning is Tuning.MULTIQUEUE] == [State.INAPPLICABLE]
    assert lacking(down.replace("'down'", "'up'")) == {Tuning.MULTIQUEUE: "1"}


def test_a_device_of_the_host_may_be_the_card_if_no_other_has_a_link() -> None:
    address = "<address domain='0x0000' bus='0x81' slot='0x00' function='0x1'/>"
    device = f"<hostdev mode='subsystem' type='pci'><source>{address}</source></hostdev>"
    beside = taken_back("<devices>", f"<devices>{device}")
    alone = beside.replace("<source bridge", "<link state='down'/><source bridge")
    assert alone != beside
    (unknown,) = [one for one in diagnose(alone, FACTS) if one.tuning is Tuning.NETWORK]
    assert unknown.state is State.UNKNOWN and "0000:81:00.1" in unknown.tells
    assert all(one.state is not State.UNKNOWN for one in diagnose(beside, FACTS) if one.tuning is Tuning.NETWORK)


def test_a_limit_of_zero_is_none() -> None:
    free = "<iotune><total_iops_sec>0</total_iops_sec></iotune>"
    assert lacking(taken_back("bus='virtio'/>", f"bus='virtio'/>{free}")) == {}
    assert lacking(taken_back("<cputune>", "<cputune><quota>-1</quota><period>100000</period>")) == {}


@pytest.mark.parametrize(
    ("version", "shares", "limited"), [(2, 50, True), (2, 102, False), (1, 102, True), (1, 2048, False)]
)
def test_a_weight_is_low_by_what_the_hosts_control_groups_take_for_usual(
    version: int, shares: int, limited: bool
) -> None:
    found = lacking(taken_back("<cputune>", f"<cputune><shares>{shares}</shares>"), cgroup_version=version)
    assert set(found) == ({Tuning.CPU_LIMIT} if limited else set())


def test_a_limit_of_a_group_around_the_guest_is_named_and_no_change_of_the_definition() -> None:
    groups = [
        {"name": "machine-qemu-1-web.scope", "cpus": None, "memory_bytes": 2**30},
        {"name": "tenants.slice", "cpus": 1.5, "memory_bytes": None},
        {"name": "machine.slice", "cpus": 16.0, "memory_bytes": None},
    ]
    assert lacking(TUNED, groups=groups) == {
        Tuning.CPU_LIMIT: "1.5 CPUs for tenants.slice", Tuning.MEMORY_LIMIT: "1024 MiB for machine-qemu-1-web.scope",
    }  # fmt: skip
    assert step(TUNED, Tuning.CPU_LIMIT, groups=groups).changes == ()


HOST_FLAGS = ["aes", "avx", "avx2", "ssse3", "sse4_1", "sse4_2", "pclmulqdq"]


@pytest.mark.parametrize(
    ("cpu", "model_flags", "current"),
    [
        ("<cpu mode='custom'><model>Nehalem</model></cpu>", ["ssse3", "sse4.1", "sse4.2"],
         "Nehalem, without aes pclmulqdq avx avx2"),
        ("<cpu mode='custom'><model>Westmere</model><feature policy='require' name='avx'/></cpu>",
         ["aes", "pclmuldq", "ssse3", "sse4.1", "sse4.2"], "Westmere, without avx2"),
        ("<cpu mode='host-passthrough'><feature policy='disable' name='aes'/></cpu>", None,
         "host-passthrough, without aes"),
        ("<cpu mode='custom'><model>Skylake-Server</model></cpu>",
         ["aes", "pclmuldq", "avx", "avx2", "ssse3", "sse4.1", "sse4.2"], ""),
        ("<cpu mode='custom'><model>Westmere</model><feature policy='disable' name='aes'/></cpu>", None,
         "Westmere, without aes"),
        ("<cpu mode='custom'><model>of-my-own</model></cpu>", None, "?"),
    ],
)  # fmt: skip
def test_a_model_is_judged_by_what_the_guest_does_not_see_of_the_host(
    cpu: str, model_flags: list[str] | None, current: str
) -> None:
    xml = taken_back("<cpu mode='host-passthrough'/>", cpu)
    found = step(xml, Tuning.CPU_MODEL, flags=HOST_FLAGS, model_flags=model_flags)
    if current == "?":
        assert (found.state, bool(found.tells)) == (State.UNKNOWN, True)
        return
    assert (found.state, found.current if current else "") == (State.LACKING if current else State.TAKEN, current)
    if current:
        after = whole(edited(parsed(xml), found.changes))
        assert step(after, Tuning.CPU_MODEL, flags=HOST_FLAGS, model_flags=None).state is State.TAKEN


def test_the_hosts_cpu_keeps_topology_and_numa_and_what_is_taken_away_on_purpose() -> None:
    numa = "<numa><cell id='0' cpus='0-1' memory='4' unit='GiB'/></numa>"
    cpu = (
        "<cpu mode='custom' match='exact' check='full'><model>Nehalem</model><vendor>Intel</vendor>"
        "<topology sockets='1' cores='2' threads='1'/><feature policy='require' name='vme'/>"
        "<feature policy='disable' name='aes'/>"
        f"<feature policy='disable' name='vmx'/>{numa}</cpu>"
    )
    found = step(taken_back("<cpu mode='host-passthrough'/>", cpu), Tuning.CPU_MODEL)
    after = edited(parsed(taken_back("<cpu mode='host-passthrough'/>", cpu)), found.changes).find("cpu")
    assert after is not None
    assert (after.attrib, [child.tag for child in after]) == (
        {"mode": "host-passthrough"}, ["topology", "feature", "numa"]
    )  # fmt: skip
    assert [one.get("name") for one in after.iterfind("feature")] == ["vmx"]


@pytest.mark.parametrize(
    ("kind", "inside", "state", "current"),
    [
        ("user", "", State.LACKING, "user"),
        ("user", "<backend type='passt'/><portForward proto='tcp'/><portForward proto='udp'/>", State.LACKING,
         "user (passt)"),
        ("vhostuser", "<backend type='passt'/>", State.LACKING, "vhostuser (passt)"),
        ("vhostuser", "", State.TAKEN, "vhostuser"),
        ("direct", "", State.TAKEN, "direct"),
    ],
)  # fmt: skip
def test_who_carries_the_packets_is_called_by_its_name(kind: str, inside: str, state: State, current: str) -> None:
    xml = taken_back("interface type='bridge'", f"interface type='{kind}'")
    xml = xml.replace("</interface>", f"{inside}</interface>")
    found = step(xml, Tuning.NETWORK, bridges=["lan0"])
    assert (found.state, found.current) == (state, current)
    if kind != "direct":
        assert step(xml, Tuning.VHOST).state is State.INAPPLICABLE
    if state is State.LACKING:
        card = edited(parsed(xml), found.changes).find("devices/interface")
        assert card is not None
        assert (card.get("type"), [child.tag for child in card]) == ("bridge", ["mac", "model", "source"])
        assert text_of(card.find("source")) == "<source bridge='lan0'/>"  # type: ignore[arg-type]
        assert step(xml, Tuning.NETWORK, bridges=[]).changes == ()


def test_disks_get_names_that_no_disk_has() -> None:
    disk = "<disk type='file' device='disk'><target dev='{}' bus='{}'/><address type='drive'/></disk>"
    buses = {"sda": "sata", "sdb": "sata", "vdc": "virtio", "vdd": "usb"}
    xml = TUNED.replace("</devices>", "".join(disk.format(*names) for names in buses.items()) + "</devices>")
    steps = [s for s in diagnose(xml, FACTS) if s.tuning is Tuning.DISK_BUS]
    assert [(s.device, s.xml) for s in steps if s.state is State.LACKING] == [
        ("sda", "<target dev='vdb' bus='virtio'/>"), ("sdb", "<target dev='vde' bus='virtio'/>"),
        ("vdd", "<target dev='vdd' bus='virtio'/>"),
    ]  # fmt: skip
    domain = parsed(xml)
    for one in steps:
        domain = edited(domain, one.changes)
    assert [disk.find("address") for disk in domain.iterfind("devices/disk[target]")].count(None) == 4


def host(nodes: int, cores: int, threads: int, offline: int = 0) -> dict[str, Any]:
    """Facts of a host whose CPUs are numbered as Linux numbers them: first a thread of each core, then the others."""
    all_cores = nodes * cores
    numbers = range(all_cores * threads)
    return {
        "cpus": [cpu for cpu in numbers if cpu < len(numbers) - offline],
        "cores": {str(cpu): cpu % all_cores for cpu in numbers},
        "nodes": {str(cpu): cpu % all_cores // cores for cpu in numbers},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("pins", "facts", "fault"),
    [
        ((2, 3), host(1, 4, 1), ""),
        ((1, 2), host(2, 2, 1), "the CPUs span 2 NUMA nodes (0-1)"),
        ((1, 5), host(1, 4, 2), "two virtual CPUs share a core of the host, but the guest sees separate cores"),
        ((2, 3), host(1, 4, 1, offline=1), "not online: CPU 3"),
        ((2, 3), host(1, 4, 1) | {"used": [3]}, "another guest is pinned to CPU 3 as well"),
        ((2, 4), host(1, 8, 1), "QEMU's other threads are pinned to the same CPUs"),
    ],
)
def test_bad_pins_are_lacking_with_what_is_bad(pins: tuple[int, int], facts: dict[str, Any], fault: str) -> None:
    xml = taken_back("vcpu='0' cpuset='2'", f"vcpu='0' cpuset='{pins[0]}'")
    xml = xml.replace("vcpu='1' cpuset='3'", f"vcpu='1' cpuset='{pins[1]}'")
    if "other threads" not in fault:
        xml = xml.replace("<emulatorpin cpuset='4'/>", "<emulatorpin cpuset='0'/>")
    found = step(xml, Tuning.PINNING, **facts)
    assert (found.state, (found.host or {}).get("faults", "")) == (State.LACKING if fault else State.TAKEN, fault)


@pytest.mark.parametrize("seed", range(200))
def test_pins_that_are_advised_are_good_on_any_host(seed: int) -> None:
    """Where a node has enough free cores; else they are at least no worse than they have to be."""
    draw = random.Random(seed)
    nodes, cores, threads = draw.choice([1, 2, 4]), draw.choice([1, 2, 4, 8]), draw.choice([1, 2])
    facts = host(nodes, cores, threads)
    count = draw.randint(1, len(facts["cpus"]))
    facts["used"] = sorted(draw.sample(facts["cpus"], draw.randint(0, len(facts["cpus"]) // 3)))
    memory = f"<numatune><memory nodeset='{draw.randrange(nodes)}'/></numatune>" if draw.random() < 0.3 else ""
    xml = UNTUNED.replace(">4</vcpu>", f">{count}</vcpu>{memory}")
    found = step(xml, Tuning.PINNING, **facts)
    assert found.state is State.LACKING
    after = step(whole(edited(parsed(xml), found.changes)), Tuning.PINNING, **facts)
    free = set(facts["cpus"]) - set(facts["used"])
    of_node = [{facts["cores"][str(c)] for c in free if facts["nodes"][str(c)] == node} for node in range(nodes)]
    wanted = [of_node[int(memory.split("'")[1])]] if memory else of_node
    assert after.state is State.TAKEN, after.host
    if max(map(len, wanted)) >= count:
        domain = edited(parsed(xml), found.changes)
        assert not faults(guest_of_xml(domain), guest_of_xml(domain).pins.known, facts)  # type: ignore[arg-type]


def test_what_the_next_start_has_already_needs_no_change() -> None:
    limited = taken_back("<cputune>", "<cputune><quota>25000</quota>").replace(" cache='none'", "")
    steps = {one.tuning: one for one in diagnose(limited, FACTS, TUNED.replace(" cache='none'", ""))}
    assert (steps[Tuning.CPU_LIMIT].pending, steps[Tuning.CPU_LIMIT].changes) == (True, ())
    assert (steps[Tuning.CACHE].pending, bool(steps[Tuning.CACHE].changes)) == (False, True)


def test_what_libvirt_refuses_is_not_printed() -> None:
    steps = diagnose(UNTUNED, FACTS)
    tried_on = candidates(UNTUNED, steps)
    assert len(tried_on) == 1 + sum(bool(one.changes) for one in steps)
    refusals = ["", "no such bus", *[""] * (len(tried_on) - 2)]
    first, second, *_ = (one for one in tried(steps, refusals, "test:///default", "web") if one.state is State.LACKING)
    assert (first.changes, first.xml, first.apply, first.refused) == ((), "", "", "no such bus")
    assert second.changes
    assert not any(one.changes or one.apply for one in tried(steps, ["off", *refusals[1:]], "test:///default", "web"))


def test_commands_of_virt_xml() -> None:
    changes = (
        Edit("./cputune/emulatorpin/@cpuset", "0-1,4"), Edit("./clock"), Edit("./memoryBacking/hugepages", ""),
        Edit("./os/cmdline", "root=/dev/vda quiet"),
    )  # fmt: skip
    assert shlex.join(virt_xml("qemu:///system", "web", changes)) == (
        "virt-xml --connect qemu:///system web --edit --xml ./cputune/emulatorpin/@cpuset=0-1,,4 "
        "--xml xpath.delete=./clock --xml xpath.create=./memoryBacking/hugepages "
        "--xml 'xpath.set=./os/cmdline,xpath.value=root=/dev/vda quiet'"
    )


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 8, 10, 11], "0-2,8,10-11")])
def test_cpus_as_libvirt_writes_them(numbers: list[int], text: str) -> None:
    assert cpu_set(numbers) == text


def test_an_emulated_guest_of_another_architecture_has_no_timers_of_a_pc() -> None:
    assert step(TUNED.replace("<os>", "<os><type arch='aarch64'>hvm</type>"), Tuning.TIMERS).state is State.INAPPLICABLE
