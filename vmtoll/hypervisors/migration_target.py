"""What must hold before a guest of libvirt can move to another KVM host, disks and all."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from vmtoll.agent.virsh import called
from vmtoll.hypervisors.base import Line, Virsh, output_on, words_of
from vmtoll.hypervisors.libvirt import LibvirtGuest
from vmtoll.hypervisors.libvirt_xml import parsed
from vmtoll.model.errors import AgentError


@dataclass(frozen=True)
class DiskCopy:
    """A disk that the target gets a copy of, in its storage pool `pool`, under the same path."""

    file: str
    pool: str
    format: str
    capacity_bytes: int


def disk_copies(guest: LibvirtGuest, target: Line) -> list[DiskCopy]:
    """The guest's disks as the target would hold them. Raises AgentError, with one sentence, for a guest that cannot
    move or a target that cannot take it; HostLostError.
    """
    _refuse_unreachable(guest, target)
    domain = parsed(guest.definition())
    _refuse_immovable(guest, domain)
    _refuse_taken(guest, target)
    disks = written_disks(domain)
    for disk in disks:
        if disk.get("type") != "file" or disk.find("shareable") is not None:
            raise AgentError(
                f"{guest.name}: its disk {target_name(disk)} is not a file that it alone uses; vmtoll moves only "
                "guests whose disks are such files, and copies them"
            )
    _refuse_missing_files(guest, target, domain, [_file(disk) for disk in disks])
    _refuse_missing_networks(guest, target, domain)
    _refuse_missing_machine(guest, target, domain)
    _refuse_other_cpu(guest, target, domain)
    return _placed(guest, target, disks)


def _refuse_unreachable(guest: LibvirtGuest, target: Line) -> None:
    """The source's own virsh must reach the target's libvirt, and find another machine there."""
    source, uri = guest.host, target.host.migration_uri
    done = Virsh(source, uri).output("capabilities")
    if done["exit_status"]:
        raise AgentError(
            f"{source.host.name} does not reach the libvirt of {target.host.name} by {uri}: {words_of(done)}; let its "
            "root log in there without a password, or set vmtoll_migration_uri of that host"
        )
    identities = [
        ET.fromstring(text).findtext("host/uuid")
        for text in (done["stdout"], Virsh(target)("capabilities"), Virsh(source)("capabilities"))
    ]
    if identities[0] != identities[1]:
        raise AgentError(
            f"{source.host.name} reaches another libvirt than that of {target.host.name} by {uri}; correct "
            "vmtoll_migration_uri of that host"
        )
    if identities[0] == identities[2]:
        raise AgentError(
            f"{source.host.name} and {target.host.name} have the same identity for libvirt; they are one machine, or "
            "need host_uuid in libvirtd.conf"
        )


def _refuse_immovable(guest: LibvirtGuest, domain: ET.Element) -> None:
    if domain.find("devices/hostdev") is not None or domain.find("devices/interface[@type='hostdev']") is not None:
        raise AgentError(f"{guest.name}: it has a device of its host passed through, and cannot move with it")
    for kind in ("snapshot", "checkpoint"):
        if names := guest.virsh.names(f"{kind}-list", *called(guest.name), "--name"):
            raise AgentError(f"{guest.name}: libvirt moves no guest with a {kind}; delete {names[0]}")


def _refuse_taken(guest: LibvirtGuest, target: Line) -> None:
    if guest.name in Virsh(target).names("list", "--all", "--name"):
        raise AgentError(f"{target.host.name} has a guest of the name {guest.name} already")


def _is_written(disk: ET.Element) -> bool:
    return disk.get("device", "disk") == "disk" and disk.find("readonly") is None


def written_disks(domain: ET.Element) -> list[ET.Element]:
    """The disks that a guest can write."""
    return [disk for disk in domain.iterfind("devices/disk") if _is_written(disk)]


def target_name(disk: ET.Element) -> str:
    """A disk's name in the guest, as libvirt has it: vda."""
    target = disk.find("target")
    return str(target.get("dev")) if target is not None else ""


def _file(disk: ET.Element) -> str:
    source = disk.find("source")
    return str(source.get("file") or "") if source is not None else ""


def _files_read(domain: ET.Element) -> Iterable[str]:
    """Files of its host that the guest only reads: its kernel, its firmware, its CDs, its secrets."""
    for path in ("os/kernel", "os/initrd", "os/dtb", "os/loader"):
        yield domain.findtext(path) or ""
    for entry in domain.iterfind("sysinfo/entry"):
        yield entry.get("file") or ""
    for disk in domain.iterfind("devices/disk"):
        yield "" if _is_written(disk) else _file(disk)


def _existing(line: Line, files: Sequence[str]) -> set[str]:
    test = 'for file; do [ ! -e "$file" ] || echo "$file"; done'
    return set(output_on(line, ["sh", "-c", test, "sh", *files])["stdout"].splitlines())


