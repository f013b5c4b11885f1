"""Where a fact of a QEMU guest comes from: its monitor, its whole command line; what neither has is unknown."""

from collections.abc import Sequence
from typing import Any

import pytest

from vmtoll.hypervisors.command_line import FLAGS, parse_command_line, valueless
from vmtoll.hypervisors.guest_config import Cell, Fact, GuestConfig, Known, Unknown, UnknownFactError
from vmtoll.hypervisors.qemu_config import QMP, guest_of_line

HELP = """QEMU emulator version 12.0.0
-h or -help     display this help and exit
-machine [type=]name[,prop[=value][,...]]
-hda/-hdb file  use 'file' as hard disk 0/1 image
-dtb    file    use 'file' as device tree image
-S              freeze CPU at startup (use 'c' to start execution)
-enable-kvm     enable KVM full virtualization support
-no-user-config do not load files
-of-the-future  a switch that vmtoll has never heard of
-portrait deg   turn the screen
"""
CONFIG = """# as LXD writes it
[machine]
  type = "q35"
  accel = "tcg"
[smp-opts]
  cpus = "4"
[memory]
  size = "64M"
[netdev "n0"]
  type = "user"
[device "card"]
  driver = "virtio-net-pci"
  netdev = "n0"
[drive "root"]
  if = "none"
  file = "/r.img"
[device "disk"]
  driver = "scsi-hd"
  drive = "root"
  bus = "scsi0.0"
[device "scsi0"]
  driver = "virtio-scsi-pci"
[device "old"]
  driver = "lsi53c895a"
"""


def guest(*words: str, answers: Any = None, files: Any = None) -> GuestConfig:
    return guest_of_line(parse_command_line(["qemu-system-x86_64", *words], files=files), "web", answers=answers)


def test_qemus_own_help_names_the_options_without_a_value() -> None:
    listed = valueless(HELP)
    assert {"h", "help", "S", "enable-kvm", "no-user-config", "of-the-future", "s"} <= listed
    assert not {"machine", "hda", "hdb", "dtb", "portrait"} & listed
    assert valueless("no program of this name") == FLAGS
    line = parse_command_line(["qemu", "-of-the-future", "-m", "2G", "-portrait", "90", "-smp", "3"], listed)
    assert [option.name for option in line.options] == ["of-the-future", "m", "portrait", "smp"]


def test_a_file_that_the_command_line_names_is_read_like_its_options() -> None:
    web = guest("-nodefaults", "-cpu", "max", "-readconfig", "/c.conf", files={"/c.conf": CONFIG})
    assert (web.vcpus.known, web.memory_bytes.known, web.machine) == (4, 64 << 20, "q35")
    assert [(card.network.known, card.model.known) for card in web.cards.known] == [("user", "virtio")]
    (disk,) = web.disks.known
    assert disk.bus.known == "scsi (virtio-scsi)", "its own controller, not the other one"
    assert disk.handle[0].section == '[drive "root"] of /c.conf'


def test_what_a_file_may_have_that_was_not_read_is_unknown() -> None:
    web = guest("-nodefaults", "-cpu", "max", "-readconfig", "/c.conf")
    facts: Sequence[Fact[Any]] = (
        web.vcpus, web.memory_bytes, web.disks, web.cards, web.hpet, web.huge_pages, web.domain_type, web.cells,
    )  # fmt: skip
    for fact in facts:
        assert isinstance(fact, Unknown)
        with pytest.raises(UnknownFactError, match=r"/c\.conf"):
            _ = fact.known
    assert web.cpu.known.mode == "maximum", "no file has the CPU"


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (["-netdev", "socket,id=n,listen=:1", "-device", "virtio-net-pci,netdev=n"], ["socket"]),
        (["-netdev", "stream,id=n,addr.type=unix", "-device", "virtio-net-pci,netdev=n"], ["stream"]),
        (["-netdev", "vhost-user,id=n,chardev=c", "-device", "virtio-net-pci,netdev=n"], ["vhostuser"]),
        (["-device", "virtio-net-pci,netdev=elsewhere"], [None]),
        (["-device", "e1000"], ["none"]),
        (["-net", "nic,model=virtio", "-net", "user"], ["user"]),
    ],
)
def test_networks(words: Sequence[str], kinds: Sequence[str | None]) -> None:
    networks = [card.network for card in guest("-nodefaults", *words).cards.known]
    assert [network.known if isinstance(network, Known) else None for network in networks] == kinds


def test_a_drive_without_a_name_is_a_disk_beside_any_device() -> None:
    web = guest("-nodefaults", "-drive", "file=/a,cache=unsafe", "-device", "e1000", "-hdb", "/b", "/c")
    assert [(disk.bus.known, disk.cache.known) for disk in web.disks.known] == [
        ("ide", "unsafe"), ("ide", "writeback"), ("ide", "writeback"),
    ]  # fmt: skip


NETWORKS = """network0: index=0,type=user
e1000.0: index=0,type=nic,model=e1000,macaddr=52:54:00:00:00:01
 \\ n1: index=0,type=tap,ifname=tap0
hub 0
 \\ hub0port1: n2: index=0,type=user,net=10.0.2.0
 \\ hub0port0: plugged: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:00:00:02
"""


