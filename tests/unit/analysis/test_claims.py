"""Every outcome of a claim and every reason why one is inconclusive, on runs whose truth is known."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.support.published_run import AB, claim, make_published
from tests.support.synthetic_run import Row, Truth, failed_trial, share_load, with_findings
from vmtoll.analysis.claims import Expected, count_outcomes, decide, estimate, judge_claims, measure
from vmtoll.analysis.run import Run
from vmtoll.analysis.selection import SWEEPS, column_of, figures_of_side, select_trials
from vmtoll.model.claim import ClaimResult, EstimatorUsed, Level, Outcome, ReasonCode
from vmtoll.model.experiment import ClaimSide, Estimator
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.trial import Accelerator, Arm, TrialRecord
from vmtoll.model.verdict import Estimate, Region
from vmtoll.statistics.series import INDEPENDENT

CONFIRMED, REFUTED, INCONCLUSIVE = Outcome
METAL = Arm("metal")
# On metal lighttpd answers 7,500 requests per second and nginx 8,000: a ratio of 1.067.
SERVERS = {"nginx": 0.5, "lighttpd": 0.5}
TRUE_RATIO = 8000 / 7500


def truth(**keys: Any) -> Truth:
    return Truth(SERVERS, drift=0.0, aa=False, **keys)


def judge_one(parent: Path, one: dict[str, Any], made_by: Truth | None = None, **keys: Any) -> ClaimResult:
    (result,) = judge_claims(make_published(parent, made_by or truth(), [one], **keys))
    return result


def codes(result: ClaimResult) -> list[ReasonCode]:
    return [reason.code for reason in result.reasons]


def on_metal(run: Run, server: str) -> list[TrialRecord]:
    return [trial for trial in run.trials if (trial.scenario.server, trial.arm) == (server, METAL)]


def throughputs(run: Run, server: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([trial.primary.throughput_rps for trial in on_metal(run, server) if trial.primary], dtype=float)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    claims = [
        claim("nginx is faster", published=[3000.0, 1000.0]),
        claim("lighttpd is faster", published=[1000.0, 3000.0]),
        claim("as fast as each other", published=[100.0, 101.0], within_pct=20.0),
        claim("as fast to a percent", published=[100.0, 101.0], within_pct=1.0),
        claim("at least 5,000", at_least=5000.0, published=[6000.0]),
        claim("at least 9,000", at_least=9000.0, published=[9500.0]),
        claim("at most 9,000", at_most=9000.0, published=[8500.0]),
        claim("at most 5,000", at_most=5000.0, published=[4000.0]),
        claim("without published figures", published=[]),
        claim("metal beats the guest", over={"environment": "kvm-default"}, published=[400.0, 145.0]),
    ]
    return make_published(tmp_path_factory.mktemp("claims"), truth(), claims)


def test_each_kind_of_claim_can_be_confirmed_and_refuted(run: Run) -> None:
    results = judge_claims(run)
    assert {result.says: result.outcome for result in results} == {
        "nginx is faster": CONFIRMED,
        "lighttpd is faster": REFUTED,
        "as fast as each other": CONFIRMED,
        "as fast to a percent": REFUTED,
        "at least 5,000": CONFIRMED,
        "at least 9,000": REFUTED,
        "at most 9,000": CONFIRMED,
        "at most 5,000": REFUTED,
        "without published figures": CONFIRMED,
        "metal beats the guest": CONFIRMED,
    }
    assert count_outcomes(results) == {CONFIRMED: 6, REFUTED: 4, INCONCLUSIVE: 0}


def test_the_interval_is_that_of_a_paired_t_test(run: Run) -> None:
    nginx, lighttpd = (throughputs(run, server) for server in ("nginx", "lighttpd"))
    low, high = stats.ttest_rel(np.log(nginx), np.log(lighttpd)).confidence_interval()
    first, *_ = results = judge_claims(run, INDEPENDENT)
    assert first.ratio is not None and first.ratio.low is not None and first.ratio.high is not None
    assert first.ratio.value == pytest.approx(math.exp(np.log(nginx / lighttpd).mean()))
    assert (first.ratio.low, first.ratio.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert first.ratio.low < TRUE_RATIO < first.ratio.high
    assert (first.blocks, first.region, codes(first)) == (6, Region.ABOVE, [ReasonCode.INTERVAL])
    (reason,) = results[4].reasons
    low, high = stats.t.interval(0.95, 5, nginx.mean(), stats.sem(nginx))
    assert reason.code is ReasonCode.LEVEL
    assert reason.values == pytest.approx({"low": low, "high": high, "limit": 5000})


def test_figures_of_both_sides_and_both_ratios(run: Run) -> None:
    result, *_ = judge_claims(run)
    levels = tuple(
        Level(float(np.median(throughputs(run, server))), EstimatorUsed.MEDIAN, 6) for server in ("nginx", "lighttpd")
    )
    assert (result.levels, result.published, result.published_ratio) == (levels, (3000.0, 1000.0), 3.0)
    assert [side.server for side in result.sides] == ["nginx", "lighttpd"]
    assert result.unit == "1/s"


def test_an_emulated_guest_decides_no_claim_about_kvm(tmp_path: Path) -> None:
    one = claim(over={"environment": "kvm-default"}, published=[400.0, 145.0])
    result = judge_one(tmp_path, one, truth(accelerator=Accelerator.TCG))
    assert (result.outcome, codes(result)) == (INCONCLUSIVE, [ReasonCode.EMULATED])
    assert result.levels[1].value is not None


def test_emulated_hardware_decides_no_claim_about_cost(tmp_path: Path) -> None:
    one = claim(over={"environment": "kvm-default"}, published=[400.0, 145.0])
    result = judge_one(tmp_path, one, truth(hardware=Hardware.EMULATED))
    assert (result.outcome, codes(result)) == (INCONCLUSIVE, [ReasonCode.EMULATED_HARDWARE])
    nested = judge_one(tmp_path / "nested", one, truth(hardware=Hardware.NESTED))
    assert ReasonCode.EMULATED_HARDWARE not in codes(nested)


def test_a_server_without_source(tmp_path: Path) -> None:
    meta = {"skipped": [{"server": "boa", "why": "sources.yml names none"}]}
    alone = claim(over={"server": "boa"}, published=[2.0, 1.0])
    among = claim(over={"server": ["boa", "lighttpd"]}, published=[2.0, 1.0])
    first, second = judge_claims(make_published(tmp_path, truth(), [alone, among], meta=meta))
    assert (first.outcome, codes(first)) == (INCONCLUSIVE, [ReasonCode.SOURCE_NOT_AT_HAND])
    assert (second.outcome, codes(second)) == (CONFIRMED, [ReasonCode.INTERVAL, ReasonCode.WITHOUT_SERVERS])
    assert first.reasons[-1].names == second.reasons[-1].names == ("boa",)


def test_a_server_that_skipped_a_workload_is_missing_from_claims_about_it_alone(tmp_path: Path) -> None:
    among = claim(over={"server": ["boa", "lighttpd"]}, published=[2.0, 1.0])
    of = {"of": among["of"]["workload"], "another": "tls-resumed"}
    outcomes = {}
    for name, workload in of.items():
        meta = {"skipped": [{"server": "boa", "workload": workload, "why": "does not resume TLS sessions"}]}
        outcomes[name] = codes(judge_one(tmp_path / name, among, truth(), meta=meta))
    assert ReasonCode.WITHOUT_SERVERS in outcomes["of"] and ReasonCode.WITHOUT_SERVERS not in outcomes["another"]


def test_claims_that_were_not_measured(tmp_path: Path) -> None:
    first, second = claim(over={"server": "caddy"}), claim(of={"workload": "page-1m"}, over={"server": "lighttpd"})
    results = judge_claims(make_published(tmp_path, truth(), [first, second]))
    named = [[(reason.code, reason.names) for reason in result.reasons] for result in results]
    assert named == [
        [(ReasonCode.NOT_MEASURED, ("caddy",))],
        [(ReasonCode.NOT_MEASURED, ("page-1m",))] * 2,
    ]


@pytest.mark.parametrize("blocks", [1, 2])
def test_too_few_blocks(tmp_path: Path, blocks: int) -> None:
    for name, keys in (("ratio", {"published": [2.0, 1.0]}), ("level", {"at_least": 5.0, "published": [9.0]})):
        result = judge_one(tmp_path / name, claim(**keys), truth(blocks=blocks))
        (reason,) = result.reasons
        assert (result.outcome, reason.code) == (INCONCLUSIVE, ReasonCode.FEW_BLOCKS)
        assert reason.values == {"blocks": blocks, "needed": 3}


def test_an_interval_that_reaches_across(tmp_path: Path) -> None:
    result = judge_one(tmp_path, claim(published=[2.0, 1.0]), truth(noise=0.3, seed=3))
    assert (result.outcome, result.region) == (INCONCLUSIVE, Region.ACROSS)
    assert result.reasons[0].values == {"limit": 1.0}


def test_equal_sides_refute_a_difference(tmp_path: Path) -> None:
    """Every trial of both servers has the very same figure."""
    made_by = truth(change=lambda row: [row | {"throughput_rps": 100.0}])
    result = judge_one(tmp_path, claim(published=[2.0, 1.0]), made_by)
    assert (result.outcome, result.region) == (REFUTED, Region.WITHIN)
    assert result.reasons[0].values == {"limit": 1.02}


def limited(row: Row, server: str, code: Code = Code.CLIENT_SATURATED, role: Role | None = Role.PRIMARY) -> list[Row]:
    return [with_findings(row, Finding(code, role=role)) if server in (row["server"], "") else row]


@pytest.mark.parametrize(
    ("server", "published", "outcome"),
    [
        ("nginx", [2.0, 1.0], CONFIRMED),  # the faster side could be faster still
        ("lighttpd", [2.0, 1.0], INCONCLUSIVE),  # the slower side might be the faster one
        ("lighttpd", [1.0, 2.0], INCONCLUSIVE),
        ("nginx", [1.0, 2.0], REFUTED),
    ],
)
def test_a_bound_decides_only_where_more_changes_nothing(
    tmp_path: Path, server: str, published: list[float], outcome: Outcome
) -> None:
    result = judge_one(tmp_path, claim(published=published), truth(change=lambda row: limited(row, server)))
    assert result.outcome is outcome
    assert (result.region is Region.ACROSS) == (outcome is INCONCLUSIVE)
    assert result.limited, "in every block"
    reason = result.reasons[-1]
    assert (reason.code, reason.values, reason.codes) == (
        ReasonCode.LIMITED, {"trials": 6, "used": 12}, (Code.CLIENT_SATURATED,),
    )  # fmt: skip


def test_users_that_pause_are_part_of_the_sources_tool(tmp_path: Path) -> None:
    """siege paused between requests for the source as well: too few users in flight bound a verdict, and no claim."""
    made_by = truth(change=lambda row: limited(row, "lighttpd", Code.LITTLES_LAW))
    result = judge_one(tmp_path, claim(published=[2.0, 1.0]), made_by)
    assert result.outcome is CONFIRMED
    assert ReasonCode.LIMITED not in codes(result)


def test_a_bound_of_a_time_points_the_other_way(tmp_path: Path) -> None:
    """A client that waits for itself makes times too long: lighttpd's are an upper bound, and are longer anyway."""
    one = claim(metric="service_time_p50_us", published=[1.0, 2.0])
    for server, outcome in (("lighttpd", INCONCLUSIVE), ("nginx", CONFIRMED)):

        def change(row: Row, server: str = server) -> list[Row]:
            return limited(row, server)

        assert judge_one(tmp_path / server, one, truth(change=change)).outcome is outcome


