"""Turn logs into files that the runner reads: a site, a workload at the log's peak rate, a rate sweep, a summary."""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import duckdb
import yaml

from vmtoll.access_log.clock import OddTime
from vmtoll.access_log.files import DrawnFile, LogFiles, draw
from vmtoll.access_log.headers import subtract_headers
from vmtoll.access_log.read import Lines, database, read
from vmtoll.access_log.traffic import ANSWERED, Summary, one_row, time_text, traffic
from vmtoll.files import write_durably
from vmtoll.model.errors import LogError
from vmtoll.paths import user_folder

# Every machine holds the site, and its manifest is made in memory.
LARGEST_SITE_BYTES = 512 * 2**20
MEAN_BODY_WITHIN = 0.05  # allowed relative deviation from the log's mean body
DEADLINE_MS = 50.0  # if the user names none
_LINK_MBIT = 1000  # link for which the summary shows the effect of a larger deviation
_LINES_WITHIN = 1.05  # the search for the most lines that fit ends within this factor
_ROUNDED_UP_BYTES = 2  # most that rounding to whole bytes, and one byte for an empty body, can add to a mean
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_SUFFIX = {"jpeg": "jpg"}


@dataclass(frozen=True)
class Options:
    """`lines`: of the URL list; fewer if the site would be too large. `idle_s`: see traffic.connections.

    `deadline_ms`: time within which users expect an answer; None: 50 ms, with a note in the files to replace it.
    `largest_bytes`: larger bodies are cut to this size. None: no cut, unless a file of the mean size alone would be too
    large. `tls`: the log's listener speaks TLS.
    """

    name: str = "from-log"
    lines: int = 1000
    idle_s: int = 5
    largest_bytes: int | None = None
    tls: bool = False
    deadline_ms: float | None = None


@dataclass(frozen=True)
class WrittenWorkload:
    """The files that were written, and the summary that the last of them holds."""

    files: Sequence[Path]
    summary: Summary


def from_log(
    logs: Sequence[Path], output: Path, options: Options, report_progress: Callable[[str], None]
) -> WrittenWorkload:
    """Write OUTPUT/<name>.yml, <name>-sweep.yml, sites/<name>.yml and <name>.summary.json.

    In the user's own folder, whose workloads/ is OUTPUT, the site goes to its sites/. The logs are one series, in any
    order. `report_progress` gets the progress. The same lines give the same bytes.
    Raises LogError for logs without usable lines,
    a name in use, and files that cannot be read or written.
    """
    files = _output_files(output, options.name)
    logs = list(dict.fromkeys(log.resolve() for log in logs))
    with database() as db:
        lines = read(db, logs, report_progress)
        report_progress(f"{lines.total:,} lines read; counting")
        headers = subtract_headers(db)
        log_summary = traffic(db, options.idle_s)
        (unsized,) = one_row(db, f"SELECT count(*) FROM answers WHERE {ANSWERED} AND body_bytes = 0")
        if unsized and not log_summary["body_bytes"]["answers"]:
            raise LogError(
                f"{', '.join(map(str, logs))}: none of {unsized:,} answers to GET requests has a size; let the server "
                "log the octets of bodies, and give a log from then on"
            )
        site = _draw_site(db, options.lines, options.largest_bytes or log_summary["body_bytes"].get("p100", 1))
        if site.deviates and options.largest_bytes:
            uncut_site = _draw_site(db, options.lines, log_summary["body_bytes"]["p100"])
            site = replace(site, is_kept_uncut=not uncut_site.deviates)
    if not site.facts["requests"]:
        raise LogError(
            f"{', '.join(map(str, logs))}: none of {log_summary['requests']:,} requests is a GET that was answered "
            "with a file (200, 206 or 304); there is nothing to make a site of"
        )
    unknown = ("by-format" if lines.counts_headers else "maybe") if headers.are_unknown else None
    log_summary |= {"headers": headers.summary, "headers_unknown": unknown}
    summary = _summary(len(logs), lines, log_summary, site, options)
    texts = [*_workload_texts(summary, options), _site_text(site.files, summary), json.dumps(summary, indent=1) + "\n"]
    try:
        for file, text in zip(files, texts, strict=True):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_durably(file, text.encode())
    except BaseException as error:
        for file in files:  # none of them existed before
            with suppress(OSError):
                file.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise LogError(f"{error.filename}: {error.strerror}") from None
        raise
    return WrittenWorkload(files, summary)


