"""A QEMU command line in the words of a libvirt definition."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from vmtoll.agent.protocol import Process
from vmtoll.hypervisors.command_line import parse_command_line
from vmtoll.hypervisors.guest_config import GuestConfig, Pins, Unknown
from vmtoll.hypervisors.qemu_config import guest_of_line
from vmtoll.hypervisors.record import definition_xml

SMALL = ("qemu-system-x86_64", "-nodefaults")


class Definition:
    """A guest, and the definition that a run records of it."""

    def __init__(self, guest: GuestConfig) -> None:
        self.guest, self.xml = guest, definition_xml(guest)
        self.domain = ET.fromstring(self.xml)


def defined(*words: str, process: Process | None = None, answers: Mapping[str, Any] | None = None) -> Definition:
    return Definition(guest_of_line(parse_command_line([*SMALL, *words]), "web", process, answers))


def attributes(definition: Definition, path: str) -> Mapping[str, str]:
    element = definition.domain.find(path)
    return {} if element is None else element.attrib


def test_processor_memory_and_clock() -> None:
    web = defined(
        "-enable-kvm", "-smp", "4,sockets=1,cores=2,threads=2", "-m", "size=4G,slots=2",
        "-cpu", "host,kvmclock=off,-avx",
        "-machine", "q35,hpet=off", "-object", "iothread,id=io0",
        "-object", "memory-backend-file,id=m,mem-path=/dev/hugepages",
    )  # fmt: skip
    assert web.domain.get("type") == "kvm"
    assert web.domain.findtext("vcpu") == "4"
    assert web.domain.findtext("memory") == str(4 << 20)
    assert web.domain.findtext("iothreads") == "1"
    assert web.domain.find("memoryBacking/hugepages") is not None
    assert attributes(web, "cpu")["mode"] == "host-passthrough"
    assert attributes(web, "cpu/topology") == {"threads": "2"}
    assert [(each.get("name"), each.get("policy")) for each in web.domain.iterfind("cpu/feature")] == [
        ("avx", "disable")
    ]
    timers = {each.get("name"): each.get("present") for each in web.domain.iterfind("clock/timer")}
    assert timers == {"hpet": "no", "kvmclock": "no"}


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["-accel", "tcg"], "qemu"),
        (["-accel", "kvm"], "kvm"),
        (["-machine", "pc,accel=kvm:tcg"], "unknown"),
        ([], "qemu"),
    ],
)
def test_what_runs_the_code_is_asked_for_or_seen(words: Sequence[str], kind: str) -> None:
    assert defined(*words).domain.get("type") == kind
    assert defined(*words, answers={"query-kvm": {"enabled": False}}).domain.get("type") == "qemu"


@pytest.mark.parametrize(
    ("words", "bus", "kind", "cache"),
    [
        (["-drive", "file=/d.img,if=virtio,cache=none"], "virtio", "file", "none"),
        (["-hda", "/d.img"], "ide", "file", "writeback"),
        (["/d.img"], "ide", "file", "writeback"),
        (["-drive", "file=/dev/sdb,if=none,id=d,cache.direct=on", "-device", "virtio-blk-pci,drive=d"],
         "virtio", "block", "none"),
        (["-drive", "file=rbd:pool/d,if=none,id=d", "-device", "scsi-hd,drive=d"], "scsi", "network", "writeback"),
        (["-blockdev", '{"driver":"file","filename":"/d","node-name":"f","cache":{"direct":true}}', "-blockdev",
          '{"driver":"qcow2","file":"f","node-name":"d"}', "-device", '{"driver":"virtio-blk-pci","drive":"d"}'],
         "virtio", "file", "none"),
        (["-blockdev", "driver=raw,node-name=d,file.driver=file,file.filename=/d,cache.no-flush=on", "-device",
          "ide-hd,drive=d"], "ide", "file", "unsafe"),
        (["-blockdev", "driver=raw,node-name=d,file.driver=file,file.filename=/d", "-device",
          "virtio-blk-pci,drive=d,write-cache=off"], "virtio", "file", "writethrough"),
    ],
)  # fmt: skip
def test_disks(words: Sequence[str], bus: str, kind: str, cache: str) -> None:
    web = defined(*words)
    (disk,) = web.domain.findall("devices/disk")
    assert disk.get("type") == kind
    assert attributes(web, "devices/disk/target")["bus"] == bus
    assert attributes(web, "devices/disk/driver")["cache"] == cache


@pytest.mark.parametrize(("limits", "rates"), [({}, {}), ({"iops-total": 300}, {"total_iops_sec": "300"})])
def test_a_node_in_nodes_with_a_throttle_group(limits: Mapping[str, int], rates: Mapping[str, str]) -> None:
    """As Proxmox VE 9 writes a disk: the group is there without limits, too."""
    cache = {"direct": True, "no-flush": False}
    device = {"driver": "host_device", "filename": "/dev/pve/vm-101-disk-0", "node-name": "e", "cache": cache}
    top = {"driver": "throttle", "node-name": "drive-scsi0", "throttle-group": "throttle-drive-scsi0",
           "file": {"driver": "raw", "node-name": "f", "cache": cache, "file": device}}  # fmt: skip
    group = {"id": "throttle-drive-scsi0", "qom-type": "throttle-group", "limits": limits}
    web = defined("-object", json.dumps(group), "-blockdev", json.dumps(top), "-device",
                  "scsi-hd,bus=scsihw0.0,drive=drive-scsi0,id=scsi0,write-cache=on")  # fmt: skip
    (disk,) = web.domain.findall("devices/disk")
    assert disk.get("type") == "block"
    assert attributes(web, "devices/disk/driver") == {"name": "qemu", "type": "raw", "cache": "none"}
    found = disk.find("iotune")
    assert {rate.tag: rate.text for rate in (found if found is not None else ())} == rates


@pytest.mark.parametrize(
    ("drive", "source"),
    [
        ("file=rbd:pool/d:id=admin:key=SECRET,if=virtio", {"protocol": "rbd"}),
        ("driver=raw,file.driver=rbd,file.pool=SECRET,if=virtio", {"protocol": "rbd"}),
        ('file=json:{"driver":"rbd",,"pool":"SECRET"},if=virtio', {}),
        ("file=/d.img,if=virtio", {"file": "/d.img"}),
    ],
)
def test_the_definition_has_no_address_of_a_network_disk(drive: str, source: Mapping[str, str]) -> None:
    """It goes into a run's facts, and the address may contain credentials."""
    web = defined("-drive", drive)
    assert attributes(web, "devices/disk/source") == source
    assert "SECRET" not in web.xml


