"""Times that do not fit the other times of their file: a few lines far from all others, a clock set back or forward.

None of them decides a rate. Lines far from the others are left out; after a clock was set back, later times are moved
forward again; a jump ahead is not covered time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

import duckdb
import numpy as np

from vmtoll.access_log.rows import LINE_NUMBERS, SHOWN

PER_S = 10  # times are counted in tenths of a second
SLOT = f"at_s * {PER_S} + tenth"
_FAR = 100  # times the longest other silence, and seconds: a silence this long parts a file
_MOST_SILENCES = 8  # more are a pattern of the traffic
_FEWEST_LINES, _MOST_STRAY = 10, 0.05  # lines of a file, and share of them that may lie apart
_BLOCK, _FEWEST_BLOCKS = 9, 5  # lines whose median is a step of the clock; blocks on either side of a set clock
_MOST_SET_BACKS = 10  # in a file; with more, its lines are in no order
_LEAST_BACK_S = 60  # requests that took long are logged late
_HOUR_S, _NEARLY_HOUR_S = 3600, 3000

# Of each file: lines, first and last tenth of a second, whether it logs whole seconds.
_FILES = f"""
SELECT filename, count(*), min({SLOT}), max({SLOT}), bool_and(tenth = 0)
FROM answers WHERE at_s IS NOT NULL GROUP BY ALL ORDER BY 3, 4, 1
"""
_SILENCES = f"""
SELECT filename, slot, silence FROM (
    SELECT filename, slot, slot - lag(slot) OVER (PARTITION BY filename ORDER BY slot) AS silence
    FROM (SELECT DISTINCT filename, {SLOT} AS slot FROM answers WHERE at_s IS NOT NULL)
)
QUALIFY row_number() OVER (PARTITION BY filename ORDER BY silence DESC NULLS LAST) <= {_MOST_SILENCES + 1}
"""


class Island(NamedTuple):
    """A stretch of a file's times, in tenths of a second, and the number of its lines."""

    begin: int
    last: int
    lines: int

    @property
    def length(self) -> int:
        return self.last - self.begin


@dataclass(frozen=True)
class FileTimes:
    """The islands of a file in order."""

    name: str
    islands: Sequence[Island]
    silence: int  # the longest inside them
    has_whole_seconds: bool

    @property
    def strays(self) -> list[Island]:
        """Islands with few lines; none if they are all that there is."""
        total = sum(island.lines for island in self.islands)
        few = max(1, int(total * _MOST_STRAY))
        return [island for island in self.islands if island.lines <= few] if total >= _FEWEST_LINES else []

    @property
    def covered(self) -> list[Island]:
        """The islands, joined over each silence that may be one of the traffic: shorter than all that is covered."""
        covered_length = sum(island.length for island in self.islands)
        joined = [self.islands[0]]
        for island in self.islands[1:]:
            before = joined[-1]
            silence = island.begin - before.last
            is_hour = 0 <= silence - _HOUR_S * PER_S <= 2 * max(self.silence, PER_S)
            is_dense = min(before.length, island.length) >= _FAR * max(self.silence, PER_S)
            if is_dense and (is_hour or silence > covered_length):
                joined.append(island)
            else:
                joined[-1] = Island(before.begin, island.last, before.lines + island.lines)
        return joined


@dataclass(frozen=True)
class OddTime:
    """What is odd at lines of a log (its position among the arguments, from 1).

    `stray`: `count` lines are `seconds` from all others, the first at `at_s`; left out. `set-back`: the clock goes back
    before the line; it and the later ones count `seconds` later. `silence`: `seconds` between two lines, not covered.
    """

    kind: Literal["stray", "set-back", "silence"]
    log: int
    lines: Sequence[int]
    count: int
    seconds: float
    at_s: float


def straighten(db: duckdb.DuckDBPyConnection, position: Mapping[str, int]) -> list[OddTime]:
    """Correct or leave out odd times in `answers`; `position`: of each file among the arguments."""
    strays = list(_leave_out_strays(db, position))
    set_backs = list(_undo_set_backs(db, position))
    return [*strays, *set_backs, *_silences(db, position)]


