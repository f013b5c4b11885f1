"""Nobody else measures on the machines, and the servers' port is free."""

import os
from collections.abc import Iterator

from vmtoll.preflight.finding import Finding, fail, ok
from vmtoll.preflight.lab import SUTS, Lab
from workloads.runner.inventory import Host

ORDER = 30


def check(lab: Lab) -> Iterator[Finding]:
    """Takes the lock that a run takes, for as long as the preflight lasts."""
    yield from lab.on_each(lab.answering("client", *SUTS), lambda host: _look(lab, host))


def _look(lab: Lab, host: Host) -> Iterator[Finding]:
    held_by = lab.lines[host.name].call("lock", owner=f"preflight (process {os.getpid()})")["held_by"]
    if held_by:
        lab.in_use.add(host.name)
        yield fail(host.name, f"in use by {held_by}", "Wait for its end.")
    elif host.role in SUTS and (who := lab.probe(host, "port", str(host.port))):
        lab.in_use.add(host.name)
        yield fail(host.name, f"port {host.port} is taken ({who})", "Stop what listens there, or set vmtoll_http_port.")
    else:
        yield ok(host.name, "no run on it" + (f", port {host.port} free" if host.role in SUTS else ""))
