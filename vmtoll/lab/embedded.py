"""The embedded lab: up, down, status, provisioning."""

import json
import os
import platform
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from vmtoll.agent import accelerator, console, kvm_host
from vmtoll.agent.applied import Applied
from vmtoll.builds import emulator, image, machine_disk, suite, tools
from vmtoll.files import lock
from vmtoll.guests import needs
from vmtoll.hypervisors.migration import FOLDER as MIGRATION_FOLDER
from vmtoll.lab import topology
from vmtoll.model.architecture import Architecture, here
from vmtoll.model.errors import UserError, VmtollError
from vmtoll.model.inventory import GuestAccelerator
from vmtoll.model.release import Release
from vmtoll.model.workload import Workload
from vmtoll.paths import INVENTORY, LAB
from vmtoll.provisioning import provision as provisioning
from vmtoll.provisioning.guests import host_key, make_guests, role_entry
from vmtoll.shell import Changes, play
from vmtoll.spec.experiment import Resolved
from vmtoll.spec.inventory import read_inventory

Say = Callable[[str], None]
SEND_BUFFER_BYTES = 1 << 17  # of a guest's card; less than a shaped link's queue in playbooks/roles/embedded_lab
LINK = re.compile(r"unshaped|[1-9][0-9]*(mbit|gbit)")


def require_root() -> None:
    """Raise UserError unless this is Debian, or a system made of it, and root."""
    _need_debian()
    if os.geteuid() != 0:
        raise UserError("the embedded lab needs root, for namespaces and mounts; run vmtoll as root or by sudo")


def _need_debian() -> None:
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        system = {}
    if "debian" not in f"{system.get('ID', '')} {system.get('ID_LIKE', '')}".split():
        name = system.get("PRETTY_NAME", "another system")
        raise UserError(f"the embedded lab needs Debian and root, and this is {name}; give an --inventory of machines")


def up(
    link: str,
    say: Say,
    shape: topology.LabShape | None = None,
    release: Release | None = None,
    workloads: Iterable[Workload] | None = None,
) -> None:
    """Bring up a lab (default: the topology `single`) of a release, with the clients' links at `link`.

    If a lab of this shape, release and image is up and answers, only its link changes; any other lab is replaced. The
    clients get the compiled load tools of these workloads, by default every one.
    """
    if not LINK.fullmatch(link):
        raise UserError(f"--link {link!r}: not a rate; give `unshaped`, or a rate such as `100mbit` or `1gbit`")
    shape = shape or topology.shape()
    _check_link(link, virtual=bool(shape.inventory))
    release = release or _own_release()
    compiled = [tool["name"] for tool in tools.binaries()]
    if workloads is not None and not shape.inventory:  # the disk of virtual machines holds all of them
        compiled = sorted({tool for workload in workloads for tool in workload.tools}.intersection(compiled))
    with ThreadPoolExecutor() as pool:
        compiling = pool.submit(tools.build, compiled)
        try:
            images = {each: image.ensure(say, each, kernels) for each, kernels in shape.images(release).items()}
            folder = images[release]
            disk = image.DISK
            if shape.inventory:
                compiling.result()  # the machines' disk holds the load tools
                disk = machine_disk.ensure(folder, say).name
            with lock("lab"):
                requested: dict[str, Any] = shape.record() | {
                    "suite": release.suite,
                    "image": str(folder),
                    "disk": disk,
                }
                if len(images) > 1:
                    requested["images"] = {each.suite: str(path) for each, path in images.items()}
                _build(link, shape, release, requested, say)
                compiling.result()
                _copy_missing_tools({"clients": compiled}, say)
        except VmtollError:
            if not compiling.done():
                say("the lab did not come up; why follows when the load tools are compiled")
            raise
    say(f"the lab is up, its link {link}")


