"""The part `machine`: what is on the machines of the embedded lab before a run, and after one that was killed.

Needs root and the lab, which it brings up and takes down. What it lists is what tests/lab/test_teardown.py and
test_unprovision.py look at: units, namespaces, containers, files of vmtoll and settings.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

MACHINES = ("client", "metal", "kvm")
# A run is killed once its folder, or its output, shows that it is there: phase → what its output has by then.
PHASES = {"checks": "", "first-trial": r"block +1", "half": r"block +2"}
LISTED = {
    "units": "systemctl list-units --plain --no-legend --state=active --type=service,timer,socket | awk '{print $1}'",
    "namespaces": "ip netns list | awk '{print $1}'",
    "containers": "podman ps -a --format '{{.Names}}' 2>/dev/null || true",
    "files": "find /var/lib/vmtoll /etc/vmtoll /run/vmtoll /opt/vmtoll -printf '%p %m %U\\n' 2>/dev/null || true",
    "settings": "sysctl -a 2>/dev/null | grep -E '^(vm.swappiness|net.core|net.ipv4.ip_local|kernel.nmi)'",
    "processes": "ps -eo comm= | grep -E 'nginx|lighttpd|lighttz|siege|wrk|oha|vegeta|python' | sort | uniq -c",
}


def write(answers: Path, environment: Mapping[str, str]) -> None:
    """Write the state before a run, after a kill at each phase, and after status and unprovision."""
    answers.mkdir(parents=True)
    if os.geteuid():
        raise SystemExit("part machine: the embedded lab needs root")
    own = {k: v for k, v in environment.items() if k not in ("VMTOLL_STATE", "VMTOLL_CACHE")}  # the lab's own image

    def vmtoll(*words: object) -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, "-m", "vmtoll", *map(str, words)]
        return subprocess.run(argv, env=own, cwd=answers, check=False, capture_output=True, text=True)

    up = vmtoll("lab", "up")
    if up.returncode:
        raise SystemExit(f"part machine: the lab does not come up: {up.stderr[-500:]}")
    try:
        _state(answers / "before")
        for phase, shown in PHASES.items():
            _kill_a_run(answers, own, shown)
            _state(answers / f"killed-in-{phase}")
            for name in ("status", "unprovision"):
                words = (name, "--yes") if name == "unprovision" else (name,)
                done = vmtoll(*words)
                (answers / f"killed-in-{phase}-{name}.txt").write_text(
                    f"exit {done.returncode}\n{done.stdout}{done.stderr}", "utf-8"
                )
            _state(answers / f"restored-after-{phase}")
            vmtoll("provision", "--yes")
    finally:
        vmtoll("lab", "down")


def _kill_a_run(answers: Path, environment: Mapping[str, str], shown: str) -> None:
    results = answers.parent / "results-of-killed-runs"
    argv = [sys.executable, "-m", "vmtoll", "run", "smoke", "--results", str(results)]
    output = answers.parent / "output-of-killed-run"
    with (
        output.open("wb") as file,
        subprocess.Popen(
            argv, env=dict(environment), stdout=file, stderr=file, cwd=answers, start_new_session=True
        ) as running,
    ):
        limit = time.monotonic() + 300
        while running.poll() is None and time.monotonic() < limit:
            if re.search(shown, output.read_text(errors="replace")) and (shown or time.monotonic() > limit - 297):
                break
            time.sleep(0.1)
        os.killpg(running.pid, signal.SIGKILL)


def _state(folder: Path) -> None:
    folder.mkdir()
    time.sleep(3)  # agents end when their input does
    for machine in MACHINES:
        for name, command in LISTED.items():
            argv = ["ssh", "-F", "/var/lib/vmtoll/lab/ssh_config", machine, command]
            done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=120)
            (folder / f"{machine}-{name}.txt").write_text("\n".join(sorted(done.stdout.splitlines())) + "\n", "utf-8")
