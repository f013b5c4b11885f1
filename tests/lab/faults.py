"""Faults injected in the embedded lab, and the short runs that must find them."""

import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.lab.records import Records, ignore, measure
from tests.lab.the_lab import LAB, Ssh
from vmtoll.model.event import Event, Listener, Phase, TrialStep
from vmtoll.paths import PROJECT
from vmtoll.spec.catalog import Registry

# One server on metal and one cheap tool, as short as it can be told apart from noise.
WORKLOAD = {"description": "ten users", "site": "office", "tool": "h2load", "users": 10, "keep_alive": True}
EXPERIMENT = {
    "question": "does the gate fire?",
    "purpose": "smoke",
    "environments": ["metal"],
    "servers": ["lighttz"],
    "workloads": ["injected"],
    "blocks": 1,
    "warmup_s": 0.2,
    "duration_s": 1.0,
}


def measured(
    folder: Path,
    listener: Listener = ignore,
    workload: dict[str, Any] | None = None,
    inventory: dict[str, Any] | None = None,
    tree: dict[str, Any] | None = None,
    **experiment: Any,
) -> Records:
    """The records of a short run. `listener` hears each event; the rest changes or adds keys, for all machines alike.

    `tree`: a whole inventory instead of the lab's.
    """
    registry = _project(folder / "project", {**WORKLOAD, **(workload or {})})
    path, machines = registry.experiment_file("injected"), folder / "inventory.yml"
    path.write_text(yaml.safe_dump({**EXPERIMENT, **experiment}))
    tree = tree or yaml.safe_load((LAB / "inventory.yml").read_text())
    tree["all"]["vars"] |= inventory or {}
    machines.write_text(yaml.safe_dump(tree))
    return measure(path, machines, folder / "results", listener, registry)[1]


def _project(root: Path, workload: dict[str, Any]) -> Registry:
    """This project with one workload of our own."""
    (root / "workloads" / "experiments").mkdir(parents=True, exist_ok=True)
    (root / "vmtoll").mkdir(exist_ok=True)
    for name in ("server-builds", "vm-images", "workloads/sites", "vmtoll/loadgen"):
        if not (root / name).exists():
            (root / name).symlink_to(PROJECT / name)
    (root / "workloads" / "injected.yml").write_text(
        yaml.safe_dump({k: v for k, v in workload.items() if v is not None})
    )
    return Registry(root)


def once(phase: Phase, inject: Callable[[], object], tool: str | None = None) -> Listener:
    """Inject when a trial enters this phase (of this tool, where one is named), the first time only."""
    waiting = [inject]

    def listen(event: Event) -> None:
        if isinstance(event, TrialStep) and event.phase is phase and tool in (None, event.tool) and waiting:
            waiting.pop()()

    return listen


@contextmanager
def burning(ssh: Ssh, machine: str, processes: int = 1) -> Iterator[Sequence[str]]:
    """Processes that burn the machine's CPUs; their pids."""
    loop = "sh -c 'exec yes >/dev/null' >/dev/null 2>&1 & echo $!"
    pids = [ssh(machine, f"setsid {loop}") for _ in range(processes)]
    try:
        yield pids
    finally:
        ssh(machine, f"kill {' '.join(pids)}")


SENT = "/sys/class/net/eth0/statistics/tx_bytes"
FREEZE = (
    "read -r begin <{sent}; now=$begin; "
    "while [ $((now - begin)) -lt 300000 ]; do sleep 0.01; read -r now <{sent}; done; "
    "sleep 0.3; pids=$(pidof lighttz); kill -STOP $pids; sleep {seconds}; kill -CONT $pids"
)


def frozen(ssh: Ssh, seconds: float) -> Callable[[], object]:
    """What stops lighttz on metal for so long, in the midst of the load: a moment after its first 300 kB."""
    command = FREEZE.format(sent=SENT, seconds=seconds)
    return lambda: ssh("metal", detached(command))


def detached(command: str) -> str:
    """Runs on when the shell that begins it has gone, for a minute at most."""
    return f"setsid timeout 60 sh -c {shlex.quote(command)} >/dev/null 2>&1 </dev/null &"


@contextmanager
def changed(ssh: Ssh, machine: str, change: str, back: str) -> Iterator[None]:
    """Run `change` on a machine, and `back` afterwards."""
    ssh(machine, change)
    try:
        yield
    finally:
        ssh(machine, back)


@contextmanager
def ruled(change: Sequence[Sequence[str]], back: Sequence[Sequence[str]]) -> Iterator[None]:
    """Run commands on this machine (tc, nft), and others afterwards."""
    try:
        for argv in change:
            subprocess.run(argv, check=True, capture_output=True)
        yield
    finally:
        for argv in back:
            subprocess.run(argv, check=True, capture_output=True)
