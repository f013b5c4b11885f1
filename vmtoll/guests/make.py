"""The guests that an inventory describes by a profile are made before the machines are provisioned."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vmtoll import image
from vmtoll.guests import profiles
from vmtoll.guests.inventory import Guest, guest
from vmtoll.paths import STATE
from vmtoll.progress import say
from vmtoll.shell import UserError, play, run
from workloads.runner.inventory import members


def described(data: Mapping[str, Any], source: Path) -> list[Guest]:
    """The guests of an inventory (`ansible-inventory --list`) that have a profile.

    Raises UserError for one that is not fully described, or whose profile or KVM host does not exist.
    """
    variables = data.get("_meta", {}).get("hostvars", {})
    named = [name for name in members(data, "kvm_guests") if "vmtoll_profile" in variables.get(name, {})]
    found = [guest(name, variables[name]) for name in named]
    for one in found:
        profiles.load(one.profile)
        if one.kvm_host not in members(data, "kvm_hosts"):
            raise UserError(f"{source}: {one.name}: vmtoll_kvm_host {one.kvm_host!r} is not in the group `kvm_hosts`.")
    return found


def make_guests(data: Mapping[str, Any], inventory: Path, options: Sequence[str]) -> list[str]:
    """Make, or remove, the guests that have a profile (playbooks/guests.yml); the names of those removed."""
    guests = described(data, inventory)
    lists: dict[str, list[dict[str, Any]]] = {}
    for one in guests:
        lists.setdefault(one.kvm_host, []).append(one.model_dump())
    variables: dict[str, Any] = {"kvm_guest_lists": lists}
    present = [one for one in guests if one.state == "present"]
    for one in present:
        if not Path(one.public_key).expanduser().exists():
            raise UserError(
                f"{one.name}: {one.public_key} does not exist: make a key with ssh-keygen, or name the public half "
                "of yours in vmtoll_public_key."
            )
    if present:
        if os.geteuid() != 0:
            raise UserError(f"{inventory}: the image of {present[0].name} is made as root: run it with sudo.")
        variables |= {"kvm_guest_image_source": str(image.ensure(say)), "kvm_guest_host_key": str(_host_key())}
    if guests:
        narrowed = ",".join([*lists, *(one.name for one in present)])
        play("guests.yml", "-e", json.dumps(variables), "--limit", narrowed, *options, inventory=inventory)
    return [one.name for one in guests if one.state == "absent"]


def _host_key() -> Path:
    """The key that the guests' SSH servers prove themselves by, made once."""
    key = STATE / "guests" / "host_key"
    if not key.exists():
        key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "vmtoll-guests", "-f", key])
    return key
