"""Check that no other run measures on the machines, and that the servers' ports are free."""

import os
from collections.abc import Iterator

from vmtoll.model.inventory import Host
from vmtoll.model.transport import tls_port
from vmtoll.preflight.lab import Lab
from vmtoll.preflight.result import CheckResult, fail, ok
from vmtoll.spec.inventory_faults import SUTS

ORDER = 30


def check(lab: Lab) -> Iterator[CheckResult]:
    """Take the lock that a run takes, until the preflight ends."""
    yield from lab.on_each(lab.answering_hosts("client", *SUTS), lambda host: _check_host(lab, host))


def _check_host(lab: Lab, host: Host) -> Iterator[CheckResult]:
    held_by = lab.lines[host.name].call("lock", owner=f"preflight (process {os.getpid()})")["held_by"]
    if held_by:
        lab.in_use.add(host.name)
        yield fail(host.name, f"in use by {held_by}", "Wait for its end.")
    elif host.role in SUTS and (port_problem := _port_in_use(lab, host)):
        lab.in_use.add(host.name)
        yield fail(host.name, f"port {port_problem}", "Stop what listens there, or set vmtoll_http_port.")
    else:
        yield ok(host.name, "no run on it" + (f", port {host.port} free" if host.role in SUTS else ""))


def _port_in_use(lab: Lab, host: Host) -> str:
    """The first port, plain or TLS, that a server could not listen on, and why; empty if all are free."""
    ports = (host.port, *(tls_port(host.port, resumption=resumption) for resumption in (False, True)))
    reasons = ((port, lab.ask(host, "port_problem", port=port)) for port in ports)
    return next((f"{port} is taken ({why})" for port, why in reasons if why), "")
