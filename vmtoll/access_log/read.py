"""Read access logs into a table: DuckDB splits and matches the lines, in parallel and within a memory limit."""

import mmap
import re
import secrets
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import duckdb

from vmtoll.access_log.clock import OddTime, straighten
from vmtoll.access_log.formats import FORMATS, LOOSE, Format, parse_sql, quoted, w3c
from vmtoll.access_log.rows import (
    ENCODINGS,
    FILES,
    FIRST_MALFORMED,
    HEADINGS,
    REJECTED,
    SAMPLE,
    SHOWN,
    heading_sql,
    rows_sql,
)
from vmtoll.access_log.traffic import one_row
from vmtoll.files import first_line
from vmtoll.model.errors import LogError

MEMORY_LIMIT_MB = 200  # of DuckDB; it writes the rest to the temporary folder
THREADS = 2
_REPORT_EVERY_S = 5.0

_BEGIN_BYTES = 65_536  # of a file, to recognize text
_SHORT_BYTES = 20  # a longer line without zeros is text
_SAMPLE_LINES = 1000  # of each file, to sort the formats by frequency
MOST_MALFORMED = 0.2  # share of the lines
NEEDED = "each line needs a time, a request, a status and a size"


class Malformed(NamedTuple):
    """A line that fits no format: position of its file among the arguments, its number (both from 1), and its shape.

    The shape has no text of the log: `a` replaces letters, and `9` digits.
    """

    log: int
    line: int
    shape: str


@dataclass(frozen=True)
class Lines:
    """Number of all lines, of malformed ones, and of the lines of each format by its name."""

    total: int
    malformed: int
    first_malformed: Sequence[Malformed]
    formats: Mapping[str, int]
    counts_headers: bool = False  # the sizes in some of these formats include the headers
    odd_times: Sequence[OddTime] = ()  # of lines that no rate rests on as they stand


_CR_INSIDE = re.compile(rb"\r+(?=[^\r\n])")


