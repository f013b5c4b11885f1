"""A service that runs already: its processes on this machine, and its answers as a client gets them."""

from __future__ import annotations

import hashlib
import http.client
import os
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vmtoll.agent.containers import find_container
from vmtoll.agent.machine import all_pids, processes_cpu, read, stat_fields
from vmtoll.agent.protocol import CpuTimes, PageAnswer, ServerSpec
from vmtoll.agent.servers import UnitServer

_LIMIT_S = 10.0  # for connecting, and for each piece of an answer
_CLOSED = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)  # by the other side, before an answer


class ServiceUnit(UnitServer):
    """A unit whose server vmtoll neither starts nor stops."""

    def start(self, limit_s: float) -> None:
        raise RuntimeError(f"{self.unit} is a service, which vmtoll does not start")

    def stop(self, limit_s: float) -> None:
        raise RuntimeError(f"{self.unit} is a service, which vmtoll does not stop")


class ServiceGroup(ServiceUnit):
    """The control group of a service, a path below the mount point."""

    def folders(self) -> list[str]:
        group = "/" + self.unit.removeprefix("/sys/fs/cgroup").strip("/")
        bases = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/systemd")
        return [base + group for base in bases if Path(base + group, "cgroup.procs").exists()]


class ServiceProcesses(ServiceUnit):
    """The processes of this name, or with this text in their command lines; never this agent and what started it."""

    def folders(self) -> list[str]:
        return []

    def pids(self) -> list[str]:
        ours, pid = set[str](), str(os.getpid())
        while pid not in ("", "0", "1"):
            ours.add(pid)
            pid = "".join(stat_fields(pid)[1:2])
        return [pid for pid in all_pids() if pid not in ours and self._fits(pid)]

    def _fits(self, pid: str) -> bool:
        words = read(f"/proc/{pid}/cmdline").replace("\0", " ")
        return bool(words) and (self.unit == read(f"/proc/{pid}/comm") or self.unit in words)

    def cpu(self, pids: list[str]) -> CpuTimes:
        return processes_cpu(pids)


class ServiceContainer(ServiceUnit):
    """A container of podman or Docker, by its name or ID: its whole control group."""

    def __init__(self, spec: ServerSpec) -> None:
        super().__init__(spec)
        self.container = find_container(self.unit)

    def pids(self) -> list[str]:
        return self.container.pids()

    def cpu(self, pids: list[str]) -> CpuTimes:
        del pids
        return self.container.cpu()


KINDS = {"unit": ServiceUnit, "cgroup": ServiceGroup, "process": ServiceProcesses, "container": ServiceContainer}


def find(kind: str, name: str) -> ServiceUnit:
    """The running service. Raises RuntimeError if it has no process here."""
    service = KINDS[kind]({"unit": name})
    if not service.pids():
        raise RuntimeError(f"no process of the {kind} {name} runs here")
    return service


def ask(
    address: str, paths: Sequence[str], headers: Mapping[str, str], rate_rps: float, ca: str, *, verify: bool
) -> list[PageAnswer]:
    """GET each path, at most `rate_rps` a second, one after the other; over HTTP/1.1. Raises RuntimeError without an
    answer; the message holds no header.

    A connection that the service closed while it was idle is opened again.
    """
    parts, answers = urlsplit(address), list[PageAnswer]()
    connection = _connection(parts.scheme, str(parts.hostname), parts.port, ca, verify=verify)
    due_s = time.monotonic()
    try:
        for path in paths:
            time.sleep(max(0.0, due_s - time.monotonic()))
            due_s = time.monotonic() + 1 / rate_rps
            was_open = connection.sock is not None
            try:
                answers.append(_get(connection, path, headers))
            except _CLOSED:
                connection.close()
                if not was_open:
                    raise
                answers.append(_get(connection, path, headers))
    except (OSError, http.client.HTTPException) as error:
        number = len(answers) + 1
        raise RuntimeError(f"{address}: URL {number} of {len(paths)}: {error or type(error).__name__}") from error
    finally:
        connection.close()
    return answers


def _get(connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str]) -> PageAnswer:
    """The answer to a path; http.client opens a connection that is closed."""
    begin_s = time.monotonic()
    connection.request("GET", path, headers=dict(headers))
    response = connection.getresponse()
    body = response.read()
    took_s = time.monotonic() - begin_s
    return {
        "status": response.status, "length": len(body), "sha256": hashlib.sha256(body).hexdigest(), "took_s": took_s,
    }  # fmt: skip


def _connection(scheme: str, host: str, port: int | None, ca: str, *, verify: bool) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=_LIMIT_S)
    context: Any = ssl.create_default_context(cadata=ca or None)
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=_LIMIT_S, context=context)
