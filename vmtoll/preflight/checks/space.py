"""The machines have enough free disk, for sites, servers and the files of load tools, and enough free memory."""

from collections.abc import Iterator

from vmtoll.model.inventory import Host
from vmtoll.preflight.lab import Lab
from vmtoll.preflight.result import CheckResult, fail, ok
from vmtoll.spec.inventory_faults import SUTS

ORDER = 45
# Sites and programs built on the controller take 60 MiB; the rest is for packages and for the load tools' logs.
_DISK_MIB = 512
# Load tools log to /tmp of a machine under test only for `client: localhost`. On Debian 13 /tmp is half of the memory.
_SUT_TMP_MIB = 256
_MEMORY_MIB = 256


def check(lab: Lab) -> Iterator[CheckResult]:
    """Check free disk and memory of clients and systems under test."""
    yield from lab.on_each(lab.answering_hosts("client", *SUTS), lambda host: _check_host(lab, host))


def _check_host(lab: Lab, host: Host) -> Iterator[CheckResult]:
    needed = {"/var": _DISK_MIB, "/srv": _DISK_MIB, "/tmp": _DISK_MIB if host.role == "client" else _SUT_TMP_MIB}
    space = lab.ask(host, "space", folders=list(needed))
    short_folders = {folder: mib for folder, mib in space["free_mib"].items() if mib < needed[folder]}
    for folder, mib in short_folders.items():
        yield fail(host.name, f"{folder} has {mib} MiB left", f"Make room: {needed[folder]} MiB at least.")
    if space["memory_mib"] < _MEMORY_MIB:
        observation = f"{space['memory_mib']} MiB of memory are available"
        yield fail(host.name, observation, f"Stop something, or give it more: {_MEMORY_MIB} MiB at least.")
    elif not short_folders:
        yield ok(host.name, f"{min(space['free_mib'].values())} MiB of disk and {space['memory_mib']} of memory free")
