"""Every outcome of a claim and every reason why one cannot be told, on runs whose truth is known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published_run import AB, claim, make_published
from scipy import stats
from synthetic_run import Row, Truth, failed, suspected

from analysis.charts.claims import draw
from analysis.claims import HELD, NOT_HELD, UNKNOWN, Judged, counts, decide, judge_claims
from analysis.evidence import Ratio, column_side, estimate, knee, ratio, select
from analysis.load import Run
from analysis.stats import Interval

# On metal lighttpd answers 7,500 requests per second and nginx 8,000: a ratio of 1.067.
SERVERS = {"nginx": 0.5, "lighttpd": 0.5}
TRUE_RATIO = 8000 / 7500


def truth(**keys: Any) -> Truth:
    return Truth(SERVERS, drift=0.0, aa=False, **keys)


def judge_one(parent: Path, one: dict[str, Any], made_by: Truth | None = None, **keys: Any) -> Judged:
    (found,) = judge_claims(make_published(parent, made_by or truth(), [one], **keys))
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    claims = [
        claim("nginx is faster", published=[3000, 1000]),
        claim("lighttpd is faster", published=[1000, 3000]),
        claim("as fast as each other", published=[100, 101], within_pct=20),
        claim("as fast to a percent", published=[100, 101], within_pct=1),
        claim("at least 5,000", at_least=5000, published=[6000]),
        claim("at least 9,000", at_least=9000, published=[9500]),
        claim("at most 9,000", at_most=9000, published=[8500]),
        claim("at most 5,000", at_most=5000, published=[4000]),
        claim("without published figures", published=[]),
        claim("metal beats the guest", over={"environment": "kvm-default"}, published=[400, 145]),
    ]
    return make_published(tmp_path_factory.mktemp("claims"), truth(), claims)


def test_each_kind_of_claim_can_hold_and_fail(run: Run) -> None:
    found = {one.says: one.outcome for one in judge_claims(run)}
    assert found == {
        "nginx is faster": HELD,
        "lighttpd is faster": NOT_HELD,
        "as fast as each other": HELD,
        "as fast to a percent": NOT_HELD,
        "at least 5,000": HELD,
        "at least 9,000": NOT_HELD,
        "at most 9,000": HELD,
        "at most 5,000": NOT_HELD,
        "without published figures": HELD,
        "metal beats the guest": HELD,
    }
    assert counts(judge_claims(run)) == {HELD: 6, NOT_HELD: 4, UNKNOWN: 0}


def test_the_interval_is_that_of_a_paired_t_test(run: Run) -> None:
    metal = run.trials[run.trials["environment"] == "metal"].pivot_table(
        index="block", columns="server", values="throughput_rps"
    )
    logs = np.log(metal["nginx"] / metal["lighttpd"])
    low, high = stats.ttest_rel(np.log(metal["nginx"]), np.log(metal["lighttpd"])).confidence_interval()
    found = judge_claims(run)[0].ratio
    assert found and found.interval
    assert found.value == pytest.approx(math.exp(logs.mean()))
    assert (found.interval.low, found.interval.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert found.interval.low < TRUE_RATIO < found.interval.high
    level = judge_claims(run)[4]
    low, high = stats.t.interval(0.95, 5, metal["nginx"].mean(), stats.sem(metal["nginx"]))
    assert f"[{low:.4g}, {high:.4g}]" in level.why


def test_figures_of_both_sides_and_both_ratios(run: Run) -> None:
    one = judge_claims(run)[0]
    nginx, lighttpd = (
        select(run, {"server": server, "environment": "metal"})["throughput_rps"].median()
        for server in ("nginx", "lighttpd")
    )
    assert one.ours == (nginx, lighttpd)
    assert (one.published, one.published_ratio, one.sides) == ((3000.0, 1000.0), 3.0, ("nginx", "lighttpd"))
    assert (one.unit, one.how) == ("1/s", "median of 6")


def test_an_emulated_guest_tells_nothing_of_kvm(tmp_path: Path) -> None:
    one = claim(over={"environment": "kvm-default"}, published=[400, 145])
    found = judge_one(tmp_path, one, truth(accelerator="tcg"))
    assert (found.outcome, found.ours[1] is not None) == (UNKNOWN, True)
    assert "emulated (TCG)" in found.why


def test_a_server_without_source(tmp_path: Path) -> None:
    meta = {"skipped": [{"server": "boa", "why": "sources.yml names none"}]}
    alone = claim(over={"server": "boa"}, published=[2, 1])
    among = claim(over={"server": ["boa", "lighttpd"]}, published=[2, 1])
    first, second = judge_claims(make_published(tmp_path, truth(), [alone, among], meta=meta))
    assert (first.outcome, first.why) == (UNKNOWN, "source of boa not at hand")
    assert second.outcome == HELD
    assert second.why.endswith("without boa, whose source is not at hand")


def test_what_was_not_measured(tmp_path: Path) -> None:
    first, second = claim(over={"server": "caddy"}), claim(of={"workload": "page-1m"}, over={"server": "lighttpd"})
    found = judge_claims(make_published(tmp_path, truth(), [first, second]))
    assert [one.why for one in found] == [
        "this run did not measure caddy",
        "this run did not measure page-1m",
    ]


@pytest.mark.parametrize(("blocks", "words"), [(1, "1 block, 3 are"), (2, "2 blocks, 3 are")])
def test_too_few_blocks(tmp_path: Path, blocks: int, words: str) -> None:
    found = judge_one(tmp_path, claim(published=[2, 1]), truth(blocks=blocks))
    assert found.outcome == UNKNOWN
    assert found.why.startswith(words)
    level = judge_one(tmp_path / "level", claim(at_least=5, published=[9]), truth(blocks=blocks))
    assert level.outcome == UNKNOWN


def test_an_interval_that_reaches_across(tmp_path: Path) -> None:
    found = judge_one(tmp_path, claim(published=[2, 1]), truth(noise=0.3, seed=3))
    assert found.outcome == UNKNOWN
    assert "reaches across 1" in found.why


def test_equal_sides_refute_a_difference(tmp_path: Path) -> None:
    """Every trial of both servers has the very same figure."""

    def same(row: Row) -> list[Row]:
        return [row | {"throughput_rps": 100.0}]

    found = judge_one(tmp_path, claim(published=[2, 1]), truth(change=same))
    assert found.outcome == NOT_HELD
    assert "within ±2%: equal" in found.why


def limited(row: Row, which: dict[str, str], code: str = "client-saturated") -> list[Row]:
    return [suspected(row, f"{code}: at its limit") if which.items() <= row.items() else row]


@pytest.mark.parametrize(
    ("server", "published", "outcome"),
    [
        ("nginx", [2, 1], HELD),  # the faster side could be faster still
        ("lighttpd", [2, 1], UNKNOWN),  # the slower side might be the faster one
        ("lighttpd", [1, 2], UNKNOWN),
        ("nginx", [1, 2], NOT_HELD),
    ],
)
def test_a_bound_decides_only_where_more_changes_nothing(
    tmp_path: Path, server: str, published: list[float], outcome: str
) -> None:
    made_by = truth(change=lambda row: limited(row, {"server": server}))
    found = judge_one(tmp_path, claim(published=published), made_by)
    assert found.outcome == outcome
    assert "client or link set the pace (client-saturated)" in found.why


def test_a_bound_of_a_time_points_the_other_way(tmp_path: Path) -> None:
    """A client that waits for itself makes times too long: lighttpd's are an upper bound, and are longer anyway."""
    made_by = truth(change=lambda row: limited(row, {"server": "lighttpd"}, "client-saturated"))
    one = claim(metric="service_time_p50_us", published=[1, 2])
    assert judge_one(tmp_path / "a", one, made_by, workloads={AB: {"twin": None}}).outcome == UNKNOWN
    made_by = truth(change=lambda row: limited(row, {"server": "nginx"}, "client-saturated"))
    assert judge_one(tmp_path / "b", one, made_by, workloads={AB: {"twin": None}}).outcome == HELD


