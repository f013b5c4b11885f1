"""Draw a site's files from a log: every line of the URL list stands for the same number of requests."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb

from vmtoll.access_log.traffic import BODY, Summary, one_row
from vmtoll.model.site import Kind
from vmtoll.sites.content import SMALLEST

# Without a body: they become one file of one byte, because load tools do not ask conditionally.
EMPTY = """at_s IS NOT NULL AND (
    (method IN ('GET', 'HEAD') AND status = 304) OR (method = 'HEAD' AND status IN (200, 206))
    OR (method = 'GET' AND status IN (200, 204, 206) AND body_bytes = 0 ))"""
_LEFT_OUT = f"""
SELECT CASE WHEN NOT is_http THEN 'not_http' WHEN method = 'other' THEN 'other_methods'
            WHEN status < 400 THEN 'redirects_and_others' WHEN status < 500 THEN 'client_errors'
            ELSE 'server_errors' END AS why, count(*)
FROM answers WHERE at_s IS NOT NULL AND NOT (({BODY}) OR ({EMPTY})) GROUP BY why ORDER BY why
"""
_FULL = f"SELECT count(*), count(*) FILTER (body_bytes > $largest), sum(body_bytes) FROM answers WHERE {BODY}"
# One row a path and power of two of its size: a page that is made anew each time is as many files as it has sizes.
# Those asked for too rarely to have a line of their own are pooled by size, to three digits.
_OBJECTS = f"""
WITH objects AS (
    SELECT any_value(kind) AS kind, count(*) AS requests, sum(least(body_bytes, $largest)) AS bytes
    FROM answers WHERE {BODY} GROUP BY object, CAST(floor(log2(body_bytes)) AS INTEGER)
),
sized AS (
    SELECT *, requests * $lines >= $total AS popular, bytes // requests AS size,
           CAST(pow(10, greatest(0, length(CAST(bytes // requests AS VARCHAR)) - 3)) AS BIGINT) AS grain
    FROM objects
)
SELECT kind, requests, bytes, 1 AS objects, true AS popular FROM sized WHERE popular
UNION ALL
SELECT kind, sum(requests), sum(bytes), count(*), false FROM sized WHERE NOT popular GROUP BY kind, size // grain, grain
"""


@dataclass(frozen=True)
class Entry:
    """Requests of one path (`popular`), or of many alike that are rare: how many, and their bodies' bytes in all."""

    kind: Kind
    requests: int
    total_bytes: int
    popular: bool

    @property
    def order(self) -> tuple[float, str, int, bool]:
        return self.total_bytes / self.requests, self.kind, self.requests, self.popular


@dataclass(frozen=True)
class File:
    """A file of the site and how many lines of the URL list name it."""

    kind: Kind
    size_bytes: int
    weight: int


def draw(entries: Sequence[Entry], lines: int) -> Iterator[File]:
    """Files whose weights add up to `lines`, in the order of their sizes.

    The requests, sorted by size, are cut into `lines` equal stretches. A popular path is a file of its own size with
    as many lines as stretches end in it; the other stretches are one file each, of the mean size of their requests.
    So weights are right to one line, and the sizes' distribution and mean are kept.
    """
    total = sum(entry.requests for entry in entries)
    done = requests = size = 0
    for entry in sorted(entries, key=lambda e: e.order):
        weight = (done + entry.requests) * lines // total - done * lines // total
        done, requests, size = done + entry.requests, requests + entry.requests, size + entry.total_bytes
        if not weight:
            continue
        if entry.popular:
            yield _file(entry.kind, entry.total_bytes / entry.requests, weight)
        else:
            yield from [_file(entry.kind, size / requests, 1)] * weight
        requests = size = 0


def _file(kind: Kind, size_bytes: float, weight: int) -> File:
    size = max(1, round(size_bytes))
    return File(kind if size >= SMALLEST[kind] else "html", size, weight)


def entries(db: duckdb.DuckDBPyConnection, lines: int, largest_bytes: int) -> tuple[list[Entry], Summary]:
    """What the site is to stand for, and what is to be said about it: `requests` that it stands for, `left_out` by
    reason, `objects` (files of the log, by size), `cut` (bodies above `largest_bytes`), `body_bytes_mean` of them.
    """
    (empty,) = one_row(db, f"SELECT count(*) FROM answers WHERE {EMPTY}")
    full, cut, total_bytes = one_row(db, _FULL, largest=largest_bytes)
    total = full + empty
    lines = min(lines, max(total, 1))
    rows = db.execute(_OBJECTS, {"largest": largest_bytes, "lines": lines, "total": total}).fetchall()
    found = [Entry(kind, int(n), int(size), popular) for kind, n, size, _, popular in rows]
    facts = {
        "requests": total, "left_out": dict(db.execute(_LEFT_OUT).fetchall()),
        "objects": sum(int(row[3]) for row in rows), "cut": cut,
        "body_bytes_mean": int(total_bytes or 0) / max(total, 1),
    }  # fmt: skip
    return ([*found, Entry("html", empty, empty, True)] if empty else found), facts
