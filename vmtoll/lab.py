"""The embedded lab: up, down, status, and the provisioning of whatever an inventory names."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vmtoll import accelerator, builds, image, servers, shapes
from vmtoll.guests.make import make_guests
from vmtoll.paths import INVENTORY, LAB
from vmtoll.shell import UserError, lock, play
from workloads.runner.inventory import joined, read_inventory

Say = Callable[[str], None]
LINK = re.compile(r"unshaped|[1-9][0-9]*(mbit|gbit)")


def need_root() -> None:
    """Raise UserError unless this is root."""
    if os.geteuid() != 0:
        raise UserError("The embedded lab needs root, for namespaces and mounts: run it with sudo.")


def up(link: str, say: Say, shape: shapes.Shape | None = None) -> None:
    """Bring a lab up (default: the topology `single`) with the clients' links at `link`.

    One of this shape that is up and answers only gets that link; one of another shape is replaced.
    """
    if not LINK.fullmatch(link):
        raise UserError(f"Link {link!r}: give `unshaped`, or a rate such as `100mbit` or `1gbit`.")
    shape = shape or shapes.shape()
    folder = image.ensure(say)
    with lock("lab"):
        wanted, built = {"image": str(folder), **shape.record()}, _built()
        if all(built.get(key) == value for key, value in wanted.items()) and not _silent_machines():
            _set_link(link)
            say(f"the lab is up, its link {link}")
            return
        if LAB.exists():
            _play("down")  # its memory is free then
        shapes.check_memory(shape)
        kind, why = accelerator.probe(folder / "vmlinuz")
        say(f"accelerator: {kind} ({why})")
        say("building the lab" + "; emulated guests take half a minute each to boot" * (kind == "tcg"))
        variables = {"embedded_lab_image": str(folder), "embedded_lab_accelerator": kind, **shape.variables()}
        _play("up", embedded_lab_link=link, **variables)
        (LAB / "variables.json").write_text(json.dumps(variables))
        _record(wanted | {"link": link})
        say(f"the lab is up, its link {link}")


def shaped(link: str, say: Say) -> Path:
    """Give the clients of the lab that is up this link; the lab's inventory. Raises UserError when it is not up."""
    inventory = require()
    with lock("lab"):
        if _set_link(link):
            say(f"the lab's link is {link} now")
    return inventory


def _set_link(link: str) -> bool:
    """Change the link, in seconds and without touching the machines; False when it is so already."""
    built = _built()
    if built.get("link") == link:
        return False
    if not (LAB / "variables.json").exists():
        raise UserError("The embedded lab is that of an earlier vmtoll; build it anew with `sudo make lab-up`.")
    _record(built | {"link": "unknown"})  # as long as it is being changed
    _play("link", embedded_lab_link=link, **json.loads((LAB / "variables.json").read_text()))
    _record(built | {"link": link})
    return True


def down(say: Say) -> None:
    """Remove the lab: processes, mounts, namespaces, files. Harmless when there is none, or half of one."""
    with lock("lab"):
        _play("down")
        say("the lab is down")


def status() -> dict[str, object]:
    """Return whether the lab is up, its image, shape and link, and which machines do not answer."""
    built = _built()
    silent = _silent_machines() if built else []
    return {"up": bool(built) and not silent, **built, "silent_machines": silent}


def provision(inventory: Path | None, options: list[str], limit: str | None = None, *, quiet: bool = False) -> None:
    """Run site.yml against an inventory (default: the embedded lab's), or those of it that `limit` matches.

    Guests that it describes by a profile are made first.
    """
    chosen = inventory or require()
    data = read_inventory(chosen, limit)
    removed = make_guests(data, chosen, options)
    variables = builds.variables(_policy(data, chosen))
    pattern = joined(limit or "all", *(f"!{name}" for name in removed))
    play("site.yml", "-e", json.dumps(variables), "--limit", pattern, *options, inventory=chosen, quiet=quiet)


def _policy(inventory: dict[str, Any], path: Path) -> servers.Policy:
    """Take what is alike for all servers from the inventory; raises UserError where hosts disagree."""
    values: dict[str, int] = {}
    for name, default in (("vmtoll_http_port", 8080), ("vmtoll_workers", 1)):
        found = {int(facts[name]) for facts in inventory["_meta"]["hostvars"].values() if name in facts} or {default}
        if len(found) > 1:
            raise UserError(f"{path}: {name} must be the same on every host, but it is {sorted(found)}.")
        values[name] = found.pop()
    return servers.Policy(port=values["vmtoll_http_port"], workers=values["vmtoll_workers"])


def require() -> Path:
    """Return the lab's inventory; raises UserError when the lab is not up."""
    if not (LAB / "built.json").exists():
        raise UserError(
            "The embedded lab is not up. Bring it up with `sudo make lab-up`, or name your own --inventory."
        )
    return INVENTORY


def _play(state: str, **variables: Any) -> None:
    everything = {"embedded_lab_state": state, "embedded_lab_folder": str(LAB), **variables}
    play("lab.yml", "-e", json.dumps(everything), quiet=True)


def _record(built: dict[str, Any]) -> None:
    (LAB / "built.json").write_text(json.dumps(built))


def _built() -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads((LAB / "built.json").read_text())
        return content
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def _silent_machines() -> list[str]:
    config = LAB / "ssh_config"
    names = [line.split()[1] for line in config.read_text().splitlines() if re.fullmatch(r"Host [a-z0-9-]+", line)]
    reach = ["ssh", "-F", str(config), "-o", "ConnectTimeout=20"]  # emulated guests beside each other are slow
    return [
        name for name in names if subprocess.run([*reach, name, "true"], capture_output=True, check=False).returncode
    ]
