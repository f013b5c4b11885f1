"""Which tuning steps a domain's definition has: every step on definitions like those that libvirt prints."""

from typing import Any

import pytest

from vmtoll.guests.diagnosis import diagnose
from vmtoll.hypervisors.guest_config import cpus
from vmtoll.model.diagnosis import State, Step, Tuning
from vmtoll.model.errors import UserError

FACTS: Any = {
    "kvm_device": True, "vhost_net": True, "cpus": list(range(8)), "hugepages": {"size_kib": 2048, "free": 100},
    "transparent_hugepages": "madvise", "halt_poll_ns": 200000, "architecture": "x86_64", "cores": {}, "nodes": {},
    "groups": [], "flags": [], "cgroup_version": 2,
}  # fmt: skip

# As `virt-install` with an old profile leaves it, printed by libvirt 9.0.
UNTUNED = """<domain type='kvm' id='3'>
  <name>web</name>
  <memory unit='KiB'>4194304</memory>
  <vcpu placement='static'>4</vcpu>
  <os><type arch='x86_64' machine='pc-i440fx-7.2'>hvm</type><boot dev='hd'/></os>
  <cpu mode='custom' match='exact' check='none'><model fallback='forbid'>qemu64</model></cpu>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/><source file='/d.qcow2'/><target dev='hda' bus='ide'/>
    </disk>
    <disk type='file' device='cdrom'><target dev='hdb' bus='ide'/></disk>
    <interface type='network'>
      <mac address='52:54:00:00:00:01'/><source network='default'/><model type='e1000'/>
    </interface>
  </devices>
</domain>"""

TUNED = """<domain type='kvm'>
  <name>web</name>
  <memory unit='GiB'>4</memory>
  <memoryBacking><hugepages/></memoryBacking>
  <vcpu placement='static' cpuset='2-4'>2</vcpu>
  <cputune><vcpupin vcpu='0' cpuset='2'/><vcpupin vcpu='1' cpuset='3'/><emulatorpin cpuset='4'/></cputune>
  <os><kernel>/vmlinuz</kernel><cmdline>root=/dev/vda quiet idle=poll</cmdline></os>
  <cpu mode='host-passthrough'/>
  <clock offset='utc'><timer name='hpet' present='no'/></clock>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='none'/><source file='/d.qcow2'/><target dev='vda' bus='virtio'/>
    </disk>
    <interface type='bridge'>
      <mac address='52:54:00:00:00:01'/><source bridge='br0'/><model type='virtio'/><driver name='vhost' queues='2'/>
    </interface>
  </devices>
</domain>"""


def step(xml: str, tuning: Tuning, **facts: object) -> Step:
    (only,) = [item for item in diagnose(xml, FACTS | facts) if item.tuning is tuning]
    return only


def states(xml: str, **facts: object) -> dict[Tuning, State]:
    return {item.tuning: item.state for item in diagnose(xml, FACTS | facts)}


def test_an_untuned_guest_lacks_every_step_that_its_devices_can_have() -> None:
    assert states(UNTUNED) == {
        Tuning.KVM: State.TAKEN, Tuning.CPU_LIMIT: State.TAKEN, Tuning.MEMORY_LIMIT: State.TAKEN,
        Tuning.DISK_LIMIT: State.TAKEN, Tuning.NETWORK_LIMIT: State.TAKEN, Tuning.TIMERS: State.LACKING,
        Tuning.CPU_MODEL: State.LACKING, Tuning.NETWORK: State.TAKEN,
        Tuning.CARD: State.LACKING, Tuning.DISK_BUS: State.LACKING, Tuning.CACHE: State.LACKING,
        Tuning.PINNING: State.LACKING, Tuning.HUGE_PAGES: State.LACKING, Tuning.HALT_POLLING: State.UNKNOWN,
    }  # fmt: skip


def test_a_tuned_guest_has_every_step_and_needs_no_change() -> None:
    assert set(states(TUNED).values()) == {State.TAKEN}
    assert set(states(TUNED)) == set(Tuning)
    assert [item.xml for item in diagnose(TUNED, FACTS) if item.xml] == []


@pytest.mark.parametrize(
    ("old", "new", "tuning", "xml"),
    [
        ("domain type='kvm'", "domain type='qemu'", Tuning.KVM, "<domain type='kvm'>"),
        ("<cpu mode='host-passthrough'/>", "", Tuning.CPU_MODEL, "<cpu mode='host-passthrough'/>"),
        ("model type='virtio'", "model type='rtl8139'", Tuning.CARD, "<model type='virtio'/>"),
        ("<model type='virtio'/>", "", Tuning.CARD, "<model type='virtio'/>"),
        ("bus='virtio'", "bus='sata'", Tuning.DISK_BUS, "<target dev='vda' bus='virtio'/>"),
        (" cache='none'", "", Tuning.CACHE, "<driver name='qemu' type='qcow2' cache='none'/>"),
        ("cache='none'", "cache='writethrough'", Tuning.CACHE, "<driver name='qemu' type='qcow2' cache='none'/>"),
        ("name='vhost'", "name='qemu'", Tuning.VHOST, "<driver name='vhost' queues='2'/>"),
        (" queues='2'", "", Tuning.MULTIQUEUE, "<driver name='vhost' queues='2'/>"),
        ("<memoryBacking><hugepages/></memoryBacking>", "", Tuning.HUGE_PAGES,
         "<memoryBacking>\n  <hugepages/>\n</memoryBacking>"),
        (" idle=poll", "", Tuning.HALT_POLLING, "<cmdline>root=/dev/vda quiet idle=poll</cmdline>"),
        ("vcpu='1' cpuset='3'", "vcpu='1' cpuset='2'", Tuning.PINNING,
         "<cputune>\n  <vcpupin vcpu='0' cpuset='2'/>\n  <vcpupin vcpu='1' cpuset='3'/>\n"
         "  <emulatorpin cpuset='0-1,4-7'/>\n</cputune>"),
    ],
)  # fmt: skip
def test_each_step_that_is_taken_back_is_lacking_with_the_xml_that_takes_it(
    old: str, new: str, tuning: Tuning, xml: str
) -> None:
    lacking = step(TUNED.replace(old, new), tuning)
    assert (lacking.state, lacking.xml) == (State.LACKING, xml)


