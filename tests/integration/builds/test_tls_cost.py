"""What TLS costs a server's CPU, as ratios: full handshakes against kept connections, encrypted files against plain."""

import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.support.ports import free_ports
from tests.support.real_servers import install, wait_for
from vmtoll.agent.servers import listens
from vmtoll.model.transport import tls_port

PAGE_BYTES, FILE_BYTES = 1000, 4_000_000


@pytest.fixture
def nginx(readable_folder: Path, tmp_path: Path) -> Iterator[tuple[int, psutil.Process]]:
    """The plain port of nginx with its own configuration, and its first process."""
    port = free_ports()
    spec = install("nginx", readable_folder, port, tmp_path)
    content = readable_folder / "srv/vmtoll/sites"
    content.mkdir(parents=True)
    (content / "page.html").write_bytes(b"x" * PAGE_BYTES)
    (content / "file.bin").write_bytes(b"x" * FILE_BYTES)
    with subprocess.Popen(spec["command"], stderr=subprocess.DEVNULL) as process:
        try:
            for each in (port, *spec["tls"]["ports"]):
                wait_for(partial(listens, each))
            yield port, psutil.Process(process.pid)
        finally:
            process.terminate()


def cpu_s(process: psutil.Process) -> float:
    """The CPU time of a server's processes so far."""
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(float(each.user + each.system) for each in times)


def request_cpu_s(process: psutil.Process, url: str, requests: int, *options: str) -> float:
    """The server's CPU time for a request, one after the other by one user of ab."""
    begin = cpu_s(process)
    done = subprocess.run(
        ["ab", "-q", "-n", str(requests), *options, url], capture_output=True, text=True, timeout=120, check=True
    )
    assert f"Complete requests:      {requests}\n" in done.stdout, done.stdout
    assert "Failed requests:        0\n" in done.stdout, done.stdout
    return (cpu_s(process) - begin) / requests


def test_a_full_handshake_costs_several_requests(nginx: tuple[int, psutil.Process]) -> None:
    port, process = nginx
    url = f"https://127.0.0.1:{tls_port(port, resumption=False)}/page.html"
    full = request_cpu_s(process, url, 500, "-f", "TLS1.3")
    kept = request_cpu_s(process, url, 2500, "-f", "TLS1.3", "-k")
    assert full / kept > 2


def test_encryption_costs_a_large_file_cpu(nginx: tuple[int, psutil.Process]) -> None:
    port, process = nginx
    plain = request_cpu_s(process, f"http://127.0.0.1:{port}/file.bin", 100, "-k")
    url = f"https://127.0.0.1:{tls_port(port, resumption=False)}/file.bin"
    encrypted = request_cpu_s(process, url, 100, "-f", "TLS1.3", "-k")
    assert encrypted / plain > 1.1
