"""Machines that can be taken into a lab.yml: the guests of a KVM host, the names in an SSH configuration."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
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
        address=$(virsh -c "$1" -q domifaddr "$name" --source $source 2>/dev/null |
            awk '$3 == "ipv4" && $4 !~ /^127\./ { sub("/.*", "", $4); print $4; exit }')
        [ -z "$address" ] || break
    done
    printf '%s\t%s\t%s\n' "$name" "$(virsh -c "$1" domstate "$name")" "$address"
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
    """A guest as its host lists it. `address`: IPv4, None where the host does not know it; `vmid`: of Proxmox VE."""

    name: str
    state: str
    address: str | None = None
    vmid: int | None = None

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


def ssh_names(config: Path) -> list[str]:
    """The names of hosts in an SSH configuration and the files that it includes, without patterns; in their order."""
    return list(dict.fromkeys(_names_in(config, depth=0)))


def _names_in(config: Path, depth: int) -> Iterator[str]:
    try:
        text = config.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"{config}: {error.strerror}; give another file of ssh's with --from-ssh-config") from None
    for line in text.splitlines():
        keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        words = rest.replace('"', " ").split()
        if keyword.lower() == "host":
            yield from (word for word in words if not re.search(r"[*?!]", word))
        elif keyword.lower() == "include" and depth < 16:  # as ssh itself
            for pattern in words:
                path = Path(pattern).expanduser()
                base = Path(path.anchor) if path.is_absolute() else config.parent
                for file in sorted(base.glob(str(path.relative_to(base) if path.is_absolute() else path))):
                    yield from _names_in(file, depth + 1)
