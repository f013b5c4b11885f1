"""`measure-service --image`: an image of the user's own, started by podman in each container runtime in turn."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from vmtoll.builds import tools
from vmtoll.files import write_durably
from vmtoll.machines.connection import AgentLine
from vmtoll.model.errors import AgentError, UserError
from vmtoll.model.inventory import Host
from vmtoll.spec.catalog import Registry
from vmtoll.spec.inventory import hosts_by_role, read_inventory
from vmtoll.spec.runtimes import load

_LABEL = "vmtoll.image"
_ASK_S = 120.0


def keys(
    image: str, runtimes: str, port: int, options: Sequence[str], name: str, inventory: Path, limit: str | None
) -> dict[str, Any]:
    """The keys of an experiment that starts an image in each of these runtimes, the first of which is the baseline, on
    the machine under test of an inventory. Raises UserError, also for an image that is not pinned or not there.
    """
    names = [each.strip() for each in runtimes.split(",")]
    known = [each for each in Registry().paths["runtime"].names() if load(each).runtime != "process"]
    if wrong := [each for each in names if each not in known or names.count(each) > 1]:
        raise UserError(f"--runtimes: {wrong[0]!r} is unknown or repeated; choose among {', '.join(known)}")
    machine = _machine(inventory, limit)
    line = AgentLine(machine)
    try:
        line.open()
        limits: list[str] = line.call("image", _ASK_S, name=image)
    except AgentError as error:
        raise UserError(str(error)) from error
    finally:
        line.close()
    container = f"vmtoll-image-{name}"
    remove = (
        f"podman ps --all --quiet --filter label={_LABEL} --filter name=^{container}$ | "
        "xargs --no-run-if-empty podman rm --force --volumes --time 5"
    )
    words = [
        "run", "--detach", "--pull=never", f"--name={container}", f"--label={_LABEL}", *limits,
        f"--publish={port}:{port}", *options, image,
    ]  # fmt: skip
    changes: dict[str, dict[str, Any]] = {
        each: {
            "of": machine.vars.environment,
            "apply": f"{remove}; {shlex.join(['podman', *_runtime(each, machine), *words])}",
            "revert": remove,
            "differs_in": ["nic"],  # the card of the container on the bridge
        }
        for each in names
    }
    address = f"http://{'127.0.0.1' if machine.is_local else machine.address}:{port}"
    return {
        "environments": names,
        "baseline": names[0],
        "changes": changes,
        "service": {"address": address, "cpu": {"container": container}},
    }


def _runtime(name: str, machine: Host) -> list[str]:
    """The options of podman that choose a runtime; on this machine vmtoll's build of runsc."""
    runtime = load(name)
    flags = [*(runtime.flags or ()), *([f"platform={runtime.platform}"] if runtime.platform else [])]
    flags += ["network=host"] if runtime.stack == "host" else []
    is_built = runtime.runtime == "runsc" and machine.is_local
    program = str(tools.runtime("runsc")) if is_built else runtime.runtime
    return [f"--runtime={program}", *(f"--runtime-flag={flag}" for flag in flags)]


def _machine(inventory: Path, limit: str | None) -> Host:
    """The one machine under test of an inventory. Raises UserError."""
    by_role = hosts_by_role(read_inventory(inventory, limit))
    machines = [host for role in ("metal", "kvm_guest", "container") for host in by_role[role] if not host.runtime]
    if len(machines) != 1:
        named = ", ".join(host.name for host in machines) or "none"
        raise UserError(f"{inventory}: --image needs one machine under test, there are: {named}; choose with --limit")
    return machines[0]


def this_machine(folder: Path) -> Path:
    """An inventory of this machine, as the client and as the machine of the containers."""
    clients = {"client": {"ansible_connection": "local", "vmtoll_root": str(folder.resolve() / "client")}}
    machines = {"this-machine": {"ansible_connection": "local", "vmtoll_environment": "this-machine"}}
    groups = {"clients": {"hosts": clients}, "metal_hosts": {"hosts": machines}}
    file = folder / "containers.inventory.yml"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_durably(file, yaml.safe_dump({"all": {"children": groups}}, sort_keys=False).encode())
    return file
