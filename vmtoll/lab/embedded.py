"""The embedded lab: up, down, status, provisioning."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from vmtoll.builds import image, machine_disk, suite, tools
from vmtoll.guests import kvm_host, needs
from vmtoll.lab import accelerator, topology
from vmtoll.model.errors import UserError, VmtollError
from vmtoll.model.inventory import GuestAccelerator
from vmtoll.model.release import Release
from vmtoll.model.workload import Workload
from vmtoll.paths import INVENTORY, LAB
from vmtoll.provisioning import provision as provisioning
from vmtoll.provisioning.guests import for_role, host_key, make_guests
from vmtoll.shell import Changes, lock, play
from vmtoll.spec.experiment import Resolved
from vmtoll.spec.inventory import read_inventory

Say = Callable[[str], None]
LINK = re.compile(r"unshaped|[1-9][0-9]*(mbit|gbit)")


def need_root() -> None:
    """Raise UserError unless this is root."""
    if os.geteuid() != 0:
        raise UserError("the embedded lab needs root, for namespaces and mounts; run vmtoll as root or by sudo")


def up(link: str, say: Say, shape: topology.Shape | None = None, release: Release | None = None) -> None:
    """Bring up a lab (default: the topology `single`) of a release, with the clients' links at `link`.

    If a lab of this shape, release and image is up and answers, only its link changes; any other lab is replaced. The
    clients get every load tool.
    """
    if not LINK.fullmatch(link):
        raise UserError(f"--link {link!r}: not a rate; give `unshaped`, or a rate such as `100mbit` or `1gbit`")
    shape = shape or topology.shape()
    _check_link(link, virtual=bool(shape.inventory))
    release = release or _own_release()
    with ThreadPoolExecutor() as pool:
        compiling = pool.submit(tools.build)
        try:
            folder = image.ensure(say, release)
            disk = machine_disk.ensure(folder, say).name if shape.inventory else image.DISK
            with lock("lab"):
                requested = shape.record() | {"suite": release.suite, "image": str(folder), "disk": disk}
                _build(link, shape, release, requested, say)
                compiling.result()
                _bring({"clients": [tool["name"] for tool in tools.binaries()]}, say)
        except VmtollError:
            if not compiling.done():
                say("the lab did not come up; why follows when the load tools are compiled")
            raise
    say(f"the lab is up, its link {link}")


def _build(link: str, shape: topology.Shape, release: Release, requested: dict[str, object], say: Say) -> None:
    """Build the requested lab, or only set the link if the running lab's record has everything that is requested."""
    built, folder, disk = _built(), Path(str(requested["image"])), requested["disk"]
    if all(built.get(key) == value for key, value in requested.items()) and not _silent_machines():
        _set_link(link)
        return
    if LAB.exists():
        _play("down")  # frees its memory for the check
    topology.check_memory(shape)
    kind, why = accelerator.probe(folder / "vmlinuz")
    say(f"accelerator: {kind} ({why}{needs.module_text(kvm_host.facts())})")
    say("building the lab" + "; what is emulated takes half a minute each to boot" * (kind == "tcg"))
    variables: dict[str, Any] = {
        "embedded_lab_image": str(folder),
        "embedded_lab_guest_disk": disk,
        **shape.variables(release),
        **_guests_and_cpus(shape, kind),
    }
    _play("up", embedded_lab_link=link, **variables)
    if shape.inventory:
        say("making the guests inside of the KVM hosts")
        make_guests(read_inventory(INVENTORY), INVENTORY, [], release, quiet=True)
    (LAB / "variables.json").write_text(json.dumps(variables))
    carried = [_copied("clients", tool) for tool in tools.binaries()] if shape.inventory else []
    _record(requested | {"link": link, "tools": carried})


def _guests_and_cpus(shape: topology.Shape, kind: GuestAccelerator) -> dict[str, object]:
    """The role's variables for the guests and for the CPU that all systems under test share: the last one.

    In a lab of virtual machines these share all CPUs. Raises UserError when this machine lacks what the guests need,
    apart from their bridge and network card, which the lab creates.
    """
    cpus = len(os.sched_getaffinity(0))
    if shape.inventory:
        machines = shape.described_guests(kind, f"0-{cpus - 1}")
        described = [for_role(machine, "machines") for machine in machines]
        return {
            "embedded_lab_guests": [
                {**named, **guest_variables} for named, guest_variables in zip(shape.guests, described, strict=True)
            ],
            "embedded_lab_trusted_key": f"{host_key()}.pub",
        }
    guests = shape.described_guests(kind, str(cpus - 1))
    if lacks := needs.lacking(guests, kvm_host.facts() | {"interfaces": [topology.BRIDGE, topology.UPLINK]}):
        raise UserError("; ".join(lacks))
    return {
        "embedded_lab_cpus": cpus,
        "embedded_lab_sut_cpus": str(cpus - 1),
        "embedded_lab_guests": [
            {**named, **for_role(guest)} for named, guest in zip(shape.guests, guests, strict=True)
        ],
    }


def ready(resolved: Resolved, say: Say) -> Path:
    """Give the running lab the link and the load tools of an experiment; return the lab's inventory.

    Raises UserError when no lab is up, or a tool cannot be built.
    """
    inventory = require()
    with lock("lab"):
        if _set_link(resolved.experiment.link):
            say(f"the lab's link is {resolved.experiment.link} now")
    equip(resolved.workloads.values(), say)
    return inventory