def test_the_monitor_wins_over_the_command_line() -> None:
    cache = {"direct": True, "writeback": True, "no-flush": False}
    answers = {
        "query-kvm": {"enabled": True}, "query-cpus-fast": [{"cpu-index": n, "thread-id": n} for n in range(3)],
        "query-memory-size-summary": {"base-memory": 1 << 30, "plugged-memory": 1 << 29},
        "query-memdev": [{"id": "m", "policy": "bind", "host-nodes": [1]}], "unattached": {"hpet"},
        "networks": NETWORKS,
        "query-block": [
            {"device": "a", "qdev": "/machine/peripheral/a/virtio-backend",
             "inserted": {"file": "/a", "cache": cache, "iops": 7, "iops_rd": 0}},
            {"device": "", "qdev": "/machine/peripheral/x/virtio-backend",
             "inserted": {"file": "/dev/sdb", "drv": "host_device", "node-name": "plugged", "cache": cache, "iops": 0}},
            {"device": "cd", "qdev": "/machine/unattached/device[3]", "inserted": {"file": "/iso", "cache": cache}},
        ],
        "types": {"/machine/peripheral/x/virtio-backend": "virtio-blk-device",
                  "/machine/unattached/device[3]": "ide-cd"},
        "cpu-type": "Westmere-x86_64-cpu", "cpu-flags": {"aes": True, "sse4.1": True, "avx": False},
    }  # fmt: skip
    web = guest(
        "-machine", "pc,hpet=off,memory-backend=m", "-object", "memory-backend-ram,id=m,size=1G", "-cpu", "host",
        "-drive", "file=/a,if=none,id=a,cache=unsafe", "-device", "virtio-blk-pci,drive=a,id=a", "-drive",
        "file=/gone,if=none,id=gone", "-device", "virtio-blk-pci,drive=gone", "-netdev", "tap,id=n1", "-device",
        "e1000,netdev=n1,mac=52:54:00:00:00:01", "-device", "e1000,netdev=n9,mac=52:54:00:00:00:09", answers=answers,
    )  # fmt: skip
    assert (web.domain_type, web.vcpus, web.hpet) == (Known("kvm", QMP), Known(3, QMP), Known(True, QMP))
    assert web.memory_bytes.known == 3 << 29
    assert web.cells.known == (Cell((0, 1, 2), frozenset({1})),)
    assert (web.cpu.known.model, web.seen_flags.known) == ("Westmere", frozenset({"aes", "sse4_1"}))
    disks = {disk.name: disk for disk in web.disks.known}
    assert set(disks) == {"a", "plugged"}, "one was unplugged, one was plugged in, one is a CD"
    assert (disks["a"].cache.known, disks["a"].rates.known) == ("none", {"total_iops_sec": "7"})
    assert (disks["plugged"].bus.known, disks["plugged"].storage.known) == ("virtio", "block")
    cards = {card.mac[-2:]: card for card in web.cards.known}
    assert set(cards) == {"01", "02"}
    assert (cards["02"].model.known, cards["02"].network.known) == ("virtio", "hubport")
    assert isinstance(cards["02"].switches, Unknown), "nobody has asked for its properties"


@pytest.mark.parametrize(
    ("program", "host", "architecture"),
    [("qemu-system-aarch64", "x86_64", "aarch64"), ("/usr/bin/kvm", "x86_64", "x86_64"), ("qemu-kvm", "", None)],
)
def test_the_architecture_is_the_programs_or_the_hosts(program: str, host: str, architecture: str | None) -> None:
    web = guest_of_line(parse_command_line([program]), "web", architecture=host)
    assert (web.architecture.known if isinstance(web.architecture, Known) else None) == architecture
    assert isinstance(web.cpu, Known) == (architecture == "x86_64")


@pytest.mark.parametrize(
    ("words", "cells"),
    [
        (["-object", "memory-backend-ram,id=m,size=1G,host-nodes=1,policy=bind", "-machine", "memory-backend=m"],
         [((0, 1, 2, 3), {1})]),
        (["-object", "memory-backend-ram,id=m,size=1G,host-nodes=1,policy=bind", "-object",
          '{"qom-type":"memory-backend-ram","id":"k","size":1,"host-nodes":[0],"policy":"bind"}', "-numa",
          "node,nodeid=0,cpus=0,cpus=1,memdev=m", "-numa", "node,cpus=2-3,memdev=k"], [((0, 1), {1}), ((2, 3), {0})]),
        (["-object", "memory-backend-ram,id=m,size=1G,host-nodes=1", "-numa", "node,memdev=m"],
         [((0, 1, 2, 3), set())]),
    ],
)  # fmt: skip
def test_nodes_that_memory_is_bound_to(words: Sequence[str], cells: list[tuple[tuple[int, ...], set[int]]]) -> None:
    assert [(cell.vcpus, set(cell.nodes)) for cell in guest("-smp", "4", *words).cells.known] == cells
