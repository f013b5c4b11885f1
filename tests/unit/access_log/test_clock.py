"""Odd times of a log decide no rate: lines far from all others, a clock set back, forward, or by summer time."""

import random
from pathlib import Path

import pytest

from tests.support.logs import BEGIN_S, Hit, write
from vmtoll.access_log.read import Lines, database, read
from vmtoll.access_log.traffic import Summary, traffic

pytestmark = pytest.mark.slow

DENSE = [BEGIN_S + n // 10 for n in range(1200)]  # ten requests a second for two minutes


def seen(folder: Path, *logs: list[int]) -> tuple[Lines, Summary]:
    files = [write(folder / f"{n}.log", [Hit(at_s) for at_s in log]) for n, log in enumerate(logs)]
    with database() as db:
        return read(db, files, lambda said: None), traffic(db, 5)


@pytest.mark.parametrize(
    ("log", "lines"),
    [
        ([12, *DENSE], [1]),
        ([*DENSE, 2**31 - 1], [1201]),
        ([*DENSE[:600], BEGIN_S + 3600, *DENSE[600:]], [601]),
        ([*DENSE[:300], BEGIN_S - 365 * 86400, *DENSE[300:]], [301]),
        ([*range(20), *DENSE], [1, 2, 3]),
    ],
)
def test_lines_far_from_all_others_are_left_out(tmp_path: Path, log: list[int], lines: list[int]) -> None:
    read_lines, found = seen(tmp_path, [at_s if at_s > 10**9 else at_s + 10**9 for at_s in log])
    (odd,) = read_lines.odd_times
    assert (odd.kind, odd.lines, odd.count) == ("stray", lines, len(log) - 1200)
    assert (found["covered_s"], found["rate_mean_rps"], found["requests"]) == (120, 10, 1200)


@pytest.mark.parametrize(
    ("back", "lines"),
    [({1800: 1800}, [1801]), ({600: 300}, [601]), ({5400: 3600}, [5401]), ({1800: 900, 3600: 1500}, [1801, 3601])],
)
def test_a_clock_set_back_doubles_no_peak(tmp_path: Path, back: dict[int, int], lines: list[int]) -> None:
    log = [BEGIN_S + n - sum(seconds for first, seconds in back.items() if n >= first) for n in range(9000)]
    following = [log[-1] + n for n in range(1, 601)]  # another file, by the clock as it is now
    read_lines, found = seen(tmp_path, log, following)
    assert [odd.kind for odd in read_lines.odd_times] == ["set-back"] * len(lines)
    assert [line for odd in read_lines.odd_times for line in odd.lines] == lines
    assert (found["covered_s"], found["peak_minute"]["rate_rps"]) == (9600, 1)


@pytest.mark.parametrize("forward_s", [3600, 18_000, 10**9])
def test_a_jump_ahead_is_not_covered(tmp_path: Path, forward_s: int) -> None:
    read_lines, found = seen(tmp_path, [BEGIN_S - 10**9 + n + forward_s * (n >= 3000) for n in range(6000)])
    assert [(odd.kind, odd.lines) for odd in read_lines.odd_times] == [("silence", [3000, 3001])]
    assert (found["covered_s"], found["parts"], found["rate_mean_rps"]) == (6000, 2, 1)


def test_what_a_log_may_have_is_not_odd(tmp_path: Path) -> None:
    """Any order of lines, lines logged late, a job every hour, nights without traffic, few requests a day."""
    rng = random.Random(1)
    late = [*DENSE[:900], *(BEGIN_S + n % 20 for n in range(100)), *DENSE[900:]]
    night = [BEGIN_S + 5 * n + 14 * 3600 * (n >= 7200) for n in range(14_400)]
    for log in (
        DENSE[::-1], rng.sample(DENSE, len(DENSE)), late, [BEGIN_S + 3600 * (n // 50) for n in range(1200)], night,
        [BEGIN_S + 7000 * n + rng.randrange(3000) for n in range(300)], [*(s + 3600 for s in DENSE), *DENSE],
    ):  # fmt: skip
        read_lines, found = seen(tmp_path, log)
        if log[0] != BEGIN_S + 3600:
            assert not read_lines.odd_times
            assert found["covered_s"] == max(log) - min(log) + 1
        else:  # parts of a log joined in another order, with an hour between them
            assert [odd.kind for odd in read_lines.odd_times] == ["silence"]