def times_of_files(db: duckdb.DuckDBPyConnection) -> list[FileTimes]:
    """The times of each file, by their begin."""
    silences: dict[str, list[tuple[int, int]]] = {}
    for name, slot, silence in db.execute(_SILENCES).fetchall():
        silences.setdefault(name, []).append((silence or 0, slot))
    return [
        _file_times(db, name, Island(begin, last, lines), sorted(silences[name], reverse=True), whole)
        for name, lines, begin, last, whole in db.execute(_FILES).fetchall()
    ]


def _file_times(
    db: duckdb.DuckDBPyConnection, name: str, whole: Island, silences: Sequence[tuple[int, int]], seconds: bool
) -> FileTimes:
    lengths = [silence for silence, _ in silences] + [0] * (len(silences) <= _MOST_SILENCES)
    far = [n for n in range(1, len(lengths)) if lengths[n - 1] > _FAR * max(lengths[n], PER_S)]
    parting = sorted((slot, silence) for silence, slot in silences[: max(far, default=0)])
    begins = [whole.begin, *(slot for slot, _ in parting)]
    lasts = [*(slot - silence for slot, silence in parting), whole.last]
    counts = [whole.lines]
    if parting:
        query = f"SELECT count(*) FROM answers WHERE filename = ? AND {SLOT} BETWEEN ? AND ?"
        counts = [db.execute(query, [name, *ends]).fetchall()[0][0] for ends in zip(begins, lasts, strict=True)]
    islands = [Island(*island) for island in zip(begins, lasts, counts, strict=True)]
    return FileTimes(name, islands, lengths[len(parting)], seconds)


def _leave_out_strays(db: duckdb.DuckDBPyConnection, position: Mapping[str, int]) -> Iterator[OddTime]:
    for file in times_of_files(db):
        rest = [island for island in file.islands if island not in file.strays]
        for stray in file.strays if rest else ():
            where = f"filename = ? AND {SLOT} BETWEEN ? AND ?"
            values = [file.name, stray.begin, stray.last]
            lines = _lines(db, f"{where} ORDER BY rowid LIMIT {SHOWN}", values)
            db.execute(f"UPDATE answers SET at_s = NULL WHERE {where}", values)
            far = min(max(stray.begin - island.last, island.begin - stray.last) for island in rest)
            yield OddTime("stray", position[file.name], lines, stray.lines, far / PER_S, stray.begin / PER_S)


def _silences(db: duckdb.DuckDBPyConnection, position: Mapping[str, int]) -> Iterator[OddTime]:
    for file in times_of_files(db):
        for before, after in pairwise(file.covered):
            where = f"filename = ? AND {SLOT} = ? ORDER BY rowid {{}} LIMIT 1"
            lines = [
                *_lines(db, where.format("DESC"), [file.name, before.last]),
                *_lines(db, where.format("ASC"), [file.name, after.begin]),
            ]
            seconds = (after.begin - before.last) / PER_S
            yield OddTime("silence", position[file.name], lines, 2, seconds, before.last / PER_S)


def _lines(db: duckdb.DuckDBPyConnection, where: str, values: Sequence[object]) -> list[int]:
    """The numbers of these lines in their file."""
    rows = [row for (row,) in db.execute(f"SELECT rowid FROM answers WHERE {where}", list(values)).fetchall()]
    return [line for _, line in db.execute(LINE_NUMBERS, {"rows": rows}).fetchall()]


@dataclass
class _Clock:
    """A file's span, and the rows before which its clock was set back, with the seconds."""

    name: str
    first_s: int
    last_s: int
    set_backs: list[tuple[int, int]] = field(default_factory=list)
    moved_s: int = 0  # by those of earlier files


def _undo_set_backs(db: duckdb.DuckDBPyConnection, position: Mapping[str, int]) -> Iterator[OddTime]:
    """Move later times forward by what the clock went back, and those of the files that follow."""
    query = """
        SELECT filename, min(at_s), max(at_s), min(rowid), max(rowid) FROM answers
        WHERE at_s IS NOT NULL AND number IS NULL GROUP BY ALL ORDER BY 2, 3, 1
    """
    clocks = [
        _Clock(name, first_s, last_s, _set_backs(db, first, last))
        for name, first_s, last_s, first, last in db.execute(query).fetchall()
    ]
    for i, clock in enumerate(clocks if any(clock.set_backs for clock in clocks) else ()):
        ended = [before for before in clocks[:i] if before.last_s <= clock.first_s + _LEAST_BACK_S]
        clock.moved_s = max((before.moved_s + sum(s for _, s in before.set_backs) for before in ended), default=0)
        _move(db, clock.name, -1, 0, clock.moved_s)
        for row, seconds in clock.set_backs:
            (line,) = _lines(db, "rowid = ?", [row])
            (at_s,) = db.execute("SELECT at_s FROM answers WHERE rowid = ?", [row]).fetchall()[0]
            _move(db, clock.name, row, line, seconds)
            yield OddTime("set-back", position[clock.name], [line], 1, seconds, at_s)