@dataclass(frozen=True)
class _LogSite:
    """The files that were drawn, and the summary of the log (LogFiles.facts)."""

    files: Sequence[DrawnFile]
    facts: Summary
    has_fewer_lines: bool = False  # the requested number would not fit
    is_kept_uncut: bool = False  # without the user's cut, the site would have the log's mean body

    @property
    def lines(self) -> int:
        return sum(file.weight for file in self.files)

    @property
    def total_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def mean_bytes(self) -> float:
        return sum(file.size_bytes * file.weight for file in self.files) / self.lines

    @property
    def deviates(self) -> bool:
        """Return whether the mean body differs from the log's."""
        log_mean_bytes = self.facts["body_bytes_mean"]
        return bool(self.files and log_mean_bytes) and abs(self.mean_bytes / log_mean_bytes - 1) > MEAN_BODY_WITHIN

    @property
    def misjudged(self) -> Summary | None:
        """The requests per second that a link carries of the log and of the site; None where they agree."""
        if not self.deviates:
            return None
        link_bytes = _LINK_MBIT * 1e6 / 8
        log_rps, site_rps = (link_bytes / mean for mean in (self.facts["body_bytes_mean"], self.mean_bytes))
        return {
            "link_mbit": _LINK_MBIT, "log_rps": log_rps, "site_rps": site_rps,
            "is_kept_without_largest_kib": self.is_kept_uncut,
        }  # fmt: skip


def _draw_site(db: duckdb.DuckDBPyConnection, lines: int, largest: int) -> _LogSite:
    """Draw a site with the mean of the log's bodies, cut to `largest` bytes: with `lines` lines, or as many as fit.

    Cuts bodies further only if a file of their mean size would not fit.
    """
    log_files = LogFiles(db, largest)
    if log_files.mean_bytes + _ROUNDED_UP_BYTES > LARGEST_SITE_BYTES:
        log_files = LogFiles(db, LARGEST_SITE_BYTES - _ROUNDED_UP_BYTES)
    facts = log_files.facts()
    if not log_files.requests:
        return _LogSite([], facts)

    def site_with(lines: int) -> _LogSite:
        return _LogSite(draw(log_files.entries(lines), lines), facts)

    most = min(lines, log_files.requests)
    site = site_with(most)
    if site.total_bytes <= LARGEST_SITE_BYTES:
        return site
    # Each file has a line or more, so a site is at most as large as its lines times their mean.
    fewest = int(LARGEST_SITE_BYTES / (log_files.mean_bytes + _ROUNDED_UP_BYTES))
    site = site_with(fewest)
    while most > max(fewest + 1, fewest * _LINES_WITHIN):
        middle = max(fewest + 1, math.isqrt(fewest * most))
        attempt = site_with(middle)
        if attempt.total_bytes <= LARGEST_SITE_BYTES:
            fewest, site = middle, attempt
        else:
            most = middle
    return replace(site, has_fewer_lines=True)


def _output_files(output: Path, name: str) -> list[Path]:
    """Paths of the files to write. Raises LogError if one exists: vmtoll overwrites nothing."""
    if not _NAME.fullmatch(name):
        raise LogError(f"--name {name}: give lower-case letters, digits and hyphens, for it becomes a file's name")
    own = user_folder()
    sites = own / "sites" if own and output.resolve() == own / "workloads" else output / "sites"
    files = [output / f"{name}{end}" for end in (".yml", "-sweep.yml", ".summary.json")]
    files.insert(2, sites / f"{name}.yml")
    if existing := next((file for file in files if file.exists()), None):
        raise LogError(f"{existing} exists; remove it, or give another --name")
    return files


