"""From logs to files that the runner reads: a site, a workload at the log's peak rate, a ladder, a summary."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from workloads.from_log.files import File, draw, entries
from workloads.from_log.read import Lines, LogError, database, read
from workloads.from_log.traffic import traffic

# Every machine holds the site, and its manifest is made in memory.
LARGEST_SITE_BYTES = 512 * 2**20
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_SUFFIX = {"jpeg": "jpg"}


@dataclass(frozen=True)
class Options:
    """`lines`: of the URL list; `idle_s`: see traffic.connections; `largest_bytes`: what a body is cut to."""

    name: str = "from-log"
    lines: int = 1000
    idle_s: int = 5
    largest_bytes: int = 16 * 2**20


@dataclass(frozen=True)
class Made:
    """The files that were written, and the summary that the last of them holds."""

    files: Sequence[Path]
    summary: dict[str, Any]


def from_log(logs: Sequence[Path], output: Path, options: Options, tell: Callable[[str], None]) -> Made:
    """Write OUTPUT/<name>.yml, <name>-ladder.yml, sites/<name>.yml and <name>.summary.json.

    The logs are one series, in any order. `tell` is told how far it is. The same lines give the same bytes. Raises
    LogError: for logs without a usable line, for a name that is taken, for a site that would be too large.
    """
    files = _free(output, options.name)
    logs = list(dict.fromkeys(log.resolve() for log in logs))
    with database() as db:
        lines = read(db, logs, tell)
        tell(f"{lines.total:,} lines read; counting")
        seen = traffic(db, options.idle_s)
        found, facts = entries(db, options.lines, options.largest_bytes)
    if not facts["requests"]:
        raise LogError(
            f"{', '.join(map(str, logs))}: none of {seen['requests']:,} requests is a GET that was answered with a "
            "file (200, 206 or 304); there is nothing to make a site of"
        )
    drawn = list(draw(found, min(options.lines, facts["requests"])))
    summary = _summary(len(logs), lines, seen, facts, drawn, options)
    if summary["site"]["total_bytes"] > LARGEST_SITE_BYTES:
        raise LogError(
            f"the site would hold {summary['site']['total_bytes'] / 1e6:.0f} MB, and "
            f"{LARGEST_SITE_BYTES / 1e6:.0f} MB is the most: give fewer --lines or a smaller --largest-kib"
        )
    texts = [*_workloads(summary, options.name), _site(drawn, summary), json.dumps(summary, indent=1) + "\n"]
    try:
        (output / "sites").mkdir(parents=True, exist_ok=True)
        for file, text in zip(files, texts, strict=True):
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LogError(f"{error.filename}: {error.strerror}") from None
    return Made(files, summary)


def _free(output: Path, name: str) -> list[Path]:
    """Where to write; nothing is overwritten."""
    if not _NAME.fullmatch(name):
        raise LogError(f"--name {name}: give lower-case letters, digits and hyphens, for it becomes a file's name")
    files = [
        output / f"{name}.yml",
        output / f"{name}-ladder.yml",
        output / "sites" / f"{name}.yml",
        output / f"{name}.summary.json",
    ]
    for file in files:
        if file.exists():
            raise LogError(f"{file} is there already: remove it, or give another --name")
    return files


def _summary(
    logs: int, lines: Lines, seen: dict[str, Any], facts: dict[str, Any], drawn: Sequence[File], options: Options
) -> dict[str, Any]:
    weights = sum(file.weight for file in drawn)
    return {
        "name": options.name,
        "logs": logs,
        "lines": lines.total,
        "malformed": {
            "lines": lines.malformed,
            "first": [{"log": log, "line": line} for log, line in lines.first_malformed],
        },
        **seen,
        "site": {
            "files": len(drawn),
            "lines": weights,
            "total_bytes": sum(file.size_bytes for file in drawn),
            "body_bytes_mean": sum(file.size_bytes * file.weight for file in drawn) / weights,
            "of": {**facts, "share": facts["requests"] / seen["requests"]},
        },
    }


def _workloads(summary: dict[str, Any], name: str) -> Iterator[str]:
    """The peak rate; and for `vmtoll capacity` a ladder up to what ten users get: how much more is possible."""
    keep_alive = summary["connections"]["keep_alive_share"] >= 0.5
    peak = summary["peak_minute"]
    capacity = {"tool": "h2load" if keep_alive else "oha", "users": 10}  # h2load cannot close a connection
    rest = {"deadline_ms": 50, "keep_alive": keep_alive}
    common = {"site": name, "tool": "vegeta"}
    note = "# Made of an access log, but for deadline_ms: set it to what your users are promised.\n"
    yield note + _yaml(
        {"description": f"requests for the site {name} at the rate of the log's busiest minute", "kind": "rate"}
        | common
        | {"twin": "oha", "rate_rps": float(f"{peak['rate_rps']:.4g}")}
        | rest
    )
    yield note + _yaml(
        {"description": f"requests for the site {name} at rising shares of the closed-loop capacity", "kind": "sweep"}
        | common
        | {"twin": None, "shares": [0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0], "capacity": capacity}
        | rest
    )


def _site(drawn: Sequence[File], summary: dict[str, Any]) -> str:
    pages = {
        f"f{number:04d}.{_SUFFIX.get(file.kind, file.kind)}": {"size_bytes": file.size_bytes, "weight": file.weight}
        for number, file in enumerate(drawn, start=1)
    }
    head = {
        "description": f"{len(drawn)} files with the sizes and weights of {summary['site']['of']['requests']} requests",
        "seed": 1,
    }
    listed = "".join(
        f"  {path}: {{size_bytes: {p['size_bytes']}, weight: {p['weight']}}}\n" for path, p in pages.items()
    )
    return f"# Made of an access log; the names are made up.\n{_yaml(head)}pages:\n{listed}"


def _yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, width=110)
