"""Loads of single guests: what counts as their p99, and mail at a rate."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from vmtoll import loadgen
from vmtoll.agent.machine import memory, rss_kib
from vmtoll.loadgen import MailLoad, Output, ToolResult
from vmtoll.trial.density import p99_ms

LOAD = MailLoad(
    host="127.0.0.1", port=0, protocol="submission", domain="vmail.test", users=1, requests=8, message_bytes=100,
    tag="t", password="x", body_sha256="", rate_rps=20.0,
)  # fmt: skip


def result(*latencies_ms: float, failed: int = 0) -> ToolResult:
    answered = len(latencies_ms)
    return ToolResult(
        transactions=answered, successful=answered, failed=failed, elapsed_s=1.0,
        latencies_us=np.array([1000 * each for each in latencies_ms], dtype=np.int64),
    )  # fmt: skip


def test_the_p99_is_of_all_planned_requests() -> None:
    assert p99_ms(result(*range(1, 101)), 100) == 99
    assert p99_ms(result(*range(1, 100), failed=1), 100) == 99, "a lost one is slower than all"
    assert p99_ms(result(*range(1, 99), failed=2), 100) is None
    assert p99_ms(result(5.0, 1.0), 2) == 5, "the longest of so few"
    assert p99_ms(ToolResult(transactions=0, successful=0, failed=3, elapsed_s=1.0), 3) is None


@pytest.fixture
def slow_port() -> Iterator[int]:
    """A server that hangs up on each session 100 ms after it began."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    session, _ = server.accept()
                except OSError:
                    return
                time.sleep(0.1)
                session.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_mail_at_a_rate_counts_from_when_it_was_due(slow_port: int, tmp_path: Path) -> None:
    """One user, 20 sessions a second, each of 100 ms: every one begins 50 ms later than the one before it was late."""
    adapter = loadgen.get("mailer")
    command = adapter.command(LOAD)
    for name, text in command.files.items():
        (tmp_path / name).write_text(text)
    document = json.loads((tmp_path / "load.json").read_text()) | {"port": slow_port}
    (tmp_path / "load.json").write_text(json.dumps(document))
    subprocess.run([sys.executable, *command.argv[1:]], cwd=tmp_path, check=True, capture_output=True)
    log = np.array((tmp_path / "requests.log").read_text().split(), dtype=np.int64).reshape(-1, 3)
    assert len(log) == 8
    assert np.diff(log[:, 0]) == pytest.approx(50_000, abs=2_000), "when they were due, whatever was before"
    assert np.diff(log[:, 1]).min() > 25_000, "and so they take longer and longer"
    parsed = adapter.parse(LOAD, Output("", "", 0, {"requests.log": (tmp_path / "requests.log").read_bytes()}))
    assert (parsed.successful, parsed.failed) == (0, 8)
    assert parsed.latencies_us is not None
    assert len(parsed.latencies_us) == 0, "of those that succeeded alone"


def test_a_hosts_memory_and_what_ksm_saves(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  8000 kB\nMemFree: 1 kB\nMemAvailable:   5000 kB\n")
    assert memory(str(tmp_path)) == {"total_kib": 8000, "available_kib": 5000}
    ksm = tmp_path / "sys/kernel/mm/ksm"
    ksm.mkdir(parents=True)
    (ksm / "run").write_text("1\n")
    (ksm / "pages_sharing").write_text("250\n")
    assert memory(str(tmp_path)) == {"total_kib": 8000, "available_kib": 5000, "ksm": 1, "merged_kib": 1000}
    assert memory()["total_kib"] > memory()["available_kib"] > 0
    assert rss_kib("self") > 1000
    assert rss_kib("0") == 0