def test_neither_cds_nor_firmware_are_disks() -> None:
    words = ["-cdrom", "/c.iso", "-drive", "if=pflash,file=/f.fd", "-drive", "file=/c.iso,media=cdrom", "-drive",
             "file=/d.iso,if=none,id=c", "-device", "ide-cd,drive=c"]  # fmt: skip
    assert not defined(*words).domain.findall("devices/disk")


def test_rates_of_a_disk_and_switches_of_virtio() -> None:
    web = defined(
        "-drive", "file=/d,if=none,id=d,throttling.iops-total=200,bps_rd=1000", "-device",
        "virtio-blk-pci,drive=d,ioeventfd=off,iommu_platform=on,event_idx=off",
    )  # fmt: skip
    rates = web.domain.find("devices/disk/iotune")
    assert rates is not None
    assert {each.tag: each.text for each in rates} == {"total_iops_sec": "200", "read_bytes_sec": "1000"}
    assert (
        attributes(web, "devices/disk/driver").items()
        >= {"ioeventfd": "off", "iommu": "on", "event_idx": "off"}.items()
    )
    assert [option.name for option in web.guest.disks.known[0].handle] == ["drive", "device"]


@pytest.mark.parametrize(
    ("words", "kind", "model", "driver"),
    [
        (["-netdev", "tap,id=n,vhost=on,queues=4", "-device", "virtio-net-pci,netdev=n,mq=on"], "ethernet", "virtio",
         {"name": "vhost", "queues": "4"}),
        (["-netdev", "tap,id=n,queues=4", "-device", "virtio-net-pci,netdev=n"], "ethernet", "virtio",
         {"name": "qemu", "queues": "1"}),
        (["-netdev", "user,id=n", "-device", '{"driver":"virtio-net-pci","netdev":"n","event_idx":false}'], "user",
         "virtio",
         {"event_idx": "off", "queues": "1"}),
        (["-netdev", "bridge,id=n,br=br0", "-device", "e1000,netdev=n"], "bridge", "e1000", {}),
        (["-nic", "user,model=rtl8139"], "user", "rtl8139", {}),
        (["-net", "nic,model=virtio-net-pci", "-net", "user"], "user", "virtio", {"queues": "1"}),
    ],
)  # fmt: skip
def test_cards(words: Sequence[str], kind: str, model: str, driver: Mapping[str, str]) -> None:
    web = defined(*words)
    (card,) = web.domain.findall("devices/interface")
    assert (card.get("type"), attributes(web, "devices/interface/model")["type"]) == (kind, model)
    assert attributes(web, "devices/interface/driver") == driver
    assert attributes(web, "devices/interface/mac") == {"address": "52:54:00:12:34:56"}


