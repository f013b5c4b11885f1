"""What of a guest and of its target is refused before a migration. The real twin is in tests/integration."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from vmtoll.hypervisors.libvirt import LibvirtGuest
from vmtoll.hypervisors.migration import migration, migration_figures
from vmtoll.hypervisors.migration_target import DiskCopy, disk_copies
from vmtoll.model.errors import AgentError
from vmtoll.model.inventory import Host
from vmtoll.model.operation import MigrationFigures, Operation

DOMAIN = """<domain type='kvm'>
  <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type><loader>/usr/share/OVMF/OVMF_CODE.fd</loader></os>
  <cpu mode='host-passthrough'/>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/><source file='/images/web1.qcow2'/><target dev='vda'/>
    </disk>
    <disk type='file' device='cdrom'><source file='/images/cd.iso'/><target dev='sda'/><readonly/></disk>
    <interface type='bridge'><source bridge='br0'/></interface>
  </devices>
</domain>"""
POOL = "<pool><available unit='bytes'>{free}</available><target><path>{path}</path></target></pool>"


def capabilities(uuid: str, *features: str) -> str:
    names = "".join(f"<feature name='{name}'/>" for name in features)
    return f"<c><host><uuid>{uuid}</uuid><cpu><model>EPYC</model>{names}</cpu></host></c>"


@dataclass
class Line:
    """A KVM host whose commands print `printed`, by the first word of virsh that is a key; others print nothing."""

    host: Host
    printed: dict[str, str]
    failing: set[str] = field(default_factory=set)

    def call(self, op: str, timeout_s: float = 30.0, **args: Any) -> Any:
        words = [word for word in args["argv"] if word in self.printed or word in self.failing]
        status = int(any(word in self.failing for word in words))
        text = "error: unsupported" if status else self.printed[words[0]] if words else ""
        return {"exit_status": status, "stdout": text, "stderr": ""}


def source(domain: str = DOMAIN, **printed: str) -> LibvirtGuest:
    known = {
        "capabilities": capabilities("1", "avx", "avx512f"), "qemu+ssh://big2/system": capabilities("2"),
        "dumpxml": domain, "domblkinfo": "Capacity:       1048576\nAllocation:     4096",
    }  # fmt: skip
    line = Line(Host("big1", "kvm_host", {}), known | {key.replace("_", "-"): text for key, text in printed.items()})
    return LibvirtGuest(Host("guest1", "kvm_guest", {"vmtoll_domain": "web1"}), line)


def target(*failing: str, **printed: str) -> Line:
    known = {
        "capabilities": capabilities("2", "avx", "avx512f"), "pool-list": "images\n", "/sys/class/net": "lo\nbr0\n",
        "pool-dumpxml": POOL.format(free=1 << 30, path="/images"),
        "sh": "/usr/share/OVMF/OVMF_CODE.fd\n/images/cd.iso\n",
    }  # fmt: skip
    known |= {key.replace("_", "-"): text for key, text in printed.items()}
    return Line(Host("big2", "kvm_host", {}), known, set(failing))


def test_the_disks_that_are_copied() -> None:
    assert disk_copies(source(), target()) == [DiskCopy("/images/web1.qcow2", "images", "qcow2", 1 << 20)]


@pytest.mark.parametrize(
    ("guest", "there", "words"),
    [
        (source(DOMAIN.replace("</devices>", "<hostdev/></devices>")), target(), "a device of its host passed through"),
        (source(snapshot_list="monday\n"), target(), "libvirt moves no guest with a snapshot; delete monday"),
        (source(DOMAIN.replace("type='file' device='disk'", "type='block'")), target(), "disk vda is not a file that"),
        (source(), target(sh="/images/cd.iso\n"), "big2 has no /usr/share/OVMF/OVMF_CODE.fd, which web1 needs to run"),
        (source(), target(list="web1\n"), "big2 has a guest of the name web1 already"),
        (source(), target(**{"/sys/class/net": "lo\n"}), "big2 has no br0"),
        (
            source(DOMAIN.replace("source bridge='br0'", "source network='lan' bridge='virbr1'")), target(),
            "big2 has no network lan of libvirt",
        ),
        (source(), target("domcapabilities"), "big2 cannot run web1: big2: virsh domcapabilities: error: unsupported"),
        (source(), target(capabilities=capabilities("2", "avx")), "it lacks avx512f; give the guest a CPU model"),
        (
            source(DOMAIN.replace("host-passthrough", "custom")), target("hypervisor-cpu-compare"),
            "big2 lacks the CPU model of web1",
        ),
        (source(), target(pool_dumpxml=POOL.format(free=1 << 30, path="/other")), "no storage pool of /images"),
        (source(), target(pool_dumpxml=POOL.format(free=1 << 19, path="/images")), "images has 0 MiB free"),
        (source(), target(capabilities=capabilities("3")), "big1 reaches another libvirt than that of big2"),
    ],
)  # fmt: skip
def test_what_is_refused(guest: LibvirtGuest, there: Line, words: str) -> None:
    with pytest.raises(AgentError, match=words) as refused:
        disk_copies(guest, there)
    assert "\n" not in str(refused.value)


def test_an_emulated_cpu_is_the_same_everywhere() -> None:
    guest = source(DOMAIN.replace("type='kvm'", "type='qemu'"))
    assert disk_copies(guest, target(capabilities=capabilities("2")))


def test_what_an_administrator_chooses() -> None:
    chosen = Operation(of="a", do="migrate", to="big2", at_s=1, bandwidth_mib_per_s=50, auto_converge=True)
    commands = migration(chosen, source(), target())
    assert "--copy-storage-all --abort-on-error --bandwidth 50 --auto-converge --xml" in commands.run
    assert "--bandwidth" not in commands.undo, "the way back is not measured"
    assert "vol-create-as images web1.qcow2 1048576b --allocation 0 --format qcow2" in commands.prepare


def test_what_libvirt_says_of_a_migration() -> None:
    text = (
        "Job type:         Completed   \nOperation:        Outgoing migration\nTime elapsed:     5061         ms\n"
        "Memory processed: 167.131 MiB\nFile processed:   4.000 GiB\nTotal downtime:   245          ms\n"
        "Downtime w/o network: 234          ms\n"
    )
    assert migration_figures(text) == MigrationFigures(
        total_s=5.061, downtime_ms=245, memory_mib=167.131, disk_mib=4096
    )
    assert migration_figures("Job type:         None\n") is None
