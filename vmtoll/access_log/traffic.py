"""Traffic of a log: rates, peaks, connections, sizes of bodies. All times are UTC."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb
import numpy as np

from vmtoll.access_log.clock import PER_S, SLOT, times_of_files

Summary = dict[str, Any]  # what NAME.summary.json holds, or a part of it
MINUTE_S, HOUR_S = 60, 3600
_Parts = Sequence[tuple[int, int]]  # begin and end of each, in tenths of a second since the epoch
PERCENTILES = (1, 10, 25, 50, 75, 90, 99, 100)
# Answers with a file; the sizes of others say nothing about files.
ANSWERED = "at_s IS NOT NULL AND method = 'GET' AND status IN (200, 206)"
BODY = f"{ANSWERED} AND body_bytes > 0"


def traffic(db: duckdb.DuckDBPyConnection, idle_s: int) -> Summary:
    """Summary of the table `answers` (vmtoll.access_log.read).

    `idle_s`: a pause of a client after which its connection counts as closed. `covered_s`: the time that the files
    cover, in `parts`. `peak_minute` is None if no part lasts a minute. `plan`: the rate to plan for, of the busiest
    minute or else of the whole log.
    """
    requests, first_s, last_s, unchanged = one_row(
        db, "SELECT count(*), min(at_s), max(at_s), count(*) FILTER (status = 304) FROM answers WHERE at_s IS NOT NULL"
    )
    parts = _covered_parts(db)
    begin, end = parts[0][0], parts[-1][1]
    covered_s = _seconds(sum(end - begin for begin, end in parts))
    minute = _peak(db, MINUTE_S, parts)
    mean = requests / covered_s
    whole_log = {"start": time_text(first_s), "window_s": covered_s, "requests": requests, "rate_rps": mean}
    return {
        "requests": requests, "first_at": time_text(first_s), "last_at": time_text(last_s), "covered_s": covered_s,
        "parts": len(parts), "rate_mean_rps": mean,
        "peak_second": _peak(db, 1, [(begin, max(end, begin + PER_S))]),
        "peak_ten_s": _peak(db, 10, parts), "peak_minute": minute, "plan": minute or whole_log,
        "hours": list(_hours(db, parts)),
        "status": {str(status): n for status, n in db.execute(_STATUSES).fetchall()},
        "not_modified_share": unchanged / requests, "connections": connections(db, idle_s), "body_bytes": _bodies(db),
    }  # fmt: skip


def _covered_parts(db: duckdb.DuckDBPyConnection) -> _Parts:
    """The parts of time that the log covers: each file covers the time from its first request to its last, without
    silences that no traffic explains (vmtoll.access_log.clock).

    Files that overlap are one part. So are files that follow each other within twice the longest silence inside a file:
    they are a series.
    """
    files = times_of_files(db)
    resolution = PER_S if all(file.has_whole_seconds for file in files) else 1
    gap = 2 * max(PER_S, *(file.silence for file in files))
    parts: list[tuple[int, int]] = []
    for begin, last, _ in sorted(island for file in files for island in file.covered):
        if parts and begin <= parts[-1][1] + gap:
            parts[-1] = (parts[-1][0], max(parts[-1][1], last + resolution))
        else:
            parts.append((begin, last + resolution))
    return parts


def _seconds(tenths: int) -> float:
    """Seconds; an integer if they are whole."""
    return tenths / PER_S if tenths % PER_S else tenths // PER_S


_STATUSES = "SELECT status, count(*) FROM answers WHERE at_s IS NOT NULL GROUP BY status ORDER BY status"


# Browsers speak HTTP/2 and 3 over TLS alone. A plain listener refuses such a request.
_VERSIONS = """
SELECT count(*) FILTER (is_old), count(*) FILTER (is_http2), count(*) FILTER (is_http3),
       count(*) FILTER ((is_http2 OR is_http3) AND status < 400)