def test_without_a_word_of_networks_qemu_has_one_of_its_own() -> None:
    card = Definition(guest_of_line(parse_command_line(["qemu-system-x86_64"]), "web")).domain.find("devices/interface")
    assert card is not None
    assert card.get("type") == "user"
    assert guest_of_line(parse_command_line(["qemu-system-x86_64", "-nic", "none"]), "web").cards.known == ()


def test_offloads_that_are_off() -> None:
    device = "virtio-net-pci,netdev=n,csum=off,host_tso4=off,guest_tso6=off,gso=on"
    web = defined("-netdev", "tap,id=n", "-device", device)
    assert attributes(web, "devices/interface/driver/host") == {"csum": "off", "tso4": "off"}
    assert attributes(web, "devices/interface/driver/guest") == {"tso6": "off"}


def test_what_the_process_shows_counts_before_what_the_command_line_says() -> None:
    threads: list[dict[str, Any]] = [
        {"tid": 7, "name": "qemu", "cpus": [3]}, {"tid": 8, "name": "qemu", "cpus": [0]},
        {"tid": 9, "name": "qemu", "cpus": [0, 1, 2, 3]},
    ]  # fmt: skip
    answers = {
        "query-cpus-fast": [{"cpu-index": 0, "thread-id": 8}, {"cpu-index": 1, "thread-id": 9}],
        "query-kvm": {"enabled": True},
        "query-block": [{"device": "d", "inserted": {"cache": {"direct": True, "writeback": True, "no-flush": False}}}],
    }
    process: Any = {"pid": 7, "threads": threads, "kvm": None, "online": [0, 1, 2, 3]}
    web = defined("-smp", "2", "-drive", "file=/d,if=virtio,id=d", process=process, answers=answers)
    assert web.guest.pins.known == Pins({0: (0,)}, emulator=(3,))
    assert attributes(web, "cputune/vcpupin") == {"vcpu": "0", "cpuset": "0"}
    assert attributes(web, "cputune/emulatorpin") == {"cpuset": "3"}
    assert attributes(web, "devices/disk/driver")["cache"] == "none"
    assert web.domain.get("type") == "kvm"


def test_threads_with_qemus_names_need_no_monitor() -> None:
    threads = [{"tid": 8, "name": "CPU 0/KVM", "cpus": [1]}, {"tid": 9, "name": "CPU 1/KVM", "cpus": [2]}]
    process: Any = {"pid": 7, "threads": threads, "kvm": True, "online": [0, 1, 2]}
    assert defined(process=process).guest.pins.known.each == {0: (1,), 1: (2,)}
    unnamed: Any = {"pid": 7, "threads": [{"tid": 8, "name": "qemu", "cpus": [1]}], "kvm": True, "online": [0, 1, 2]}
    assert isinstance(defined(process=unnamed).guest.pins, Unknown)
