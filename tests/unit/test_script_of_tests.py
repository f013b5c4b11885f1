"""scripts/test: when it is ended, everything that it has started ends, too."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from vmtoll.paths import PROJECT

# Two stages at once, each with a child of its own; a third is to begin after the first.
PROGRAM = """
import signal, sys
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import SourceFileLoader
script = SourceFileLoader("script", sys.argv[1]).load_module()
signal.signal(signal.SIGTERM, script.end)
stage = 'sleep 60 & echo $! >>"$0"; wait'
with ThreadPoolExecutor() as pool:
    stages = [pool.submit(lambda: [script.run(["sh", "-c", stage, sys.argv[2]]) for _ in range(2)]) for _ in range(2)]
    for each in stages:
        each.result()
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_signal_ends_all_stages_with_their_children_and_begins_none(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    argv = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(PROJECT / "scripts/test"), str(pids)]
    with subprocess.Popen(argv) as process:
        deadline = time.monotonic() + 30
        while not (pids.exists() and pids.read_text().count("\n") == 2):
            assert time.monotonic() < deadline, "both stages begin"
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(timeout=30) == 130
    children = [int(pid) for pid in pids.read_text().split()]
    assert len(children) == 2
    while any(map(is_running, children)):
        assert time.monotonic() < deadline + 30, "their children end"
        time.sleep(0.02)
