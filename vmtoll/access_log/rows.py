"""The SQL that makes one row of each line of the logs."""

from collections.abc import Sequence

from vmtoll.access_log.formats import Format, parse_sql

SHOWN = 3  # malformed lines that are shown
# Kind of file → its suffixes; every other suffix, and none, is a page.
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
_KINDS = " ".join(
    f"WHEN suffix IN ({', '.join(repr(s) for s in suffixes.split())}) THEN '{kind}'"
    for kind, suffixes in _SUFFIXES.items()
)

# A line is one column, because the delimiter is a noncharacter. Blank lines do not count: in a file with both LF and
# CRLF, DuckDB 2.0 sees one after each CRLF. (Its option `new_line` would see none, but lose one line in ten million.)
_READ_CSV = """
read_csv($files, auto_detect = false, header = false, delim = '\U0010fffe', quote = '', escape = '',
         columns = {'line': 'VARCHAR'}, strict_mode = false, parallel = false, %s)
"""
# A Unicode file may begin with a byte order mark, which DuckDB reads as UTF-8 or as Latin-1.
_IS_HEADING = " OR ".join(f"starts_with(line, '{mark}#Fields:')" for mark in ("", "\ufeff", "\u00ef\u00bb\u00bf"))
# Files and fields of the headings of W3C logs, in their order.
HEADINGS = f"""
SELECT filename, split_part(line, '#Fields:', 2)
FROM {_READ_CSV % "filename = true, ignore_errors = true"} WHERE {_IS_HEADING}
"""


def heading_sql(lines: str, has_headings: bool) -> str:
    """SQL that adds the column `heading` to lines: the number of the last heading above them, 0 if there is none.

    The query parameter `$headings` lists file and number of each heading in all lines; there is none without headings.
    """
    if not has_headings:
        return f"SELECT *, 0 AS heading FROM ({lines})"
    nth = f"count(*) FILTER ({_IS_HEADING}) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    return f"""
        SELECT * EXCLUDE (nth), if($headings[nth].file = filename, $headings[nth].number, 0) AS heading
        FROM (SELECT *, {nth} AS nth FROM ({lines}))
    """


FILES = f"""
SELECT filename, CAST(NULL AS BIGINT) AS number, line
FROM {_READ_CSV % "encoding = $encoding, filename = true, store_rejects = true"}
"""
# DuckDB reads any octet as Latin-1, except 80 to 9F (hexadecimal). Logs with these are read as UTF-8, or DuckDB rejects
# the line.
ENCODINGS = ("latin-1", "utf-8")
# Lines that DuckDB rejected: too long (above 2 MB), or not UTF-8. It keeps the text of the latter, with a question mark
# for each octet that it cannot read.
REJECTED = """
CREATE TEMP TABLE rejected AS
SELECT file_path AS filename, CAST(line AS BIGINT) AS number,
       CASE WHEN bool_and(error_type = 'INVALID ENCODING')
            THEN ltrim(any_value(csv_line), chr(10) || chr(13)) END AS line
