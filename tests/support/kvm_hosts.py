"""Two KVM hosts on this machine: two real libvirts, the second one in the embedded lab's namespaces for a target."""

import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.libvirt import FILES, libvirtd, wait_for_libvirt
from vmtoll.agent.commands import Commands
from vmtoll.model.inventory import Host


@dataclass
class Line:
    """The agent of a KVM host, which runs commands in its namespaces. `enter`: the words that lead there."""

    host: Host
    enter: tuple[str, ...] = ()

    def call(self, op: str, timeout_s: float = 30.0, **args: Any) -> Any:
        assert op == "exec"
        return Commands().run(**(args | {"argv": [*self.enter, *args["argv"]]}))


@dataclass(frozen=True)
class KvmHosts:
    """`guests`: the folder of the guests' files, under one path on both; `there`: where those of `two` are here."""

    one: Line
    two: Line
    guests: Path
    there: Path

    def virsh(self, line: Line, *words: str) -> str:
        """What virsh prints on a host."""
        argv = ["virsh", "-q", "-c", line.host.libvirt_uri, *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def kvm_hosts(folder: Path) -> Iterator[KvmHosts]:
    """Start both, each with a storage pool of the guests' folder, in a network of their own."""
    with _network() as network:
        yield from _kvm_hosts(folder, ["ip", "netns", "exec", network])


def _kvm_hosts(folder: Path, enter: list[str]) -> Iterator[KvmHosts]:
    home, guests = folder / "hosts" / "two", folder / "guests"
    for each in (guests, home / "guests", folder / "libvirt", *(home / "libvirt" / name for name in _FOLDERS)):
        each.mkdir(parents=True, exist_ok=True)
    shutil.copy(FILES / "libvirtd.sh", folder / "libvirt")
    (folder / "libvirt" / "libvirtd.sh").chmod(0o755)
    for name in ("libvirtd.conf", "qemu.conf"):
        shutil.copy(FILES / name, home / "libvirt" / "etc")
    with (home / "libvirt" / "etc" / "libvirtd.conf").open("a") as config:
        config.write(f'host_uuid = "{uuid.uuid4()}"\n')
    with (home / "libvirt" / "etc" / "qemu.conf").open("a") as config:
        config.write(_MIGRATION)
    uri = f"qemu+unix:///system?socket={home}/libvirt/run/libvirt-sock"
    argv = [*enter, "unshare", "--mount", "--uts", "sh", str(FILES / "target.sh"), str(folder), "two"]
    (folder / "one").mkdir()
    with (
        libvirtd(folder / "one", _MIGRATION, enter) as first,
        subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as daemon,
    ):
        try:
            wait_for_libvirt(uri, daemon)
            one = Line(Host("one", "kvm_host", {"vmtoll_libvirt_uri": first}))
            variables = {"vmtoll_libvirt_uri": uri, "vmtoll_migration_uri": uri}
            two = Line(Host("two", "kvm_host", variables), ("nsenter", f"--target={daemon.pid}", "--mount", "--uts"))
            hosts = KvmHosts(one, two, guests, home / "guests")
            for line in (one, two):
                hosts.virsh(line, "pool-create-as", "vmtoll", "dir", "--target", str(guests))
            yield hosts
        finally:
            daemon.terminate()


_FOLDERS = ("etc", "lib", "cache", "log", "run")
_ADDRESS = "198.19.255.1"
_MIGRATION = f'migration_host = "{_ADDRESS}"\n'


@contextmanager
def _network() -> Iterator[str]:
    """A network namespace whose loopback has an address that libvirt takes for a machine's. Its name is not the lab's,
    which `lab down` would end.
    """
    name = f"test-migration-{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        commands = f"link set lo up\naddress add {_ADDRESS}/32 dev lo\n"
        subprocess.run(["ip", "-n", name, "-batch", "-"], input=commands, text=True, check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)