def _build(link: str, shape: topology.LabShape, release: Release, requested: dict[str, Any], say: Say) -> None:
    """Build the requested lab, or only set the link if the running lab's record has everything that is requested."""
    record, folder, disk = _read_record(), Path(str(requested["image"])), requested["disk"]
    if all(record.get(key) == value for key, value in requested.items()) and not _silent_machines():
        _set_link(link)
        return
    if any(machine["group"] in ("containers", "runtimes") for machine in shape.machines):
        _need_podman()
    runtimes = [machine["name"] for machine in shape.machines if machine["group"] == "runtimes"]
    if LAB.exists():
        _play("down")  # frees its memory for the check
    topology.check_memory(shape)
    kernels = shape.guest_kernels(folder, requested.get("images", {}))
    probed = {kernel: accelerator.probe(kernel) for kernel in dict.fromkeys(kernels.values())}
    for kind, why in probed.values():
        say(f"accelerator: {kind} ({why}{needs.module_text(kvm_host.facts())})")
    kinds: dict[str, GuestAccelerator] = {guest: probed[kernel][0] for guest, kernel in kernels.items()}
    is_emulated = "tcg" in kinds.values()
    architecture, recorded = here(), dict[str, str]()
    if shape.inventory and is_emulated:
        program = emulator.ensure(say)
        architecture, recorded = replace(here(), program=str(program)), {"emulator": emulator.version_of(program)}
    say("building the lab" + "; what is emulated takes half a minute each to boot" * is_emulated)
    variables: dict[str, Any] = {
        "embedded_lab_image": str(folder),
        "embedded_lab_guest_disk": disk,
        **shape.variables(release, recorded),
        **_guests_and_cpus(shape, kinds, requested.get("images", {}), architecture),
        **({"embedded_lab_runsc": str(tools.runtime("runsc"))} if runtimes else {}),
    }
    try:
        _play("up", _panicked, embedded_lab_link=link, kvm_guest_console_program=console.__file__, **variables)
    except (VmtollError, KeyboardInterrupt) as error:  # such as a guest whose kernel does not boot: the error quotes it
        if isinstance(error, KeyboardInterrupt):
            say("interrupted; removing the half of the lab that is there")
        _play("down")
        raise
    if shape.inventory:
        say("making the guests inside of the KVM hosts")
        make_guests(read_inventory(INVENTORY), INVENTORY, [], release, quiet=True)
    (LAB / "variables.json").write_text(json.dumps(variables))
    tool_entries = [_tool_entry("clients", tool) for tool in tools.binaries()] if shape.inventory else []
    _write_record(requested | recorded | {"link": link, "tools": tool_entries})


def _need_podman() -> None:
    """Raise UserError when a program is missing that runs the lab's containers."""
    if missing := [program for program in ("podman", "runc") if not shutil.which(program)]:
        names = " and ".join(missing)
        raise UserError(f"the lab's containers need {names}; install with `apt-get install {' '.join(missing)}`")


def _guests_and_cpus(
    shape: topology.LabShape, kinds: Mapping[str, GuestAccelerator], images: Mapping[str, str],
    architecture: Architecture,
) -> dict[str, object]:  # fmt: skip
    """The role's variables for the guests and for the CPU that all systems under test share: the last one. `kinds`:
    guest → what runs its code. `images`: suite → folder of its image, where there are several. `architecture`: with
    the QEMU of virtual machines.

    In a lab of virtual machines these share all CPUs. Raises UserError when this machine lacks what the guests need,
    apart from their bridge and network card, which the lab creates.
    """
    cpus, rate_khz = len(os.sched_getaffinity(0)), kvm_host.tsc_khz()
    if shape.inventory:
        machines = shape.described_guests(kinds, f"0-{cpus - 1}")
        role_entries = [
            role_entry(machine, "machines", tsc_khz=rate_khz, architecture=architecture) for machine in machines
        ]
        return {
            "embedded_lab_guests": [
                {**guest, **guest_variables} for guest, guest_variables in zip(shape.guests, role_entries, strict=True)
            ],
            "embedded_lab_trusted_key": f"{host_key()}.pub",
        }
    guests = shape.described_guests(kinds, str(cpus - 1))
    if lacks := needs.lacking(guests, kvm_host.facts() | {"interfaces": [topology.BRIDGE, topology.UPLINK]}):
        raise UserError("; ".join(lacks))
    return {
        "embedded_lab_cpus": cpus,
        "embedded_lab_sut_cpus": str(cpus - 1),
        "embedded_lab_send_buffer_bytes": SEND_BUFFER_BYTES,
        "embedded_lab_guests": [
            {**variables, **_with_send_buffer(role_entry(guest, tsc_khz=rate_khz, images=images))}
            for variables, guest in zip(shape.guests, guests, strict=True)
        ],
    }


def _with_send_buffer(entry: dict[str, Any]) -> dict[str, Any]:
    """The guest's entry with a limited send buffer, so that its card waits while SEND_BUFFER_BYTES are queued.

    libvirt sets no limit, so the guest would send packets that the queue of a shaped link drops.
    """
    domain = ET.fromstring(entry["xml"])
    for card in domain.findall("devices/interface[@type='bridge']"):
        ET.SubElement(ET.SubElement(card, "tune"), "sndbuf").text = str(SEND_BUFFER_BYTES)
    ET.indent(domain)
    return entry | {"xml": ET.tostring(domain, encoding="unicode") + "\n"}


def prepare(resolved: Resolved, say: Say) -> Path:
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
        _copy_missing_tools(wanted, say)


def _copy_missing_tools(wanted: Mapping[str, Collection[str]], say: Say) -> None:
    """Copy compiled load tools that are missing to groups of the lab's inventory. `wanted`: group → names of tools."""
    compiled = {tool["name"]: tool for tool in tools.binaries()}
    for group, names in wanted.items():
        missing = [
            compiled[name] for name in sorted(names) if _tool_entry(group, compiled[name]) not in _recorded_tools()
        ]
        if missing:
            tools.build([tool["name"] for tool in missing])
            say(f"copying {', '.join(tool['name'] for tool in missing)} to the lab's {group}")
            variables = json.dumps({"load_tools_binaries": missing})
            play("load_tools.yml", "-e", variables, "--limit", group, inventory=INVENTORY, quiet=True)
            _write_record(
                _read_record() | {"tools": [*_recorded_tools(), *(_tool_entry(group, tool) for tool in missing)]}
            )


