"""Find what is wrong with an inventory before anything connects: one check for every command.

The group decides what a machine is. Other tools' groups and variables are ignored.
"""

import difflib
import importlib.util
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from vmtoll.model.complaint import Complaint, fail, warn
from vmtoll.model.errors import InventoryError
from vmtoll.model.inventory import GUEST_NAMES, Connection, Host, HostVars, Role
from vmtoll.model.trial import CONTAINER_HOST_NETWORK, CONTAINERS
from vmtoll.spec.catalog import Registry, unknown
from vmtoll.spec.inventory import hosts_by_role, members, read_inventory
from vmtoll.spec.inventory_files import GROUPS, KNOWN_GROUPS, is_within, nearest
from vmtoll.spec.profiles import environment_names
from vmtoll.spec.runtimes import load as load_runtime

# Why a command reads the inventory. `load`: to measure its machines. `machines`: to change or inspect them. `hosts`: to
# change or inspect any hosts, whatever their group.
Purpose = Literal["load", "machines", "hosts"]
SUTS: tuple[Role, ...] = ("metal", "container", "kvm_guest")
_SHORT_GROUPS = {"suts", "cells"}
# Ansible's own groups.
_ANSIBLE_GROUPS = {"_meta", "all", "ungrouped"}


@dataclass(frozen=True)
class InventoryData:
    """The machines of an inventory."""

    data: Mapping[str, Any]  # the output of ansible-inventory
    path: Path

    @cached_property
    def mistakes(self) -> dict[str, dict[str, str]]:
        """Machine → variable with a wrong value → what is wrong with it."""
        hosts = (host for role_hosts in self._hosts_by_role.values() for host in role_hosts)
        return {host.name: wrong for host in hosts if (wrong := host.mistakes())}

    @cached_property
    def by_role(self) -> dict[Role, list[Host]]:
        """The machines, without the variables that have a wrong value."""
        return {
            role: [self._without_wrong_variables(host) for host in hosts] for role, hosts in self._hosts_by_role.items()
        }

    def _without_wrong_variables(self, host: Host) -> Host:
        wrong = self.mistakes.get(host.name, {})
        valid = {k: v for k, v in host.variables.items() if not {k, k.replace("ansible_ssh_", "ansible_")} & set(wrong)}
        return replace(host, variables=valid) if wrong else host

    @cached_property
    def _hosts_by_role(self) -> dict[Role, list[Host]]:
        return hosts_by_role(self.data, str(self.path))

    @property
    def suts(self) -> list[Host]:
        """The machines under test."""
        return [host for role in SUTS for host in self.by_role[role]]

    @property
    def variables(self) -> Mapping[str, Mapping[str, Any]]:
        """Host → its variables, also for hosts outside of our groups."""
        hosts: Mapping[str, Mapping[str, Any]] = self.data.get("_meta", {}).get("hostvars", {})
        return hosts

    def test_bed(self, host: Host) -> str:
        """The machine's child group of `cells`; empty where there are none."""
        return self._test_beds.get(host.name, "")

    @cached_property
    def _test_beds(self) -> dict[str, str]:
        test_beds = self.data.get("cells", {}).get("children", [])
        return {host: test_bed for test_bed in reversed(test_beds) for host in members(self.data, test_bed)}


def read_valid_inventory(path: Path, limit: str | None = None, *, purpose: Purpose = "machines") -> dict[str, Any]:
    """Return the output of `ansible-inventory --list` of an inventory without errors, as read_inventory does.

    Raises InventoryError with one line for each error.
    """
    data = read_inventory(path, limit)
    check_inventory(InventoryData(data, path), limited=limit is not None, purpose=purpose)
    return data


def check_inventory(machines: InventoryData, known: Collection[str] = (), *, limited: bool, purpose: Purpose) -> None:
    """Raise InventoryError with one line for each error of an inventory; see faults."""
    errors = [fault for fault in faults(machines, known, limited=limited, purpose=purpose) if fault.level == "fail"]
    if not errors:
        return
    if len(errors) == 1:
        raise InventoryError(f"{machines.path}: {errors[0]}")
    lines = "".join(f"\n  {fault}" for fault in errors)
    raise InventoryError(f"{machines.path}: {len(errors)} errors; nothing was started:{lines}")


