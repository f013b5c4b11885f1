"""The machines of a run, read from an Ansible inventory."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from workloads.runner.errors import InventoryError

Role = Literal["client", "metal", "kvm_guest", "kvm_host"]
_GROUPS: tuple[tuple[str, Role], ...] = (
    ("clients", "client"),
    ("metal", "metal"),
    ("kvm_guests", "kvm_guest"),
    ("kvm_hosts", "kvm_host"),
)


@dataclass(frozen=True)
class Host:
    """One machine and how to reach it. `variables` are Ansible's, merged."""

    name: str
    role: Role
    variables: Mapping[str, Any] = field(default_factory=dict)

    def get(self, key: str, default: Any = None) -> Any:
        value = self.variables.get(key)
        return default if value is None else value

    @property
    def address(self) -> str:
        """Where the client sends load to."""
        return str(self.get("vmtoll_address", self.get("ansible_host", self.name)))

    def seen_from(self, client: "Host") -> str:
        """Where a client sends load to: a machine reaches itself by its loopback."""
        return "127.0.0.1" if client.name == self.name else self.address

    @property
    def port(self) -> int:
        return int(self.get("vmtoll_http_port", 8080))

    @property
    def libvirt_uri(self) -> str:
        """Of a KVM host: where its libvirt listens."""
        return str(self.get("vmtoll_libvirt_uri", "qemu:///system"))

    @property
    def root(self) -> str:
        """The folder that holds etc/vmtoll, srv/vmtoll and run/; `/` but in tests."""
        return str(self.get("vmtoll_root", "/"))

    def argv(self) -> list[str]:
        """The command line that starts a Python on the machine, up to and without Python's own arguments."""
        python = str(self.get("ansible_python_interpreter", "python3"))
        if self.get("ansible_connection", "ssh") == "local":
            return [sys.executable if python == "python3" else python]
        argv = ["ssh", *shlex.split(str(self.get("ansible_ssh_common_args", "")))]
        for option in (
            "BatchMode=yes",
            "ConnectTimeout=10",
            "ServerAliveInterval=2",
            "ServerAliveCountMax=4",
        ):
            argv += ["-o", option]
        argv += ["-o", "ControlMaster=no", "-o", "ControlPath=none", "-T"]
        if self.get("ansible_port"):
            argv += ["-p", str(self.get("ansible_port"))]
        if self.get("ansible_ssh_private_key_file"):
            argv += ["-i", str(Path(str(self.get("ansible_ssh_private_key_file"))).expanduser())]
        if self.get("ansible_user"):
            argv += ["-l", str(self.get("ansible_user"))]
        become = ["sudo", "-n"] if self.get("ansible_become") in (True, "true", "yes") else []
        return [*argv, str(self.get("ansible_host", self.name)), *become, python]

    @property
    def is_local(self) -> bool:
        return bool(self.get("ansible_connection", "ssh") == "local")


@dataclass(frozen=True)
class Inventory:
    """The machines by role. `machines`: environment → those under test, several only where a workload needs guests
    beside each other on one KVM host."""

    clients: Sequence[Host]
    machines: Mapping[str, Sequence[Host]]
    kvm_hosts: Mapping[str, Host]

    @property
    def client(self) -> Host:
        """The first client: it checks bodies, and sends whatever one machine alone sends."""
        return self.clients[0]

    @property
    def suts(self) -> Mapping[str, Host]:
        """Environment → its machine, the first where there are several."""
        return {environment: hosts[0] for environment, hosts in self.machines.items()}

    def kvm_host(self, sut: Host) -> Host | None:
        """The machine that a guest runs on, when the inventory names it."""
        return self.kvm_hosts.get(str(sut.get("vmtoll_kvm_host"))) if sut.role == "kvm_guest" else None

    def outer(self, host: Host) -> Host | None:
        """The machine that a guest runs on, or whose kernel a container shares."""
        return self.kvm_host(host) or self.kvm_hosts.get(str(host.get("vmtoll_container_host")))

    def shares_kernel(self, host: Host, outer: Host) -> bool:
        """Whether a container's kernel is that of `outer`, by whatever name the inventory has for that machine."""
        own = self.kvm_hosts.get(str(host.get("vmtoll_container_host")))
        return own is not None and own.argv() == outer.argv()

    def hosts(self) -> list[Host]:
        """All machines, each once."""
        under_test = [host for hosts in self.machines.values() for host in hosts]
        return [*self.clients, *under_test, *self.kvm_hosts.values()]

    @property
    def link(self) -> str:
        return str(self.client.get("vmtoll_link", "unshaped"))

    @property
    def link_mbit(self) -> float | None:
        value = self.client.get("vmtoll_link_mbit")
        return None if value is None else float(value)


