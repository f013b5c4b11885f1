"""A cluster of Slurm on this machine: munge, a controller and several nodes, in a folder and on ports of their own."""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.ports import free_port

PROGRAMS = ("sbatch", "slurmctld", "slurmd", "munged")
_FOLDERS = ":/usr/sbin:/sbin"
_PATH = os.environ["PATH"] + _FOLDERS
_ABSENT = [program for program in PROGRAMS if not shutil.which(program, path=_PATH)]
MISSING = "needs root" if os.geteuid() else f"{_ABSENT[0]} is not installed" if _ABSENT else ""
_LIMIT_S = 60.0
_CONFIGURATION = """\
ClusterName=vmtoll
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=30
SlurmdTimeout=60
{nodes}
PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def cluster(folder: Path, nodes: int = 2) -> Iterator[dict[str, str]]:
    """Start the cluster; yield the environment in which its commands find it. Its processes end with it."""
    host, ports = socket.gethostname(), [free_port() for _ in range(nodes)]
    lines = [
        f"NodeName=node{n} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 State=UNKNOWN"
        for n, port in enumerate(ports)
    ]
    for name in ("state", *(f"spool-node{n}" for n in range(nodes))):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    configuration = folder / "slurm.conf"
    configuration.write_text(
        _CONFIGURATION.format(host=host, port=free_port(), folder=folder, nodes="\n".join(lines))
    )  # fmt: skip
    environment = os.environ | {"SLURM_CONF": str(configuration), "PATH": _PATH}
    munge = [
        "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket",
        f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed",
    ]  # fmt: skip
    with ExitStack() as stack:
        stack.enter_context(_daemon(munge, environment, folder / "munge.socket"))
        stack.enter_context(_daemon(["slurmctld", "-D", "-f", str(configuration)], environment))
        for n in range(nodes):
            stack.enter_context(_daemon(["slurmd", "-D", "-N", f"node{n}", "-f", str(configuration)], environment))
        _wait_for(lambda: _states(environment) == ["idle"] * nodes)
        yield environment


def _states(environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--format", "%T"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    return done.stdout.split()


@contextmanager
def _daemon(argv: Sequence[str], environment: dict[str, str], until: Path | None = None) -> Iterator[None]:
    program = shutil.which(argv[0], path=environment["PATH"])
    process = subprocess.Popen(
        [str(program), *argv[1:]], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        if until:
            _wait_for(until.exists)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "the cluster did not come up"
        time.sleep(0.1)
