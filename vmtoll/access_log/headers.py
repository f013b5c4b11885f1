"""Logs that count the headers of an answer with its body: Apache's `%O`, nginx's `$bytes_sent`, HAProxy, Squid."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import duckdb

from vmtoll.access_log.traffic import Summary, one_row

# Headers that a 200 has and a 304 leaves out (RFC 9110, 15.4.5), as servers write them for a file; the status lines
# differ too.
_NOT_IN_304 = (
    "Last-Modified: Tue, 03 Jun 2025 14:00:00 GMT\r\nAccept-Ranges: bytes\r\nContent-Length: 12345\r\n"
    "Content-Type: text/html\r\n"
)
MORE_THAN_A_304_BYTES = len(_NOT_IN_304) + len("200 OK") - len("304 Not Modified")
# Sizes logged for answers without a body. If such a size is at least the size logged for a GET of the same object, the
# server logs the size of the object, whatever it sends.
_BODILESS = """
WITH sent AS (
    SELECT filename, object, min(body_bytes) AS least
    FROM answers WHERE method = 'GET' AND status = 200 GROUP BY ALL
), bodiless AS (
    SELECT filename, object, if(method = 'HEAD', 0, status) AS status, body_bytes, count(*) AS n
    FROM answers
    WHERE at_s IS NOT NULL AND (status IN (204, 304) OR (method = 'HEAD' AND status = 200)) GROUP BY ALL
)
SELECT filename, status, body_bytes, sum(n), coalesce(sum(n) FILTER (body_bytes >= least), 0),
       coalesce(sum(n) FILTER (body_bytes < least), 0)
FROM bodiless LEFT JOIN sent USING (filename, object) GROUP BY ALL
"""
_SMALLEST = """
SELECT quantile_disc(body_bytes, 0.05) FROM answers
WHERE method = 'GET' AND status = 200 AND body_bytes > 0 AND list_contains($files, filename)
"""
_HEAD_STATUS = 0  # used as the status of an answer to HEAD
_SIMILAR_FACTOR = 3  # headers of one server differ by less than this factor, sizes of files by more


@dataclass(frozen=True)
class _Size:
    """A size logged for `n` answers without a body.

    `at_least_get`: for how many of them a GET of the same object was logged with this size or a smaller one;
    `below_get`: with larger ones only. Neither counts an object without a GET.
    """

    status: int
    size_bytes: int
    n: int
    at_least_get: int
    below_get: int


@dataclass(frozen=True)
class Headers:
    """Headers in the sizes of a log."""

    summary: Summary | None  # their sizes; None if the log does not count them
    # no answer without a body shows whether sizes include headers, or how large the headers are
    are_unknown: bool = False


def subtract_headers(db: duckdb.DuckDBPyConnection) -> Headers:
    """Subtract the headers from the sizes in `answers`, if a log counts them.

    Answers 304 and 204, and those to HEAD, have no body. If most of them in a file have a size, it is the size of their
    headers, unless the server logs the size of the object. A file without such answers is treated like the others.
    `full_bytes`: the headers of an answer with a body. It is the median over answers to HEAD, if possible of objects
    that were also sent. Otherwise it is the median over 304s or 204s plus what these leave out: right to 70 bytes,
    because some servers leave out less. At least 19 of 20 logged answers with a body are as large as this or larger.
    """
    sizes = _sizes(db)
    counting = {name for name, file_sizes in sizes.items() if _counts_headers(file_sizes)}
    if not counting:
        return Headers(None, are_unknown=not any(map(_is_informative, sizes.values())))
    pooled = [size for name in counting for size in sizes[name] if size.size_bytes]
    names = [name for (name,) in db.execute("SELECT DISTINCT filename FROM answers").fetchall()]
    if _counts_headers([size for each in sizes.values() for size in each]):
        counting |= {name for name in names if not _is_informative(sizes.get(name, ()))}
    bodiless = _median(pooled, 304) or _median(pooled, 204) or _median(pooled, _HEAD_STATUS)
    (smallest,) = one_row(db, _SMALLEST, files=sorted(counting))
    estimate = bodiless + MORE_THAN_A_304_BYTES
    heads = [size for size in pooled if size.status == _HEAD_STATUS]
    full = _full_header_bytes(heads, smallest or math.inf) or min(estimate, smallest or estimate)
    db.execute("ALTER TABLE answers RENAME TO logged")
    files = ", ".join("'" + name.replace("'", "''") + "'" for name in sorted(counting))
    db.execute(f"""
        CREATE VIEW answers AS SELECT * REPLACE (
            CASE WHEN filename NOT IN ({files}) THEN body_bytes WHEN status IN (204, 304) OR method = 'HEAD' THEN 0
                 ELSE greatest(body_bytes - {full}, least(body_bytes, 1)) END AS body_bytes)
        FROM logged
    """)
    return Headers({"bodiless_bytes": bodiless, "full_bytes": full, "logs": len(counting)})


def _sizes(db: duckdb.DuckDBPyConnection) -> dict[str, list[_Size]]:
    """File → the sizes of its answers without a body."""
    sizes: dict[str, list[_Size]] = {}
    for filename, *counted in db.execute(_BODILESS).fetchall():
        sizes.setdefault(filename, []).append(_Size(*map(int, counted)))
    return sizes


def _is_informative(sizes: Sequence[_Size]) -> bool:
    """Return whether these answers show if sizes include headers."""
    return any(size.status != _HEAD_STATUS or size.at_least_get for size in sizes)


def _full_header_bytes(heads: Sequence[_Size], most: float) -> int:
    """The median header size of answers to HEAD, if possible of objects that were also sent; 0 if there is none, or if
    it exceeds `most` bytes.
    """
    compared = [replace(size, n=size.below_get) for size in heads if size.below_get]
    full = _quantile(compared or [size for size in heads if not size.at_least_get], 0.5)
    return full if full <= most else 0


def _counts_headers(sizes: Sequence[_Size]) -> bool:
    """Return whether most answers 304 and 204 (if there are none, most answers to HEAD) have the size of headers.

    HEAD alone needs a GET of the same object to compare with: many servers log the size that a GET would have.
    """
    answers = [size for size in sizes if size.status != _HEAD_STATUS]
    is_head = not answers
    answers = answers or list(sizes)
    sized = [size for size in answers if size.size_bytes]
    if 2 * sum(size.n for size in sized) <= sum(size.n for size in answers):
        return False
    at_least_get, below = sum(size.at_least_get for size in sized), sum(size.below_get for size in sized)
    if at_least_get + below:
        return below > at_least_get
    return not is_head and _quantile(sized, 0.9) < _SIMILAR_FACTOR * _quantile(sized, 0.1)


def _median(sizes: Sequence[_Size], status: int) -> int:
    """The median size of answers with this status, 0 without any."""
    return _quantile([size for size in sizes if size.status == status], 0.5)


def _quantile(sizes: Sequence[_Size], share: float) -> int:
    """The size that this share of the answers does not exceed, 0 without any."""
    total = sum(size.n for size in sizes)
    counted = 0
    for size in sorted(sizes, key=attrgetter("size_bytes")):
        counted += size.n
        if counted >= share * total:
            return size.size_bytes
    return 0