def _tool_entry(group: str, tool: Mapping[str, str]) -> str:
    """Entry of the lab's record that says that this group of its inventory has this build of a tool."""
    return f"{group} {tool['name']}-{tool['key']}"


def _set_link(link: str) -> bool:
    """Change the link, in seconds and without rebuilding the lab; return whether it changed."""
    record = _read_record()
    if record.get("link") == link:
        return False
    if not (LAB / "variables.json").exists():
        raise UserError("the embedded lab was built by an earlier vmtoll; rebuild it as root with `vmtoll lab up`")
    variables = json.loads((LAB / "variables.json").read_text())
    _check_link(link, virtual=bool(variables["embedded_lab_inventory"]))
    _write_record(record | {"link": "unknown"})  # while it changes
    _play("link", embedded_lab_link=link, **variables)
    _write_record(record | {"link": link})
    return True


def _check_link(link: str, *, virtual: bool) -> None:
    """Raise UserError for a rate in a lab of virtual machines, whose links vmtoll does not shape."""
    if virtual and link != "unshaped":
        raise UserError(f"link {link!r}: the links of virtual machines are not shaped; choose `unshaped`")


def down(say: Say) -> None:
    """Remove the lab: processes, mounts, namespaces, files. Harmless when there is none, or half of one."""
    with lock("lab"):
        for guest in _guests_made():
            Applied().forget(guest)
            shutil.rmtree(MIGRATION_FOLDER.format(domain=guest), ignore_errors=True)
        _play("down")
        say("the lab is down")


def _guests_made() -> set[str]:
    """The guests of the lab that is there, or of half of one, by the keys that were made for them."""
    return {key.stem for pattern in ("guests/*.host_key", "hosts/*/guests/*.host_key") for key in LAB.glob(pattern)}


def status() -> dict[str, object]:
    """Return the lab's state: `up`, its record (image, shape, link, …), and `silent_machines`, which do not answer."""
    record = _read_record()
    silent = _silent_machines() if record else []
    return {"up": bool(record) and not silent, **record, "silent_machines": silent}


def provision(
    inventory: Path | None,
    options: list[str],
    limit: str | None = None,
    release: Release | None = None,
    *,
    changes: Changes | None = None,
) -> None:
    """Provision the machines of an inventory (default: the embedded lab's); as provisioning.provision."""
    provisioned_tools = provisioning.provision(inventory or require(), options, limit, release, changes=changes)
    if inventory is None and limit is None and not options:
        tool_entries = [_tool_entry(group, tool) for group in ("clients", "suts") for tool in provisioned_tools]
        _write_record(_read_record() | {"tools": tool_entries})


def _own_release() -> Release:
    """The release of the lab that is up; without a lab, the default of suite.lab_release."""
    return suite.lab_release(str(_read_record().get("suite", "")))


def require() -> Path:
    """Return the lab's inventory. Raises UserError when the lab is not up, or this is not root."""
    _need_debian()
    if os.geteuid() != 0:
        raise UserError("the embedded lab needs root; run this as root or by sudo, or give your own --inventory")
    if not (LAB / "built.json").exists():
        raise UserError("the embedded lab is not up; bring it up with `vmtoll lab up`, or give your own --inventory")
    return INVENTORY


def _panicked() -> str:
    """Why a guest of the lab does not answer, if its kernel has panicked."""
    for file in sorted(LAB.glob("guests/*-console.log")):
        if panic := console.panic(file):
            return f"the guest {file.name.removesuffix('-console.log')} panicked: {panic}"
    return ""


def _play(state: str, watch: Callable[[], str] | None = None, **variables: Any) -> None:
    all_variables = {"embedded_lab_state": state, "embedded_lab_folder": str(LAB), **variables}
    play("lab.yml", "-e", json.dumps(all_variables), quiet=True, watch=watch)


def _write_record(record: dict[str, object]) -> None:
    (LAB / "built.json").write_text(json.dumps(record))


def _read_record() -> dict[str, object]:
    try:
        content: dict[str, object] = json.loads((LAB / "built.json").read_text())
        return content
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def _recorded_tools() -> list[str]:
    """Entries of the lab's record for the compiled load tools that its machines have."""
    entries = _read_record().get("tools", [])
    return entries if isinstance(entries, list) else []


def _silent_machines() -> list[str]:
    config = LAB / "ssh_config"
    names = [line.split()[1] for line in config.read_text().splitlines() if re.fullmatch(r"Host [a-z0-9-]+", line)]
    ssh_command = ["ssh", "-n", "-F", str(config), "-o", f"ConnectTimeout={topology.SSH_S}"]
    return [
        name
        for name in names
        if subprocess.run([*ssh_command, name, "true"], capture_output=True, check=False).returncode
    ]
