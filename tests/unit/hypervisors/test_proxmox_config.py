"""A configuration of Proxmox VE, and what a diagnosis reads of it."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping

import pytest

from vmtoll.hypervisors.guest_config import Known, Unknown
from vmtoll.hypervisors.proxmox_config import Config, card_of, guest_of_config, has_hpet, parse_config
from vmtoll.hypervisors.record import definition_xml

TEXT = """#the shop's web server%0Aask Kim: before
agent: 1
boot: order=scsi0;ide2;net0
cores: 2
cpu: x86-64-v2-AES,flags=-pcid
cpulimit: 1.5
cpuunits: 50
description: kept:with:colons
ide2: none,media=cdrom
memory: 4096
name: shop
net0: virtio=BC:24:11:2E:C5:4B,bridge=vmbr0,firewall=1,queues=4,rate=12.5
net1: e1000=BC:24:11:2E:C5:4C,link_down=1
ostype: l26
parent: before
sata0: ceph:vm-101-disk-1,cache=writeback,iops_rd=300,mbps=20,size=32G
scsi0: local-lvm:vm-101-disk-0,iothread=1,size=32G
scsihw: virtio-scsi-single
sockets: 2
unused0: local-lvm:vm-101-disk-9

[PENDING]
cores: 8
delete: cpulimit

[before]
#an old state
cores: 1
cpu: host
net0: rtl8139=BC:24:11:2E:C5:4B,bridge=vmbr9
snaptime: 1700000000
"""


@pytest.fixture
def config() -> Config:
    return parse_config("101", TEXT)


def test_only_the_guest_as_it_is_counts(config: Config) -> None:
    """Neither pending changes nor snapshots."""
    assert (config.get("cores"), config.get("cpulimit"), config.name) == ("2", "1.5", "shop")
    assert config.get("cpu") == "x86-64-v2-AES,flags=-pcid"
    assert "snaptime" not in config.values
    assert "delete" not in config.values


def test_disks_and_cards_by_their_options(config: Config) -> None:
    assert config.disks == ["sata0", "scsi0"]
    cards = guest_of_config(config).cards.known
    assert [(card.mac, card.handle, card.is_down) for card in cards] == [
        ("bc:24:11:2e:c5:4b", "net0", False), ("bc:24:11:2e:c5:4c", "net1", True)
    ]  # fmt: skip
    assert card_of({"model": "virtio", "macaddr": "BC:24:11:2E:C5:4B"}) == ("virtio", "bc:24:11:2e:c5:4b")


def test_devices_of_the_host_by_address_or_mapping() -> None:
    text = "hostpci0: 0000:81:00.1,pcie=1\nhostpci1: mapping=wan,rombar=0\nhostpci2: host=03:00;04:00\n"
    config = parse_config("404", text + "args: -device vfio-pci,host=65:00.0 -device virtio-rng-pci\n")
    assert guest_of_config(config).host_devices == ("0000:81:00.1", "wan", "03:00;04:00", "65:00.0")


def attributes(config: Config, path: str) -> Mapping[str, str]:
    element = ET.fromstring(definition_xml(guest_of_config(config))).find(path)
    return {} if element is None else element.attrib


def test_the_definition(config: Config) -> None:
    domain = ET.fromstring(definition_xml(guest_of_config(config)))
    assert domain.get("type") == "kvm"
    assert (domain.findtext("vcpu"), domain.findtext("memory")) == ("4", str(4 << 20))
    assert domain.findtext("cputune/global_quota") == "150000"
    assert domain.findtext("cputune/shares") == "50"
    assert domain.findtext("cpu/model") == "x86-64-v2-AES"
    assert attributes(config, "cpu/feature") == {"policy": "disable", "name": "pcid"}
    assert [disk.get("type") for disk in domain.iterfind("devices/disk")] == ["volume", "volume"]
    caches = [driver.get("cache") for driver in domain.iterfind("devices/disk/driver")]
    assert caches == ["writeback", "none"], "Proxmox' own choice is none"
    rates = domain.find("devices/disk/iotune")
    assert rates is not None
    assert {rate.tag: rate.text for rate in rates} == {"read_iops_sec": "300", "total_bytes_sec": "20000000"}
    cards = domain.findall("devices/interface")
    assert [card.get("type") for card in cards] == ["bridge", "user"]
    assert attributes(config, "devices/interface/driver") == {"name": "vhost", "queues": "4"}
    assert attributes(config, "devices/interface/bandwidth/inbound") == {"average": "12500"}
    assert attributes(config, "devices/controller") == {"type": "scsi", "model": "virtio-scsi"}
    assert attributes(config, "clock/timer") == {}


def test_what_changes_at_the_next_start_is_read_apart() -> None:
    config = parse_config("101", TEXT)
    assert config.later is not None
    assert (config.later.get("cores"), config.later.get("cpulimit"), config.later.get("name")) == ("8", "", "shop")
    assert parse_config("101", "cores: 1\n[snap]\ncores: 2\n").later is None


@pytest.mark.parametrize(
    ("lines", "nodes"),
    [
        ("numa: 1\nnuma0: cpus=0-3,hostnodes=1,memory=4096,policy=bind", [((0, 1, 2, 3), {1})]),
        ("numa: 1\nnuma0: cpus=0;1,hostnodes=0,memory=2048\nnuma1: cpus=2-3,hostnodes=0-1,memory=2048",
         [((0, 1), {0}), ((2, 3), {0, 1})]),
        ("numa: 0\nnuma0: cpus=0-3,hostnodes=1,memory=4096", [((0, 1, 2, 3), set())]),
    ],
)  # fmt: skip
def test_the_nodes_that_bind_the_memory(lines: str, nodes: list[tuple[tuple[int, ...], set[int]]]) -> None:
    cells = guest_of_config(parse_config("101", f"cores: 4\n{lines}\n")).cells.known
    assert [(cell.vcpus, set(cell.nodes)) for cell in cells] == nodes


MODELS = """# of this node
cpu-model: other
    flags +aes

