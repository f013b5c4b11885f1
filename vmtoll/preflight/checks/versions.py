"""Servers, sites and load tools are the same everywhere, once the machines are provisioned."""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from vmtoll import loadgen
from vmtoll.guests import profiles
from vmtoll.model.inventory import Host
from vmtoll.preflight.lab import Lab
from vmtoll.preflight.result import CheckResult, fail, ok, warn
from vmtoll.spec.inventory_faults import SUTS

ORDER = 90
_FACTS_LIMIT_S = 180.0
_NONE = "absent"

# item → its version
Versions = dict[str, str]


def check(lab: Lab) -> Iterator[CheckResult]:
    """Compare servers and sites on the systems under test, load tools on these and the clients.

    A system under test may lack a compiled load tool: the embedded lab copies it only to the machines that send with
    it.
    """
    servers: dict[str, Versions] = {}
    programs: dict[str, Versions] = {}
    releases: dict[str, str] = {}
    packaged = {name for name in loadgen.names() if loadgen.get(name).package}

    def gather(host: Host) -> list[CheckResult]:
        # "." is all sites: one digest over everything that the servers serve.
        facts = lab.lines[host.name].call("facts", _FACTS_LIMIT_S, **({"site": "."} if host.role in SUTS else {}))
        releases[host.name] = facts["release"]
        programs[host.name] = _tools(lab, host, facts["packages"])
        if host.role in SUTS:
            servers[host.name] = _servers(facts)
            packaged.update(_packaged(facts))
        return []

    yield from lab.on_each(lab.answering_hosts("client", *SUTS), gather)
    compiled = [name for name in loadgen.names() if name not in packaged]
    chosen = {host.name for host in lab.answering_hosts(*SUTS) if has_own_release(host)}
    yield from judge_releases({machine: release for machine, release in releases.items() if machine not in chosen})
    for kind, versions_by_machine in (("servers and sites", servers), ("load tools", programs)):
        yield from judge(kind, versions_by_machine, dict.fromkeys(servers, compiled), releases, packaged)


def has_own_release(host: Host) -> bool:
    """Return whether the profile of a guest says its release, which then differs from others' by design."""
    environment = host.vars.environment or ""
    return environment in profiles.names() and bool(profiles.load(environment).values["release"])


def judge_releases(releases: Mapping[str, str]) -> Iterator[CheckResult]:
    """Judge whether all machines have the same release. If not, `judge` expects equal packages within each release."""
    machines: dict[str, list[str]] = {}
    for machine, release in releases.items():
        machines.setdefault(release, []).append(machine)
    if len(machines) > 1:
        observation = "; ".join(f"{release} on {', '.join(names)}" for release, names in machines.items())
        advice = "Their packages differ with it. `vmtoll provision --suite` sets that of a guest that vmtoll makes."
        yield fail("", observation, advice)


def _packaged(facts: Mapping[str, Any]) -> set[str]:
    """Items of `_servers` that come with a distribution's package, and so differ between releases."""
    parts = "packages", "binary", "configuration", "worker count"
    return {f"{name}'s {part}" for name, server in facts["servers"].items() if server["version"] for part in parts}


def _servers(facts: Mapping[str, Any]) -> Versions:
    versions: Versions = {}
    for name, server in facts["servers"].items():
        versions[f"{name}'s packages"] = server["version"] or "its own build"
        versions[f"{name}'s binary"] = server["binary_sha256"][:12]
        versions[f"{name}'s configuration"] = server["config_sha256"][:12]
        versions[f"{name}'s worker count"] = str(server["workers"])
    return versions | ({"the sites' content": facts["content_digest"][:12]} if versions else {})


def _tools(lab: Lab, host: Host, packages: Mapping[str, str]) -> Versions:
    names = {name: loadgen.get(name).package for name in loadgen.names()}
    versions = {name: packages[package] for name, package in names.items() if package and package in packages}
    built_files = [f"/usr/local/bin/{name}" for name, package in names.items() if package is None]
    for line in lab.run(host, ["sha256sum", *built_files])["stdout"].splitlines():
        digest, path = line.split()
        versions[path.rpartition("/")[2]] = digest[:12]
    return versions


def judge(
    kind: str,
    versions_by_machine: Mapping[str, Versions],
    may_lack: Mapping[str, Collection[str]] = MappingProxyType({}),
    releases: Mapping[str, str] = MappingProxyType({}),
    packaged: Collection[str] = (),
) -> Iterator[CheckResult]:
    """Judge whether each item has the same version on all machines; a packaged one, on all of a release.

    `may_lack`: machine → items; `releases`: machine → release.
    """
    for machine in (machine for machine, versions in versions_by_machine.items() if not versions):
        yield warn(machine, f"it has no {kind} yet", "`vmtoll provision` brings them.")
    provisioned = {machine: versions for machine, versions in versions_by_machine.items() if versions}
    has_differences = False
    items = {
        (item, releases.get(machine) if item in packaged else None)
        for machine, versions in provisioned.items()
        for item in versions
    }
    for item, release in sorted(items, key=str):
        versions_of_item = {
            machine: versions.get(item, _NONE)
            for machine, versions in provisioned.items()
            if release in (None, releases.get(machine)) and (item in versions or item not in may_lack.get(machine, ()))
        }
        if len(set(versions_of_item.values())) > 1:
            has_differences = True
            versions_text = ", ".join(f"{version} on {machine}" for machine, version in versions_of_item.items())
            yield fail("", f"{item} is {versions_text}", "Run `vmtoll provision` for all of them.")
    if provisioned and not has_differences and len(set(map(releases.get, provisioned))) == 1:
        yield ok("", f"{kind} are the same on {', '.join(provisioned)}")
