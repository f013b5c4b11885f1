"""Run commands, each in its own folder and with a time limit; measure their CPU time; leave nothing behind."""

from __future__ import annotations

import base64
import contextlib
import errno
import gzip
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from vmtoll.agent.machine import all_pids, read, stat_fields
from vmtoll.agent.protocol import Done

# A disk with less free space counts as full.
MIN_FREE_BYTES = 64 * 1024


class Commands:
    """Commands that this agent is running now."""

    def __init__(self) -> None:
        self.running_pids: set[int] = set()
        self.pid_by_label: dict[str, int] = {}
        self.folders: set[Path] = set()
        self.cancel_events: set[threading.Event] = set()
        self.start_lock, self.is_closed = threading.Lock(), False

    def run(
        self,
        argv: Sequence[str],
        files: dict[str, str] | None = None,
        outputs: Sequence[str] = (),
        env: dict[str, str] | None = None,
        limit_s: float = 60.0,
        finish: Sequence[str] = (),
        label: str = "",
        start_at_s: float | None = None,
    ) -> Done:
        """Run a command in a fresh folder; at `limit_s` its whole process group is killed. CPU time is from rusage.

        `finish`: command to run, untimed, after one that ended by itself, to make `outputs` from what it left.
        `label`: the name that `interrupt` takes. `start_at_s`: when to start, by this machine's clock; at once if that
        has passed.
        """
        folder = Path(tempfile.mkdtemp(prefix="vmtoll-"))
        self.folders.add(folder)
        try:
            for name, text in (files or {}).items():
                (folder / name).write_text(text, encoding="utf-8")
            if start_at_s is not None:
                self._wait_until(start_at_s)
            environment = {**os.environ, **(env or {})}
            result = self._run(argv, folder, environment, limit_s, label)
            if finish and not result["timed_out"]:
                finish_result = self._run(finish, folder, environment, limit_s)
                result["stderr"] += finish_result["stderr"]
            for name in outputs:
                with contextlib.suppress(OSError):
                    packed = gzip.compress((folder / name).read_bytes(), 1)
                    result["files"][name] = base64.b64encode(packed).decode()
            if free_bytes(folder) < MIN_FREE_BYTES:
                raise OSError(errno.ENOSPC, "what the command wrote may be cut short")
            return result
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise RuntimeError(f"the disk of {folder.parent} is full: {error.strerror}; free some there") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            self.folders.discard(folder)

    def _wait_until(self, start_at_s: float) -> None:
        """Wait until this time of the machine's clock. Raises RuntimeError when the command is canceled meanwhile."""
        canceled = threading.Event()
        self.cancel_events.add(canceled)
        try:
            if canceled.wait(max(0.0, start_at_s - time.time())):
                raise RuntimeError("called off before it began")
        finally:
            self.cancel_events.discard(canceled)

    def _run(self, argv: Sequence[str], folder: Path, env: dict[str, str], limit_s: float, label: str = "") -> Done:
        expired = threading.Event()
        with (folder / ".out").open("w+b") as out, (folder / ".err").open("w+b") as err:
            with self.start_lock:  # so that close() misses no command that is just starting
                if self.is_closed:
                    raise RuntimeError("the agent ends")
                started_at, begin = time.time(), time.monotonic()
                process = subprocess.Popen(
                    argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
                )
                self.running_pids.add(process.pid)
            if label:
                self.pid_by_label[label] = process.pid

            def kill() -> None:
                expired.set()
                kill_group(process.pid)

            timer = threading.Timer(limit_s, kill)
            timer.daemon = True
            timer.start()
            _, status, usage = os.wait4(process.pid, 0)
            wall_s = time.monotonic() - begin
            timer.cancel()
            self.running_pids.discard(process.pid)
            self.pid_by_label.pop(label, None)
            process.returncode = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        kill_group(process.pid)  # processes that it left behind
        return {
            "exit_status": process.returncode,
            "timed_out": expired.is_set(),
            "stdout": read(str(folder / ".out")),
            "stderr": read(str(folder / ".err")),
            "wall_s": wall_s,
            "started_at": started_at,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "cpus": len(os.sched_getaffinity(0)),
            "files": {},
        }

    @contextlib.contextmanager
    def running(self, argv: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command, whose output is a pipe, until the context ends. Raises OSError, RuntimeError."""
        with self.start_lock:
            if self.is_closed:
                raise RuntimeError("the agent ends")
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
            )
            self.running_pids.add(process.pid)
        with process:
            try:
                yield process
            finally:
                kill_group(process.pid)
        self.running_pids.discard(process.pid)

    def interrupt(self, label: str) -> None:
        """Ask a command to finish with the results it has: send SIGINT to the processes it started, else to itself.

        A shell gets no SIGINT while its tool runs, so that it outlives the tool. Raises RuntimeError when the command
        has ended already.
        """
        leader = self.pid_by_label.get(label)
        if leader is None:
            raise RuntimeError(f"{label} has ended already")
        group = [int(pid) for pid in all_pids() if stat_fields(pid)[2:3] == [str(leader)]]
        for pid in [pid for pid in group if pid != leader] or [leader]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)

    def kill(self) -> None:
        """Kill the commands that are running and cancel those that wait to start."""
        for canceled in list(self.cancel_events):
            canceled.set()
        for pid in list(self.running_pids):
            kill_group(pid)

    def close(self) -> None:
        with self.start_lock:
            self.is_closed = True
        self.kill()
        for folder in list(self.folders):
            shutil.rmtree(folder, ignore_errors=True)


def kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def free_bytes(folder: Path) -> float:
    """Bytes that this user can still write to the folder's disk; infinite if it has no size, as with ramfs."""
    disk = os.statvfs(folder)
    return disk.f_frsize * (disk.f_bavail if os.geteuid() else disk.f_bfree) if disk.f_blocks else float("inf")