def _move(db: duckdb.DuckDBPyConnection, name: str, row: int, line: int, seconds: int) -> None:
    """Add to the times from this row on, and from this line on of lines that have no place among the rows."""
    if seconds:
        query = "filename = ? AND if(number IS NULL, rowid >= ?, number >= ?)"
        db.execute(f"UPDATE answers SET at_s = at_s + ? WHERE {query}", [seconds, name, row, line])


class _Fall(NamedTuple):
    """A step back of the median: its block and first row, the median before, and by how much."""

    block: int
    row: int
    level_s: float
    fall_s: float


def _set_backs(db: duckdb.DuckDBPyConnection, first: int, last: int) -> list[tuple[int, int]]:
    """The rows before which the clock was set back, in a file whose rows are these, and by how many seconds.

    A step of the median over a block of lines: single lines may have any time. Stretches between steps overlap; where
    they do not, parts of a log were joined in another order.
    """
    query = "SELECT rowid AS row, at_s FROM answers WHERE at_s IS NOT NULL AND rowid BETWEEN ? AND ?"
    reader = db.execute(query, [first, last])
    rest_row, rest_s = np.empty(0, np.int64), np.empty(0, np.int64)
    steps, blocks, median = list[_Fall](), 0, None
    while len(chunk := reader.fetch_df_chunk(50)):
        row = np.concatenate((rest_row, chunk["row"].to_numpy(np.int64)))
        at_s = np.concatenate((rest_s, chunk["at_s"].to_numpy(np.int64)))
        whole = len(row) // _BLOCK
        medians = np.median(at_s[: whole * _BLOCK].reshape(whole, _BLOCK), axis=1)
        rises = np.diff(medians, prepend=medians[:1] if median is None else median)
        for n in np.flatnonzero(np.abs(rises) > _LEAST_BACK_S).tolist():
            if rises[n] < 0:
                steps.append(_Fall(blocks + n, int(row[n * _BLOCK]), medians[n] - rises[n], -rises[n]))
            elif steps and medians[n] >= steps[-1].level_s and rises[n] > steps[-1].fall_s / 2:
                steps.pop()  # the lines between were logged late
        if len(steps) > _MOST_SET_BACKS:
            return []
        blocks, median = blocks + whole, medians[-1] if whole else median
        rest_row, rest_s = row[whole * _BLOCK :], at_s[whole * _BLOCK :]
    edges = [0, *(step.block for step in steps), blocks]
    if not steps or min(np.diff(edges)) < _FEWEST_BLOCKS:
        return []
    set_backs = [_step(db, step.row) for step in steps]
    rows = [first, *(row for row, _ in set_backs), last + 1]
    query = "SELECT min(at_s), max(at_s) FROM answers WHERE rowid >= ? AND rowid < ?"
    spans = [db.execute(query, [*each]).fetchall()[0] for each in pairwise(rows)]
    overlaps = [after[1] > before[0] for before, after in pairwise(spans)]
    return [set_back for set_back, overlap in zip(set_backs, overlaps, strict=True) if overlap]


def _step(db: duckdb.DuckDBPyConnection, row: int) -> tuple[int, int]:
    """The row of the largest step back near this one, and the seconds: an hour where it is nearly one."""
    query = "SELECT rowid, at_s FROM answers WHERE at_s IS NOT NULL AND rowid >= ? AND rowid < ? ORDER BY rowid"
    rows = np.array(db.execute(query, [row - 2 * _BLOCK, row + _BLOCK]).fetchall(), dtype=np.int64)
    place = int(np.argmin(np.diff(rows[:, 1]))) + 1
    back_s = int(rows[max(0, place - _BLOCK) : place, 1].max() - rows[place, 1])
    return int(rows[place, 0]), _HOUR_S if _NEARLY_HOUR_S <= back_s <= _HOUR_S else back_s + 1
