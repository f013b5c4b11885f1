"""Rates of a log: every window that a rate is of lies within the log."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.logs import BEGIN_S, Hit, write
from vmtoll.access_log.read import database, read
from vmtoll.access_log.traffic import Summary, traffic

pytestmark = pytest.mark.slow


def seen(log: Path, times_s: Sequence[int]) -> Summary:
    with database() as db:
        read(db, [write(log, [Hit(at_s) for at_s in times_s])], lambda said: None)
        return traffic(db, 5)


@pytest.mark.parametrize("begin_s", [25, 55, 0, 3595])
@pytest.mark.parametrize("seconds", [1, 10, 59])
def test_a_log_below_a_minute_has_no_busiest_minute(tmp_path: Path, begin_s: int, seconds: int) -> None:
    """Wherever the edges of the clock's minutes and hours lie, each rate is that of the log: 20 requests a second."""
    found = seen(tmp_path / "a.log", [BEGIN_S + begin_s + second for second in range(seconds) for _ in range(20)])
    assert found["covered_s"] == seconds
    assert found["peak_minute"] is None
    assert (found["plan"]["window_s"], found["plan"]["rate_rps"]) == (seconds, 20)
    assert found["rate_mean_rps"] == found["peak_second"]["rate_rps"] == 20
    assert {hour["rate_rps"] for hour in found["hours"]} == {20}


@pytest.mark.parametrize("edge_s", [0, 7, 15, 30, 59])
def test_a_peak_over_an_edge_of_the_clock_is_whole(tmp_path: Path, edge_s: int) -> None:
    """A minute of 30 requests a second among ten of one."""
    quiet = [BEGIN_S + second for second in range(600)]
    busy = [BEGIN_S + 240 + edge_s + second for second in range(60) for _ in range(29)]
    minute = seen(tmp_path / "a.log", sorted(quiet + busy))["peak_minute"]
    assert (minute["requests"], minute["window_s"], minute["rate_rps"]) == (1800, 60, 30)
    assert minute["start"] == f"2026-03-01T10:04:{edge_s:02}Z"


@pytest.mark.parametrize("seed", range(5))
def test_the_busiest_minute_is_the_busiest_of_all(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    times = sorted(BEGIN_S + int(rng.betavariate(2, 3) * 400) for _ in range(rng.choice([5, 300])))
    found, counts = seen(tmp_path / "a.log", times), Counter(times)
    starts = range(times[0], times[-1] - 58)
    assert found["peak_minute"]["requests"] == max(sum(counts[s + i] for i in range(60)) for s in starts)
    assert found["peak_second"]["requests"] == max(counts.values())


def test_an_hour_at_the_edge_of_a_log_is_of_the_time_that_it_covers(tmp_path: Path) -> None:
    found = seen(tmp_path / "a.log", [BEGIN_S + 3000 + second // 2 for second in range(2 * 1200)])
    assert [(h["start"][11:16], h["covered_s"], h["rate_rps"]) for h in found["hours"]] == [
        ("10:00", 600, 2),
        ("11:00", 600, 2),
    ]


def test_the_busiest_second_of_a_log_with_fractions_begins_at_any_tenth(tmp_path: Path) -> None:
    """Ten requests over the edge of a second, and one in each second around."""
    times = [
        "14:00:00.100",
        "14:00:01.100",
        *(f"14:00:{1 + n // 10:02}.{n % 10}00" for n in range(15, 25)),
        "14:00:05.000",
    ]
    line = '192.0.2.1 - - [2025-06-03T{}Z] "GET / HTTP/1.1" 200 5000'
    with database() as db:
        read(db, [write(tmp_path / "a.log", [line.format(time) for time in times])], lambda said: None)
        second = traffic(db, 5)["peak_second"]
    assert second == {"start": "2025-06-03T14:00:02.500Z", "window_s": 1, "requests": 10, "rate_rps": 10}


@pytest.mark.parametrize("gap_s", [21, 50, 3600])
@pytest.mark.parametrize("seconds", [10, 59, 70])
def test_nothing_is_covered_between_two_files(tmp_path: Path, seconds: int, gap_s: int) -> None:
    """20 requests a second in each of them."""
    logs = [
        write(tmp_path / f"{n}.log", [Hit(begin_s + i // 20) for i in range(20 * seconds)])
        for n, begin_s in enumerate((BEGIN_S, BEGIN_S + seconds + gap_s))
    ]
    with database() as db:
        read(db, logs, lambda said: None)
        found = traffic(db, 5)
    assert (found["covered_s"], found["parts"], found["rate_mean_rps"]) == (2 * seconds, 2, 20)
    assert found["plan"]["rate_rps"] == 20
    assert (found["peak_minute"] is None) == (seconds < 60)
    assert {hour["rate_rps"] for hour in found["hours"]} == {20}


def test_a_series_and_logs_of_several_servers_are_one(tmp_path: Path) -> None:
    """Of 400 requests at random seconds of an hour; cut at any time, or dealt to two servers."""
    rng = random.Random(1)
    hits = [Hit(at_s) for at_s in sorted(BEGIN_S + rng.randrange(3600) for _ in range(400))]
    found = []
    for n, cut in enumerate(([hits], [hits[:150], hits[150:]], [hits[::2], hits[1::2]])):
        logs = [write(tmp_path / f"{n}-{i}.log", part) for i, part in enumerate(cut)]
        with database() as db:
            read(db, logs, lambda said: None)
            found.append(traffic(db, 5))
    assert found[0] == found[1] == found[2]


def test_the_time_of_a_log_with_fractions_is_not_rounded_outward(tmp_path: Path) -> None:
    """Ten seconds from 0.5 s to 10.4 s, with 10 requests in each."""
    lines = [f'192.0.2.1 - - [2025-06-03T14:00:{n // 10:02}.{n % 10}00Z] "GET / HTTP/1.1" 200 5' for n in range(5, 105)]
    with database() as db:
        read(db, [write(tmp_path / "a.log", lines)], lambda said: None)
        found = traffic(db, 5)
    assert (found["covered_s"], found["rate_mean_rps"]) == (10, 10)