def _ansible_inventory() -> str:
    beside = Path(sys.executable).parent / "ansible-inventory"
    found = str(beside) if beside.exists() else shutil.which("ansible-inventory")
    if not found:
        raise InventoryError("ansible-inventory is not installed beside this Python nor on the PATH")
    return found


def joined(pattern: str, *more: str) -> str:
    """A pattern of hosts with more parts. Ansible takes commas between them or colons, never both in one pattern."""
    return ("," if "," in pattern else ":").join([pattern, *more])


def read_inventory(path: Path, limit: str | None = None) -> dict[str, Any]:
    """What `ansible-inventory --list` says of the machines that `limit`, Ansible's pattern of hosts, matches.

    KVM hosts are always among them: whoever is measured on one needs it. Raises InventoryError.
    """
    if not path.exists():
        raise InventoryError(f"{path}: no such inventory")
    environment = {**os.environ, "ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_NOCOLOR": "true"}
    done = subprocess.run(
        [_ansible_inventory(), "-i", str(path), "--list", *(["--limit", joined(limit, "kvm_hosts")] if limit else [])],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
    )
    if done.returncode:
        raise InventoryError(f"{path}: {' '.join(done.stderr.split())}")
    data = json.loads(done.stdout)
    if not isinstance(data, dict):
        raise InventoryError(f"{path}: ansible-inventory printed no mapping")
    return data


def members(data: Mapping[str, Any], group: str) -> list[str]:
    """Names of the hosts of a group and of its child groups, each once."""
    entry = data.get(group, {})
    names = list(entry.get("hosts", []))
    for child in entry.get("children", []):
        names += [n for n in members(data, child) if n not in names]
    return names


def hosts_by_role(data: Mapping[str, Any]) -> dict[Role, list[Host]]:
    """Every machine that an inventory names, by its part."""
    variables = data.get("_meta", {}).get("hostvars", {})
    return {role: [Host(name, role, variables.get(name, {})) for name in members(data, group)]
            for group, role in _GROUPS}  # fmt: skip


def from_data(
    data: Mapping[str, Any],
    environments: list[str],
    source: str = "inventory",
    guests: int = 1,
    optional: Collection[str] = (),
) -> Inventory:
    """Typed hosts for these environments, of a guest's as many as `guests`, all on one KVM host.

    An environment that is `optional` may have no machine: then it is not among the inventory's. Raises
    InventoryError when another has none, too few guests, or more machines than can be told apart.
    """
    by_role = hosts_by_role(data)
    if not by_role["client"]:
        raise InventoryError(f"{source}: the group `clients` is empty: nothing would send load")
    candidates = by_role["metal"] + by_role["kvm_guest"]
    there = {host.get("vmtoll_environment") for host in candidates}
    environments = [environment for environment in environments if environment in there or environment not in optional]
    machines = {environment: _machines(candidates, environment, source, guests) for environment in environments}
    clients, under_test = by_role["client"], [host for hosts in machines.values() for host in hosts]
    needed = {str(h.get("vmtoll_kvm_host")) for h in under_test if h.role == "kvm_guest"}
    needed = (needed | {str(h.get("vmtoll_container_host")) for h in (*clients, *under_test)}) - {"None"}
    kvm_hosts = {h.name: h for h in by_role["kvm_host"] if h.name in needed}
    if missing := sorted(needed - set(kvm_hosts)):
        raise InventoryError(f"{source}: host {missing[0]!r} of a guest or container is not in the group `kvm_hosts`")
    return Inventory(clients, machines, kvm_hosts)


def _machines(candidates: Sequence[Host], environment: str, source: str, guests: int) -> list[Host]:
    """Those of one environment: one machine, or the first `guests` of a KVM host's guests."""
    found = [h for h in candidates if h.get("vmtoll_environment") == environment]
    on = {h.get("vmtoll_kvm_host") for h in found}
    beside = len(on) == 1 and all(h.role == "kvm_guest" for h in found)
    if not found or not (beside or len(found) == 1):
        there = sorted({str(h.get("vmtoll_environment")) for h in candidates})
        raise InventoryError(
            f"{source}: {len(found)} hosts have vmtoll_environment {environment!r}, one is needed "
            f"(choose with --limit); there are: {', '.join(there) or 'none'}"
        )
    needed = guests if beside else 1
    if len(found) < needed:
        raise InventoryError(
            f"{source}: {len(found)} guests on one host have vmtoll_environment {environment!r}, {needed} are needed"
        )
    return found[:needed]


def load_inventory(
    path: Path, environments: list[str], guests: int = 1, limit: str | None = None, optional: Collection[str] = ()
) -> Inventory:
    """Read the inventory and find the machines of these environments; see from_data. Raises InventoryError."""
    source = f"{path} with --limit {limit}" if limit else str(path)
    return from_data(read_inventory(path, limit), environments, source, guests, optional)
