"""A configuration of Proxmox VE, and what a diagnosis reads of it."""

from collections.abc import Mapping

import pytest

from vmtoll.hypervisors.definition import Live
from vmtoll.hypervisors.proxmox_config import (
    Config,
    affinity_of,
    card_of,
    definition,
    has_hpet,
    model_flags,
    parse_config,
)

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
net1: e1000=BC:24:11:2E:C5:4C
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
    assert config.cards == {"bc:24:11:2e:c5:4b": "net0", "bc:24:11:2e:c5:4c": "net1"}
    assert card_of({"model": "virtio", "macaddr": "BC:24:11:2E:C5:4B"}) == ("virtio", "bc:24:11:2e:c5:4b")


def attributes(config: Config, path: str, live: Live | None = None) -> Mapping[str, str]:
    element = definition(config, live or Live(), hpet=True).domain.find(path)
    return {} if element is None else element.attrib


def test_the_definition(config: Config) -> None:
    domain = definition(config, Live(), hpet=False).domain
    assert domain.get("type") == "kvm"
    assert (domain.findtext("vcpu"), domain.findtext("memory")) == ("4", "4096")
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


@pytest.mark.parametrize(("affinity", "pins"), [("4-7", 4), ("2,9-11", 4), ("1", 0), ("", 0)])
def test_a_set_of_cpus_for_the_guest_is_one_for_each_virtual_cpu(config: Config, affinity: str, pins: int) -> None:
    pinned = Config("101", {**config.values, "affinity": affinity})
    assert len(definition(pinned, Live(), hpet=False).domain.findall("cputune/vcpupin")) == pins
    assert len(affinity_of(pinned)) in (4, 1, 0)


def test_pins_of_a_hook_script_are_seen_on_the_threads(config: Config) -> None:
    assert attributes(config, "cputune/vcpupin", Live(pins={2: [7]})) == {"vcpu": "2", "cpuset": "7"}


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


def test_flags_of_proxmox_own_models(config: Config) -> None:
    assert "aes" in (model_flags(config) or [])
    assert model_flags(Config("1", {})) == []
    assert model_flags(Config("1", {"cpu": "custom-mine"})) is None
