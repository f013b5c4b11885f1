"""The machines of a run as an inventory describes them: the variables that vmtoll reads, hosts and their roles.

`python -m vmtoll.model.inventory` prints the table of variables in docs/inventory.md.
"""

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from vmtoll.model.disclosure import NAMES, OPERATOR
from vmtoll.model.document import plain_message
from vmtoll.model.errors import InventoryError
from vmtoll.model.release import SUITES
from vmtoll.model.runtime import Runtime

Role = Literal["client", "metal", "container", "kvm_guest", "kvm_host"]
GuestAccelerator = Literal["kvm", "tcg"]
_GUEST_WITH_PROFILE = "guest with a profile"
_MADE = f"{_GUEST_WITH_PROFILE}, container"
# ssh probes a silent machine every 2 s and gives up when the fourth probe gets no answer.
_ALIVE_S, _ALIVE_PROBES = 2, 4
SILENT_S = _ALIVE_S * (_ALIVE_PROBES + 1)


def _variable(default: Any, hosts: str, text: str, unit: str = "", **limits: Any) -> Any:
    """Define a variable: default, hosts that have it, meaning, unit; `limits` are pydantic's."""
    return Field(default, description=text, json_schema_extra={"hosts": hosts, "unit": unit}, **limits)


class Variables(BaseModel):
    """The variables of one host in one namespace; ignores those without a field. Accepts numbers as text and vice
    versa.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False, coerce_numbers_to_str=True)
    namespace: ClassVar[str] = "vmtoll_"

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_boolean_for_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse a boolean for a number: pydantic would read YAML's `yes` as 1."""
        kind = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and kind in (int, float, int | None, float | None):
            raise ValueError("must be a number")
        return value

    @classmethod
    def read(cls, host: str, variables: Mapping[str, Any], source: str) -> Self:
        """Validate a host's variables; null counts as unset. Raises InventoryError naming source, host and variable."""
        try:
            return cls._validated(variables)
        except ValidationError as error:
            raise InventoryError(f"{source}: {host}: {next(iter(cls.first_mistakes(error).values()))}") from error

    @classmethod
    def invalid_variables(cls, variables: Mapping[str, Any]) -> dict[str, str]:
        """Each variable of a host that has a wrong value → what is wrong."""
        try:
            cls._validated(variables)
        except ValidationError as error:
            return cls.first_mistakes(error)
        return {}

    @classmethod
    def _validated(cls, variables: Mapping[str, Any]) -> Self:
        given = {name: value for name, value in variables.items() if value is not None}
        prefixed = [name for name in given if name.startswith(cls.namespace)]
        return cls.model_validate({name.removeprefix(cls.namespace): given[name] for name in prefixed})

    @classmethod
    def first_mistakes(cls, error: ValidationError) -> dict[str, str]:
        """Each wrong variable → its first mistake."""
        texts: dict[str, str] = {}
        for entry in error.errors():
            name = cls.namespace + ".".join(map(str, entry["loc"]))
            missing, value = entry["type"] == "missing", entry["input"]
            text = f"{name} is missing" if missing else f"{name} is {value!r}: {plain_message(entry)}"
            texts.setdefault(cls.namespace + "".join(map(str, entry["loc"][:1])), text)
        return texts

    @classmethod
    def names(cls) -> list[str]:
        """Every variable of this namespace."""
        return [cls.namespace + name for name in cls.model_fields]


