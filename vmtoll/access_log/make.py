"""From logs to files that the runner reads: a site, a workload at the log's peak rate, a rate sweep, a summary."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import yaml

from vmtoll.access_log.files import File, draw, entries
from vmtoll.access_log.read import Lines, database, read
from vmtoll.access_log.traffic import Summary, traffic
from vmtoll.model.errors import LogError

# Every machine holds the site, and its manifest is made in memory.
LARGEST_SITE_BYTES = 512 * 2**20
MEAN_BODY_WITHIN = 0.05  # of the log's
MOST_LINES = 100_000
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_SUFFIX = {"jpeg": "jpg"}


@dataclass(frozen=True)
class Options:
    """`lines`: of the URL list, more where the mean body needs them; `idle_s`: see traffic.connections.

    `largest_bytes`: larger bodies are cut to it. None: none is cut, unless the site would be too large. `tls`: what
    wrote the log listened for TLS.
    """

    name: str = "from-log"
    lines: int = 1000
    idle_s: int = 5
    largest_bytes: int | None = None
    tls: bool = False


@dataclass(frozen=True)
class Made:
    """The files that were written, and the summary that the last of them holds."""

    files: Sequence[Path]
    summary: Summary


def from_log(logs: Sequence[Path], output: Path, options: Options, tell: Callable[[str], None]) -> Made:
    """Write OUTPUT/<name>.yml, <name>-sweep.yml, sites/<name>.yml and <name>.summary.json.

    The logs are one series, in any order. `tell` is told how far it is. The same lines give the same bytes. Raises
    LogError: for logs without a usable line, for a name that is taken, for a site that would be too large.
    """
    files = _free(output, options.name)
    logs = list(dict.fromkeys(log.resolve() for log in logs))
    with database() as db:
        lines = read(db, logs, tell)
        tell(f"{lines.total:,} lines read; counting")
        seen = traffic(db, options.idle_s)
        drawn, facts = _drawn(db, options, seen["body_bytes"].get("p100", 1))
    if not facts["requests"]:
        raise LogError(
            f"{', '.join(map(str, logs))}: none of {seen['requests']:,} requests is a GET that was answered with a "
            "file (200, 206 or 304); there is nothing to make a site of"
        )
    summary = _summary(len(logs), lines, seen, facts, drawn, options)
    if summary["site"]["total_bytes"] > LARGEST_SITE_BYTES:
        raise LogError(
            f"the site would hold {summary['site']['total_bytes'] / 1e6:.0f} MB, and "
            f"{LARGEST_SITE_BYTES / 1e6:.0f} MB is the most: give fewer --lines or a smaller --largest-kib"
        )
    texts = [*_workloads(summary, options), _site(drawn, summary), json.dumps(summary, indent=1) + "\n"]
    try:
        (output / "sites").mkdir(parents=True, exist_ok=True)
        for file, text in zip(files, texts, strict=True):
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LogError(f"{error.filename}: {error.strerror}") from None
    return Made(files, summary)


def _drawn(db: duckdb.DuckDBPyConnection, options: Options, log_largest: int) -> tuple[list[File], Summary]:
    """The site's files, and what is to be said of the log (vmtoll.access_log.files.entries).

    The list gets more lines until the site's mean body is that of the log, and bodies are cut only until the site fits.
    """
    lines, largest = options.lines, options.largest_bytes or log_largest
    drawn, facts = _attempt(db, lines, largest)
    while options.largest_bytes is None and _total_bytes(drawn) > LARGEST_SITE_BYTES and largest > 1:
        largest //= 2
        drawn, facts = _attempt(db, lines, largest)
    while abs(_deviation(drawn, facts)) > MEAN_BODY_WITHIN and not facts["cut"]:
        lines *= 2
        if lines > min(MOST_LINES, 2 * facts["requests"]):
            break
        finer, finer_facts = _attempt(db, lines, largest)
        if _total_bytes(finer) > LARGEST_SITE_BYTES:
            break
        drawn, facts = finer, finer_facts
    return drawn, facts


def _attempt(db: duckdb.DuckDBPyConnection, lines: int, largest: int) -> tuple[list[File], Summary]:
    found, facts = entries(db, lines, largest)
    return list(draw(found, min(lines, facts["requests"]))) if facts["requests"] else [], facts


def _total_bytes(drawn: Sequence[File]) -> int:
    return sum(file.size_bytes for file in drawn)


def _mean_bytes(drawn: Sequence[File]) -> float:
    return sum(file.size_bytes * file.weight for file in drawn) / sum(file.weight for file in drawn)


def _deviation(drawn: Sequence[File], facts: Summary) -> float:
    """By what share the site's mean body is larger than the log's; 0 where there is none."""
    return _mean_bytes(drawn) / facts["body_bytes_mean"] - 1 if drawn and facts["body_bytes_mean"] else 0.0


def _free(output: Path, name: str) -> list[Path]:
    """Where to write; nothing is overwritten."""
    if not _NAME.fullmatch(name):
        raise LogError(f"--name {name}: give lower-case letters, digits and hyphens, for it becomes a file's name")
    files = [output / f for f in (f"{name}.yml", f"{name}-sweep.yml", f"sites/{name}.yml", f"{name}.summary.json")]
    if taken := next((file for file in files if file.exists()), None):
        raise LogError(f"{taken} is there already: remove it, or give another --name")
    return files


def _summary(
    logs: int, lines: Lines, seen: Summary, facts: Summary, drawn: Sequence[File], options: Options
) -> Summary:
    weights = sum(file.weight for file in drawn)
    malformed = [{"log": log, "line": line} for log, line in lines.first_malformed]
    site = {
        "files": len(drawn), "lines": weights, "total_bytes": _total_bytes(drawn),
        "body_bytes_mean": _mean_bytes(drawn), "mean_body_deviates": abs(_deviation(drawn, facts)) > MEAN_BODY_WITHIN,
        "of": {**facts, "share": facts["requests"] / seen["requests"]},
    }  # fmt: skip
    return {
        "name": options.name, "logs": logs, "lines": lines.total,
        "malformed": {"lines": lines.malformed, "first": malformed}, **seen, "site": site,
    }  # fmt: skip


def _workloads(summary: Summary, options: Options) -> Iterator[str]:
    """The peak rate; and for `vmtoll capacity` a sweep up to what ten users get: how much more is possible.

    A log most of whose requests came over HTTP/2 gives a workload of HTTP/2, which is inside of TLS.
    """
    name, http2 = options.name, summary["connections"]["http_2_share"] >= 0.5
    transport = ({"tls": True} if options.tls or http2 else {}) | ({"http": "2"} if http2 else {})
    keep_alive = http2 or summary["connections"]["keep_alive_share"] >= 0.5
    capacity = {"tool": "h2load" if keep_alive else "oha", "users": 10}  # h2load cannot close a connection
    peak = {"crosscheck": "oha", "arrivals": "constant", "rate_rps": float(f"{summary['peak_minute']['rate_rps']:.4g}")}
    sweep = {"shares": [0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0], "capacity": capacity}
    note = "# Made of an access log, but for deadline_ms: set it to what your users are promised.\n"
    for kind, loads, keys in (
        ("rate", "the rate of the log's busiest minute", peak),
        ("sweep", "rising shares of the closed-loop capacity", sweep),
    ):
        head = {"description": f"requests for the site {name} at {loads}", "kind": kind, "site": name, "tool": "vegeta"}
        yield note + _yaml(head | keys | {"deadline_ms": 50, "keep_alive": keep_alive} | transport)


def _site(drawn: Sequence[File], summary: Summary) -> str:
    requests = summary["site"]["of"]["requests"]
    head = {"description": f"{len(drawn)} files with the sizes and weights of {requests} requests", "seed": 1}
    pages = "".join(
        f"  f{number:04d}.{_SUFFIX.get(f.kind, f.kind)}: {{size_bytes: {f.size_bytes}, weight: {f.weight}}}\n"
        for number, f in enumerate(drawn, start=1)
    )
    return f"# Made of an access log; the names are made up.\n{_yaml(head)}pages:\n{pages}"


def _yaml(content: Summary) -> str:
    return yaml.safe_dump(content, sort_keys=False, width=110)
