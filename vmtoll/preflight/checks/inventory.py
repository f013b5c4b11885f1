"""The inventory says all that a run needs, and nothing that no one reads."""

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from vmtoll.guests.inventory import VARIABLES
from vmtoll.paths import PLAYBOOKS, REPO
from vmtoll.preflight.finding import Finding, fail, ok, warn
from vmtoll.preflight.lab import SUTS, Lab
from workloads.runner.inventory import Host, hosts_by_role
from workloads.runner.registry import Registry, unknown

ORDER = 10
_VARIABLE = re.compile(r"\bvmtoll_[a-z0-9_]+")
_SAME = (("vmtoll_http_port", 8080), ("vmtoll_workers", 1))


def check(lab: Lab) -> Iterator[Finding]:
    """Groups, environments, guests' variables, what must be alike, and names that nothing reads."""
    wrong = [*_groups(lab), *_environments(lab), *_guests(lab), *_alike(lab), *_link(lab), *_typos(lab)]
    yield from wrong
    if not any(finding.level == "fail" for finding in wrong):
        parts = ", ".join(f"{len(hosts)} {role}" for role, hosts in hosts_by_role(lab.data).items())
        yield ok("", f"{lab.path}: {parts}")


def _groups(lab: Lab) -> Iterator[Finding]:
    by_role = hosts_by_role(lab.data)
    if not by_role["client"]:
        yield fail("", f"{lab.path}: the group `clients` is empty", "Name the machine there that sends the load.")
    if not by_role["metal"] and not by_role["kvm_guest"]:
        yield fail("", f"{lab.path}: the groups `metal` and `kvm_guests` are empty", "Name what is to be measured.")


def _environments(lab: Lab) -> Iterator[Finding]:
    known, sharing = Registry().environments(), defaultdict[tuple[str, str], list[Host]](list)
    for host in _suts(lab):
        environment = host.get("vmtoll_environment")
        if environment is None:
            yield fail(host.name, "vmtoll_environment is not set", "Set it: metal, or the name of a guest profile.")
        elif environment not in known:
            yield fail(host.name, unknown("vmtoll_environment", environment, known), "Correct it in the inventory.")
        else:
            sharing[lab.cell(host), str(environment)].append(host)
    for (_, environment), hosts in sharing.items():
        if len({host.get("vmtoll_kvm_host", host.name) for host in hosts}) > 1:
            names = ", ".join(host.name for host in hosts)
            yield warn("", f"{names} are all {environment}", "Choose one with --limit, or make each part of a cell.")


def _guests(lab: Lab) -> Iterator[Finding]:
    by_role = hosts_by_role(lab.data)
    hosts = {host.name for host in by_role["kvm_host"]}
    for guest in by_role["kvm_guest"]:
        for name in ("vmtoll_kvm_host", "vmtoll_domain"):
            if guest.get(name) is None:
                yield fail(guest.name, f"{name} is not set", "Set it, to tell KVM from emulation.")
    for host in (host for hosts_of in by_role.values() for host in hosts_of):
        for name in ("vmtoll_kvm_host", "vmtoll_container_host"):
            if host.get(name) is not None and host.get(name) not in hosts:
                found = f"{name} is {host.get(name)!r}, which is not in the group `kvm_hosts`"
                yield fail(host.name, found, "Add it there, or correct the name.")


def _alike(lab: Lab) -> Iterator[Finding]:
    for name, default in _SAME:
        values = {str(host.get(name, default)): host.name for host in _suts(lab)}
        if len(values) > 1:
            each = ", ".join(f"{value} on {host}" for value, host in values.items())
            yield fail("", f"{name} is {each}", "Set it once, under `all` or `suts`.")


def _link(lab: Lab) -> Iterator[Finding]:
    clients = hosts_by_role(lab.data)["client"]
    if len({str(client.get("vmtoll_link", "unshaped")) for client in clients}) > 1:
        each = ", ".join(f"{client.get('vmtoll_link', 'unshaped')} on {client.name}" for client in clients)
        yield warn("", f"vmtoll_link is {each}", "Choose clients with --limit: one load needs one link.")
    for client in clients:
        link, mbit = str(client.get("vmtoll_link", "unshaped")), client.get("vmtoll_link_mbit")
        rate = re.fullmatch(r"([0-9]+)(mbit|gbit)", link)
        said = int(rate[1]) * (1000 if rate[2] == "gbit" else 1) if rate else None
        if said is not None and (mbit is None or float(mbit) != said):
            found = f"vmtoll_link is {link}, and vmtoll_link_mbit is {mbit}"
            yield fail(client.name, found, f"Set vmtoll_link_mbit: {said}.")


def _typos(lab: Lab) -> Iterator[Finding]:
    known, users = read_variables() | set(VARIABLES), defaultdict[str, list[str]](list)
    for host, variables in lab.data.get("_meta", {}).get("hostvars", {}).items():
        for name in variables:
            if name.startswith("vmtoll_") and name not in known:
                users[name].append(host)
    for name, hosts in users.items():
        close = difflib.get_close_matches(name, known, n=1)
        meant = f"Did you mean {close[0]}?" if close else "Remove it; docs/design.md lists those that there are."
        yield fail(", ".join(hosts), f"nothing reads the variable {name}", meant)


def read_variables() -> set[str]:
    """The inventory's variables that something in this project reads: found in its sources, listed nowhere."""
    files = [*(REPO / "workloads").rglob("*.py"), *(REPO / "vmtoll").rglob("*.py")]
    files += [file for suffix in ("yml", "j2", "py") for file in PLAYBOOKS.rglob(f"*.{suffix}")]
    return {name for file in files for name in _VARIABLE.findall(file.read_text("utf-8"))}


def _suts(lab: Lab) -> Iterable[Host]:
    by_role = hosts_by_role(lab.data)
    return (host for role in SUTS for host in by_role[role])
