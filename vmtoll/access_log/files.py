"""Draw a site's files from a log: every line of the URL list stands for the same number of requests."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb

from vmtoll.access_log.traffic import BODY, Summary, one_row
from vmtoll.model.site import Kind
from vmtoll.sites.content import SMALLEST

# Answers without a body. They become one file of one byte, because load tools send no conditional requests.
EMPTY = """at_s IS NOT NULL AND (
    (method IN ('GET', 'HEAD') AND status = 304) OR (method = 'HEAD' AND status IN (200, 206))
    OR (method = 'GET' AND status IN (200, 204, 206) AND body_bytes = 0 ))"""
_LEFT_OUT = f"""
SELECT CASE WHEN NOT is_http THEN 'not_http' WHEN method = 'other' THEN 'other_methods'
            WHEN status = 0 THEN 'unanswered'
            WHEN status < 400 THEN 'redirects_and_others' WHEN status < 500 THEN 'client_errors'
            ELSE 'server_errors' END AS why, count(*)
FROM answers WHERE at_s IS NOT NULL AND NOT (({BODY}) OR ({EMPTY})) GROUP BY why ORDER BY why
"""
_FULL = f"SELECT count(*), count(*) FILTER (body_bytes > $largest), sum(body_bytes) FROM answers WHERE {BODY}"
# One row for each path and power of two of its size: a page that is generated each time is a file for each size.
_OBJECTS = f"""
CREATE OR REPLACE TEMP TABLE objects AS
SELECT any_value(kind) AS kind, count(*) AS requests, CAST(sum(least(body_bytes, $largest)) AS BIGINT) AS bytes
FROM answers WHERE {BODY} GROUP BY object, CAST(floor(log2(body_bytes)) AS INTEGER)
"""
# Objects too rare for one line each are pooled by size, to three digits.
_ENTRIES = """
WITH sized AS (
    SELECT *, requests * $lines >= $total AS popular, bytes // requests AS size,
           CAST(pow(10, greatest(0, length(CAST(bytes // requests AS VARCHAR)) - 3)) AS BIGINT) AS grain
    FROM objects
)
SELECT kind, requests, bytes, true AS popular FROM sized WHERE popular
UNION ALL
SELECT kind, sum(requests), sum(bytes), false FROM sized WHERE NOT popular GROUP BY kind, size // grain, grain
"""


@dataclass(frozen=True)
class Entry:
    """Requests for one path (`popular`), or for rare files of like kind and size: their number and total body bytes."""

    kind: Kind
    requests: int
    total_bytes: int
    popular: bool

    @property
    def mean_bytes(self) -> float:
        return self.total_bytes / self.requests

    @property
    def order(self) -> tuple[float, str, int, bool]:
        return self.mean_bytes, self.kind, self.requests, self.popular


@dataclass(frozen=True)
class DrawnFile:
    """A file of the site and how many lines of the URL list name it."""

    kind: Kind
    size_bytes: int
    weight: int


def draw(entries: Sequence[Entry], lines: int) -> list[DrawnFile]:
    """Files whose weights add up to `lines`, in the order of their sizes.

    A popular path becomes a file of its own size, with a line for each `1/lines` of all requests. Its remainder, less
    than a line, and the rare paths are sorted by size and cut into equal stretches. Each stretch becomes one file of
    the mean size of its requests. So weights are right to one line, and the sizes keep their distribution and mean.
    """
    total = sum(entry.requests for entry in entries)
    popular, pool = [], []
    for entry in sorted(entries, key=lambda e: e.order):
        weight, rest = divmod(entry.requests * lines, total) if entry.popular else (0, entry.requests * lines)
        if weight:
            popular.append(_file(entry.kind, entry.mean_bytes, weight))
        pool.append((entry.kind, entry.mean_bytes, rest))
    return sorted([*popular, *_pooled(pool, total)], key=lambda file: file.size_bytes)


def _pooled(pool: Sequence[tuple[Kind, float, int]], line: int) -> Iterator[DrawnFile]:
    """Yield a file for each stretch of length `line` of a pool: (kind, mean size, length), in the order of sizes."""
    filled, size = 0, 0.0  # of the current stretch
    for kind, mean_bytes, length in pool:
        missing = line - filled
        if length < missing:
            filled, size = filled + length, size + length * mean_bytes
            continue
        yield _file(kind, (size + missing * mean_bytes) / line, 1)
        whole, filled = divmod(length - missing, line)
        yield from [_file(kind, mean_bytes, 1)] * whole
        size = filled * mean_bytes


def _file(kind: Kind, size_bytes: float, weight: int) -> DrawnFile:
    size = max(1, round(size_bytes))
    return DrawnFile(kind if size >= SMALLEST[kind] else "html", size, weight)


class LogFiles:
    """The files of a log, by path and power of two of their size, with bodies cut to `largest_bytes`.

    `requests`: number that the site represents. `mean_bytes`: mean of their bodies, after the cut.
    """

    def __init__(self, db: duckdb.DuckDBPyConnection, largest_bytes: int) -> None:
        self.db = db
        (self.empty,) = one_row(db, f"SELECT count(*) FROM answers WHERE {EMPTY}")
        full, self.cut, total_bytes = one_row(db, _FULL, largest=largest_bytes)
        self.requests, self.log_bytes = full + self.empty, int(total_bytes or 0)
        db.execute(_OBJECTS, {"largest": largest_bytes})
        self.count, cut_bytes = one_row(db, "SELECT count(*), sum(bytes) FROM objects")
        self.mean_bytes = int(cut_bytes or 0) / max(self.requests, 1)

    def entries(self, lines: int) -> list[Entry]:
        """Entries for a list of `lines` lines."""
        rows = self.db.execute(_ENTRIES, {"lines": lines, "total": self.requests}).fetchall()
        entry_rows = [Entry(kind, int(n), int(size), popular) for kind, n, size, popular in rows]
        return [*entry_rows, Entry("html", self.empty, self.empty, True)] if self.empty else entry_rows

    def facts(self) -> Summary:
        """Summary of the files.

        `requests`: number that the site represents; `left_out`: number of the others by reason; `objects`: number of
        files by path and size; `cut`: number of bodies above the largest size; `body_bytes_mean`: before the cut.
        """
        return {
            "requests": self.requests, "left_out": dict(self.db.execute(_LEFT_OUT).fetchall()),
            "objects": self.count, "cut": self.cut, "body_bytes_mean": self.log_bytes / max(self.requests, 1),
        }  # fmt: skip
