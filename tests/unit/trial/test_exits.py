"""The exits of a load: the difference of two readings of the trace."""

from vmtoll.agent.protocol import ExitCount
from vmtoll.trial.exits import growth


def row(reason: str, count: int, ns: int, away_ns: int = 0) -> ExitCount:
    return {"reason": reason, "count": count, "ns": ns, "away_ns": away_ns}


def test_the_exits_between_two_readings_by_falling_cpu_time() -> None:
    before = [row("msr", 10, 5_000), row("hlt", 3, 90_000, 80_000)]
    after = [row("msr", 14, 9_000), row("hlt", 5, 990_000, 979_000), row("io", 1, 2_000)]
    exits = growth(before, after)
    assert [(each.reason, each.count, each.cpu_us) for each in exits] == [
        ("msr", 4, 4.0),
        ("io", 1, 2.0),
        ("hlt", 2, 1.0),
    ]
    assert exits[2].time_us == 900


def test_reasons_without_exits_in_the_load_are_left_out() -> None:
    assert growth([row("msr", 10, 5_000)], [row("msr", 10, 5_000)]) == ()


def test_a_sum_that_wrapped_in_the_kernel_is_a_difference_all_the_same() -> None:
    (only,) = growth([row("hlt", 1, (1 << 64) - 2_000)], [row("hlt", 2, 3_000)])
    assert only.time_us == 5


def test_an_exit_that_slept_and_had_not_ended_costs_no_negative_time() -> None:
    (only,) = growth([], [row("hlt", 40, 3_703_441_017, 3_751_101_927)])
    assert only.cpu_us == 0
