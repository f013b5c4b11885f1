"""Logs that count the headers of an answer with its body: Apache's `%O`, nginx's `$bytes_sent`, HAProxy, Squid."""

from collections.abc import Sequence

import duckdb

from vmtoll.access_log.traffic import Summary

# What a 200 has and a 304 leaves out (RFC 9110, 15.4.5), as servers write them for a file; the status lines differ too.
_NOT_IN_304 = (
    "Last-Modified: Tue, 03 Jun 2025 14:00:00 GMT\r\nAccept-Ranges: bytes\r\nContent-Length: 12345\r\n"
    "Content-Type: text/html\r\n"
)
MORE_THAN_A_304_BYTES = len(_NOT_IN_304) + len("200 OK") - len("304 Not Modified")
_BODILESS = """
SELECT filename, if(status IN (204, 304), status, 0) AS status, body_bytes, count(*)
FROM answers WHERE at_s IS NOT NULL AND (status IN (204, 304) OR (method = 'HEAD' AND status = 200)) GROUP BY ALL
"""
_HEAD = 0  # stands for the status of an answer to HEAD
_Sizes = Sequence[tuple[int, int, int]]  # status, bytes, number of answers


def take_off(db: duckdb.DuckDBPyConnection) -> Summary | None:
    """Take the headers off the sizes in `answers`, where a log counts them; return their sizes, or None.

    An answer 304 or 204 has no body: where most of a file's have a size, it is that of their headers. A file without
    such answers is like the others. `full_bytes`: the headers of an answer with a body, by the median of HEAD requests,
    else by that of 304s and what these leave out: right to 70 bytes, for some servers leave out less.
    """
    sizes: dict[str, list[tuple[int, int, int]]] = {}
    for filename, status, size_bytes, n in db.execute(_BODILESS).fetchall():
        sizes.setdefault(filename, []).append((status, size_bytes, n))
    counting = {name for name, each in sizes.items() if _counts_headers(each)}
    pooled = [size for name in counting for size in sizes[name]]
    if not pooled:
        return None
    names = [name for (name,) in db.execute("SELECT DISTINCT filename FROM answers").fetchall()]
    if _counts_headers([size for each in sizes.values() for size in each]):
        counting |= {name for name in names if not _has_evidence(sizes.get(name, ()))}
    bodiless = _median(pooled, 304) or _median(pooled, 204)
    full = _median(pooled, _HEAD) or bodiless + MORE_THAN_A_304_BYTES
    db.execute("ALTER TABLE answers RENAME TO logged")
    files = ", ".join("'" + name.replace("'", "''") + "'" for name in sorted(counting))
    db.execute(f"""
        CREATE VIEW answers AS SELECT * REPLACE (
            CASE WHEN filename NOT IN ({files}) THEN body_bytes WHEN status IN (204, 304) OR method = 'HEAD' THEN 0
                 ELSE greatest(body_bytes - {full}, least(body_bytes, 1)) END AS body_bytes)
        FROM logged
    """)
    return {"bodiless_bytes": bodiless, "full_bytes": full, "logs": len(counting)}


def _has_evidence(sizes: _Sizes) -> bool:
    return any(status != _HEAD for status, _, _ in sizes)


def _counts_headers(sizes: _Sizes) -> bool:
    """Return whether most answers 304 and 204 have a size."""
    answers = [(size_bytes, n) for status, size_bytes, n in sizes if status != _HEAD]
    return 2 * sum(n for size_bytes, n in answers if size_bytes) > sum(n for _, n in answers)


def _median(sizes: _Sizes, status: int) -> int:
    """The median size of answers with this status, 0 without any."""
    total = sum(n for s, _, n in sizes if s == status)
    seen = 0
    for _, size_bytes, n in sorted(size for size in sizes if size[0] == status):
        seen += n
        if 2 * seen >= total:
            return size_bytes
    return 0
