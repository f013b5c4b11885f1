"""The machines run a system that provisioning knows, started by systemd."""

from collections.abc import Iterator

from vmtoll.preflight.finding import Finding, fail, ok, warn
from vmtoll.preflight.lab import SUTS, Lab
from workloads.runner.inventory import Host

ORDER = 40
# What provisioning was written for and tested on: Debian 12, whose systemd is 252.
_DEBIAN = "12"
_OLDEST_SYSTEMD = 247


def check(lab: Lab) -> Iterator[Finding]:
    """Distribution and systemd of what is provisioned: clients and systems under test."""
    yield from lab.on_each(lab.answering("client", *SUTS), lambda host: _look(lab, host))


def _look(lab: Lab, host: Host) -> Iterator[Finding]:
    seen = lab.probe(host, "system")
    name, systemd = f"{seen['id']} {seen['version']}", seen["systemd"]
    if not seen["apt"]:
        yield fail(host.name, f"{name} has no apt-get", "Install Debian 12: packages come by apt.")
    elif systemd is None or not seen["booted"]:
        yield fail(host.name, f"{name} was not started by systemd", "Boot it with systemd: servers are its units.")
    elif systemd < _OLDEST_SYSTEMD:
        yield fail(host.name, f"systemd is {systemd}", f"Install a system with systemd {_OLDEST_SYSTEMD} or newer.")
    elif (seen["id"], seen["version"]) != ("debian", _DEBIAN):
        yield warn(host.name, f"{name}, systemd {systemd}", f"Provisioning is tested on Debian {_DEBIAN} only.")
    else:
        yield ok(host.name, f"{name}, systemd {systemd}")
