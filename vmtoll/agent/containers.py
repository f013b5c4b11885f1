"""A container of this machine: its processes, and the CPU time of its control group."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vmtoll.agent.conditions import mask_of
from vmtoll.agent.machine import all_pids, processes_cpu, read, stat_fields
from vmtoll.agent.protocol import ContainerUsage, CpuTimes

ENGINES = ("podman", "docker")
_MOUNTS = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")
_ACCOUNTS = ("/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu,cpuacct")
_LIMIT_S = 20


class Container:
    """A running container of podman or Docker. `pid`: its first process; `identity`: the engine's ID of it."""

    def __init__(self, pid: str, identity: str) -> None:
        self.pid, self.identity = pid, identity
        self.started = stat_fields(pid)[19:20]

    @property
    def runs(self) -> bool:
        """Return whether its first process is still the one that was found."""
        return bool(self.started) and stat_fields(self.pid)[19:20] == self.started

    def pids(self) -> list[str]:
        """Every process of the container: those of its control group, else those below what started it.

        Never those of its PID namespace: gVisor's systrap leaves processes in the host's.
        """
        for folder in self._folders():
            if pids := [pid for file in Path(folder).rglob("cgroup.procs") for pid in read(str(file)).split()]:
                return pids
        return descendants(self.pid)

    def usage(self) -> ContainerUsage:
        """What the container has used since its start, and the CPUs that its first process may use."""
        return {**self.cpu(), "cpus": mask_of(self.pid)}

    def cpu(self) -> CpuTimes:
        """CPU seconds of the control group: version 2, else cpuacct, else the sum of the processes that run now."""
        groups = self._groups()
        for mount in _MOUNTS if "" in groups else ():
            stat = dict(line.split() for line in read(f"{mount}{groups['']}/cpu.stat").splitlines())
            if int(stat.get("usage_usec", 0)):
                total, user, system = (int(stat[f"{kind}_usec"]) / 1e6 for kind in ("usage", "user", "system"))
                return {"total_s": total, "user_s": user, "system_s": system, "method": "cgroup"}
        for mount in _ACCOUNTS if "cpuacct" in groups else ():
            parts = [read(f"{mount}{groups['cpuacct']}/cpuacct.usage{kind}") for kind in ("", "_user", "_sys")]
            if parts[0].isdigit():
                total, user, system = (int(part or 0) / 1e9 for part in parts)
                return {"total_s": total, "user_s": user, "system_s": system, "method": "cpuacct"}
        return processes_cpu(self.pids())

    def _folders(self) -> Iterator[str]:
        """The folders of its control group, in each hierarchy that it has one in."""
        for controllers, path in self._groups().items():
            names = (controllers.replace("name=", ""), "cpu,cpuacct") if controllers else ("unified", "")
            yield from (folder for name in names if Path(folder := f"/sys/fs/cgroup/{name}{path}").is_dir())

    def _groups(self) -> dict[str, str]:
        """Controller → the container's own group; version 2 has the empty name. Its init lives in one further below."""
        groups: dict[str, str] = {}
        for line in read(f"/proc/{self.pid}/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            if match := re.match(rf".*?{self.identity}[^/]*", path):
                groups |= dict.fromkeys(controllers.split(","), match[0])
        return groups


def find_container(name: str, engines: Iterable[str] = ENGINES) -> Container:
    """The running container of this name or ID, podman's first. Raises RuntimeError if none runs here."""
    for engine in engines:
        facts = _facts(engine, name)
        if facts and facts["State"]["Pid"]:
            return Container(str(facts["State"]["Pid"]), facts["Id"])
    raise RuntimeError(f"no container {name} of {' or '.join(engines)} runs here; start it, or correct its name")


def engine_of(name: str, engines: Iterable[str] = ENGINES) -> str:
    """The engine that has a container of this name or ID, whether it runs or not. Raises RuntimeError if none has."""
    for engine in engines:
        if _facts(engine, name):
            return engine
    raise RuntimeError(f"there is no container {name} of {' or '.join(engines)} here; make it, or correct its name")


class Containers:
    """The containers of this machine that were asked for, each found once while it runs."""

    def __init__(self) -> None:
        self.by_name: dict[str, Container] = {}

    def get(self, name: str) -> Container:
        """A running container. Raises RuntimeError when there is none."""
        known = self.by_name.get(name)
        if known is None or not known.runs:
            known = self.by_name[name] = find_container(name)
        return known

    def accounts(self, names: Sequence[str]) -> dict[str, str]:
        """Name of a container → what its CPU time is read from; see Container.cpu. Raises RuntimeError for one that
        does not run.
        """
        return {name: self.get(name).cpu()["method"] for name in names}


def _facts(engine: str, name: str) -> dict[str, Any] | None:
    """What an engine knows of a container; None if it has none of this name, or does not answer."""
    argv = [engine, "inspect", "--type", "container", name]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        facts: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return facts[0] if facts else None


def descendants(pid: str) -> list[str]:
    """The processes below the one that started this first process of a container: conmon, or Docker's shim; where that
    has ended, this process and those below it.
    """
    parents = {each: "".join(stat_fields(each)[1:2]) for each in all_pids()}
    starter = parents.get(pid, "")
    found = {starter} if read(f"/proc/{starter}/comm").startswith(("conmon", "containerd-shim")) else {pid}
    is_whole = False
    while not is_whole:
        more = {each for each, parent in parents.items() if parent in found} - found
        found, is_whole = found | more, not more
    return sorted(found - {starter}, key=int)