def test_equality_needs_sides_that_nothing_limits(tmp_path: Path) -> None:
    made_by = truth(change=lambda row: limited(row, {}, "link-bound"))
    one = claim(published=[100, 101], within_pct=20)
    assert judge_one(tmp_path / "free", one, made_by).outcome == UNKNOWN
    found = judge_one(tmp_path / "set", one, made_by, link="100mbit")
    assert found.outcome == HELD
    assert "the link of 100mbit, as published, was full in 12 trials" in found.why


def test_a_limited_level_proves_only_more(tmp_path: Path) -> None:
    made_by = truth(change=lambda row: limited(row, {}))
    for number, (keys, outcome) in enumerate(
        (
            ({"at_least": 5000}, HELD),
            ({"at_least": 9000}, UNKNOWN),
            ({"at_most": 9000}, UNKNOWN),
            ({"at_most": 5000}, NOT_HELD),
        )
    ):
        assert judge_one(tmp_path / str(number), claim(**keys), made_by).outcome == outcome


def test_refused_trials_are_named(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [failed(row, "wrong-body: 1 of 16") if row["server"] == "nginx" else row]

    found = judge_one(tmp_path, claim(published=[2, 1]), truth(change=change))
    assert (found.outcome, found.why) == (UNKNOWN, "no usable figure of nginx: wrong-body")


def test_failures_are_known_from_the_trials_refused_for_them(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        lost = {
            "availability_pct": 98.5 + 0.01 * row["block"],
            "verdict": "invalid",
            "reasons": "failed-requests: some",
        }
        return [row | lost if row["server"] == "lighttpd" else row]

    one = claim(metric="availability_pct", published=[100, 98.57])
    found = judge_one(tmp_path / "kept", one, truth(change=change))
    assert found.outcome == HELD
    assert found.ours == (100.0, pytest.approx(98.535))
    assert judge_one(tmp_path / "left", claim(published=[2, 1]), truth(change=change)).outcome == UNKNOWN


def test_a_claim_about_more_cores_on_one(tmp_path: Path) -> None:
    workloads: dict[str, dict[str, Any]] = {"one": {"cores": 1}, "all": {}}
    one = claim(of={"workload": "all"}, over={"workload": "one"}, published=[4, 1])
    same = claim(of={"workload": "all"}, published=[2, 1])
    single = claim(of={"workload": "one"}, published=[2, 1])
    few, many = (
        {name: {"server_cores": n} for name, n in cores.items()}
        for cores in ({"one": 1, "all": 1}, {"one": 1, "all": 4})
    )
    found = judge_claims(
        make_published(tmp_path / "few", truth(), [one, same, single], workloads=workloads, per_workload=few)
    )
    assert [each.outcome for each in found] == [UNKNOWN, UNKNOWN, HELD]
    assert found[0].why == "it is about more than one core, and the machine has one core"
    found = judge_claims(
        make_published(tmp_path / "many", truth(), [one, same, single], workloads=workloads, per_workload=many)
    )
    assert [each.outcome for each in found] == [NOT_HELD, HELD, HELD]
    unknown = judge_claims(make_published(tmp_path / "old", truth(), [single], workloads=workloads))
    assert unknown[0].outcome == HELD  # an older run does not say how many there were


def test_messages_lost_in_one_cell_are_not_hidden_by_the_others(tmp_path: Path) -> None:
    """Counted in trials that were refused for them, and under emulation too."""
    lost: Row = {"messages_lost": 3, "verdict": "invalid", "reasons": "lost-mail: 3 messages"}

    def change(row: Row) -> list[Row]:
        where = (row["server"], row["block"], row["environment"])
        return [row | (lost if where == ("nginx", 2, "kvm-default") else {"messages_lost": 0})]

    def judged(name: str, server: list[str]) -> Judged:
        one = claim(metric="messages_lost", of={"server": server, "environment": ["metal", "kvm-default"]}, at_most=0)
        return judge_one(tmp_path / name, one, truth(change=change, accelerator="tcg"))

    assert (judged("one", ["lighttpd"]).outcome, judged("both", ["lighttpd", "nginx"]).outcome) == (HELD, NOT_HELD)
    assert judged("again", ["nginx"]).why == "3 in one of 6 blocks"


def test_cpu_seconds_of_unlike_counts_are_not_compared(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [row | {"transactions": 5000} if row["server"] == "nginx" else row]

    one = claim(metric="server_cpu_user_s", published=[2, 1])
    assert judge_one(tmp_path, one, truth(change=change)).why == "seconds of CPU for different numbers of requests"


def test_zero_has_no_ratio(tmp_path: Path) -> None:
    found = judge_one(tmp_path, claim(metric="failed", published=[1077, 1]))
    assert (found.outcome, found.why) == (UNKNOWN, "a figure of zero has no ratio")


def test_a_ladder_is_judged_by_its_peak(tmp_path: Path) -> None:
    made_by = truth(loads=("share:0.3", "share:0.7", "share:1.1"))
    one = claim(metric="peak_goodput_rps", of={"workload": "ramp"}, published=[10000, 6000])
    run = make_published(tmp_path, made_by, [one], workloads={"ramp": {"kind": "ramp", "tool": "httperf"}})
    (found,) = judge_claims(run)
    trials = select(run, {"server": "nginx", "environment": "metal"})
    assert found.ours[0] == pytest.approx(trials.groupby("block")["goodput_rps"].max().median())
    assert found.outcome == HELD
    block = trials[trials["block"] == 1]
    assert knee(block) == block.loc[block["offered_load"] == "share:0.7", "offered_rps"].item()
    assert knee(block.assign(goodput_rps=0.0)) == 0


def test_a_block_without_one_of_its_cells_is_left_out(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [failed(row, "tool-failed: cut off") if (row["server"], row["block"]) == ("nginx", 2) else row]

    run = make_published(tmp_path, truth(change=change), [])
    both = column_side(run, {"server": ["nginx", "lighttpd"], "environment": "metal"}, "throughput_rps")
    assert list(both.figures.index) == [1, 3, 4, 5, 6]
    assert both.refused == {"tool-failed": 1}
    one = column_side(run, {"server": "nginx", "environment": "metal"}, "throughput_rps")
    found = ratio(both, one, "throughput_rps")
    assert found and found.blocks == 5


@pytest.mark.parametrize(
    ("estimator", "values", "figure", "words"),
    [
        ("median", [1, 2, 9], 2, "median of 3"),
        ("mean-of-three", [1, 2, 9, 100], 4, "mean of three"),
        ("mean-of-three", [1, 2], 1.5, "mean of 2, fewer than three"),
        ("trimmed-six", [100, 1, 2, 3, 4, 0, 77], 2.5, "six runs, best and worst dropped"),
        ("trimmed-six", [1, 2, 9], 4, "mean of 3, fewer than six"),
        ("median", [], None, "no figure"),
    ],
)
def test_estimators_of_the_sources(estimator: str, values: list[float], figure: float | None, words: str) -> None:
    assert estimate(values, estimator) == (figure, words)


def test_a_published_tie_is_not_refuted_by_a_tie() -> None:
    """Published 0.1% apart and equal here within 2%: neither direction is shown."""
    found = Ratio(1.0, Interval(0.99, 1.01), 6)
    assert decide(found, 14719 / 14701, None, 0.02)[0] == UNKNOWN
    assert decide(found, 1.5, None, 0.02)[0] == NOT_HELD


def test_the_chart_has_each_ratio_that_has_figures(run: Run) -> None:
    (chart,) = draw(run, {})
    told = chart.alt.split("; ")
    assert len(told) == 6
    assert told[0].startswith("1, nginx is faster: 3 published, 1.06")
    assert told[4].startswith("9, without published figures: 1.06")
    assert chart.caption.endswith("Without a diamond: the source prints no figures.")
