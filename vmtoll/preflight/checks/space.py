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
    yield from lab.on_each(lab.answering("client", *SUTS), lambda host: _look(lab, host))


def _look(lab: Lab, host: Host) -> Iterator[CheckResult]:
    needed = {"/var": _DISK_MIB, "/srv": _DISK_MIB, "/tmp": _DISK_MIB if host.role == "client" else _SUT_TMP_MIB}
    seen = lab.probe(host, "space", *needed)
    short = {folder: mib for folder, mib in seen["free_mib"].items() if mib < needed[folder]}
    for folder, mib in short.items():
        yield fail(host.name, f"{folder} has {mib} MiB left", f"Make room: {needed[folder]} MiB at least.")
    if seen["memory_mib"] < _MEMORY_MIB:
        observation = f"{seen['memory_mib']} MiB of memory are available"
        yield fail(host.name, observation, f"Stop something, or give it more: {_MEMORY_MIB} MiB at least.")
    elif not short:
        yield ok(host.name, f"{min(seen['free_mib'].values())} MiB of disk and {seen['memory_mib']} of memory free")
