"""Percentiles of fewer requests, and how well a percentile is known, against brute force and printed ranks."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from tests.support.records import BASELINE
from tests.support.synthetic_run import CONTROL, Truth, make_run, rate_load
from vmtoll.analysis.run import load_run
from vmtoll.analysis.thinning import expected_percentile, latencies, rank_interval
from vmtoll.analysis.verdict import analyse
from vmtoll.model.finding import Role
from vmtoll.model.trial import Arm
from vmtoll.publish.bundle import publish
from vmtoll.statistics.student import mean_of


def test_the_expected_percentile_is_the_mean_over_all_choices() -> None:
    """Of the values 1, 2, 2, 5, 9 every choice of three, by its largest (p90 of three is the third)."""
    choices = [math.log(max(choice)) for choice in itertools.combinations([1, 2, 2, 5, 9], 3)]
    ours = expected_percentile(np.array([1.0, 2, 5, 9]), np.array([1.0, 3, 4, 5]), 3, 0.9)
    assert math.log(ours) == pytest.approx(np.mean(choices))
    assert expected_percentile(np.array([1.0, 2, 5, 9]), np.array([1.0, 3, 4, 5]), 99, 0.5) == pytest.approx(2)


def test_percentiles_of_equally_many_requests_are_compared_fairly() -> None:
    """Equal lognormal sides of 8,000 and 400 requests: p99 as they are differ by 4%, and not once one is thinned."""
    rng = np.random.default_rng(3)
    raw, thin = [], []
    for _ in range(300):
        many, few = (np.sort(rng.lognormal(7, 1, n)) for n in (8000, 400))
        p99 = {n: math.log(side[math.ceil(0.99 * n) - 1]) for n, side in ((8000, many), (400, few))}
        raw.append(p99[400] - p99[8000])
        thin.append(p99[400] - math.log(expected_percentile(many, np.arange(1.0, 8001), 400, 0.99)))
    biased, fair = mean_of(raw).t, mean_of(thin).t
    assert biased is not None and fair is not None
    assert biased.high < -0.02
    assert fair.low < 0 < fair.high


@pytest.mark.parametrize(("n", "ranks"), [(1000, (983, 997)), (368, (360, 368)), (367, None)])
def test_the_ranks_of_an_interval(n: int, ranks: tuple[int, int] | None) -> None:
    """B⁻¹(0.025; n, 0.99) and B⁻¹(0.975; n, 0.99) + 1; the values are their own ranks."""
    interval = rank_interval(np.arange(1.0, n + 1), np.arange(1.0, n + 1), 0.99)
    assert interval == ranks


def test_the_interval_by_ranks_covers_the_percentile() -> None:
    rng = np.random.default_rng(4)
    true = math.exp(2.326348)
    held = []
    for _ in range(2000):
        interval = rank_interval(np.sort(rng.lognormal(0, 1, 1000)), np.arange(1.0, 1001), 0.99)
        assert interval is not None
        held.append(interval[0] <= true <= interval[1])
    assert np.mean(held) >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 2000)


def test_a_bundle_thins_as_its_run_does(tmp_path: Path) -> None:
    """The guest's trials have a quarter of metal's requests; both have histograms."""

    def change(row: dict) -> list[dict]:  # type: ignore[type-arg]
        n = 500 if row["arm"] == Arm("kvm-default") else 2000
        return [row | dict.fromkeys(("requests", "transactions", "successful"), n)]

    folder = make_run(tmp_path, Truth(loads=(rate_load(1000),), histograms=True, change=change))
    run = load_run(folder)
    (scenario,) = run.scenarios
    trial = run.trials_of(scenario, BASELINE)[0]
    bundle = publish(folder, tmp_path / "bundle", ["A. Author"])
    known = latencies(folder, trial, Role.PRIMARY)
    assert known is not None and known[1].sum() == 2000
    assert latencies(folder, trial, Role.CROSSCHECK) is None
    published = load_run(bundle)
    logged, control = (run.latencies(run.trials_of(scenario, arm)[0], Role.PRIMARY) for arm in (BASELINE, CONTROL))
    again = published.latencies(published.trials_of(scenario, BASELINE)[0], Role.PRIMARY)
    assert logged is not None and control is not None and again is not None
    assert [each.tolist() for each in logged] == [each.tolist() for each in again]
    assert analyse(run).comparisons == analyse(published).comparisons
    tail = analyse(run).comparisons[0].verdicts["tail"]
    assert tail.blocks == 6
    thinner, of_control = (expected_percentile(*each, 500, 0.99) for each in (logged, control))
    guest = run.trials_of(scenario, Arm("kvm-default"))[0]
    (effect,) = [effect for effect in tail.effects if effect.block == trial.block]
    assert guest.primary and guest.primary.response_time.p99_us and effect.mid
    assert effect.mid == pytest.approx(guest.primary.response_time.p99_us / math.sqrt(thinner * of_control))