FROM answers WHERE at_s IS NOT NULL
"""


def connections(db: duckdb.DuckDBPyConnection, idle_s: int) -> Summary:
    """Estimate the connections: a log does not record them.

    Requests of one client (address and agent) over HTTP/1.1 or newer are one connection as long as none comes more than
    `idle_s` after the one before; each request over HTTP/1.0 or older is a separate connection. Browsers open several
    connections at once, and clients may share an address and agent, so there may have been more:
    `requests_per_connection` and `keep_alive_share` (of requests that found a connection open) are upper bounds.
    `shows_tls`: a request over HTTP/2 or 3 was answered.
    """
    old, http2, http3, over_tls = one_row(db, _VERSIONS)
    lengths = Counter({1: old}) if old else Counter()
    for run in _runs(db, idle_s):
        lengths[run] += 1
    total = sum(length * n for length, n in lengths.items())
    runs = lengths.total()
    values = np.array(sorted(lengths))
    rank = np.cumsum([lengths[value] for value in values.tolist()])
    return {
        "estimate": f"a client's requests with no pause above {idle_s} s; upper bounds, for a log names no connection",
        "idle_s": idle_s, "http_1_0_share": old / total, "http_2_share": http2 / total,
        "http_3_share": http3 / total, "shows_tls": over_tls > 0,
        "keep_alive_share": 1 - runs / total,
        "requests_per_connection_mean": total / runs,
        **{f"requests_per_connection_p{p}": int(values[np.searchsorted(rank, p / 100 * runs)]) for p in (50, 90, 99)},
    }  # fmt: skip


def _runs(db: duckdb.DuckDBPyConnection, idle_s: int) -> Iterator[int]:
    """The number of requests of each estimated connection; a client's last run is carried from chunk to chunk."""
    reader = db.execute(
        "SELECT client, at_s, count(*) AS n FROM answers WHERE at_s IS NOT NULL AND NOT is_old "
        "GROUP BY client, at_s ORDER BY client, at_s"
    )
    last_client, last_s, open_n = 0, 0, 0
    while len(chunk := reader.fetch_df_chunk(50)):
        client = np.concatenate(([np.uint64(last_client)], chunk["client"].to_numpy(np.uint64)))
        at_s = np.concatenate(([last_s], chunk["at_s"].to_numpy(np.int64)))
        is_new_run = (client[1:] != client[:-1]) | (np.diff(at_s) > idle_s)
        ends = np.concatenate(([0], np.cumsum(chunk["n"].to_numpy(np.int64))))
        requests_before = ends[:-1][is_new_run]  # requests of this chunk before each new run
        if open_n and len(requests_before):
            yield open_n + int(requests_before[0])
            open_n = 0
        yield from np.diff(requests_before).tolist()
        open_n += int(ends[-1] - (requests_before[-1] if len(requests_before) else 0))
        last_client, last_s = int(client[-1]), int(at_s[-1])
    if open_n:
        yield open_n


def _hours(db: duckdb.DuckDBPyConnection, parts: _Parts) -> Iterator[Summary]:
    """Each clock hour with a request; its rate is over the part of the hour that the log covers."""
    query = f"SELECT at_s // {HOUR_S} AS hour, count(*) FROM answers WHERE at_s IS NOT NULL GROUP BY hour ORDER BY hour"
    for hour, n in db.execute(query).fetchall():
        start, end = hour * HOUR_S * PER_S, (hour + 1) * HOUR_S * PER_S
        covered_s = _seconds(sum(max(0, min(end, part_end) - max(start, part_begin)) for part_begin, part_end in parts))
        yield {"start": time_text(hour * HOUR_S), "requests": n, "covered_s": covered_s, "rate_rps": n / covered_s}


def _peak(db: duckdb.DuckDBPyConnection, window_s: int, parts: _Parts) -> Summary | None:
    """The busiest window of `window_s` seconds that the log covers completely; None if there is none."""
    window = window_s * PER_S
    long_parts = [(begin, end) for begin, end in parts if end - begin >= window]
    if not long_parts:
        return None
    query = f"""
        WITH parts AS (SELECT unnest($begins) AS since, unnest($ends) AS upto),
        slots AS (SELECT {SLOT} AS slot, count(*) AS n FROM answers WHERE at_s IS NOT NULL GROUP BY slot)
        SELECT slot, upto, sum(n) OVER (
            PARTITION BY since ORDER BY slot RANGE BETWEEN CURRENT ROW AND {window - 1} FOLLOWING
        ) AS most
        FROM slots JOIN parts ON slot >= since AND slot < upto
        ORDER BY most DESC, slot LIMIT 1
    """
    values = {"begins": [begin for begin, _ in long_parts], "ends": [end for _, end in long_parts]}
    start, end, n = one_row(db, query, **values)
    start = min(start, end - window)  # the log would cover a later window only in part
    return {"start": time_text(start / PER_S), "window_s": window_s, "requests": int(n), "rate_rps": int(n) / window_s}


def _bodies(db: duckdb.DuckDBPyConnection) -> Summary:
    """Percentiles of the sizes of files' bodies (GET, 200 and 206): exact, nearest rank, from a count of each size."""
    rows = db.execute(
        f"""
        WITH counted AS (SELECT body_bytes, count(*) AS n FROM answers WHERE {BODY} GROUP BY body_bytes),
        ranked AS (SELECT body_bytes, sum(n) OVER (ORDER BY body_bytes) AS rank, sum(n) OVER () AS total FROM counted)
        SELECT percentile, min(body_bytes), any_value(total)
        FROM ranked, (SELECT unnest($percentiles) AS percentile)
        WHERE 100 * rank >= percentile * total GROUP BY percentile ORDER BY percentile
        """,
        {"percentiles": list(PERCENTILES)},
    ).fetchall()
    mean = one_row(db, f"SELECT avg(body_bytes) FROM answers WHERE {BODY}")[0]
    kinds = db.execute(f"SELECT kind, count(*) FROM answers WHERE {BODY} GROUP BY kind ORDER BY kind").fetchall()
    total = sum(n for _, n in kinds)
    sizes = {f"p{percentile}": int(size) for percentile, size, _ in rows}
    return {"answers": total, "mean": mean, **sizes, "kinds": {kind: n / total for kind, n in kinds}}


def one_row(db: duckdb.DuckDBPyConnection, query: str, **values: object) -> tuple[Any, ...]:
    """The single row of an aggregate query."""
    row = db.execute(query, values or None).fetchone()
    assert row is not None
    return tuple(row)


def time_text(at_s: float) -> str:
    """A time as text, in UTC."""
    text = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    return text.removesuffix(".000") + "Z"
