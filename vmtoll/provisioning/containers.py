"""Make the containers that an inventory describes, before provisioning the machines."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vmtoll.builds import container_image, image, tools
from vmtoll.model.errors import UserError
from vmtoll.model.inventory import Host
from vmtoll.model.release import Release
from vmtoll.model.trial import CONTAINER_HOST_NETWORK
from vmtoll.provisioning.guests import host_key
from vmtoll.shell import Changes, play, say
from vmtoll.spec.inventory import hosts_by_role


def made_containers(data: Mapping[str, Any], source: Path) -> list[Host]:
    """The containers of an inventory (`ansible-inventory --list`) that vmtoll makes: those with vmtoll_cpus."""
    return [host for host in hosts_by_role(data, str(source))["container"] if host.is_made]


def role_entry(host: Host, *, state: str | None = None) -> dict[str, Any]:
    """An element of the role's podman_container_list. `state`: instead of the inventory's.

    Raises UserError if the public key that root is to accept does not exist.
    """
    variables, is_host_network = host.vars, host.vars.environment == CONTAINER_HOST_NETWORK
    state = state or variables.state
    entry = {
        "name": variables.container or host.name,
        "state": state,
        "network": "host" if is_host_network else "bridge",
        "cpus": variables.cpus or "",
    }
    if state == "absent":
        return entry
    if not is_host_network:
        entry |= {
            "bridge": variables.bridge,
            "address": f"{host.ssh_host}/{variables.prefix}",
            "gateway": variables.gateway,
        }
    return entry | {
        "memory_mib": variables.memory_mib or 0,
        "port": host.ansible.port or 22,
        "public_key": _public_key(host).read_text(),
    }


def lists_of(hosts: Sequence[Host], *, state: str | None = None) -> dict[str, list[dict[str, Any]]]:
    """Host of the inventory → its containers, as the role takes them."""
    lists: dict[str, list[dict[str, Any]]] = {}
    for host in hosts:
        lists.setdefault(str(host.vars.container_host), []).append(role_entry(host, state=state))
    return lists


def make_containers(
    data: Mapping[str, Any],
    inventory: Path,
    options: Sequence[str],
    release: Release,
    *,
    changes: Changes | None = None,
) -> list[str]:
    """Make containers with vmtoll_cpus from this release's image, remove those that are `absent`
    (playbooks/containers.yml); return the names of the removed ones.

    Raises UserError, before it changes anything, for a key that does not exist or without root.
    """
    hosts = made_containers(data, inventory)
    if not hosts:
        return []
    present = [host for host in hosts if host.vars.state == "present"]
    lists = lists_of(hosts)
    variables: dict[str, object] = {
        "podman_container_lists": lists,
        "podman_container_present": [host.name for host in present],
        "podman_container_image_of": "localhost/vmtoll:none",
        "podman_container_archive": "",
        "podman_container_key": str(host_key()),
    }
    if present:
        if os.geteuid() != 0:
            raise UserError(f"{inventory}: the image of {present[0].name} needs root; run vmtoll as root or with sudo")
        folder = image.ensure(say, release)
        variables["podman_container_image_of"] = f"localhost/vmtoll:{folder.name}"
        variables["podman_container_archive"] = str(container_image.root_archive(folder))
    pattern = ",".join([*lists, *(host.name for host in present)])
    play(
        "containers.yml", "-e", json.dumps(variables), "--limit", pattern, *options, inventory=inventory,
        changes=changes,
    )  # fmt: skip
    return [host.name for host in hosts if host.vars.state == "absent"]


def prepare_runtime_hosts(
    containers: Sequence[Host], inventory: Path, options: Sequence[str], *, changes: Changes | None = None
) -> None:
    """Bring podman and the container runtimes to the hosts that start servers in them (playbooks/runtimes.yml); runsc
    is of vmtoll's own build, except where the inventory says which one the host has.
    """
    runtimes = [host for host in containers if host.runtime and host.runtime.runtime != "process"]
    if not runtimes:
        return
    programs = {str(host.runtime.runtime) for host in runtimes if host.runtime and not host.vars.runtime_path}
    variables = {
        "runtime_hosts": sorted({str(host.vars.container_host) for host in runtimes}),
        "runtime_packages": ["podman", *sorted(programs & {"runc", "crun"})],
        "runtime_runsc": str(tools.runtime("runsc")) if "runsc" in programs else "",
    }
    play("runtimes.yml", "-e", json.dumps(variables), *options, inventory=inventory, changes=changes)


def _public_key(host: Host) -> Path:
    own = host.ansible.ssh_private_key_file
    key = Path(host.vars.public_key or (f"{own}.pub" if own else "~/.ssh/id_ed25519.pub")).expanduser()
    if not key.exists():
        raise UserError(
            f"{host.name}: {key} does not exist; make a key with ssh-keygen, or name the public half of yours in "
            "vmtoll_public_key"
        )
    return key
