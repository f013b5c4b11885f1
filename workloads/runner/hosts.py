"""The machines at the start of a run: reached, asked for their facts, compared."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from workloads import tools
from workloads.runner.bench import Bench
from workloads.runner.equality import accelerator, differences
from workloads.runner.errors import AgentError, HostLostError, InventoryError
from workloads.runner.inventory import Host
from workloads.runner.transport import AgentLine

_FACTS_LIMIT_S = 180.0


def open_all(lines: Iterable[AgentLine]) -> None:
    """Start every agent, all at once. Raises HostLostError that names each machine that cannot be reached."""
    with ThreadPoolExecutor(16) as pool:
        complaints = [complaint for complaint in pool.map(_open, lines) if complaint]
    if complaints:
        raise HostLostError("; ".join(complaints))


def _open(line: AgentLine) -> str:
    try:
        line.open()
    except HostLostError as error:
        return str(error)
    return ""


def gather(bench: Bench) -> dict[str, dict[str, Any]]:
    """hosts.json. Raises InventoryError when a machine lacks a server of the experiment."""
    with ThreadPoolExecutor(16) as pool:
        found = dict(pool.map(lambda host: (host.name, _facts(bench, host)), bench.inventory.hosts()))
    for host in (host for hosts in bench.inventory.machines.values() for host in hosts):
        there = sorted(found[host.name]["servers"])
        for server in bench.resolved.servers:
            if server not in there:
                raise InventoryError(
                    f"{host.name}: server {server} is not provisioned; there are: {', '.join(there) or 'none'}"
                )
    return found


def _facts(bench: Bench, host: Host) -> dict[str, Any]:
    environments = [e for e, h in bench.inventory.suts.items() if h.name == host.name]
    under_test = [h for hosts in bench.inventory.machines.values() for h in hosts]
    args: dict[str, Any] = {}
    if host in under_test:
        args["site"] = bench.resolved.site.name
    if host.role == "kvm_host":
        guests = [h for h in under_test if h.get("vmtoll_kvm_host") == host.name]
        args["uri"] = host.libvirt_uri
        args["domains"] = [str(h.get("vmtoll_domain")) for h in guests]
    try:
        facts = bench.line(host).call("facts", _FACTS_LIMIT_S, **args)
    except AgentError as error:
        raise InventoryError(f"{error}; is the machine provisioned?") from error
    role = "sut" if environments else "sibling" if host in under_test else host.role
    return {
        "role": role,
        "environment": environments[0] if environments else None,
        "workers": host.get("vmtoll_workers"),
        **facts,
    }


def tool_versions(bench: Bench) -> dict[str, str]:
    """Load tool → its version, one on all machines that a workload needs it on.

    Raises InventoryError when it is not there, or another one.
    """
    inventory, found = bench.inventory, dict[str, str]()
    needed = {
        (tool, host.name)
        for workload in bench.resolved.workloads.values()
        for tool in workload.tools
        for host in (inventory.suts.values() if workload.client == "localhost" else inventory.clients)
    }
    for name, machine in sorted(needed):
        package = tools.get(name).PACKAGE
        packages: dict[str, str] = bench.facts[machine]["packages"]
        version = packages.get(package) if package else _says_version(bench.lines[machine], name)
        if not version:
            raise InventoryError(f"{machine}: the load tool {name} is not there; run `make provision`")
        if found.setdefault(name, version) != version:
            raise InventoryError(
                f"{machine}: the load tool {name} is {version}, elsewhere {found[name]}; run `make provision`"
            )
    return found


def _says_version(line: AgentLine, program: str) -> str | None:
    """`program --version`: the last word of the first line. None when there is no such program."""
    try:
        said = line.call("exec", argv=[program, "--version"])["stdout"]
    except AgentError:
        return None
    return str(said.split("\n", 1)[0].split()[-1]) if said else None


def accelerators(bench: Bench) -> dict[str, str]:
    """Environment → `none`, `kvm` or `tcg`."""
    found = {}
    for environment, host in bench.inventory.suts.items():
        kvm_host = bench.inventory.kvm_host(host)
        xml = ""
        if kvm_host:
            xml = bench.facts[kvm_host.name].get("domains", {}).get(str(host.get("vmtoll_domain")), "")
        found[environment] = accelerator(host.role, bench.facts[host.name]["virtualization"], xml)
    return found


__all__ = ["accelerators", "differences", "gather", "open_all"]