class Connection(Variables):
    """Connection settings with which Ansible and vmtoll reach a host."""

    namespace = "ansible_"

    host: str | None = _variable(None, "all", "address; unset: the host's name; older name: `ansible_ssh_host`")
    port: int | None = _variable(
        None, "all", "SSH port; unset: ssh's own choice; older name: `ansible_ssh_port`", ge=1, le=65535
    )
    user: str | None = _variable(None, "all", "SSH user; unset: ssh's own choice; older name: `ansible_ssh_user`")
    ssh_private_key_file: str | None = _variable(
        None, "all", "SSH key; unset: `ansible_private_key_file`, else ssh's own choice"
    )
    ssh_args: str = _variable("", "all", "arguments of ssh, before those of `ansible_ssh_common_args`")
    ssh_common_args: str = _variable("", "all", "more arguments of ssh")
    ssh_extra_args: str = _variable("", "all", "arguments of ssh, after those of `ansible_ssh_common_args`")
    ssh_executable: str = _variable("ssh", "all", "the program `ssh`")
    connection: str = _variable("ssh", "all", "`ssh`, or `local` for this machine")
    python_interpreter: str = _variable("python3", "all", "Python 3.9 or newer on the host; `auto…`: `python3`")
    become: bool = _variable(False, "all", "whether root is reached by sudo, which must ask for no password")
    become_method: str = _variable("sudo", "all", "`sudo`: vmtoll has no other way to root")
    become_user: str = _variable("root", "all", "`root`: vmtoll needs it")
    become_exe: str = _variable("sudo", "all", "the program `sudo`")
    become_flags: str = _variable("", "all", "more arguments of sudo")

    @model_validator(mode="before")
    @classmethod
    def _merge_ansible_names(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Merge the names of each variable: as in Ansible, the last one here that is set wins."""
        merged = dict(given)
        for name, names in {
            "host": ("ssh_host",), "port": ("ssh_port",), "user": ("ssh_user",),
            "ssh_private_key_file": ("private_key_file", "ssh_private_key_file"),
        }.items():  # fmt: skip
            if values := [given[other] for other in names if given.get(other) is not None]:
                merged[name] = values[-1]
        return merged

    @field_validator("connection")
    @classmethod
    def _check_connection(cls, connection: str) -> str:
        plain_name = connection.removeprefix("ansible.builtin.")
        if plain_name not in ("ssh", "smart", "local"):
            raise ValueError("vmtoll reaches machines by `ssh`, or `local`; give one of them")
        return "local" if plain_name == "local" else "ssh"

    @field_validator("ssh_args", "ssh_common_args", "ssh_extra_args", "become_flags")
    @classmethod
    def _check_arguments(cls, arguments: str) -> str:
        try:
            shlex.split(arguments)
        except ValueError as error:
            raise ValueError(f"not words of a shell ({str(error).lower()}); close the quotation") from None
        return arguments

    @field_validator("become_method", "become_user")
    @classmethod
    def _check_become(cls, value: str, info: ValidationInfo) -> str:
        required = "root" if info.field_name == "become_user" else "sudo"
        if value.removeprefix("ansible.builtin.") != required:
            raise ValueError(f"vmtoll supports only `{required}`; leave it out, or log in as root")
        return required

    @field_validator("python_interpreter")
    @classmethod
    def _resolve_interpreter(cls, interpreter: str) -> str:
        """Replace Ansible's automatic choices by python3, Python's name on every system that vmtoll supports."""
        return "python3" if interpreter in ("auto", "auto_legacy", "auto_silent", "auto_legacy_silent") else interpreter


# libvirt's syntax for a set of CPUs, without exclusions (`^3`).
CPU_SET = r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"
Switch = Annotated[
    Literal["on", "off"],
    BeforeValidator(lambda value: ("on" if value else "off") if isinstance(value, bool) else value),
]


class HostTuning(BaseModel):
    """Settings that `vmtoll tune` applies; the host checks that it has these values. YAML reads `on` and `off` as
    booleans.
    """

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    governor: str | None = Field(None, description="who chooses the clock rate of each CPU, e.g. `performance`")
    turbo: Switch | None = Field(None, description="clock rates above the nominal one")
    smt: Switch | None = Field(None, description="whether the siblings of a core are online")
    irq_affinity: str | None = Field(None, description="CPUs that serve the interrupts, e.g. `0-1`")
    irqbalance: Literal["stopped"] | None = Field(None, description="the daemon that moves interrupts")
    tuned_profile: str | None = Field(None, description="profile of the package tuned")
    hugepages_2m: int | None = Field(None, ge=0, description="pages of 2 MiB that the host keeps")
    halt_poll_ns: int | None = Field(None, ge=0, description="how long KVM polls for an idle virtual CPU")
    transparent_hugepage: Literal["always", "madvise", "never"] | None = Field(
        None, description="whether memory gets huge pages automatically"
    )
    ksm: Switch | None = Field(None, description="whether the kernel merges equal pages of guests")

    @model_validator(mode="before")
    @classmethod
    def _check_settings(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and (unknown := sorted(set(map(str, given)) - set(cls.model_fields))):
            raise ValueError(f"no setting {unknown[0]!r}; there are: {', '.join(cls.model_fields)}")
        return given


class GuestVariables(Variables):
    """Inventory variables of a guest that vmtoll makes."""

    state: Literal["present", "absent"] = _variable("present", _MADE, "whether `vmtoll provision` makes or removes it")
    accelerator: GuestAccelerator = _variable("kvm", _GUEST_WITH_PROFILE, "what runs the guest's code")
    emulator_cpus: str = _variable(
        "", _GUEST_WITH_PROFILE, "CPUs of QEMU's other threads, where the profile pins; empty: `vmtoll_cpus`"
    )
    vcpus: int = _variable(0, _GUEST_WITH_PROFILE, "virtual CPUs; 0: as many as `vmtoll_cpus`", ge=0)
    memory_mib: int | None = _variable(
        None, _MADE, "memory; unset: the profile's, of a container no limit", "MiB", ge=128
    )
    mac: str = _variable(
        "",
        _GUEST_WITH_PROFILE,
        "MAC address; empty: derived from the name",
        pattern=r"^(|[0-9a-f]{2}(:[0-9a-f]{2}){5})$",
    )
    bridge: str = _variable("br0", _MADE, "bridge on the KVM host")
    uplink: str = _variable("", _GUEST_WITH_PROFILE, "network card of the KVM host, for macvtap")
    vf: str = _variable("", _GUEST_WITH_PROFILE, "PCI address of the virtual function, for SR-IOV")
    prefix: int | None = _variable(
        None, _MADE, "prefix length of the address; unset: DHCP, which containers have not", "bits", ge=1, le=128
    )
    gateway: str = _variable("", _MADE, "router, where `vmtoll_prefix` is set")
    disk_cache: Literal["default", "none", "writethrough", "writeback", "directsync", "unsafe"] = _variable(
        "none", _GUEST_WITH_PROFILE, "libvirt's cache mode of the disk"
    )
    suite: str = _variable(
        "", f"{_GUEST_WITH_PROFILE}, the same", "release of Debian: `trixie` or `bookworm`; empty: the controller's own"
    )

    @field_validator("suite")
    @classmethod
    def _check_suite(cls, suite: str) -> str:
        if suite and suite not in SUITES:
            raise ValueError(f"not a release of Debian that vmtoll knows; give {' or '.join(SUITES)}")
        return suite


class HostVars(GuestVariables):
    """Every `vmtoll_` variable that vmtoll reads from an inventory."""

    environment: str | None = _variable(
        None, "SUT", "`metal`, `container`, `container-host-network`, or the name of a guest profile (required)"
    )
    address: str | None = _variable(None, "SUT", "address that clients send load to; unset: `ansible_host`")
    http_port: int = _variable(
        8080, "all, the same", "port of every server; TLS is on the two above it", ge=1, le=65533
    )
    workers: int = _variable(1, "SUT, the same", "worker processes of each server", ge=1)
    link: str = _variable(
        "unshaped", "client", "the client's link: `unshaped` (the line as it is), `100mbit`, `1gbit`, …"
    )
    link_mbit: float | None = _variable(
        None, "client, SUT", "rate of the line; of a SUT its own, which several clients may fill", "Mbit/s", gt=0
    )
    kvm_host: str | None = _variable(
        None, "guest", "inventory name of its KVM host; omit it and `vmtoll_domain` where you cannot access the host"
    )
    container_host: str | None = _variable(
        None, "client, SUT", "inventory name of the machine whose kernel a container shares; it is in `kvm_hosts`"
    )
    container: str | None = _variable(
        None,
        "container",
        "name or ID that podman or Docker has for it on `vmtoll_container_host`; unset: its name in the inventory",
        pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$",
    )
    runtime: str | None = _variable(
        None,
        "container",
        "its container runtime, a file of `vm-images/runtimes`: the agent of `vmtoll_container_host` starts each server"
        " by it, without SSH inside ([how](how-to/container-runtimes.md)); unset: the container is a machine",
    )
    runtime_path: str | None = _variable(
        None, "runtime", "the runtime's program on its host; unset: found on root's PATH", pattern="^/"
    )
    rootfs: str | None = _variable(
        None,
        "runtime",
        "folder on its host with the root file system that provisioning made; `podman:NAME`: that of a container",
        pattern="^(/|podman:)",
    )
    image: str | None = _variable(
        None, "runtime", "image of its host's podman instead of `vmtoll_rootfs`, pinned by digest"
    )
    network: Literal["bridge", "host", "namespace"] = _variable(
        "bridge",
        "runtime",
        "the engine's bridge with the port published, the host's network, or, with podman, `vmtoll_network_namespace`",
    )
    network_namespace: str | None = _variable(
        None, "runtime", "network namespace of its host, by the name in /run/netns"
    )
    domain: str | None = _variable(None, "guest", "libvirt's name for it")
    vmid: int | None = _variable(None, "guest", "Proxmox VE's number for it (VMID)", ge=100, le=999_999_999)
    qmp_socket: str | None = _variable(
        None,
        "guest",
        "path on the KVM host: QMP socket of a guest that plain QEMU runs (`-qmp unix:PATH,server=on,wait=off`)",
        pattern="^/",
    )
    unit: str | None = _variable(
        None,
        "guest",
        "systemd unit on the KVM host that runs its process: what starts a guest of plain QEMU; alone: a guest of"
        " another monitor, which vmtoll only reads",
    )
    pid_file: str | None = _variable(
        None, "guest", "file on the KVM host with the PID of another monitor's process", pattern="^/"
    )
    libvirt_uri: str = _variable("qemu:///system", "KVM host", "where libvirt listens")
    migration_uri: str | None = _variable(
        None,
        "KVM host",
        "where the other KVM hosts reach its libvirt, for `do: migrate`; unset: `qemu+ssh://USER@ADDRESS/system`,"
        " with its `ansible_user`",
    )
    image_url: str | None = _variable(
        None,
        "KVM host",
        "URL of a folder with the guests' image, which the host fetches ([guests.md]"
        "(guests.md#the-image-by-url)); unset: the controller makes the image and copies it",
        pattern=r"^https?://\S+$",
    )
    image_sha256: str | None = _variable(
        None, "KVM host", "SHA-256 of the file `SHA256SUMS` at that URL", pattern="^[0-9a-f]{64}$"
    )
    revive: list[list[str]] | None = _variable(
        None,
        "guest, container",
        "commands that its host runs to bring it back when it is lost; unset: `virsh start`, `podman start` or"
        " `docker start`, or what starts it there",
    )
    reboot: list[list[str]] | None = _variable(
        None,
        "SUT, KVM host",
        "commands for experiments with `boots`: the machine runs them to boot, of a guest its KVM host; unset:"
        " `systemctl reboot`, of a guest `systemctl poweroff` and what `vmtoll_revive` says. On metal and KVM hosts it"
        " also permits vmtoll to restart them by default ([statistics.md](statistics.md#several-boots-by-default))",
    )
    back_s: float = _variable(300.0, "all", "how long a run waits for a lost machine, as in a reboot", "s", ge=0)
    lab: Literal["embedded", "hosts"] = _variable("hosts", "all", "`embedded`: the lab that `vmtoll lab up` makes")
    emulator: str = _variable(
        "", "all", "the QEMU that emulates these machines, as it prints its version; `vmtoll lab up` sets it"
    )
    tuning: HostTuning | None = _variable(
        None, "metal, KVM host", "what `vmtoll tune` sets ([real-hosts.md](real-hosts.md#tuning)); unset: nothing"
    )
    disclosure: dict[str, str] | None = _variable(
        None, "all", "what the machine does not tell of itself, by item ([real-hosts.md](real-hosts.md#disclosure))"
    )
    root: str = _variable("/", "all", "folder that holds `etc/vmtoll`, `srv/vmtoll` and `run/`; tests set it")
    profile: str | None = _variable(
        None, "guest", "guest profile: `vmtoll provision` makes the guest; unset: the guest is yours"
    )
    cpus: str | None = _variable(
        None,
        _MADE,
        "set of the host's CPUs: `2-5,8` (required for a guest with a profile; of a container: `vmtoll provision` makes"
        " it, unset: the container is yours)",
        pattern=CPU_SET,
    )
    public_key: str | None = _variable(
        None,
        _MADE,
        "file on the controller: SSH key that root of it accepts; unset: the public half of"
        " `ansible_ssh_private_key_file`, or `~/.ssh/id_ed25519.pub`",
    )

    @model_validator(mode="before")
    @classmethod
    def _environment_of_runtime(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Name the environment of a container runtime after it."""
        return {**({"environment": given["runtime"]} if given.get("runtime") else {}), **given}

    @field_validator("link")
    @classmethod
    def _check_link(cls, link: str) -> str:
        if not re.fullmatch(r"unshaped|[1-9][0-9]*(mbit|gbit)", link):
            raise ValueError("not a link; give `unshaped`, or a rate such as `100mbit` or `1gbit`")
        return link

    @field_validator("disclosure")
    @classmethod
    def _check_items(cls, stated: dict[str, str] | None) -> dict[str, str] | None:
        allowed = (*NAMES, OPERATOR)
        if unknown := sorted(set(stated or {}) - set(allowed)):
            raise ValueError(f"no item {unknown[0]!r}; there are: {', '.join(allowed)}")
        return stated

    @classmethod
    def unknown(cls, variables: Mapping[str, Any]) -> list[str]:
        """Names of variables vmtoll_… that vmtoll does not read."""
        return [name for name in variables if name.startswith(cls.namespace) and name not in cls.names()]


# Variables that say what a guest is on its host: one of them is set.
GUEST_NAMES = ("domain", "vmid", "qmp_socket", "pid_file")


@dataclass(frozen=True)
class Host:
    """One machine and how to reach it. `variables` are Ansible's, merged; `source`: the inventory, for messages.

    `runtime`: of an environment that is a process, which `carrier`, the container's host, starts: it is reached there.
    """

    name: str
    role: Role
    variables: Mapping[str, Any] = field(default_factory=dict)
    source: str = field(default="inventory", compare=False)
    runtime: Runtime | None = None
    carrier: "Host | None" = None

    @cached_property
    def vars(self) -> HostVars:
        """The variables vmtoll_… by name and type. Raises InventoryError."""
        return HostVars.read(self.name, self.variables, self.source)

    @cached_property
    def ansible(self) -> Connection:
        """The variables ansible_… that vmtoll reads. Raises InventoryError."""
        return Connection.read(self.name, self.variables, self.source)

    def mistakes(self) -> dict[str, str]:
        """Each variable with a wrong value → what is wrong."""
        return HostVars.invalid_variables(self.variables) | Connection.invalid_variables(self.variables)

    def check(self) -> None:
        """Raise InventoryError for the first variable with a wrong value."""
        _ = self.vars, self.ansible

    @property
    def is_made(self) -> bool:
        """Return whether `vmtoll provision` makes and removes this machine: a guest, or a container."""
        is_container = self.role == "container" and self.runtime is None
        return bool(self.vars.profile) or (is_container and self.vars.cpus is not None)

    @property
    def address(self) -> str:
        """Address that the client sends load to."""
        return self.vars.address or self.ssh_host

    @property
    def ssh_host(self) -> str:
        """Name or address of the machine for ssh."""
        return self.ansible.host or self.name

    def seen_from(self, client: "Host") -> str:
        """Address that this client sends load to: a machine reaches itself by its loopback."""
        return "127.0.0.1" if client.name == self.name else self.address

    @property
    def port(self) -> int:
        """Port of the server under measurement."""
        return self.vars.http_port

    @property
    def guest_name(self) -> str | None:
        """libvirt's name of a guest, its own where something else runs it; None where the inventory has neither."""
        others = (self.vars.vmid, self.vars.qmp_socket, self.vars.unit, self.vars.pid_file)
        return self.vars.domain or (self.name if any(others) else None)

    @property
    def container_name(self) -> str | None:
        """The name of a container on its host; None for another machine, and where the inventory has no such host."""
        is_seen = self.role == "container" and self.vars.container_host and self.runtime is None
        return (self.vars.container or self.name) if is_seen else None

    @property
    def libvirt_uri(self) -> str:
        """Libvirt URI of a KVM host."""
        return self.vars.libvirt_uri

    @property
    def migration_uri(self) -> str:
        """URI by which another KVM host reaches the libvirt of this one."""
        user = f"{self.ansible.user}@" if self.ansible.user else ""
        port = f":{self.ansible.port}" if self.ansible.port else ""
        return self.vars.migration_uri or f"qemu+ssh://{user}{self.ssh_host}{port}/system"

    @property
    def root(self) -> str:
        """The folder that holds etc/vmtoll, srv/vmtoll and run/: `/` except in tests, and of a container runtime, whose
        host has one for each.
        """
        if self.runtime and "root" not in self.vars.model_fields_set:
            return f"/var/lib/vmtoll/runtimes/{self.name}"
        return self.vars.root

    @property
    def sandbox(self) -> dict[str, Any] | None:
        """What the agent of its host needs to start servers in this container runtime; None for a machine."""
        if self.runtime is None:
            return None
        place = self.vars.model_dump(include={
            "runtime_path", "rootfs", "image", "network", "network_namespace", "cpus", "memory_mib", "prefix",
        })  # fmt: skip
        runtime = self.runtime.model_dump(exclude={"description"})
        return {"name": self.name, "address": self.address, **runtime, **place}

    @property
    def is_local(self) -> bool:
        """Return whether it is this machine, reached without SSH."""
        return self.carrier.is_local if self.carrier else self.ansible.connection == "local"

    def argv(self) -> list[str]:
        """The command line that starts Python on the machine, without Python's arguments."""
        if self.carrier:
            return self.carrier.argv()
        connection = self.ansible
        if self.is_local:
            return [sys.executable if connection.python_interpreter == "python3" else connection.python_interpreter]
        argv = [connection.ssh_executable]
        for arguments in (connection.ssh_args, connection.ssh_common_args, connection.ssh_extra_args):
            argv += shlex.split(arguments)
        alive_options = (f"ServerAliveInterval={_ALIVE_S}", f"ServerAliveCountMax={_ALIVE_PROBES}")
        for option in ("BatchMode=yes", "ConnectTimeout=10", *alive_options):
            argv += ["-o", option]
        argv += ["-o", "ControlMaster=no", "-o", "ControlPath=none", "-T"]
        argv += ["-p", str(connection.port)] if connection.port else []
        argv += (
            ["-i", str(Path(connection.ssh_private_key_file).expanduser())] if connection.ssh_private_key_file else []
        )
        argv += ["-l", connection.user] if connection.user else []
        become = [connection.become_exe, "-n", *shlex.split(connection.become_flags)] if connection.become else []
        return [*argv, self.ssh_host, *become, connection.python_interpreter]


@dataclass(frozen=True)
class Inventory:
    """The machines by role. `machines`: environment → its machines under test, several only where a workload needs
    several guests on one KVM host. `other_kvm_hosts`: KVM hosts of the inventory that carry no machine of the run."""

    clients: Sequence[Host]
    machines: Mapping[str, Sequence[Host]]
    kvm_hosts: Mapping[str, Host]
    other_kvm_hosts: Sequence[Host] = ()

    @property
    def client(self) -> Host:
        """The first client: it checks bodies, and sends the loads that need a single client."""
        return self.clients[0]

    @property
    def suts(self) -> Mapping[str, Host]:
        """Environment → its first machine under test."""
        return {environment: hosts[0] for environment, hosts in self.machines.items()}

    def kvm_host(self, sut: Host) -> Host | None:
        """The KVM host of a guest; None for another machine, or if the inventory does not name the host."""
        return self.kvm_hosts.get(sut.vars.kvm_host or "") if sut.role == "kvm_guest" else None

    @property
    def unseen_hosts(self) -> list[str]:
        """Guest environments whose KVM host the inventory does not name."""
        return [name for name, host in self.suts.items() if host.role == "kvm_guest" and self.kvm_host(host) is None]

    @property
    def under_test(self) -> list[Host]:
        """The machines under test of all environments, each once."""
        return list({host.name: host for hosts in self.machines.values() for host in hosts}.values())

    def with_environments(self, machine_of: Mapping[str, str]) -> "Inventory":
        """The same for these environments. `machine_of`: environment → that by which the inventory names its machine;
        one that the inventory lacks is left out.
        """
        machines = {name: self.machines[of] for name, of in machine_of.items() if of in self.machines}
        return replace(self, machines=machines)

    def host(self, machine: Host) -> Host | None:
        """The host of a guest, or the machine whose kernel a container shares."""
        return self.kvm_host(machine) or self._container_host(machine)

    def shares_kernel(self, machine: Host, host: Host) -> bool:
        """Return whether a container runs on the kernel of `host`, under whichever name the inventory has that host."""
        container_host = self._container_host(machine)
        return container_host is not None and container_host.argv() == host.argv()

    def _container_host(self, machine: Host) -> Host | None:
        return None if machine.runtime else self.kvm_hosts.get(machine.vars.container_host or "")

    def hosts(self) -> list[Host]:
        """All machines, each once."""
        return [*self.clients, *self.under_test, *self.kvm_hosts.values()]

    @property
    def link(self) -> str:
        """The clients' link, as experiments name it."""
        return self.client.vars.link

    @property
    def link_mbit(self) -> float | None:
        """The rate of the first client's line; None when it is not known."""
        return self.client.vars.link_mbit


def markdown_table() -> str:
    """Every variable as a table: name, type, default, unit, hosts, meaning."""
    rows = ["| variable | type | default | unit | hosts | meaning |", "|---|---|---|---|---|---|"]
    for model in (HostVars, Connection):
        properties = model.model_json_schema()["properties"]
        inherited = [name for name in properties if name not in model.__annotations__]
        rows += [_row(model.namespace + name, properties[name]) for name in [*model.__annotations__, *inherited]]
    return "\n".join(rows) + "\n"


_TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "yes or no", "object": "mapping",
          "array": "list of argument lists"}  # fmt: skip


def _row(name: str, schema: Mapping[str, Any]) -> str:
    """One row of the table, from pydantic's JSON schema of a field."""
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null"]
    kind = " or ".join(f"`{value}`" for value in kinds[0].get("enum", [])) or _TYPES[kinds[0].get("type", "object")]
    default = schema.get("default")
    text = "" if default is None else json.dumps(default).strip('"').removesuffix(".0")
    shown = f"`{text}`" if text else ""
    cells = (f"`{name}`", kind, shown, schema["unit"], schema["hosts"], schema["description"])
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    print(markdown_table(), end="")