cpu-model: web
    flags +aes;-pcid
    hidden 1
    reported-model kvm64
"""


@pytest.mark.parametrize(
    ("cpu", "args", "models", "model", "clock"),
    [
        ("custom-web", "", MODELS, "kvm64", "no kvmclock: hidden=1 hides KVM"),
        ("custom-web,hidden=0", "", MODELS, "kvm64", ""),
        ("custom-web", "", None, None, None),
        ("custom-mine", "", MODELS, None, None),
        ("kvm64", "-cpu max -cpu host,kvm=off", None, "", "no kvmclock: kvm=off hides KVM"),
        ("Westmere,hidden=1", "", None, "Westmere", "no kvmclock: hidden=1 hides KVM"),
    ],
)
def test_the_cpu_is_what_qemu_gets(
    cpu: str, args: str, models: str | None, model: str | None, clock: str | None
) -> None:
    guest = guest_of_config(parse_config("101", f"cpu: {cpu}\nargs: {args}\n", models))
    if model is None:
        assert isinstance(guest.cpu, Unknown) and isinstance(guest.kvmclock, Unknown)
    else:
        assert (guest.cpu.known.model, guest.kvmclock.known) == (model, clock)


@pytest.mark.parametrize(
    ("values", "hpet"),
    [
        ({"ostype": "win11"}, False), ({"ostype": "wxp"}, True), ({}, True), ({"ostype": "l26"}, None),
        ({"ostype": "l26", "machine": "pc-q35-9.0+pve1"}, True),
        ({"ostype": "l26", "machine": "pc-i440fx-10.1"}, False),
    ],
)  # fmt: skip
def test_whether_it_will_have_an_hpet(values: Mapping[str, str], hpet: bool | None) -> None:
    assert has_hpet(Config("101", values)) is hpet


def test_flags_of_proxmox_own_models() -> None:
    def flags(cpu: str) -> object:
        return guest_of_config(Config("1", {"cpu": cpu} if cpu else {})).model_flags

    assert "aes" in flags("x86-64-v2-AES").known  # type: ignore[attr-defined]
    assert flags("") == Known(frozenset(), "Proxmox VE's CPU models")
    assert isinstance(flags("Westmere"), Unknown)
