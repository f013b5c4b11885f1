"""Read access logs into a table: DuckDB splits and matches the lines, in parallel and within a memory limit."""

import re
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb

from vmtoll.access_log.traffic import one_row
from vmtoll.files import first_line
from vmtoll.model.errors import LogError

MEMORY_LIMIT_MB = 200  # of DuckDB; what it cannot hold it writes to the temporary folder
THREADS = 2
SHOWN = 3  # malformed lines that are named
_TELL_EVERY_S = 5.0

# Common and combined format: client, identity, user, [time], "request", status, bytes; what follows may be anything.
# Four groups at most: with more of them RE2 leaves its fast path and takes three times as long.
_LINE = r'^([^ ]+) [^ ]+ [^ ]+ \[([^\]]+)\] "((?:[^"\\]|\\.)*)" ([0-9]{3} (?:[0-9]+|-))(?:[ \r]|$)'

# The kind of file that stands for a suffix; every other suffix, and none, is a page.
_BEGIN_BYTES = 65_536  # of a file, to tell a text
_SHORT_BYTES = 20  # so long and without zeros a line is text
_SUFFIXES = {
    "gif": "gif png ico bmp",
    "jpeg": "jpg jpeg",
    "webp": "webp avif",
    "svg": "svg",
    "css": "css",
    "js": "js mjs",
    "woff2": "woff2 woff",
    "pdf": "pdf",
    "doc": "doc docx xls xlsx ppt pptx odt ods zip gz tgz bz2 xz zst rar 7z jar exe msi iso img deb rpm apk bin wasm "
    "mp3 mp4 m4a m4v mov avi mkv webm ogg wav flac ts ttf otf eot swf",
}

# A line is one column, because the delimiter is a noncharacter. A blank line is no line: where a file has both LF and
# CRLF, DuckDB 2.0 sees one behind each CRLF. (Its option `new_line` would see none, and lose a line of ten million.)
_FILES = """
SELECT filename, CAST(NULL AS BIGINT) AS number, line
FROM read_csv($files, auto_detect = false, header = false, delim = '\U0010fffe', quote = '', escape = '',
              columns = {'line': 'VARCHAR'}, strict_mode = false, encoding = $encoding, filename = true,
              parallel = false, store_rejects = true)
"""
# Any octet but 80 to 9F (hexadecimal) is Latin-1 to DuckDB. Logs with these are UTF-8, or DuckDB rejects the line.
_ENCODINGS = ("latin-1", "utf-8")
# Lines that DuckDB did not read: too long to be held (2 MB), or no UTF-8. Of these it keeps the text, with a question
# mark for each octet that it cannot read.
_REJECTED = """
CREATE TEMP TABLE rejected AS
SELECT file_path AS filename, CAST(line AS BIGINT) AS number,
       CASE WHEN bool_and(error_type = 'INVALID ENCODING')
            THEN ltrim(any_value(csv_line), chr(10) || chr(13)) END AS line
FROM reject_errors JOIN reject_scans USING (scan_id, file_id) GROUP BY ALL
"""
_ROWS = r"""
WITH lines AS (
    SELECT filename, number, line,
           regexp_extract(line, '{pattern}', ['client', 'time', 'request', 'answer']) AS part
    FROM ({source})
),
split AS (
    SELECT filename, number, line, part.client AS client, part.request AS request, part.answer AS answer,
           CAST(epoch(try_strptime(part.time, '%d/%b/%Y:%H:%M:%S %z')) AS BIGINT) AS at_s,
           split_part(split_part(part.request, ' ', 2), '?', 1) AS path
    FROM lines
),
named AS (SELECT *, lower(split_part(path, '.', -1)) AS suffix FROM split)
SELECT filename, number, at_s, line IS NULL AND number IS NULL AS is_blank,
       hash($salt, client, split_part(line, '"', 6)) AS client,
       hash($salt, path) AS object,
       CASE {kinds} ELSE 'html' END AS kind,
       CASE WHEN starts_with(request, 'GET ') THEN 'GET' WHEN starts_with(request, 'HEAD ') THEN 'HEAD'
            ELSE 'other' END AS method,
       contains(request, ' HTTP/') AS is_http,
       ends_with(request, ' HTTP/1.0') AS is_old,
       ends_with(request, ' HTTP/2.0') OR ends_with(request, ' HTTP/2') AS is_http2,
       ends_with(request, ' HTTP/3.0') OR ends_with(request, ' HTTP/3') AS is_http3,
       TRY_CAST(answer[:3] AS SMALLINT) AS status,
       coalesce(TRY_CAST(answer[5:] AS BIGINT), 0) AS body_bytes
FROM named
"""
# File and number of the first malformed lines of each file: the row's place among the file's rows, and as many lines
# more as were rejected before it.
_FIRST_MALFORMED = f"""
WITH begun AS (SELECT filename, min(rowid) AS row FROM answers WHERE number IS NULL GROUP BY filename),
skipped AS (
    SELECT filename, number - row_number() OVER (PARTITION BY filename ORDER BY number) AS rows_before FROM rejected
),
placed AS (
    SELECT filename, first.row - begun.row + 1 AS place
    FROM (SELECT filename, unnest(min(rowid, {SHOWN})) AS row FROM answers
          WHERE at_s IS NULL AND NOT is_blank AND number IS NULL GROUP BY filename) AS first
    JOIN begun USING (filename)
)
SELECT placed.filename, place + count(rows_before) AS number
FROM placed LEFT JOIN skipped ON placed.filename = skipped.filename AND rows_before < place
GROUP BY placed.filename, place
UNION ALL
SELECT filename, unnest(min(number, {SHOWN})) FROM answers
WHERE at_s IS NULL AND number IS NOT NULL GROUP BY filename
"""


