"""The machines run a system that provisioning knows, started by systemd."""

from collections.abc import Iterator

from vmtoll.agent.protocol import System
from vmtoll.model import release
from vmtoll.model.inventory import Host
from vmtoll.preflight.lab import Lab
from vmtoll.preflight.result import CheckResult, fail, ok, warn
from vmtoll.spec.inventory_faults import SUTS

ORDER = 40
_OLDEST_SYSTEMD = 247


def check(lab: Lab) -> Iterator[CheckResult]:
    """Check distribution and systemd of the machines that are provisioned: clients and systems under test."""
    yield from lab.on_each(lab.answering_hosts("client", *SUTS), lambda host: _check_host(lab, host))


def _check_host(lab: Lab, host: Host) -> Iterator[CheckResult]:
    system: System = lab.ask(host, "system")
    name, systemd = f"{system['id']} {system['version']}", system["systemd"]
    if not system["apt"]:
        yield fail(host.name, f"{name} has no apt-get", f"Install {release.NAMES}: packages come by apt.")
    elif systemd is None or not system["booted"]:
        yield fail(host.name, f"{name} was not started by systemd", "Boot it with systemd: servers are its units.")
    elif systemd < _OLDEST_SYSTEMD:
        yield fail(host.name, f"systemd is {systemd}", f"Install a system with systemd {_OLDEST_SYSTEMD} or newer.")
    elif release.release_of_system(system["id"], system["version"]) is None:
        yield warn(host.name, f"{name}, systemd {systemd}", f"vmtoll is written for {release.NAMES}; this is untested.")
    else:
        yield ok(host.name, f"{name}, systemd {systemd}")