@contextmanager
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in its own temporary folder (about a tenth of the log's size), removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="vmtoll-log-") as folder:
        settings: dict[str, str | bool | int | float | list[str]] = {
            "threads": THREADS, "memory_limit": f"{MEMORY_LIMIT_MB}MB", "temp_directory": folder,
            "autoinstall_known_extensions": False, "autoload_known_extensions": False,
        }  # fmt: skip
        with duckdb.connect(Path(folder) / "log.duckdb", config=settings) as connection:
            connection.execute(
                "SET TimeZone = 'UTC'; SET enable_progress_bar = true; SET enable_progress_bar_print = false"
            )
            yield connection


def read(db: duckdb.DuckDBPyConnection, files: Sequence[Path], report_progress: Callable[[str], None]) -> Lines:
    """Make the table `answers`: one row per line; `at_s` is null if the line is malformed, or its time a stray.

    The rows of a file are consecutive and in order, but rejected lines come last, with their number.
    `at_s`: seconds since the epoch; `client`, `object`: hashes of address and agent, and of the path without its
    query; `kind`: of vmtoll.model.site; `body_bytes`: of the answer. Raises LogError.
    """
    for file in files:
        _check(file)
    with tempfile.TemporaryDirectory(prefix="vmtoll-log-") as folder:
        readable = {file: _with_whole_lines(file, Path(folder, str(n))) for n, file in enumerate(files)}
        try:
            return _read(db, list(readable.values()), report_progress)
        except LogError as error:
            text = str(error)
            for file, copy in readable.items():
                text = text.replace(str(copy), str(file))
            raise LogError(text) from None


def requests_of(db: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> list[tuple[str, int]]:
    """Each path, with its query, of GET requests that were answered with 200, and their number; by path.

    Raises LogError.
    """
    for file in files:
        _check(file)
    w3c_formats, headings = _headings(db, files)
    formats = _formats(db, files, w3c_formats, headings)
    values = {"files": [_pattern(file) for file in files]} | _heading_parameters(headings)
    parsed = parse_sql(f"({heading_sql(FILES, bool(headings))})", formats)
    query = (
        f"SELECT split_part(request, ' ', 2) AS path, count(*) FROM ({parsed}) "
        "WHERE starts_with(request, 'GET ') AND starts_with(answer, '200 ') GROUP BY path ORDER BY path"
    )
    rows: list[tuple[str, int]] = []
    with _duckdb_errors_as_log_errors():
        for encoding in ENCODINGS:
            with suppress(duckdb.InvalidInputException) if encoding != ENCODINGS[-1] else nullcontext():
                rows = db.execute(query, values | {"encoding": encoding}).fetchall()
                break
    return rows


def _with_whole_lines(file: Path, copy: Path) -> Path:
    """The file, or a copy with a blank for each CR inside a line: DuckDB takes a CR for the end of a line.

    In a file without LF, CR does end the lines. Compressed files are taken as they are.
    """
    if file.suffix in {".gz", ".zst"} or not file.stat().st_size:
        return file
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as octets:
        if octets.find(b"\r") < 0 or octets.find(b"\n") < 0 or not _CR_INSIDE.search(octets):
            return file
        with copy.open("wb") as target:
            end = 0
            for match in _CR_INSIDE.finditer(octets):
                target.write(octets[end : match.start()])
                target.write(b" ")
                end = match.end()
            target.write(octets[end:])
    return copy


def _read(db: duckdb.DuckDBPyConnection, files: Sequence[Path], report_progress: Callable[[str], None]) -> Lines:
    w3c_formats, headings = _headings(db, files)
    formats = _formats(db, files, w3c_formats, headings)
    report_progress(
        f"reading {len(files)} file{'s' * (len(files) > 1)}, {sum(f.stat().st_size for f in files) / 1e6:.0f} MB"
    )
    with _reporting_progress(db, report_progress), _duckdb_errors_as_log_errors():
        values: dict[str, object] = {"salt": secrets.randbits(63)}
        parameters = values | {"files": [_pattern(file) for file in files]} | _heading_parameters(headings)
        for encoding in ENCODINGS:
            with suppress(duckdb.InvalidInputException) if encoding != ENCODINGS[-1] else nullcontext():
                lines = heading_sql(FILES, bool(headings))
                db.execute(f"CREATE TABLE answers AS {rows_sql(lines, formats)}", parameters | {"encoding": encoding})
                break
        db.execute(REJECTED)
        db.execute(f"INSERT INTO answers {rows_sql(_rejected_sql(headings), formats)}", values)
    with _duckdb_errors_as_log_errors():
        return _count(db, files, formats)


@dataclass(frozen=True)
class _Heading:
    """A line `#Fields` of a file; headings with the same fields have the same number (from 1)."""

    file: str
    number: int


def _headings(db: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> tuple[list[Format], list[_Heading]]:
    """Return the format of each heading number, and all headings in order."""
    with _duckdb_errors_as_log_errors():
        lines = db.execute(HEADINGS, {"files": [_pattern(file) for file in files]}).fetchall()
    numbers: dict[str, int] = {}
    headings = [_Heading(file, numbers.setdefault(fields.strip(), len(numbers) + 1)) for file, fields in lines]
    return [w3c(fields, "W3C extended", number) for fields, number in numbers.items()], headings


def _heading_parameters(headings: Sequence[_Heading]) -> dict[str, object]:
    """The query parameters of `rows.numbered`."""
    return {"headings": [asdict(heading) for heading in headings]} if headings else {}


def _rejected_sql(headings: Sequence[_Heading]) -> str:
    """SQL of the rejected lines, with the heading of their file; 0, for unknown, if it has none or different ones."""
    numbers: dict[str, set[int]] = {}
    for heading in headings:
        numbers.setdefault(heading.file, set()).add(heading.number)
    cases = "".join(
        f"WHEN filename = {quoted(file)} THEN {min(each)} " for file, each in numbers.items() if len(each) == 1
    )
    return f"SELECT *, {f'CASE {cases}ELSE 0 END' if cases else '0'} AS heading FROM rejected"


def _formats(
    db: duckdb.DuckDBPyConnection, files: Sequence[Path], w3c_formats: Sequence[Format], headings: Sequence[_Heading]
) -> list[Format]:
    """Return the formats that a line may have, those most frequent in the files' first lines first.

    Raises LogError for a file whose lines lack what a workload needs.
    """
    formats, counted = [*w3c_formats, *FORMATS], Counter[int]()
    for file in files:
        file_headings = [heading for heading in headings if heading.file == str(file)]
        values = {"files": [_pattern(file)], "lines": _SAMPLE_LINES} | _heading_parameters(file_headings)
        query = (
            f"SELECT format, count(*) FROM ({parse_sql(f'({heading_sql(SAMPLE, bool(file_headings))})', formats)}) "
            "WHERE format IS NOT NULL GROUP BY ALL"
        )
        with _duckdb_errors_as_log_errors():
            in_file = Counter(dict(db.execute(query, values).fetchall()))
        commonest = formats[max(in_file, key=in_file.__getitem__, default=0)]
        if in_file and commonest.missing_fields:
            raise LogError(
                f"{file}: {commonest.missing_fields}: missing from its lines ({commonest.name}); {NEEDED}: let the "
                "server log it, and give a log from then on"
            )
        counted += in_file
    order = sorted(range(len(formats)), key=lambda position: (formats[position] is LOOSE, -counted[position]))
    return [formats[position] for position in order]


def _pattern(file: Path) -> str:
    """The file's path, escaped for DuckDB, which reads paths as patterns."""
    return re.sub(r"([*?\[])", r"[\1]", str(file))


def _check(file: Path) -> None:
    """Raise LogError unless the file can be read. A plain one must be text, a .zst whole: DuckDB checks only .gz."""
    try:
        with file.open("rb") as stream:
            begin = stream.read(_BEGIN_BYTES)
        is_text = any(len(line) > _SHORT_BYTES and b"\0" not in line for line in begin.split(b"\n"))
        if b"\0" in begin and not is_text and file.suffix not in {".gz", ".zst"}:  # a crash may leave zeros
            raise LogError(f"{file}: not a text; give an access log, plain, .gz or .zst")
        if file.suffix == ".zst":
            done = subprocess.run(["zstd", "--test", "--quiet", file], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise LogError(f"{file}: not a whole .zst file; `zstd --test` says what is wrong with it")
    except FileNotFoundError as error:
        problem = "zstd is not installed, and is needed to read it" if error.filename == "zstd" else "no such file"
        raise LogError(f"{file}: {problem}") from None
    except OSError as error:
        raise LogError(f"{file}: {error.strerror}") from None


def _count(db: duckdb.DuckDBPyConnection, files: Sequence[Path], formats: Sequence[Format]) -> Lines:
    """Count the lines. Raises LogError where there is none, or where too many are malformed."""
    position = {str(file): number for number, file in enumerate(files, start=1)}
    query = "SELECT count(*), count(*) FILTER (at_s IS NULL) FROM answers WHERE NOT is_blank"
    total, malformed = map(int, one_row(db, query))
    if total == 0:
        raise LogError(f"{', '.join(map(str, files))}: empty; give an access log with at least one line")
    first = sorted(Malformed(position[name], *rest) for name, *rest in db.execute(FIRST_MALFORMED).fetchall())
    if malformed > MOST_MALFORMED * total:
        log, line, shape = first[0]
        raise LogError(
            f"{files[log - 1]}: line {line} is in no known format ({shape}), and so are {malformed:,} of {total:,} "
            f"lines; {NEEDED}, see docs/planning.md for the formats"
        )
    odd_times = straighten(db, position)
    query = "SELECT format, count(*) AS n FROM answers WHERE at_s IS NOT NULL GROUP BY format ORDER BY n DESC, format"
    by_format, counts_headers = Counter[str](), False
    for i, n in db.execute(query).fetchall():
        by_format[formats[i].name] += int(n)
        counts_headers |= formats[i].counts_headers
    return Lines(total, malformed, first[:SHOWN], by_format, counts_headers, odd_times)


@contextmanager
def _duckdb_errors_as_log_errors() -> Iterator[None]:
    """Raise DuckDB's errors as LogError, with the first line only: others may quote the log."""
    try:
        yield
    except duckdb.Error as error:
        raise LogError(
            f"the log cannot be read: {first_line(error)}; TMPDIR names the folder for what memory cannot hold"
        ) from None


@contextmanager
def _reporting_progress(db: duckdb.DuckDBPyConnection, report_progress: Callable[[str], None]) -> Iterator[None]:
    """Report the progress of the query in this block every few seconds."""
    ended = threading.Event()

    def watch() -> None:
        begin = time.monotonic()
        while not ended.wait(_REPORT_EVERY_S):
            share = db.query_progress()
            report_progress(f"reading: {max(share, 0):.0f}% after {time.monotonic() - begin:.0f} s")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