@dataclass(frozen=True)
class Lines:
    """Number of lines. `first_malformed`: (position of the file as given, from 1; line, from 1)."""

    total: int
    malformed: int
    first_malformed: Sequence[tuple[int, int]]


@contextmanager
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in a temporary folder of its own (about a tenth of the log's size), gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="vmtoll-log-") as folder:
        settings: dict[str, str | bool | int | float | list[str]] = {
            "threads": THREADS, "memory_limit": f"{MEMORY_LIMIT_MB}MB", "temp_directory": folder,
            "autoinstall_known_extensions": False, "autoload_known_extensions": False,
        }  # fmt: skip
        with duckdb.connect(Path(folder) / "log.duckdb", config=settings) as connection:
            connection.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")
            yield connection


def read(db: duckdb.DuckDBPyConnection, files: Sequence[Path], tell: Callable[[str], None]) -> Lines:
    """Make the table `answers`: one row a line; `at_s` is null where malformed.

    The rows of a file are consecutive and in order, but rejected lines come last, with their number.
    `at_s`: seconds since the epoch; `client`, `object`: hashes of address and agent, and of the path without its
    query; `kind`: of workloads.sites; `body_bytes`: of the answer. Raises LogError.
    """
    for file in files:
        _check(file)
    kinds = " ".join(
        f"WHEN suffix IN ({', '.join(repr(s) for s in suffixes.split())}) THEN '{kind}'"
        for kind, suffixes in _SUFFIXES.items()
    )
    paths = [re.sub(r"([*?\[])", r"[\1]", str(file)) for file in files]  # DuckDB takes them for patterns
    tell(f"reading {len(files)} file{'s' * (len(files) > 1)}, {sum(f.stat().st_size for f in files) / 1e6:.0f} MB")
    with _told(db, tell), _explained():
        salt = secrets.randbits(63)
        rows = partial(_ROWS.format, pattern=_LINE, kinds=kinds)
        for encoding in _ENCODINGS:
            values = {"files": paths, "salt": salt, "encoding": encoding}
            with suppress(duckdb.InvalidInputException) if encoding != _ENCODINGS[-1] else nullcontext():
                db.execute(f"CREATE TABLE answers AS {rows(source=_FILES)}", values)
                break
        db.execute(_REJECTED)
        db.execute(f"INSERT INTO answers {rows(source='FROM rejected')}", {"salt": salt})
    with _explained():
        return _count(db, files)


def _check(file: Path) -> None:
    """The file can be read, and a plain one is a text. A .zst is whole: DuckDB sees this of a .gz alone."""
    try:
        with file.open("rb") as stream:
            begin = stream.read(_BEGIN_BYTES)
        is_text = any(len(line) > _SHORT_BYTES and b"\0" not in line for line in begin.split(b"\n"))
        if b"\0" in begin and not is_text and file.suffix not in {".gz", ".zst"}:  # a crash may leave zeros
            raise LogError(f"{file}: not a text; give an access log in the combined format, plain, .gz or .zst")
        if file.suffix == ".zst":
            done = subprocess.run(["zstd", "--test", "--quiet", file], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise LogError(f"{file}: not a whole .zst file; `zstd --test` says what is wrong with it")
    except FileNotFoundError as error:
        problem = "zstd is not installed, and is needed to read it" if error.filename == "zstd" else "no such file"
        raise LogError(f"{file}: {problem}") from None
    except OSError as error:
        raise LogError(f"{file}: {error.strerror}") from None


def _count(db: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> Lines:
    position = {str(file): number for number, file in enumerate(files, start=1)}
    query = "SELECT count(*), count(*) FILTER (at_s IS NULL) FROM answers WHERE NOT is_blank"
    total, malformed = map(int, one_row(db, query))
    first = [(position[name], int(number)) for name, number in db.execute(_FIRST_MALFORMED).fetchall()]
    named = ", ".join(map(str, files))
    if total == 0:
        raise LogError(f"{named}: empty; give an access log with at least one line")
    if total == malformed:
        raise LogError(
            f"{named}: no usable line of {total}; give an access log in the combined format, plain, .gz or .zst"
        )
    return Lines(total, malformed, sorted(first)[:SHOWN])


@contextmanager
def _explained() -> Iterator[None]:
    """Raise DuckDB's errors as LogError, with the first line only: others may quote the log."""
    try:
        yield
    except duckdb.Error as error:
        raise LogError(
            f"the log cannot be read: {first_line(error)}; TMPDIR names the folder for what memory cannot hold"
        ) from None


@contextmanager
def _told(db: duckdb.DuckDBPyConnection, tell: Callable[[str], None]) -> Iterator[None]:
    """Tell every few seconds how far the query is that runs meanwhile."""
    done = threading.Event()

    def watch() -> None:
        begin = time.monotonic()
        while not done.wait(_TELL_EVERY_S):
            share = db.query_progress()
            tell(f"reading: {max(share, 0):.0f}% after {time.monotonic() - begin:.0f} s")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