def test_equality_needs_sides_that_nothing_limits(tmp_path: Path) -> None:
    made_by = truth(change=lambda row: limited(row, "", Code.LINK_BOUND, None))
    one = claim(published=[100.0, 101.0], within_pct=20.0)
    assert judge_one(tmp_path / "free", one, made_by).outcome is INCONCLUSIVE
    result = judge_one(tmp_path / "set", one, made_by, link="100mbit")
    assert result.outcome is CONFIRMED
    reason = result.reasons[-1]
    assert (reason.code, reason.values, reason.names) == (ReasonCode.FULL_LINK, {"trials": 12}, ("100mbit",))


@pytest.mark.parametrize(
    ("keys", "outcome"),
    [
        ({"at_least": 5000.0}, CONFIRMED),
        ({"at_least": 9000.0}, INCONCLUSIVE),
        ({"at_most": 9000.0}, INCONCLUSIVE),
        ({"at_most": 5000.0}, REFUTED),
    ],
)
def test_a_limited_level_proves_only_more(tmp_path: Path, keys: dict[str, Any], outcome: Outcome) -> None:
    made_by = truth(change=lambda row: limited(row, ""))
    assert judge_one(tmp_path, claim(**keys), made_by).outcome is outcome


def test_refused_trials_are_named(tmp_path: Path) -> None:
    made_by = truth(change=lambda row: [failed_trial(row, Code.WRONG_BODY) if row["server"] == "nginx" else row])
    result = judge_one(tmp_path, claim(published=[2.0, 1.0]), made_by)
    (reason,) = result.reasons
    assert (result.outcome, reason.code, reason.values) == (INCONCLUSIVE, ReasonCode.NO_FIGURE, {"side": 0})
    assert reason.codes == (Code.WRONG_BODY,)