def test_vhost_that_the_definition_leaves_to_libvirt_shows_in_the_guests_threads() -> None:
    plain = TUNED.replace("<driver name='vhost' queues='2'/>", "")
    assert step(plain, Tuning.VHOST).state is State.UNKNOWN
    assert step(plain, Tuning.VHOST, vhost_threads=1).state is State.TAKEN
    assert step(plain, Tuning.VHOST, vhost_threads=0).state is State.LACKING
    without = step(plain, Tuning.VHOST, vhost_net=False)
    assert (without.state, without.xml, without.host) == (State.LACKING, "<driver name='vhost'/>", {"vhost_net": 0})


def test_virtio_scsi_is_a_virtio_disk_and_another_scsi_controller_is_not() -> None:
    scsi = TUNED.replace("bus='virtio'", "bus='scsi'")
    controller = "<devices><controller type='scsi' index='0' model='{}'/>"
    assert step(scsi.replace("<devices>", controller.format("virtio-scsi")), Tuning.DISK_BUS).state is State.TAKEN
    lacking = step(scsi.replace("<devices>", controller.format("lsilogic")), Tuning.DISK_BUS)
    assert (lacking.state, lacking.current, lacking.device) == (State.LACKING, "scsi (lsilogic)", "vda")


def test_a_user_mode_network_can_have_neither_vhost_nor_queues() -> None:
    user = TUNED.replace("interface type='bridge'", "interface type='user'").replace("name='vhost' queues='2'", "")
    assert {t: s for t, s in states(user).items() if s is not State.TAKEN} == {
        Tuning.NETWORK: State.LACKING, Tuning.VHOST: State.INAPPLICABLE, Tuning.MULTIQUEUE: State.INAPPLICABLE
    }  # fmt: skip


def test_an_emulated_guest_can_have_neither_vhost_nor_halt_polling() -> None:
    emulated = states(TUNED.replace("type='kvm'", "type='qemu'"))
    assert {t for t, s in emulated.items() if s is State.INAPPLICABLE} == {Tuning.VHOST, Tuning.HALT_POLLING}


def test_one_virtual_cpu_needs_one_queue_and_a_virtual_function_no_card() -> None:
    single = TUNED.replace(">2</vcpu>", ">1</vcpu>").replace(" queues='2'", "")
    assert step(single, Tuning.MULTIQUEUE).state is State.INAPPLICABLE
    passed = TUNED.replace("interface type='bridge'", "interface type='hostdev'")
    assert step(passed, Tuning.CARD).state is State.INAPPLICABLE
    assert {Tuning.VHOST, Tuning.MULTIQUEUE} & set(states(passed)) == set()


def test_more_virtual_cpus_than_the_host_has_cannot_be_pinned() -> None:
    pinning = step(UNTUNED, Tuning.PINNING, cpus=[0, 1])
    assert (pinning.state, pinning.xml, pinning.host) == (State.INAPPLICABLE, "", {"cpus": 2})


def test_the_number_of_huge_pages_needed_is_reported() -> None:
    assert step(UNTUNED, Tuning.HUGE_PAGES).host == {
        "size_kib": 2048, "free": 100, "needed": 2048, "transparent": "madvise"
    }  # fmt: skip


def test_a_host_that_does_not_poll_is_lacking_whatever_the_guest_boots() -> None:
    assert step(UNTUNED, Tuning.HALT_POLLING, halt_poll_ns=0).state is State.LACKING


def test_every_disk_and_card_is_checked_by_name() -> None:
    second = "<interface type='bridge'><mac address='52:54:00:00:00:02'/><model type='e1000'/></interface></devices>"
    cards = [s for s in diagnose(TUNED.replace("</devices>", second), FACTS) if s.tuning is Tuning.CARD]
    assert [(s.device, s.state) for s in cards] == [
        ("52:54:00:00:00:01", State.TAKEN), ("52:54:00:00:00:02", State.LACKING)
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), [("0-3,^2,8", [0, 1, 3, 8]), ("5", [5]), ("", []), ("4,0-1", [0, 1, 4])])
def test_sets_of_cpus_as_libvirt_writes_them(text: str, expected: list[int]) -> None:
    assert cpus(text) == expected


def test_a_definition_that_is_no_xml_is_one_error() -> None:
    with pytest.raises(UserError, match="guest is not XML"):
        diagnose("<domain", FACTS)