def faults(
    machines: InventoryData, known: Collection[str] = (), *, limited: bool = False, purpose: Purpose = "load"
) -> Iterator[Complaint]:
    """Yield everything that is wrong with an inventory.

    `known`: environments besides those that vmtoll ships. `limited`: a --limit has chosen some of its machines.
    """
    yield from _wrong_values(machines)
    others = [
        *(_groups(machines, limited=limited, for_load=purpose == "load") if purpose != "hosts" else ()),
        *_environments(machines, known, for_load=purpose == "load"), *_guests(machines), *_containers(machines),
        *_duplicate_endpoints(machines), *_differing_variables(machines),
        *(_ipv6_load_addresses(machines) if purpose == "load" else ()), *_link(machines), *_unknown_variables(machines),
    ]  # fmt: skip
    yield from (fault for fault in others if not _is_reported_already(fault, machines))


def _wrong_values(machines: InventoryData) -> Iterator[Complaint]:
    hosts_by_mistake = defaultdict[str, list[str]](list)
    for host, wrong in machines.mistakes.items():
        for mistake in wrong.values():
            hosts_by_mistake[mistake].append(host)
    for mistake, hosts in hosts_by_mistake.items():
        yield fail(", ".join(hosts), mistake, "Correct it in the inventory")


def _is_reported_already(fault: Complaint, machines: InventoryData) -> bool:
    """Return whether a fault concerns a variable whose wrong value is reported already."""
    words = set(re.split(r"[^\w.-]+", f"{fault.machine} {fault.found}"))
    return any(host in words and not words.isdisjoint(wrong) for host, wrong in machines.mistakes.items())


def _groups(machines: InventoryData, *, limited: bool, for_load: bool) -> Iterator[Complaint]:
    grouped_hosts = {name for group, _ in GROUPS for name in members(machines.data, group)}
    own_variables = _own_variables(machines.variables)
    children = {child for group in KNOWN_GROUPS for child in machines.data.get(group, {}).get("children", [])}
    misspelt_hosts: set[str] = set()
    for name in machines.data:
        nearest_group = None if name in _ANSIBLE_GROUPS | KNOWN_GROUPS | children else nearest(name)
        if nearest_group and _is_misspelt(machines.data, name, nearest_group, grouped_hosts, own_variables):
            misspelt_hosts.update(members(machines.data, name))
            other = (
                f" next to `{nearest_group}`" if nearest_group in machines.data else f", and no group `{nearest_group}`"
            )
            yield fail("", f"unknown group `{name}`{other}", f"Call it {nearest_group}, or something else")
    for host, variables in own_variables.items():
        if host not in grouped_hosts | misspelt_hosts and variables:
            groups = ", ".join(f"`{group}`" for group, _ in GROUPS)
            yield fail(
                host, f"sets {variables[0]} but belongs to none of vmtoll's groups", f"Add it to one of {groups}"
            )
    if limited:
        return
    if not grouped_hosts:
        yield fail("", "no machine is in any of vmtoll's groups", "docs/inventory.md lists the group names")
    elif for_load and not machines.by_role["client"]:
        yield fail("", "the group `clients` is empty", "Name the machine there that sends the load")
    if grouped_hosts and for_load and not machines.suts:
        yield fail(
            "", "the groups `metal_hosts`, `containers` and `kvm_guests` are empty", "Name the machines to be measured"
        )