def _summary(logs: int, lines: Lines, log_summary: Summary, site: _LogSite, options: Options) -> Summary:
    malformed = {
        "lines": lines.malformed, "share": lines.malformed / lines.total,
        "first": [line._asdict() for line in lines.first_malformed],
    }  # fmt: skip
    site_summary = {
        "files": len(site.files), "lines": site.lines, "has_fewer_lines": site.has_fewer_lines,
        "total_bytes": site.total_bytes, "body_bytes_mean": site.mean_bytes, "mean_body_deviates": site.deviates,
        "misjudged": site.misjudged, "of": {**site.facts, "share": site.facts["requests"] / lines.total},
    }  # fmt: skip
    return {
        "name": options.name, "logs": logs, "lines": lines.total,
        "formats": lines.formats, "malformed": malformed, "odd_times": [_odd_time(odd) for odd in lines.odd_times],
        **log_summary, "site": site_summary,
    }  # fmt: skip


def _odd_time(odd: OddTime) -> Summary:
    return {key: value for key, value in asdict(odd).items() if key != "at_s"} | {"at": time_text(odd.at_s)}


def _workload_texts(summary: Summary, options: Options) -> Iterator[str]:
    """YAML of a workload at the peak rate, and of a sweep up to the closed-loop rate of ten users (`vmtoll capacity`).

    An answer over HTTP/2 or 3 shows that the listener speaks TLS. If at least half of the requests came that way, the
    workloads use HTTP/2, the newest version that load tools speak.
    """
    name, connections = options.name, summary["connections"]
    shows_tls = connections["shows_tls"]
    http2 = shows_tls and connections["http_2_share"] + connections["http_3_share"] >= 0.5
    transport = ({"tls": True} if options.tls or shows_tls else {}) | ({"http": "2"} if http2 else {})
    keep_alive = http2 or connections["keep_alive_share"] >= 0.5
    capacity = {"tool": "h2load" if keep_alive else "oha", "users": 10}  # h2load cannot close a connection
    peak = {"crosscheck": "oha", "arrivals": "constant", "rate_rps": float(f"{summary['plan']['rate_rps']:.4g}")}
    sweep = {"shares": [0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0], "capacity": capacity}
    is_given = options.deadline_ms is not None
    note = f"# Made of an access log{'' if is_given else ', but for deadline_ms: set it to what your users expect'}.\n"
    for kind, loads, keys in (
        ("rate", f"the rate of {'the busiest minute of a log' if summary['peak_minute'] else 'a whole log'}", peak),
        ("sweep", "rising shares of the closed-loop capacity", sweep),
    ):
        head = {"description": f"requests for the site {name} at {loads}", "kind": kind, "site": name, "tool": "vegeta"}
        yield note + _yaml(
            head | keys | {"deadline_ms": options.deadline_ms or DEADLINE_MS, "keep_alive": keep_alive} | transport
        )


def _site_text(files: Sequence[DrawnFile], summary: Summary) -> str:
    requests = summary["site"]["of"]["requests"]
    head = {"description": f"{len(files)} files with the sizes and weights of {requests} requests", "seed": 1}
    pages = "".join(
        f"  f{number:04d}.{_SUFFIX.get(f.kind, f.kind)}: {{size_bytes: {f.size_bytes}, weight: {f.weight}}}\n"
        for number, f in enumerate(files, start=1)
    )
    return f"# Made of an access log; the names are made up.\n{_yaml(head)}pages:\n{pages}"


def _yaml(content: Summary) -> str:
    return yaml.safe_dump(content, sort_keys=False, width=110)