FROM reject_errors JOIN reject_scans USING (scan_id, file_id) GROUP BY ALL
"""
SAMPLE = f"SELECT filename, 0 AS number, line FROM {_READ_CSV % 'filename = true, ignore_errors = true'} LIMIT $lines"

# Times without a zone are UTC; second 60, a leap second, counts as 59. Numbers are seconds since the epoch, or
# milliseconds, microseconds or nanoseconds.
_TIME_FORMATS = [
    "%d/%b/%Y:%H:%M:%S %z", "%d/%b/%Y:%H:%M:%S.%f %z", "%d/%b/%Y:%H:%M:%S.%f", "%d/%b/%Y:%H:%M:%S",
    "%d/%b/%Y %H:%M:%S", "%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S.%f %Y",
]  # fmt: skip
_EPOCH = r"'^[0-9]{9,10}(?:[0-9]{3}){0,3}(?:\.[0-9]+)?$'"
_AT_MS = f"""
epoch_ms(coalesce(
    try_strptime(time, '{_TIME_FORMATS[0]}'),
    CASE WHEN regexp_matches(time, {_EPOCH})
         THEN to_timestamp(CAST(time AS DOUBLE) / pow(1000, (length(split_part(time, '.', 1)) - 9) // 3)) END,
    try_strptime(replace(time, ':60', ':59'), {_TIME_FORMATS}),
    TRY_CAST(replace(replace(time, ':60', ':59'), ',', '.') AS TIMESTAMPTZ)))
"""
# A line's shape shows no text of the log: a for letters, 9 for digits, ? for what is not ASCII.
_SHAPE = "text[:400]"
for _characters, _sign in (("[A-Za-z]+", "a"), ("[0-9]+", "9"), ("[^ -~]+", "?")):
    _SHAPE = f"regexp_replace({_SHAPE}, '{_characters}', '{_sign}', 'g')"
_ROWS = rf"""
WITH timed AS (
    SELECT *, {_AT_MS} AS at_ms, split_part(split_part(request, ' ', 2), '?', 1) AS path,
           TRY_CAST(if(answer[1] = '-', '0', split_part(answer, ' ', 1)) AS SMALLINT) AS status,
           TRY_CAST(if(ends_with(answer, ' -'), '0', split_part(answer, ' ', 2)) AS BIGINT) AS body_bytes
    FROM ($parsed)
),
named AS (
    SELECT *, lower(split_part(path, '.', -1)) AS suffix, at_ms IS NULL OR status IS NULL OR body_bytes IS NULL AS bad,
           bad AND number IS NULL AND (text IS NULL OR starts_with(text, '#')) AS is_blank
    FROM timed
)
SELECT filename, number, if(bad, NULL, format) AS format, if(bad, NULL, at_ms // 1000) AS at_s,
       CAST(at_ms // 100 % 10 AS TINYINT) AS tenth, is_blank,
       CASE WHEN bad AND NOT is_blank THEN coalesce({_SHAPE}[:80], 'too long') END AS shape,
       hash($salt, client, agent) AS client,
       hash($salt, path) AS object,
       CASE {_KINDS} ELSE 'html' END AS kind,
       CASE WHEN starts_with(request, 'GET ') THEN 'GET' WHEN starts_with(request, 'HEAD ') THEN 'HEAD'
            ELSE 'other' END AS method,
       contains(request, ' HTTP/') AS is_http,
       ends_with(request, ' HTTP/1.0') AS is_old,
       ends_with(request, ' HTTP/2.0') OR ends_with(request, ' HTTP/2') AS is_http2,
       ends_with(request, ' HTTP/3.0') OR ends_with(request, ' HTTP/3') AS is_http3,
       status, body_bytes
FROM named
"""


def rows_sql(source: str, formats: Sequence[Format]) -> str:
    """Return SQL of the rows of `answers` for the lines of `source` (columns filename, number, line, heading)."""
    return _ROWS.replace("$parsed", parse_sql(f"({source})", formats))


# The first row of each file, and for each rejected line, the number of the file's rows before it.
_PLACES = """
begun AS (SELECT filename, min(rowid) AS row FROM answers WHERE number IS NULL GROUP BY filename),
skipped AS (
    SELECT filename, number - row_number() OVER (PARTITION BY filename ORDER BY number) AS rows_before FROM rejected
)
"""
# Row and line number of `$rows`. The number is the row's position among the file's rows, plus the number of lines
# rejected before it.
LINE_NUMBERS = f"""
WITH {_PLACES},
placed AS (
    SELECT answers.rowid AS row, answers.filename, number, answers.rowid - begun.row + 1 AS place
    FROM answers LEFT JOIN begun USING (filename) WHERE answers.rowid IN (SELECT unnest($rows))
)
SELECT placed.row, coalesce(any_value(number), any_value(place) + count(rows_before))
FROM placed LEFT JOIN skipped ON placed.filename = skipped.filename AND rows_before < place
GROUP BY placed.row ORDER BY placed.row
"""
# File, number and shape of the first malformed lines of each file.
FIRST_MALFORMED = f"""
WITH malformed AS (SELECT rowid AS row, * FROM answers WHERE at_s IS NULL AND NOT is_blank),
{_PLACES},
placed AS (
    SELECT malformed.filename, shape, malformed.row - begun.row + 1 AS place
    FROM (SELECT unnest(min(row, {SHOWN})) AS row FROM malformed WHERE number IS NULL GROUP BY filename) AS first
    JOIN malformed USING (row) JOIN begun ON begun.filename = malformed.filename
)
SELECT placed.filename, place + count(rows_before), any_value(shape)
FROM placed LEFT JOIN skipped ON placed.filename = skipped.filename AND rows_before < place
GROUP BY placed.filename, place
UNION ALL
SELECT filename, number, shape FROM (
    SELECT *, row_number() OVER (PARTITION BY filename ORDER BY number) AS place FROM malformed WHERE number IS NOT NULL
) WHERE place <= {SHOWN}
"""
