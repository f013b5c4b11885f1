"""Archives that the controller makes once and copies to the machines, and the variables of site.yml that name them."""

import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from vmtoll import loadgen, search_path, sites
from vmtoll.builds import servers, tools
from vmtoll.model.release import RELEASES, Release
from vmtoll.paths import CACHE
from vmtoll.spec.catalog import Registry


def site_archives() -> list[dict[str, str]]:
    """Generate each site and pack it; return [{name, digest, archive}], one entry per site.

    The archive holds `<name>/`, `<name>.manifest.json` and an empty `.<name>-<digest>` that marks it as unpacked.
    """
    found = search_path.sites()
    return [_archive(description) for description in map(found.find, found.names())]


def _archive(description: Path) -> dict[str, str]:
    folder = CACHE / "sites" / description.stem
    manifest = sites.build(description, folder)
    name, digest = manifest["site"], manifest["digest"][:16]
    archive = CACHE / "sites" / f"{name}-{digest}.tar"
    marker = folder / f".{name}-{digest}"
    for stale in folder.glob(f".{name}-*"):
        stale.unlink()
    marker.touch()
    partial = archive.with_suffix(".partial")
    with tarfile.open(partial, "w") as tar:
        for entry in (name, f"{name}.manifest.json", marker.name):
            tar.add(folder / entry, arcname=entry)
    partial.rename(archive)
    return {"name": name, "digest": digest, "archive": str(archive)}


class SuiteServers(TypedDict):
    """The servers of one release as Ansible needs them, the archive of their files, and the files' paths on the SUT."""

    servers: list[dict[str, Any]]
    archive: str
    files: list[str]


class ProvisioningVariables(TypedDict):
    """The extra variables that site.yml needs. `web_servers_newest`: the suite to use for an unknown release."""

    web_servers_by_suite: dict[str, SuiteServers]
    web_servers_newest: str
    site_content_sites: list[dict[str, str]]
    load_tools_binaries: list[dict[str, str]]
    load_tools_packages: list[str]
    load_tools_masked_units: list[str]


def variables(policy: servers.Policy, releases: Sequence[Release] = RELEASES) -> ProvisioningVariables:
    """Return the extra variables that site.yml needs for machines of these releases, the newest first.

    It says which of the servers and sites are the user's in place of shipped ones.
    """
    registry = Registry()
    registry.say_hidden({kind: names for kind, names in registry.own().items() if kind in ("server", "site")})
    return {
        "web_servers_by_suite": {release.suite: _suite_servers(policy, release) for release in releases},
        "web_servers_newest": releases[0].suite,
        "site_content_sites": site_archives(),
        "load_tools_binaries": tools.binaries(),
        "load_tools_packages": loadgen.packages(),
        "load_tools_masked_units": loadgen.masked_units(),
    }


def _suite_servers(policy: servers.Policy, release: Release) -> SuiteServers:
    archive = servers.archive(policy, release)
    with tarfile.open(archive) as tar:
        files = [f"/{name}" for name in tar.getnames()]
    return {"servers": servers.catalog(release), "archive": str(archive), "files": files}