def test_failures_are_known_from_the_trials_refused_for_them(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        lost = {"availability_pct": 98.5 + 0.01 * row["block"], "findings": (Finding(Code.FAILED_REQUESTS),)}
        return [row | lost if row["server"] == "lighttpd" else row]

    one = claim(metric="availability_pct", published=[100.0, 98.57])
    result = judge_one(tmp_path / "kept", one, truth(change=change))
    assert result.outcome is CONFIRMED
    assert [level.value for level in result.levels] == [100.0, pytest.approx(98.535)]
    left = judge_one(tmp_path / "left", claim(published=[2.0, 1.0]), truth(change=change))
    assert (left.outcome, codes(left)) == (INCONCLUSIVE, [ReasonCode.NO_FIGURE])


def test_a_claim_about_more_cores_on_one(tmp_path: Path) -> None:
    workloads: dict[str, dict[str, Any]] = {"one": {"cores": 1}, "all": {}}
    one = claim(of={"workload": "all"}, over={"workload": "one"}, published=[4.0, 1.0])
    same = claim(of={"workload": "all"}, published=[2.0, 1.0])
    single = claim(of={"workload": "one"}, published=[2.0, 1.0])
    few, many = (
        {name: {"server_cores": n} for name, n in cores.items()}
        for cores in ({"one": 1, "all": 1}, {"one": 1, "all": 4})
    )
    claims = [one, same, single]
    results = judge_claims(make_published(tmp_path / "few", truth(), claims, workloads=workloads, per_workload=few))
    assert [result.outcome for result in results] == [INCONCLUSIVE, INCONCLUSIVE, CONFIRMED]
    (reason,) = results[0].reasons
    assert (reason.code, reason.values) == (ReasonCode.TOO_FEW_CORES, {"about": 1, "had": 1})
    results = judge_claims(make_published(tmp_path / "many", truth(), claims, workloads=workloads, per_workload=many))
    assert [result.outcome for result in results] == [REFUTED, CONFIRMED, CONFIRMED]
    unknown = judge_claims(make_published(tmp_path / "old", truth(), [single], workloads=workloads))
    assert unknown[0].outcome is CONFIRMED, "a run may not say how many cores there were"


def test_messages_lost_in_one_cell_are_not_hidden_by_the_others(tmp_path: Path) -> None:
    """Counted in trials that were refused for them, and under emulation too."""
    lost: Row = {"messages_lost": 3, "findings": (Finding(Code.LOST_MAIL, role=Role.PRIMARY),)}

    def change(row: Row) -> list[Row]:
        where = (row["server"], row["block"], row["arm"].environment)
        return [row | (lost if where == ("nginx", 2, "kvm-default") else {"messages_lost": 0})]

    def judged(name: str, server: list[str]) -> ClaimResult:
        of = {"server": server, "environment": ["metal", "kvm-default"]}
        one = claim(metric="messages_lost", of=of, at_most=0.0)
        return judge_one(tmp_path / name, one, truth(change=change, accelerator=Accelerator.TCG))

    assert judged("one", ["lighttpd"]).outcome is CONFIRMED
    assert judged("both", ["lighttpd", "nginx"]).outcome is REFUTED
    reason = judged("again", ["nginx"]).reasons[0]
    assert (reason.code, reason.values) == (ReasonCode.FAILURES_IN_A_BLOCK, {"most": 3, "blocks": 6})


def test_cpu_seconds_of_unlike_counts_are_not_compared(tmp_path: Path) -> None:
    made_by = truth(change=lambda row: [row | {"transactions": 5000} if row["server"] == "nginx" else row])
    result = judge_one(tmp_path, claim(metric="server_cpu_user_s", published=[2.0, 1.0]), made_by)
    assert (result.outcome, codes(result)) == (INCONCLUSIVE, [ReasonCode.DIFFERENT_REQUESTS])


def test_zero_has_no_ratio(tmp_path: Path) -> None:
    result = judge_one(tmp_path, claim(metric="failed", published=[1077.0, 1.0]))
    assert (result.outcome, codes(result)) == (INCONCLUSIVE, [ReasonCode.ZERO_HAS_NO_RATIO])


def test_a_claim_may_name_the_users(tmp_path: Path) -> None:
    """The same workload with 10 users and with 100, the latter twice as fast."""

    def change(row: Row) -> list[Row]:
        return [row | {"throughput_rps": row["throughput_rps"] * (2 if row["users"] == 100 else 1)}]

    claims = [
        claim("more with more users", of={"users": 100}, over={"users": 10}, published=[2.0, 1.0]),
        claim("as much with ten", of={"users": [10]}, at_most=9000.0),
        claim("with all of them between the two", at_least=9000.0),
    ]
    workloads = {AB: {"users": [10, 100]}}
    results = judge_claims(make_published(tmp_path, truth(change=change), claims, workloads=workloads))
    assert [result.outcome for result in results] == [CONFIRMED] * 3
    assert results[0].ratio is not None and results[0].ratio.value == pytest.approx(2)


def test_a_rate_sweep_is_judged_by_its_peak(tmp_path: Path) -> None:
    made_by = truth(loads=(share_load(0.3), share_load(0.7), share_load(1.1)))
    one = claim(metric="peak_goodput_rps", of={"workload": "ramp"}, published=[10000.0, 6000.0])
    ramp = {
        "kind": "ramp", "tool": "httperf", "shares": [0.3, 0.7, 1.1], "deadline_ms": 50.0,
        "capacity": {"tool": "h2load", "users": 10},
    }  # fmt: skip
    run = make_published(tmp_path, made_by, [one], workloads={"ramp": ramp})
    (result,) = judge_claims(run)
    blocks: dict[int, list[TrialRecord]] = {}
    for trial in on_metal(run, "nginx"):
        blocks.setdefault(trial.block, []).append(trial)
    peaks = [max(t.primary.goodput_rps or 0 for t in steps if t.primary) for steps in blocks.values()]
    assert result.levels[0].value == pytest.approx(np.median(peaks))
    assert result.outcome is CONFIRMED
    (middle,) = [trial.offered.offered_rps for trial in blocks[1] if trial.scenario.load == share_load(0.7)]
    steps = {t.scenario.load: (t.offered.offered_rps or 0, t.primary.goodput_rps or 0) for t in blocks[1] if t.primary}
    assert SWEEPS["goodput_knee_rps"](list(steps.values())) == middle
    assert SWEEPS["goodput_knee_rps"]([steps[share_load(1.1)]]) == 0


def test_a_block_without_one_of_its_cells_is_left_out(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [failed_trial(row, Code.TOOL_FAILED) if (row["server"], row["block"]) == ("nginx", 2) else row]

    run = make_published(tmp_path, truth(change=change), [])
    both, nginx = (
        figures_of_side(
            run,
            select_trials(run, ClaimSide(server=servers, environment="metal", workload=AB)),
            "throughput_rps",
            column_of("throughput_rps"),
        )
        for servers in (["nginx", "lighttpd"], "nginx")
    )
    assert list(both.figures) == [1, 3, 4, 5, 6]
    assert both.refused == {Code.TOOL_FAILED}
    seen = measure(run, (both, nginx), INDEPENDENT)
    assert seen is not None and seen.blocks == 5


def test_a_lost_trial_counts_against_its_own_side(tmp_path: Path) -> None:
    """nginx is 6.7% faster, and lost one trial of six: it may be the slower one. What lighttpd lost makes it slower."""
    for server, outcome in (("nginx", INCONCLUSIVE), ("lighttpd", CONFIRMED)):

        def change(row: Row, server: str = server) -> list[Row]:
            lost = (row["server"], row["block"]) == (server, 2)
            return [failed_trial(row, Code.SERVER_FAILED) if lost else row]

        assert judge_one(tmp_path / server, claim(published=[2.0, 1.0]), truth(change=change)).outcome is outcome


def test_cpu_taken_from_one_side_decides_no_claim(tmp_path: Path) -> None:
    """Others took 10% of lighttpd's CPU in every trial: a difference of 6.7% may be owed to them, one of twice not."""

    def change(row: Row) -> list[Row]:
        return [row | {"steal_pct": 10.0} if row["server"] == "lighttpd" and row["arm"] == METAL else row]

    claims = [
        claim("nginx beats lighttpd", published=[2.0, 1.0]),
        claim(
            "metal beats the guest", of={"server": "lighttpd"}, published=[2.0, 1.0],
            over={"server": "lighttpd", "environment": "kvm-default"},
        ),
    ]  # fmt: skip
    results = judge_claims(make_published(tmp_path, truth(change=change), claims))
    assert [result.outcome for result in results] == [INCONCLUSIVE, CONFIRMED]


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_the_time_of_one_users_client_counts_on_both_sides_or_on_neither(tmp_path: Path, share: float) -> None:
    """A large share of what the faster side's requests take: on one side alone it would hide the 6.7%.

    Without it the sides differ by (8000 ÷ 7500 − share) ÷ (1 − share): 13% or 33%.
    """

    def change(row: Row) -> list[Row]:
        return [row | {"client_cpu_s": share / 8000 * row["transactions"]}]

    one = claim(published=[2.0, 1.0])
    seen = judge_one(tmp_path, one, truth(change=change), workloads={AB: {"users": 1}}).ratio
    assert seen is not None and seen.low is not None and seen.high is not None
    without_client = (TRUE_RATIO - share) / (1 - share)
    assert 1 < seen.low < TRUE_RATIO and without_client < seen.high < without_client * 1.2


def test_a_mean_time_of_a_saturated_client_is_an_upper_bound(tmp_path: Path) -> None:
    one = claim(metric="response_time_mean_ms", published=[1.0, 2.0])
    for server, outcome in (("lighttpd", INCONCLUSIVE), ("nginx", CONFIRMED)):

        def change(row: Row, server: str = server) -> list[Row]:
            mean = 1.2 if row["server"] == "nginx" else 1.8
            return limited(row | {"response_time_mean_ms": mean}, server)

        assert judge_one(tmp_path / server, one, truth(change=change)).outcome is outcome


@pytest.mark.parametrize(
    ("estimator", "values", "figure", "used", "blocks"),
    [
        ("median", [1, 2, 9], 2, EstimatorUsed.MEDIAN, 3),
        ("mean-of-three", [1, 2, 9, 100], 4, EstimatorUsed.MEAN_OF_THREE, 3),
        ("mean-of-three", [1, 2], 1.5, EstimatorUsed.MEAN_FEWER_THAN_THREE, 2),
        ("trimmed-six", [100, 1, 2, 3, 4, 0, 77], 2.5, EstimatorUsed.TRIMMED_SIX, 6),
        ("trimmed-six", [1, 2, 9], 4, EstimatorUsed.MEAN_FEWER_THAN_SIX, 3),
        ("median", [], None, EstimatorUsed.NONE, 0),
    ],
)
def test_estimators_of_the_sources(
    estimator: Estimator, values: list[float], figure: float | None, used: EstimatorUsed, blocks: int
) -> None:
    assert estimate(values, estimator) == Level(figure, used, blocks)


def test_a_published_tie_is_not_refuted_by_a_tie() -> None:
    """Published 0.1% apart and equal here within 2%: neither direction is shown."""
    seen = Estimate(1.0, 0.99, 1.01)
    assert decide(seen, 6, Expected(14719 / 14701, margin=0.02)).outcome is INCONCLUSIVE
    assert decide(seen, 6, Expected(1.5, margin=0.02)).outcome is REFUTED
    closer = Estimate(1.0, 0.998, 1.002)
    assert decide(closer, 6, Expected(98.57 / 100, margin=0.02)).outcome is REFUTED, "not half of it"
    assert decide(closer, 6, Expected(100.1 / 100, margin=0.02)).outcome is INCONCLUSIVE