def _is_misspelt(
    data: Mapping[str, Any],
    name: str,
    nearest_group: str,
    grouped_hosts: Set[str],
    own_variables: Mapping[str, Sequence[str]],
) -> bool:
    """Return whether a group whose name is close to one of ours is that one, misspelled. Short names need evidence,
    because `dell` is close to `cells`: a child that is ours, or a host with a variable of ours.

    `grouped_hosts`: the hosts of our groups. `own_variables`: each host's own variables vmtoll_….
    """
    hosts = members(data, name)
    if nearest_group in _SHORT_GROUPS and (
        len(name) == len(nearest_group) or not is_within(name.lower(), nearest_group, 1)
    ):
        return bool(KNOWN_GROUPS.intersection(data[name].get("children", ()))) or any(
            own_variables.get(host) for host in hosts
        )
    return nearest_group not in data or not grouped_hosts >= set(hosts)


def _own_variables(variables: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Host → its variables vmtoll_…, without those that have the same value on every host: these were set for all."""
    shared = {
        name
        for name in set[str]().union(*variables.values())
        if len({repr(given.get(name)) for given in variables.values()}) == 1
    }
    return {
        host: [name for name in given if name.startswith(HostVars.namespace) and name not in shared]
        for host, given in variables.items()
        if len(variables) > 1
    }


def _environments(machines: InventoryData, known: Collection[str], *, for_load: bool) -> Iterator[Complaint]:
    """Yield environments that contradict the group, are unknown or missing, and machines that share one."""
    shipped = environment_names()
    no_guests, runtimes = Registry().no_guests(), Registry().paths["runtime"].names()
    guests = [name for name in shipped if name not in no_guests]
    names = sorted({*shipped, *known})
    hosts_by_environment = defaultdict[tuple[str, str], list[Host]](list)
    for host in machines.suts:
        label = host.vars.environment
        if label is None:
            if for_load:
                yield fail(host.name, "vmtoll_environment is not set", "Set it: metal, or the name of a guest profile")
        elif label not in names:
            is_misspelt = any(is_within(label.lower(), name, 2) for name in names)
            observation = unknown("vmtoll_environment", label, names)
            yield (fail if is_misspelt else warn)(host.name, observation, "Correct it in the inventory")
        elif (host.role == "kvm_guest" and label in no_guests) or (
            (host.role == "container") != (label in (*CONTAINERS, *runtimes)) and label in (*guests, *no_guests)
        ):
            yield _contradiction(host, f"vmtoll_environment is {label}")
        elif host.role == "metal" and label in guests and not host.vars.container_host:
            yield _contradiction(host, f"vmtoll_environment is the guest profile {label}")
        else:
            hosts_by_environment[machines.test_bed(host), label].append(host)
    for (_, label), hosts in hosts_by_environment.items():
        if len({host.vars.kvm_host or host.name for host in hosts}) > 1:
            names_text = ", ".join(host.name for host in hosts)
            yield warn("", f"{names_text} are all {label}", "Choose one with --limit, or make each part of a cell")


def _contradiction(host: Host, text: str) -> Complaint:
    """Return that the group of a machine says something else than a variable."""
    group = {role: group for group, role in GROUPS}[host.role]
    advice = "Group and variable disagree; change one of them"
    return fail(host.name, f"it is in the group `{group}`, and {text}", advice)


def _guest_variables(host: Host) -> list[Complaint]:
    """Return that a machine of another group has a variable of guests, or nothing."""
    names = [name for name in (*GUEST_NAMES, "unit", "profile") if getattr(host.vars, name)]
    return [_contradiction(host, f"vmtoll_{name} says that it is a guest") for name in names[:1]]


def _profile(guest: Host) -> Iterator[Complaint]:
    """Yield what is wrong with a guest that vmtoll makes: its profile, its environment, its CPUs."""
    profile, environment = guest.vars.profile, guest.vars.environment
    guests = [name for name in environment_names() if name not in Registry().no_guests()]
    if profile is None:
        return
    if profile not in guests:
        yield fail(guest.name, unknown("vmtoll_profile", profile, guests), "Correct it in the inventory")
    elif environment is not None and environment != profile:
        observation = f"vmtoll_environment is {environment!r} and vmtoll_profile {profile!r}"
        yield fail(guest.name, observation, "Make them the same")
    if guest.vars.cpus is None:
        yield fail(guest.name, "vmtoll_cpus is not set", "Set it: the CPUs of its KVM host that it may use")


def _endpoint(host: Host) -> tuple[object, ...]:
    """A machine's address and port for SSH; for a local one its name, because tests share one machine."""
    return (host.name,) if host.is_local else (host.ssh_host, host.ansible.port or 22)


def _at_its_address(guest: Host, machines: InventoryData) -> str:
    """The KVM host or metal machine that has the guest's address and port for SSH; empty if none has."""
    if guest.root != "/":
        return ""
    machines_by_label = {"the KVM host": machines.by_role["kvm_host"], "the metal machine": machines.by_role["metal"]}
    for label, others in machines_by_label.items():
        for other in others:
            if other.root == "/" and _endpoint(other) == _endpoint(guest):
                return f"{'its KVM host' if other.name == guest.vars.kvm_host else label} {other.name}"
    return ""


def _names_of(guest: Host) -> list[str]:
    """The variables that say what a guest is on its host."""
    names = [name for name in GUEST_NAMES if getattr(guest.vars, name) is not None]
    starts_qemu = guest.vars.unit is None or "qmp_socket" in names
    return names if starts_qemu else [*names, "unit"]


def _domain_of_its_name(guest: Host, machines: InventoryData) -> str | None:
    """The guest of libvirt whose domain on the same host has the name of this guest of something else."""
    if guest.vars.domain or not guest.guest_name:
        return None
    others = (other for other in machines.by_role["kvm_guest"] if other.vars.kvm_host == guest.vars.kvm_host)
    return next((other.name for other in others if other.vars.domain == guest.name), None)


def _guests(machines: InventoryData) -> Iterator[Complaint]:
    kvm_hosts = {host.name for host in machines.by_role["kvm_host"]}
    for guest in machines.by_role["kvm_guest"]:
        names = _names_of(guest)
        host_variables = {"vmtoll_kvm_host": guest.vars.kvm_host, "vmtoll_domain": names or None}
        if guest.vars.profile:  # libvirt runs what vmtoll makes
            host_variables["vmtoll_domain"] = guest.vars.domain
        unset = [name for name, value in host_variables.items() if value is None]
        if guest.vars.profile or len(unset) < len(host_variables):
            advice = "Set it" if guest.vars.profile else "Set both, or omit both where you cannot access its host"
            yield from (fail(guest.name, f"{name} is not set", advice) for name in unset)
        if len(names) > 1:
            observation = f"{' and '.join(f'vmtoll_{name}' for name in names)} are both set"
            yield fail(guest.name, observation, "Keep the one of what runs the guest")
        if other := _domain_of_its_name(guest, machines):
            observation = f"its name is the vmtoll_domain of {other}, on the same KVM host"
            yield fail(guest.name, observation, "Rename it in the inventory: its name identifies it on its host")
        yield from _profile(guest)
        if guest.vars.kvm_host == guest.name:
            yield fail(guest.name, "vmtoll_kvm_host is the guest itself", "Name the machine that it runs on")
        elif other := _at_its_address(guest, machines):
            observation = f"its address {guest.ssh_host} is that of {other}"
            yield fail(guest.name, observation, "Correct ansible_host of one of them, or its group")
    for metal in machines.by_role["metal"]:
        yield from _guest_variables(metal)
    for host in (host for hosts in machines.by_role.values() for host in hosts):
        named = (("vmtoll_kvm_host", host.vars.kvm_host), ("vmtoll_container_host", host.vars.container_host))
        for name, value in named:
            if value is not None and value not in kvm_hosts:
                observation = f"{name} is {value!r}, which is not in the group `kvm_hosts`"
                yield fail(host.name, observation, "Add it there, or correct the name")


def _containers(machines: InventoryData) -> Iterator[Complaint]:
    """Yield what a container lacks that vmtoll makes, and containers that say they are guests."""
    for container in machines.by_role["container"]:
        if container.vars.runtime:
            yield from _sandbox(container)
            continue
        variables, is_host_network = container.vars, container.vars.environment == CONTAINER_HOST_NETWORK
        yield from _guest_variables(container)
        if variables.container_host is None and (variables.cpus or variables.container):
            yield fail(container.name, "vmtoll_container_host is not set", "Set it: the host that it runs on")
        if not variables.cpus:
            continue
        if is_host_network and container.ansible.port in (None, 22):
            observation = "its network is the host's, and its SSH server would want the host's port 22"
            yield fail(container.name, observation, "Set ansible_port to a free port of the host")
        if not is_host_network and variables.prefix is None:
            observation = "vmtoll_prefix is not set, and a container gets no address by DHCP"
            yield fail(container.name, observation, "Set it: the length of its network's prefix, as 24")


def _sandbox(container: Host) -> Iterator[Complaint]:
    """Yield what the agent of its host lacks to start a server in this container runtime."""
    variables, runtimes = container.vars, Registry().paths["runtime"].names()
    name, network = variables.runtime, variables.network
    runtime = load_runtime(str(name)) if name in runtimes else None
    program = runtime.runtime if runtime else ""
    rules = (
        (not runtime, unknown("vmtoll_runtime", str(name), runtimes), "Correct it in the inventory"),
        (runtime and variables.environment != name,
         f"vmtoll_environment is {variables.environment!r} and vmtoll_runtime {name!r}",
         "Leave vmtoll_environment out"),
        (variables.container_host is None,
         "vmtoll_container_host is not set", "Set it: the host that starts the server"),
        (not variables.cpus, "vmtoll_cpus is not set", "Set it: the CPUs of the host that the server may use"),
        (not (variables.rootfs or variables.image),
         "neither vmtoll_rootfs nor vmtoll_image is set", "Set one: the root file system with the servers"),
        (runtime and program == "runsc" and runtime.stack == "own" and network == "host",
         "vmtoll_network is host, and gVisor's own TCP would take its cards",
         "Use bridge or namespace, or a runtime with `stack: host`"),
        (program == "process" and network == "bridge",
         "vmtoll_network is bridge, and a plain process is not on podman's",
         "Use namespace or host for all environments"),
        (network == "namespace" and not variables.network_namespace,
         "vmtoll_network is namespace, and vmtoll_network_namespace is not set",
         "Set it: the name of a network namespace of the host"),
        (container.ansible.host is None and variables.address is None,
         "vmtoll_address is not set", "Set it: the address at which clients reach the server"),
    )  # fmt: skip
    yield from (fail(container.name, observation, advice) for wrong, observation, advice in rules if wrong)


def _duplicate_endpoints(machines: InventoryData) -> Iterator[Complaint]:
    """Yield guests that are one guest of their host, and machines under test that share the address and port of the
    load.
    """
    hosts_at = defaultdict[tuple[object, ...], list[str]](list)  # place, which begins with the variable → its hosts
    for host in machines.suts:
        for name in _names_of(host) if host.role == "kvm_guest" and host.vars.kvm_host else []:
            hosts_at[name, "guest", host.vars.kvm_host, getattr(host.vars, name)].append(host.name)
    for host in machines.suts:
        if host.vars.address and host.root == "/":
            hosts_at["address", "machine", machines.test_bed(host), host.vars.address, host.port].append(host.name)
    for (variable, noun, *_), hosts in hosts_at.items():
        if len(hosts) > 1:
            yield fail("", f"{' and '.join(hosts)} have the same vmtoll_{variable}", f"Give each {noun} its own")


def _differing_variables(machines: InventoryData) -> Iterator[Complaint]:
    """Yield variables that must be the same on all machines under test, and are not. Two machines at one address need
    different ports, so only one of them counts.
    """
    one_per_address = {host.ssh_host: host for host in machines.suts}.values()
    ports = {host.vars.http_port: host.name for host in one_per_address}
    workers = {host.vars.workers: host.name for host in machines.suts}
    for name, values in (("vmtoll_http_port", ports), ("vmtoll_workers", workers)):
        if len(values) > 1:
            text = ", ".join(f"{value} on {host}" for value, host in values.items())
            yield fail("", f"{name} is {text}", "Set it once, under `all` or `suts`")


def _ipv6_load_addresses(machines: InventoryData) -> Iterator[Complaint]:
    """Yield machines whose load would go to an IPv6 address: SSH may use IPv6, but the servers listen on IPv4."""
    for host in machines.suts:
        if ":" in host.address:
            observation = f"load would go to {host.address}, and vmtoll's servers listen on IPv4 only"
            yield fail(host.name, observation, "Set vmtoll_address to an IPv4 address of it, or a name that has one")


def _link(machines: InventoryData) -> Iterator[Complaint]:
    clients = machines.by_role["client"]
    if len({client.vars.link for client in clients}) > 1:
        links = ", ".join(f"{client.vars.link} on {client.name}" for client in clients)
        yield warn("", f"vmtoll_link is {links}", "Choose clients with --limit: one load needs one link")
    for client in clients:
        rate = re.fullmatch(r"([0-9]+)(mbit|gbit)", client.vars.link)
        rate_mbit = int(rate[1]) * (1000 if rate[2] == "gbit" else 1) if rate else None
        if rate_mbit is not None and client.vars.link_mbit != rate_mbit:
            line = "not set" if client.vars.link_mbit is None else f"{client.vars.link_mbit:g}"
            observation = f"vmtoll_link is {client.vars.link}, and vmtoll_link_mbit is {line}"
            yield fail(client.name, observation, f"Set vmtoll_link_mbit: {rate_mbit}")


_PASSWORDS = frozenset({
    "ansible_password", "ansible_ssh_pass", "ansible_ssh_password", "ansible_become_pass", "ansible_become_password",
    "ansible_sudo_pass",
})  # fmt: skip


def _unknown_variables(machines: InventoryData) -> Iterator[Complaint]:
    hosts_by_variable = defaultdict[str, list[str]](list)
    for host, variables in machines.variables.items():
        for name in variables:
            hosts_by_variable[name].append(host)
    for name in HostVars.unknown(hosts_by_variable):
        close = difflib.get_close_matches(name, HostVars.names(), n=1)
        advice = f"Did you mean {close[0]}?" if close else "Remove it; docs/inventory.md lists all variables"
        yield fail(", ".join(hosts_by_variable[name]), f"unknown variable {name}", advice)
    for name in sorted(_PASSWORDS.intersection(hosts_by_variable)):
        observation = f"{name} is set, and vmtoll logs in by keys and becomes root by a sudo that asks for no password"
        yield fail(", ".join(hosts_by_variable[name]), observation, "Remove it, with a key of yours on the machine")
    for name, hosts in hosts_by_variable.items():
        if name.startswith("ansible_") and name not in (known := _ansible_variables()) and not _is_interpreter(name):
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
            advice = f"Did you mean {close[0]}?" if close else "Remove it, or leave it to whom it belongs"
            yield warn(", ".join(hosts), f"neither Ansible's connection nor vmtoll reads {name}", advice)


def _is_interpreter(name: str) -> bool:
    """Return whether a variable is ansible_LANGUAGE_interpreter; a misspelling of Python's is not."""
    return name.endswith("_interpreter") and not is_within(name, "ansible_python_interpreter", 2)


@cache
def _ansible_variables() -> Sequence[str]:
    """The variables that Ansible has for its connection, become, shell and strategy plugins and its configuration, and
    those of a connection that vmtoll reads.
    """
    spec = importlib.util.find_spec("ansible")
    names: set[str] = set()
    for location in (spec and spec.submodule_search_locations) or ():
        root = Path(location)
        folders = [root / "plugins" / kind for kind in ("connection", "become", "shell", "doc_fragments", "strategy")]
        for file in [root / "config" / "base.yml", *(file for folder in folders for file in folder.glob("*.py"))]:
            names.update(re.findall(r"\bname: '?(ansible_\w+)", file.read_text("utf-8")))
        names.update(re.findall(r"'(ansible_\w+)'", (root / "constants.py").read_text("utf-8")))
    return sorted(names.union(Connection.names()))