def _refuse_missing_files(guest: LibvirtGuest, target: Line, domain: ET.Element, disks: Sequence[str]) -> None:
    needed = [file for file in _files_read(domain) if file]
    existing = _existing(target, [*needed, *disks])
    for file in needed:
        if file not in existing:
            raise AgentError(f"{target.host.name} has no {file}, which {guest.name} needs to run; copy it there")
    for file in disks:
        if file in existing:
            raise AgentError(
                f"{target.host.name} has a {file} already, where the disk of {guest.name} would go; move it away"
            )


def _refuse_missing_networks(guest: LibvirtGuest, target: Line, domain: ET.Element) -> None:
    interfaces = _existing_interfaces(target)
    for source in domain.iterfind("devices/interface/source"):
        device = source.get("dev") or (source.get("bridge") if not source.get("network") else None)
        if device and device not in interfaces:
            raise AgentError(f"{target.host.name} has no {device}, the network of {guest.name}; make it there")
        network = source.get("network")
        if network and network not in Virsh(target).names("net-list", "--name"):
            raise AgentError(f"{target.host.name} has no network {network} of libvirt, that of {guest.name}; start it")


def _existing_interfaces(line: Line) -> set[str]:
    return set(output_on(line, ["ls", "/sys/class/net"])["stdout"].split())


def _refuse_missing_machine(guest: LibvirtGuest, target: Line, domain: ET.Element) -> None:
    """The target's QEMU must have the guest's machine type, and run it the same way."""
    kind = domain.find("os/type")
    machine, architecture = (str(kind.get(key)) for key in ("machine", "arch")) if kind is not None else ("", "")
    words = ["--machine", machine, "--arch", architecture, "--virttype", str(domain.get("type"))]
    try:
        Virsh(target)("domcapabilities", *words, "--emulatorbin", domain.findtext("devices/emulator") or "")
    except AgentError as error:
        raise AgentError(f"{target.host.name} cannot run {guest.name}: {error}", target.host.name) from None


def _refuse_other_cpu(guest: LibvirtGuest, target: Line, domain: ET.Element) -> None:
    """The target's CPUs must have what the guest was given. An emulated CPU is the same everywhere."""
    cpu = domain.find("cpu")
    if domain.get("type") != "kvm" or cpu is None:
        return
    if cpu.get("mode") in ("host-passthrough", "maximum"):
        lacking = sorted(_cpu_of(guest.host) - _cpu_of(target))
        if lacking:
            raise AgentError(
                f"{target.host.name} has another CPU than {guest.host.host.name}, whose own {guest.name} has "
                f"(host-passthrough): it lacks {', '.join(lacking[:5])}; give the guest a CPU model that both have"
            )
        return
    try:
        text = ET.tostring(cpu, encoding="unicode")
        Virsh(target)("hypervisor-cpu-compare", "cpu.xml", "--error", files={"cpu.xml": text})
    except AgentError as error:
        raise AgentError(
            f"{target.host.name} lacks the CPU model of {guest.name}: {error}; give the guest one that both hosts have"
        ) from None


def _cpu_of(line: Line) -> set[str]:
    """What libvirt says of a host's CPU: model and features."""
    cpu = ET.fromstring(Virsh(line)("capabilities")).find("host/cpu")
    if cpu is None:
        return set()
    return {str(cpu.findtext("model")), *(str(feature.get("name")) for feature in cpu.iterfind("feature"))}


def _placed(guest: LibvirtGuest, target: Line, disks: Sequence[ET.Element]) -> list[DiskCopy]:
    """The copies in the target's pools. Raises AgentError where a folder has no pool, or a pool no room."""
    pools = dict[str, tuple[str, int]]()
    for name in Virsh(target).names("pool-list", "--name"):
        pool = ET.fromstring(Virsh(target)("pool-dumpxml", name))
        pools[str(pool.findtext("target/path"))] = name, int(pool.findtext("available") or 0)
    copies: list[DiskCopy] = []
    for disk in disks:
        file, driver = _file(disk), disk.find("driver")
        folder = str(PurePosixPath(file).parent)
        if folder not in pools:
            raise AgentError(
                f"{target.host.name} has no storage pool of {folder}, where the disk of {guest.name} would go; start "
                f"one there: virsh pool-create-as NAME dir --target {folder}"
            )
        pool_name, free_bytes = pools[folder]
        capacity_bytes = _capacity(guest, target_name(disk))
        if sum(copy.capacity_bytes for copy in copies if copy.pool == pool_name) + capacity_bytes > free_bytes:
            raise AgentError(
                f"{target.host.name}: the pool {pool_name} has {free_bytes >> 20} MiB free, and the disk {file} of "
                f"{guest.name} has {capacity_bytes >> 20} MiB; make room there"
            )
        kind = str(driver.get("type")) if driver is not None else "raw"
        copies.append(DiskCopy(file, pool_name, kind, capacity_bytes))
    return copies


def _capacity(guest: LibvirtGuest, disk: str) -> int:
    """Size of a disk as the guest sees it, in bytes."""
    for line in guest.virsh("domblkinfo", *called(guest.name), disk).splitlines():
        if line.startswith("Capacity:"):
            return int(line.split()[1])
    raise AgentError(f"{guest.name}: libvirt does not say how large its disk {disk} is")
