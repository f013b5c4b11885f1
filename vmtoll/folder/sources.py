"""Machines that can be taken into a lab.yml: the guests of a KVM host, the names in an SSH configuration."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from vmtoll.model.errors import UserError
from vmtoll.model.inventory import Host

LIMIT_S = 120.0
_VIRSH = r"""
names=$(virsh -c "$1" list --all --name) || exit
printf '%s\n' "$names" | while IFS= read -r name; do
    [ -n "$name" ] || continue
    for source in lease agent arp; do
        address=$(virsh -c "$1" -q domifaddr --domain "$name" --source $source 2>/dev/null |
            awk '$3 == "ipv4" && $4 !~ /^127\./ { sub("/.*", "", $4); print $4; exit }')
        [ -z "$address" ] || break
    done
    printf '%s\t%s\t%s\n' "$name" "$(virsh -c "$1" domstate --domain "$name")" "$address"
done
"""
_QM = r"""
list=$(qm list) || exit
printf '%s\n' "$list" | awk 'NR > 1 { print $1, $2, $3 }' | while read -r id name state; do
    interfaces=$(qm guest cmd "$id" network-get-interfaces 2>/dev/null | tr -d '\n')
    printf '%s\t%s\t%s\t%s\n' "$id" "$name" "$state" "$interfaces"
done
"""


@dataclass(frozen=True)
class ListedGuest:
    """A guest as its host lists it."""

    name: str
    state: str
    address: str | None = None  # IPv4, None where the host does not know it
    vmid: int | None = None  # of Proxmox VE

    @property
    def variables(self) -> dict[str, Any]:
        """The inventory's variables by which vmtoll finds it on its host."""
        return {"vmtoll_domain": self.name} if self.vmid is None else {"vmtoll_vmid": self.vmid}


def libvirt_guests(host: Host) -> list[ListedGuest]:
    """The guests that libvirt has on a host (`virsh list`). Raises UserError where it cannot be asked."""
    lines = _asked(host, _VIRSH, host.libvirt_uri, program="virsh")
    return [ListedGuest(name, state, address or None) for name, state, address in lines]


def proxmox_guests(host: Host) -> list[ListedGuest]:
    """The virtual machines of a Proxmox VE host (`qm list`). Raises UserError where it cannot be asked."""
    lines = _asked(host, _QM, program="qm")
    return [ListedGuest(name, state, _address_of(nics), int(vmid)) for vmid, name, state, nics in lines]


def _asked(host: Host, script: str, *words: str, program: str) -> Iterator[list[str]]:
    """Run a script of sh on a host; the fields of each line that it prints."""
    reach = [] if host.is_local else host.argv()[:-1]
    shell = ["env", "LC_ALL=C", "sh", "-s", "--", *words]
    command = [*reach, *(map(shlex.quote, shell) if reach else shell)]
    try:
        done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(f"{host.name}: {program} did not answer in {LIMIT_S:g} s; name the guests by --guest") from None
    if done.returncode:
        cause = " ".join((done.stderr.strip().splitlines() or ["no reason given"])[-1].split()).rstrip(".")
        raise UserError(f"{host.name}: {program} cannot list its guests: {cause}; correct that, or use --guest alone")
    return (line.split("\t") for line in done.stdout.splitlines())


def _address_of(interfaces: str) -> str | None:
    """The first IPv4 address that a guest agent names, without the loopback's."""
    try:
        listed: list[dict[str, Any]] = json.loads(interfaces)
    except ValueError:  # no agent in the guest
        return None
    addresses = [str(each.get("ip-address")) for nic in listed for each in nic.get("ip-addresses", [])]
    plain = [address for address in addresses if re.fullmatch(r"[0-9.]+", address)]
    return next((address for address in plain if not IPv4Address(address).is_loopback), None)


SSH_CONFIG = Path("~/.ssh/config")
_UNKNOWN = "vmtoll-asks-for-a-name-that-no-file-has"


@dataclass(frozen=True)
class SshConfig:
    """A configuration file of ssh. ssh itself reads it, except for the list of its names."""

    file: Path

    @property
    def names(self) -> list[str]:
        """The names of hosts in the file and in those that it includes, without patterns; in their order."""
        return list(dict.fromkeys(_names_in(self.file, depth=0)))

    def knows(self, name: str) -> bool:
        """Return whether the file has something for this name, by name or by pattern."""
        options, others = (
            {key: value for key, value in _ssh_options(each, str(self.file)).items() if value != each}
            for each in (name, _UNKNOWN)
        )
        return options != others or name in self.names

    def user_of(self, name: str) -> str | None:
        """The user whom the file gives for this name; None where it leaves the user to ssh."""
        user, default = (_ssh_options(name, file)["user"] for file in (str(self.file), "none"))
        return None if user == default else user


@cache
def _ssh_options(name: str, file: str) -> dict[str, str]:
    """What `ssh -G` resolves for a name. Raises UserError with ssh's own reason."""
    try:
        done = subprocess.run(
            ["ssh", "-F", file, "-G", "--", name], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except FileNotFoundError:
        raise UserError("ssh: program not found; install it") from None
    if done.returncode:
        reasons = [line for line in done.stderr.splitlines() if not line.startswith("Pseudo-terminal")]
        raise UserError(f"{file}: ssh refuses it: {(reasons or ['no reason given'])[0].rstrip('.')}")
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def _names_in(config: Path, depth: int) -> Iterator[str]:
    try:
        text = config.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"{config}: {error.strerror}; give another file of ssh's with --from-ssh-config") from None
    for line in text.splitlines():
        keyword, _, rest = re.sub(r"^\s*(\w+)(?:\s*=\s*|\s+)", r"\1 ", line).partition(" ")
        try:
            words = shlex.split(rest, comments=True)
        except ValueError:  # an open quote: ssh refuses the file
            continue
        if keyword.lower() == "host":
            yield from (word for word in words if not re.search(r"[*?!,\s]", word))
        elif keyword.lower() == "include" and depth < 16:  # as ssh itself
            for pattern in words:
                path = Path(pattern).expanduser()
                base = Path(path.anchor) if path.is_absolute() else SSH_CONFIG.expanduser().parent  # ssh's own rule
                for file in sorted(base.glob(str(path.relative_to(base) if path.is_absolute() else path))):
                    yield from _names_in(file, depth + 1)
