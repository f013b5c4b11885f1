"""Why a container runtime costs what it costs: `python -m benchmarks.runtime_costs INVENTORY`.

For each server in each environment of the lab's topology `runtimes`: CPU time and system calls per request, of the
processes of the application and of gVisor's own (sentry and gofer). Writes the table in the page on container
runtimes.
Needs `perf` with the tracepoint raw_syscalls, and nothing beside it on this machine.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import write_measured
from vmtoll.agent.containers import find_container
from vmtoll.agent.sandboxes import group_folders
from vmtoll.machines.connection import AgentLine
from vmtoll.model.inventory import Host
from vmtoll.paths import PROJECT
from vmtoll.spec.inventory import hosts_by_role, read_inventory

PAGE = PROJECT / "docs" / "how-to" / "container-runtimes.md"
ENVIRONMENTS = ("process", "runc", "runsc-systrap", "runsc-ptrace")
# Requests of a measurement: enough for 10 ms ticks of the kernel's CPU accounts to be under 1% of what is counted.
SERVERS = {"nginx": 40_000, "lighttz": 40_000, "node": 4_000, "ruby": 2_000}
USERS = 10
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """Per request; `sentry`: of gVisor's own processes."""

    app_us: float
    sentry_us: float
    app_calls: float
    sentry_calls: float


def pids_of(host: Host) -> list[str]:
    """The processes of the server that runs in an environment of this machine. Raises RuntimeError."""
    name = f"vmtoll-{host.name}"
    if host.name != ENVIRONMENTS[0]:
        return find_container(name, ["podman"]).pids()
    return next(pids for folder in group_folders(name) if (pids := (folder / "cgroup.procs").read_text().split()))


def is_of_gvisor(pid: str) -> bool:
    """Return whether a process is gVisor's sentry or gofer; the application's own run in processes that it forks."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    return command in (b"runsc-sandbox", b"runsc-gofer")


def cpu_s(pids: Iterable[str]) -> float:
    """CPU seconds of processes since their start. Raises OSError when one has ended."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) / _TICKS_PER_S


def load(client: AgentLine, host: Host, requests: int) -> None:
    """Send requests over persistent connections. Raises RuntimeError when one failed."""
    url = f"http://{host.seen_from(client.host)}:{host.port}/pages/page-4k.html"
    argv = ["h2load", "--h1", f"--requests={requests}", f"--clients={USERS}", url]
    done = client.call("exec", 300, argv=argv, limit_s=240)
    if not re.search(rf"\b{requests} succeeded, 0 failed, 0 errored", done["stdout"]):
        raise RuntimeError(f"{host.name}: {done['stdout']}{done['stderr']}")


def calls_of(groups: dict[bool, list[str]], client: AgentLine, host: Host, requests: int) -> dict[bool, float]:
    """System calls to the host's kernel per request, of each group of processes."""
    counts = dict.fromkeys(groups, 0.0)
    with ExitStack() as counting:
        ends = {group: counting.enter_context(counting_calls(pids)) for group, pids in groups.items() if pids}
        load(client, host, requests)
        for group, end in ends.items():
            counts[group] = end() / requests
    return counts


@contextmanager
def counting_calls(pids: list[str]) -> Iterator[Callable[[], int]]:
    """Count the system calls of processes from now on; yield what ends it and returns their number."""
    with tempfile.TemporaryDirectory(prefix="vmtoll-calls-") as folder:
        control, answer = (Path(folder, name) for name in ("control", "answer"))
        os.mkfifo(control)
        os.mkfifo(answer)
        argv = ["perf", "stat", "--field-separator=,", "--event=raw_syscalls:sys_enter", f"--pid={','.join(pids)}"]
        argv += ["--delay=-1", f"--control=fifo:{control},{answer}"]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as perf:
            try:
                with control.open("w") as commands, answer.open() as answers:
                    commands.write("enable\n")
                    commands.flush()
                    answers.readline()  # counting has begun

                    def end() -> int:
                        perf.send_signal(signal.SIGINT)
                        printed = perf.communicate()[1]
                        if not (count := re.search(r"^([0-9]+),", printed, re.MULTILINE)):
                            raise RuntimeError(f"perf counted nothing: {printed}")
                        return int(count[1])

                    yield end
            finally:
                perf.kill()


def cost_of(line: AgentLine, client: AgentLine, server: str, requests: int) -> Cost:
    """Start a server, load it, and take what it used."""
    line.call("server_start", 90, name=server)
    try:
        client.call("reaches", 90, host=line.host.seen_from(client.host), port=line.host.port, limit_s=60)
        load(client, line.host, requests // 4)  # warm-up
        groups: dict[bool, list[str]] = {False: [], True: []}
        for pid in pids_of(line.host):
            groups[is_of_gvisor(pid)].append(pid)
        before = {group: cpu_s(pids) for group, pids in groups.items()}
        load(client, line.host, requests)
        used = {group: (cpu_s(pids) - before[group]) / requests * 1e6 for group, pids in groups.items()}
        calls = calls_of(groups, client, line.host, requests // 4)
    finally:
        line.call("server_stop", 60, name=server)
    return Cost(used[False], used[True], calls[False], calls[True])


def table(costs: dict[tuple[str, str], Cost]) -> str:
    """Markdown, a row for each server and environment."""
    heading = (
        "| server | environment | CPU per request, application, µs | gVisor's sentry, µs "
        "| calls of the host's kernel per request, application | sentry |\n|---|---|---|---|---|---|"
    )
    rows = [
        f"| {server} | {environment} | {cost.app_us:.0f} | {cost.sentry_us:.0f} | "
        f"{cost.app_calls:.1f} | {cost.sentry_calls:.1f} |"
        for (server, environment), cost in costs.items()
    ]
    return "\n".join([heading, *rows])


def main(inventory: Path) -> None:
    """Measure every server in every environment, and write the table."""
    hosts = hosts_by_role(read_inventory(inventory))
    lines = {host.name: AgentLine(host) for host in (hosts["client"][0], *hosts["container"])}
    client = lines[hosts["client"][0].name]
    costs = {}
    try:
        for line in lines.values():
            line.open()
        for server, requests in SERVERS.items():
            for name in ENVIRONMENTS:
                costs[server, name] = cost_of(lines[name], client, server, requests)
                print(server, name, costs[server, name], flush=True)
    finally:
        for line in lines.values():
            line.close()
    write_measured(PAGE, "runtime costs", table(costs))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
