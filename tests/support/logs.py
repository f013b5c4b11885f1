"""Synthetic access logs, made by plain Python."""

import gzip
import json
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from vmtoll import sites
from vmtoll.access_log import Options, from_log

BEGIN_S = int(datetime(2026, 3, 1, 10, 0, 0, tzinfo=UTC).timestamp())
AGENT = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"


@dataclass(frozen=True)
class Hit:
    """One line of a log; `at_s` since the epoch, `zone_h` the server's offset in hours."""

    at_s: int
    path: str = "/index.html"
    status: int = 200
    body_bytes: int = 1000
    client: str = "192.0.2.1"
    method: str = "GET"
    version: str = "HTTP/1.1"
    user: str = "-"
    referrer: str = "-"
    agent: str = AGENT
    zone_h: int = 0

    @property
    def line(self) -> str:
        time = datetime.fromtimestamp(self.at_s, timezone(timedelta(hours=self.zone_h)))
        size = "-" if self.status == 304 else str(self.body_bytes)
        return (
            f'{self.client} - {self.user} [{time:%d/%b/%Y:%H:%M:%S %z}] "{self.method} {self.path} {self.version}" '
            f'{self.status} {size} "{self.referrer}" "{self.agent}"'
        )


def day(n: int, seed: int = 5) -> list[Hit]:
    """`n` requests in three hours, twice as many in the second: 40 files by Zipf, some rare, 304s, errors, HTTP/1.0."""
    rng = random.Random(seed)
    sizes = [rng.randrange(200, 60_000) for _ in range(40)]
    kinds = ["html", "png", "jpg", "pdf", "zip", "css"]
    hits = []
    for _ in range(n):
        file = rng.choices(range(40), weights=[1 / (rank + 1) for rank in range(40)])[0]
        hour = rng.choices([0, 1, 2], weights=[1, 2, 1])[0]
        path, size = f"/files/{file}.{kinds[file % 6]}?v={rng.randrange(9)}", sizes[file]
        if rng.random() < 0.1:
            path, size = f"/rare/{rng.randrange(10**9)}.html", rng.randrange(500, 200_000)
        status = rng.choices([200, 304, 404, 302, 206], weights=[70, 20, 5, 4, 1])[0]
        hits.append(
            Hit(
                at_s=BEGIN_S + hour * 3600 + rng.randrange(3600),
                path=path,
                status=status,
                body_bytes=size,
                client=f"192.0.2.{rng.randrange(30)}",
                version=rng.choices(["HTTP/1.1", "HTTP/1.0", "HTTP/2.0"], weights=[80, 5, 15])[0],
                method=rng.choices(["GET", "POST", "HEAD"], weights=[95, 3, 2])[0],
                zone_h=rng.choice([0, 2, -5]),
            )
        )
    return sorted(hits, key=lambda hit: hit.at_s)


def write(file: Path, lines: Sequence[Hit | str | bytes]) -> Path:
    """Write a log, compressed as its suffix says."""
    file.parent.mkdir(parents=True, exist_ok=True)
    data = b"".join(
        (entry if isinstance(entry, bytes) else (entry if isinstance(entry, str) else entry.line).encode()) + b"\n"
        for entry in lines
    )
    if file.suffix == ".gz":
        half = len(data) // 2  # two members, as `gzip >>` leaves them
        data = gzip.compress(data[:half]) + gzip.compress(data[half:])
    elif file.suffix == ".zst":
        data = subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True).stdout
    file.write_bytes(data)
    return file


def make_workload(logs: list[Path], output: Path, **options: Any) -> tuple[dict[str, Any], sites.SiteFiles]:
    """Make a workload of logs; return its summary, and the manifest of the site."""
    workload = from_log(logs, output, Options(**options), lambda said: None)
    assert [file.relative_to(output).as_posix() for file in workload.files] == [
        "from-log.yml",
        "from-log-sweep.yml",
        "sites/from-log.yml",
        "from-log.summary.json",
    ]
    assert json.loads(workload.files[3].read_text()) == workload.summary
    return workload.summary, sites.site_files(sites.load_site(workload.files[2]))
