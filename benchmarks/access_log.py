"""Time and memory that a log takes: `python -m benchmarks.access_log [LINES [SUFFIX]]`.

Makes a log of LINES lines (default: 10 million; SUFFIX .gz or .zst compresses it) in a temporary folder, the same each
time: 20,000 paths of all sizes, 200,000 clients, one answer in six a 304, one day. Then makes a workload of it in a
fresh process. Does both for half as many lines first. The logs are in the page cache by then. Exits with code 1 if
twice the lines take more than MOST_CPU times the CPU time or MOST_MEMORY times the memory.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb

from benchmarks import fresh_process, timed
from vmtoll.access_log import Options, from_log

LINES = 10_000_000
# Factors that twice as many lines may take: CPU time grows with the log, memory hardly does.
MOST_CPU, MOST_MEMORY = 2.3, 1.3
_PACKED = {"": "none", ".gz": "gzip", ".zst": "zstd"}

# Two numbers between 0 and 1 from two hashes of the line's number; paths and clients follow Zipf.
_MAKE = r"""
COPY (
    WITH drawn AS (
        SELECT i, hash(i + 1000000007) AS h,
               CAST(floor(pow(20000, (hash(i) >> 11) / 9007199254740992)) AS INTEGER) AS file,
               CAST(floor(pow(200000, (hash(-1 - i) >> 11) / 9007199254740992)) AS INTEGER) AS client
        FROM range($lines) AS numbers(i)
    )
    SELECT printf('10.%d.%d.%d - - [%s +0000] "GET /section%d/page%d.%s?visit=%d HTTP/1.1" %d %d "https://example.org/'
                  'section%d/" "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) '
                  'Chrome/%d.0.0.0 Safari/537.36"',
                  client >> 16, client >> 8 & 255, client & 255,
                  strftime(to_timestamp(1700006400 + i * 86400 // $lines)::TIMESTAMP, '%d/%b/%Y:%H:%M:%S'),
                  file % 17, file, ['html', 'css', 'js', 'png', 'jpg', 'pdf'][1 + file % 6], h % 1000,
                  if(h % 6 = 0, 304, 200), if(h % 6 = 0, 0, 200 + hash(file) % 30000), file % 17, client % 120)
    FROM drawn ORDER BY i
) TO '{file}' (FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIMITER '\x01', COMPRESSION '{packed}')
"""


def make(folder: Path, lines: int, suffix: str = "") -> Path:
    """Write the log; return its file."""
    file = folder / f"access.log{suffix}"
    with duckdb.connect(config={"memory_limit": "1GB", "threads": 2, "temp_directory": str(folder)}) as database:
        database.execute("SET enable_progress_bar = false")
        database.execute(_MAKE.format(file=file, packed=_PACKED[suffix]), {"lines": lines})
    return file


def measure(log: Path) -> tuple[float, float, float, int]:
    """Seconds, seconds of CPU, this process's peak memory in MB (10⁶ bytes), and the number of lines read."""
    seconds, cpu_s, peak_mb, workload = timed(from_log, [log], log.parent / "made", Options(), print)
    return seconds, cpu_s, peak_mb, workload.summary["lines"]


def run(lines: int, suffix: str = "") -> tuple[float, float, float, float, int]:
    """Make and measure, each in a fresh process; return the log's size in MB, and what `measure` returns."""
    with fresh_process() as (folder, call):
        log = call(make, folder, lines, suffix)
        return log.stat().st_size / 1e6, *call(measure, log)


def excess(cpu_s: Sequence[float], peaks_mb: Sequence[float]) -> str | None:
    """One sentence if CPU time or memory exceeds its bound, else None. Arguments: for half the lines, then for all."""
    cpu, memory = cpu_s[1] / cpu_s[0], peaks_mb[1] / peaks_mb[0]
    if cpu <= MOST_CPU and memory <= MOST_MEMORY:
        return None
    return (
        f"Twice as many lines took {cpu:.2f} times the CPU time and {memory:.2f} times the memory; they may take "
        f"{MOST_CPU} and {MOST_MEMORY} times."
    )


if __name__ == "__main__":
    line_count = int(sys.argv[1]) if len(sys.argv) > 1 else LINES
    packed = sys.argv[2] if len(sys.argv) > 2 else ""
    cpu, peaks = [], []
    for lines in (line_count // 2, line_count):
        size_mb, seconds, cpu_s, peak_mb, read = run(lines, packed)
        print(
            f"{read:,} lines, {size_mb:.0f} MB{packed}: {seconds:.1f} s ({cpu_s:.1f} s of CPU), peak {peak_mb:.0f} MB"
        )
        cpu.append(cpu_s)
        peaks.append(peak_mb)
    sys.exit(excess(cpu, peaks))
