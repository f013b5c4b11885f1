"""Commands: run in a folder of their own, bounded in time, with their CPU time, and nothing left behind."""

from __future__ import annotations

import base64
import contextlib
import gzip
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workloads.runner.agent.machine import read


class Commands:
    """What this agent is running now."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.folders: set[Path] = set()

    def run(
        self,
        argv: Sequence[str],
        files: dict[str, str],
        outputs: Sequence[str],
        env: dict[str, str],
        limit_s: float,
        finish: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Run a command in a fresh folder; its whole process group dies at the bound. CPU time by rusage.

        `finish` is run after a command that ended by itself, outside of its times, to make `outputs` of what it left.
        """
        folder = Path(tempfile.mkdtemp(prefix="vmtoll-"))
        self.folders.add(folder)
        try:
            for name, text in files.items():
                (folder / name).write_text(text, encoding="utf-8")
            result = self._run(argv, folder, {**os.environ, **env}, limit_s)
            if finish and not result["timed_out"]:
                finished = self._run(finish, folder, {**os.environ, **env}, limit_s)
                result["stderr"] += finished["stderr"]
            result["files"] = {}
            for name in outputs:
                with contextlib.suppress(OSError):
                    packed = gzip.compress((folder / name).read_bytes(), 1)
                    result["files"][name] = base64.b64encode(packed).decode()
            return result
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            self.folders.discard(folder)

    def _run(self, argv: Sequence[str], folder: Path, env: dict[str, str], limit_s: float) -> dict[str, Any]:
        expired = threading.Event()
        with (folder / ".out").open("w+b") as out, (folder / ".err").open("w+b") as err:
            started_at, begin = time.time(), time.monotonic()
            process = subprocess.Popen(
                argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
            self.running.add(process.pid)

            def kill() -> None:
                expired.set()
                kill_group(process.pid)

            bound = threading.Timer(limit_s, kill)
            bound.daemon = True
            bound.start()
            _, status, usage = os.wait4(process.pid, 0)
            wall_s = time.monotonic() - begin
            bound.cancel()
            self.running.discard(process.pid)
            process.returncode = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        kill_group(process.pid)  # whatever it left behind
        return {
            "exit_status": process.returncode,
            "timed_out": expired.is_set(),
            "stdout": read(str(folder / ".out")),
            "stderr": read(str(folder / ".err")),
            "wall_s": wall_s,
            "started_at": started_at,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "cpus": len(os.sched_getaffinity(0)),
        }

    def kill(self) -> None:
        """End what is running now."""
        for pid in list(self.running):
            kill_group(pid)

    def close(self) -> None:
        self.kill()
        for folder in list(self.folders):
            shutil.rmtree(folder, ignore_errors=True)


def kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