def equip(workloads: Iterable[Workload], say: Say) -> None:
    """Copy the compiled load tools of these workloads to the machines of the lab that send them, where missing.

    The machines under test send a workload with `client: localhost`, the clients any other.
    """
    compiled = {tool["name"] for tool in tools.binaries()}
    wanted: dict[str, set[str]] = {}
    for workload in workloads:
        group = "suts" if workload.client == "localhost" else "clients"
        wanted.setdefault(group, set()).update(compiled.intersection(workload.tools))
    with lock("lab"):
        _bring(wanted, say)


def _bring(wanted: Mapping[str, Collection[str]], say: Say) -> None:
    """Copy compiled load tools that are missing to groups of the lab's inventory. `wanted`: group → names of tools."""
    compiled = {tool["name"]: tool for tool in tools.binaries()}
    for group, names in wanted.items():
        missing = [compiled[name] for name in sorted(names) if _copied(group, compiled[name]) not in _copied_tools()]
        if missing:
            tools.build([tool["name"] for tool in missing])
            say(f"copying {', '.join(tool['name'] for tool in missing)} to the lab's {group}")
            variables = json.dumps({"load_tools_binaries": missing})
            play("load_tools.yml", "-e", variables, "--limit", group, inventory=INVENTORY, quiet=True)
            _record(_built() | {"tools": [*_copied_tools(), *(_copied(group, tool) for tool in missing)]})


def _copied(group: str, tool: Mapping[str, str]) -> str:
    """Entry of the lab's record that says that this group of its inventory has this build of a tool."""
    return f"{group} {tool['name']}-{tool['key']}"


def _set_link(link: str) -> bool:
    """Change the link, in seconds and without rebuilding the lab; return whether it changed."""
    built = _built()
    if built.get("link") == link:
        return False
    if not (LAB / "variables.json").exists():
        raise UserError("the embedded lab was built by an earlier vmtoll; rebuild it as root with `vmtoll lab up`")
    variables = json.loads((LAB / "variables.json").read_text())
    _check_link(link, virtual=bool(variables["embedded_lab_inventory"]))
    _record(built | {"link": "unknown"})  # while it changes
    _play("link", embedded_lab_link=link, **variables)
    _record(built | {"link": link})
    return True


def _check_link(link: str, *, virtual: bool) -> None:
    """Raise UserError for a rate in a lab of virtual machines, whose links vmtoll does not shape."""
    if virtual and link != "unshaped":
        raise UserError(f"link {link!r}: the links of virtual machines are not shaped; choose `unshaped`")


def down(say: Say) -> None:
    """Remove the lab: processes, mounts, namespaces, files. Harmless when there is none, or half of one."""
    with lock("lab"):
        _play("down")
        say("the lab is down")


def status() -> dict[str, object]:
    """Return the lab's state: `up`, its record (image, shape, link, …), and `silent_machines`, which do not answer."""
    built = _built()
    silent = _silent_machines() if built else []
    return {"up": bool(built) and not silent, **built, "silent_machines": silent}


def provision(
    inventory: Path | None,
    options: list[str],
    limit: str | None = None,
    release: Release | None = None,
    *,
    changes: Changes | None = None,
) -> None:
    """Provision the machines of an inventory (default: the embedded lab's); as provisioning.provision."""
    carried = provisioning.provision(inventory or require(), options, limit, release, changes=changes)
    if inventory is None and limit is None and not options:
        copied = [_copied(group, tool) for group in ("clients", "suts") for tool in carried]
        _record(_built() | {"tools": copied})


def _own_release() -> Release:
    """The release of the lab that is up; without a lab, the default of suite.lab_release."""
    return suite.lab_release(str(_built().get("suite", "")))


def require() -> Path:
    """Return the lab's inventory. Raises UserError when the lab is not up, or this is not root."""
    if os.geteuid() != 0:
        raise UserError("the embedded lab needs root; run this as root or by sudo, or give your own --inventory")
    if not (LAB / "built.json").exists():
        raise UserError("the embedded lab is not up; bring it up with `vmtoll lab up`, or give your own --inventory")
    return INVENTORY


def _play(state: str, **variables: Any) -> None:
    everything = {"embedded_lab_state": state, "embedded_lab_folder": str(LAB), **variables}
    play("lab.yml", "-e", json.dumps(everything), quiet=True)


def _record(built: dict[str, object]) -> None:
    (LAB / "built.json").write_text(json.dumps(built))


def _built() -> dict[str, object]:
    try:
        content: dict[str, object] = json.loads((LAB / "built.json").read_text())
        return content
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def _copied_tools() -> list[str]:
    """Entries of the lab's record for the compiled load tools that its machines have."""
    entries = _built().get("tools", [])
    return entries if isinstance(entries, list) else []


def _silent_machines() -> list[str]:
    config = LAB / "ssh_config"
    names = [line.split()[1] for line in config.read_text().splitlines() if re.fullmatch(r"Host [a-z0-9-]+", line)]
    reach = ["ssh", "-n", "-F", str(config), "-o", f"ConnectTimeout={topology.SSH_S}"]
    return [
        name for name in names if subprocess.run([*reach, name, "true"], capture_output=True, check=False).returncode
    ]
