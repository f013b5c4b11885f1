"""The inventory has all that a run needs, and no variable that vmtoll does not know."""

import difflib
import re
from collections import defaultdict
from collections.abc import Iterator

from vmtoll.model.inventory import Host, HostVars
from vmtoll.preflight.lab import SUTS, Lab
from vmtoll.preflight.result import CheckResult, fail, ok, warn
from vmtoll.spec.catalog import Registry, unknown

ORDER = 10


def check(lab: Lab) -> Iterator[CheckResult]:
    """Values, groups, environments, guests' variables, variables that must be the same, unknown variables."""
    wrong = [*_values(lab), *_groups(lab), *_environments(lab), *_guests(lab), *_same(lab), *_link(lab), *_typos(lab)]
    yield from wrong
    if not any(result.level == "fail" for result in wrong):
        parts = ", ".join(f"{len(hosts)} {role}" for role, hosts in lab.by_role.items())
        yield ok("", f"{lab.path}: {parts}")


def _values(lab: Lab) -> Iterator[CheckResult]:
    for host, mistake in lab.mistakes.items():
        yield fail(host, mistake, "Correct it in the inventory; the other checks leave this machine out.")


def _groups(lab: Lab) -> Iterator[CheckResult]:
    if lab.mistakes:
        return
    if not lab.by_role["client"]:
        yield fail("", f"{lab.path}: the group `clients` is empty", "Name the machine there that sends the load.")
    if not lab.by_role["metal"] and not lab.by_role["kvm_guest"]:
        yield fail(
            "", f"{lab.path}: the groups `metal_hosts` and `kvm_guests` are empty", "Name the machines to be measured."
        )


def _environments(lab: Lab) -> Iterator[CheckResult]:
    environments, sharing = Registry().environments(), defaultdict[tuple[str, str], list[Host]](list)
    for host in _suts(lab):
        environment = host.vars.environment
        if environment is None:
            yield fail(host.name, "vmtoll_environment is not set", "Set it: metal, or the name of a guest profile.")
        elif environment not in environments:
            yield fail(
                host.name, unknown("vmtoll_environment", environment, environments), "Correct it in the inventory."
            )
        else:
            sharing[lab.cell(host), environment].append(host)
    for (_, environment), hosts in sharing.items():
        if len({host.vars.kvm_host or host.name for host in hosts}) > 1:
            names = ", ".join(host.name for host in hosts)
            yield warn("", f"{names} are all {environment}", "Choose one with --limit, or make each part of a cell.")


def _guests(lab: Lab) -> Iterator[CheckResult]:
    kvm_hosts = {host.name for host in lab.by_role["kvm_host"]} | set(lab.mistakes)
    for guest in lab.by_role["kvm_guest"]:
        for name, value in (("vmtoll_kvm_host", guest.vars.kvm_host), ("vmtoll_domain", guest.vars.domain)):
            if value is None:
                yield fail(guest.name, f"{name} is not set", "Set it, to tell KVM from emulation.")
    for host in (host for hosts in lab.by_role.values() for host in hosts):
        named = (("vmtoll_kvm_host", host.vars.kvm_host), ("vmtoll_container_host", host.vars.container_host))
        for name, value in named:
            if value is not None and value not in kvm_hosts:
                observation = f"{name} is {value!r}, which is not in the group `kvm_hosts`"
                yield fail(host.name, observation, "Add it there, or correct the name.")


def _same(lab: Lab) -> Iterator[CheckResult]:
    ports = {host.vars.http_port: host.name for host in _suts(lab)}
    workers = {host.vars.workers: host.name for host in _suts(lab)}
    for name, values in (("vmtoll_http_port", ports), ("vmtoll_workers", workers)):
        if len(values) > 1:
            values_text = ", ".join(f"{value} on {host}" for value, host in values.items())
            yield fail("", f"{name} is {values_text}", "Set it once, under `all` or `suts`.")


def _link(lab: Lab) -> Iterator[CheckResult]:
    clients = lab.by_role["client"]
    if len({client.vars.link for client in clients}) > 1:
        links = ", ".join(f"{client.vars.link} on {client.name}" for client in clients)
        yield warn("", f"vmtoll_link is {links}", "Choose clients with --limit: one load needs one link.")
    for client in clients:
        rate = re.fullmatch(r"([0-9]+)(mbit|gbit)", client.vars.link)
        rate_mbit = int(rate[1]) * (1000 if rate[2] == "gbit" else 1) if rate else None
        if rate_mbit is not None and client.vars.link_mbit != rate_mbit:
            line = "not set" if client.vars.link_mbit is None else f"{client.vars.link_mbit:g}"
            observation = f"vmtoll_link is {client.vars.link}, and vmtoll_link_mbit is {line}"
            yield fail(client.name, observation, f"Set vmtoll_link_mbit: {rate_mbit}.")


def _typos(lab: Lab) -> Iterator[CheckResult]:
    having = defaultdict[str, list[str]](list)
    for host, variables in lab.data.get("_meta", {}).get("hostvars", {}).items():
        for name in HostVars.unknown(variables):
            having[name].append(host)
    for name, hosts in having.items():
        close = difflib.get_close_matches(name, HostVars.names(), n=1)
        advice = f"Did you mean {close[0]}?" if close else "Remove it; docs/inventory.md lists all variables."
        yield fail(", ".join(hosts), f"unknown variable {name}", advice)


def _suts(lab: Lab) -> list[Host]:
    return [host for role in SUTS for host in lab.by_role[role]]
