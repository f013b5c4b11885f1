"""The rules and tables of the shoot-out, on recordings that are made up to have a known answer."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.shootout import hyperfine, pilot, programs, rules, table
from benchmarks.shootout.plan import COUNTS, EXTRA, LENGTHS, SIDES_OF_TRUTH, Kind, Plan, read_plan
from benchmarks.shootout.record import Recording, load, stretches
from vmtoll.analysis.recorded import Answer
from vmtoll.model.errors import UserError
from vmtoll.model.verdict import Estimate

PLAN = Plan(1, 7_000_000, 30.0, 40, 1, 4000, 50, 50, dict(COUNTS))


def recording(kind: Kind, percent: float, noise: float = 0.005, seed: int = 1, blocks: int = 40) -> Recording:
    """A page whose side B takes this many percent longer, in the order A, B, B, A."""
    rng = np.random.default_rng(seed)
    sides = "ABBA" * (blocks // 2)
    longer = np.array([percent / 100 if side == "B" else 0.0 for side in sides])
    values = 300_000 * (1 + longer) * np.exp(rng.normal(0, noise, len(sides)))
    return Recording(seed, kind, 0.0, 4.0, 1.0, sides, {"time": [round(value) for value in values]})


def test_the_plan_has_all_pages_in_an_order_that_its_seed_decides() -> None:
    pages = PLAN.pages()
    assert Counter(page.kind for page in pages) == COUNTS
    assert pages == PLAN.pages() != replace(PLAN, seed=2).pages()
    first = pages[: len(pages) // 4]
    assert {page.kind for page in first} == set(COUNTS)
    assert len({page.seed for page in pages}) == len(pages)


def test_a_plan_is_read_as_it_was_written_and_never_written_twice(tmp_path: Path) -> None:
    PLAN.write(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == PLAN
    assert read_plan(tmp_path / "plan.json").digest == PLAN.digest
    with pytest.raises(UserError, match="does not change"):
        PLAN.write(tmp_path / "plan.json")


def test_loads_of_a_page_differ_in_one_digit() -> None:
    commands = [load(Path("/x"), PLAN, extra) for extra in (0, 1, 2, 5)]
    assert len({len(command) for command in commands}) == 1
    assert all(sum(a != b for a, b in zip(commands[0], command, strict=True)) == 1 for command in commands[1:])


def test_the_disturbances_of_a_page_are_always_the_same_and_cover_it() -> None:
    assert stretches(7, 10.0) == stretches(7, 10.0) != stretches(8, 10.0)
    assert sum(stretches(7, 10.0)) >= 10_000_000
    busy = [sum(times[1::2]) / sum(times) for times in (stretches(seed, 60.0) for seed in range(50))]
    assert 0.1 < sum(busy) / len(busy) < 0.4


@pytest.mark.parametrize("rule", [rule for rule in rules.RULES if not rule.source.startswith("program")])
def test_a_rule_finds_a_large_difference_and_its_direction(rule: rules.Rule) -> None:
    pages = [recording(Kind.FIVE, 40.0), recording(Kind.EQUAL, 0.0, noise=0.001), recording(Kind.FIVE, -40.0)]
    opinions = rule.opinions([sample for page in pages for sample in rules.samples_of(page)])
    assert opinions is not None
    assert [opinion.strength > rule.default for opinion in opinions] == [True, False, True]
    assert [opinions[0].sign, opinions[2].sign] == [1, -1]


def test_the_engine_finds_5_percent_and_shows_equality() -> None:
    assert rules.judged(recording(Kind.FIVE, 5.0)).answers == [Answer.WORSE]
    assert rules.judged(recording(Kind.FIVE, -5.0)).answers == [Answer.BETTER]
    assert rules.judged(recording(Kind.EQUAL, 0.0)).answers == [Answer.EQUAL]


def test_equal_and_different_for_sure_counts_as_different() -> None:
    page = rules.judged(recording(Kind.ONE, 1.0))
    assert (page.comparisons[0].answer, page.also_different, page.answers) == (Answer.EQUAL, True, [Answer.WORSE])


def test_2_percent_are_not_equal_by_the_margin_of_their_pages() -> None:
    assert rules.judged(recording(Kind.TWO, 1.2, noise=0.002)).comparisons[0].answer is Answer.WORSE
    assert rules.judged(recording(Kind.EQUAL, 1.2, noise=0.002)).comparisons[0].answer is Answer.EQUAL


def test_halves_are_not_judged_by_the_engine() -> None:
    page = recording(Kind.EQUAL, 0.0)
    assert rules.judged(page, halves=True).answers == [Answer.NOT_JUDGED]
    (sample,) = rules.samples_of(page, halves=True)
    times = [value * 1e-7 for value in page.values["time"]]
    assert [*sample.a.tolist(), *sample.b.tolist()] == pytest.approx(times)


def test_the_fitted_threshold_is_exceeded_by_5_percent_at_most() -> None:
    rule = rules.RULES[0]
    strengths = [-number / 100 for number in range(1, 101)]
    threshold = rule.at_5_percent(strengths)
    assert sum(strength > threshold for strength in strengths) == 5
    ties = [-0.01] * 6 + [-0.5] * 94
    assert sum(strength > rule.at_5_percent(ties) for strength in ties) == 0
    by_size = next(rule for rule in rules.RULES if not rule.is_p)
    assert by_size.at_5_percent([0.0] * 100) == 0.0


def test_counts_of_wrong_and_detected_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "RULES", [rule for rule in rules.RULES if rule.name == "Welch's t"])
    pages = [recording(Kind.EQUAL, 30.0), *(recording(Kind.EQUAL, 0.0, seed=seed) for seed in range(2, 6))]
    pages += [recording(Kind.FIVE, 5.0), recording(Kind.FIVE, -5.0), recording(Kind.FIVE, 0.0, noise=0.002)]
    pages += [truth_page(seed) for seed in (1, 2)]
    rows = {(row.rule, row.at, row.data, row.kind): row for row in table.counts(pages, say=lambda _: None)}
    engine = rows["vmtoll judge", "5% for all rows of a page", "blocks", Kind.EQUAL]
    assert (engine.pages, engine.worse, engine.wrong) == (5, 1, 1)
    five = rows["vmtoll judge", "5% for all rows of a page", "blocks", Kind.FIVE]
    assert (five.worse, five.better, five.equal, five.wrong, five.detected) == (1, 1, 1, 2, 1)
    welch = rows["Welch's t", "p < 0.05", "blocks", Kind.FIVE]
    assert (welch.detected, welch.wrong, welch.undecided) == (1, 1, 1)


def truth_page(seed: int) -> Recording:
    rng = np.random.default_rng(seed)
    sides = "Aa125521aA" * 10
    values = [
        round(300_000 * (1 + SIDES_OF_TRUTH[side] / 100) * math.exp(rng.normal(0, 0.002))) for side in sides
    ]  # fmt: skip
    return Recording(100 + seed, Kind.TRUTH, 0.0, 4.0, 1.0, sides, {"time": values})


def test_the_truth_is_known_within_its_interval_and_ignores_a_disturbed_block() -> None:
    pages = [truth_page(seed) for seed in range(1, 6)]
    values = pages[0].values["time"]
    values[3] *= 3
    known = table.truths(pages)
    for extra in EXTRA.values():
        low, high = known[str(extra)].ends or (math.nan, math.nan)
        assert low < 1 + extra / 100 < high
        assert high / low < 1.004
    low, high = known["a"].ends or (math.nan, math.nan)
    assert low < 1 < high


def test_a_rule_for_5_percent_is_not_called_equal_without_a_known_truth() -> None:
    pages = [recording(Kind.FIVE, 0.0, noise=0.002)]
    answers = [rules.judged(page) for page in pages]
    known = {"5": Estimate(1.01, 1.009, 1.011)}
    (unknown,) = table._of_engine(pages, answers, "blocks", "5%", {})
    (within,) = table._of_engine(pages, answers, "blocks", "5%", known)
    assert (unknown.wrong, within.wrong) == (1, 0)


def test_the_pilot_takes_the_shortest_page_of_those_that_find_2_percent_most_often() -> None:
    pages = [
        replace(recording(kind, 0.0, noise, seed, blocks=80), page=seed, seconds=80 * length / 10)
        for (kind, length), noise in zip(LENGTHS.items(), (0.2, 0.01, 0.005), strict=True) for seed in range(4)
    ]  # fmt: skip
    rows = pilot.measured(replace(PLAN, blocks=80), pages)
    chosen = pilot.chosen_row(rows)
    assert (chosen["trial_ms"], chosen["blocks"]) == (20.0, 40)
    assert rows[0]["detected"] == 0
    plan = pilot.planned(replace(PLAN, blocks=80), rows)
    assert (plan.trial_ms, plan.blocks, plan.counts) == (20.0, 40, COUNTS)
    assert plan.iterations == 4_667_000
    assert plan.rules["Otava"]["default"] == "p < 0.001"


# What benchstat v0.0.0-20260908200009-22c9c6c9d4da printed here.
BENCHSTAT = """,a,,b,,,
,sec/op,CI,sec/op,CI,vs base,P
P0,0.03000439515,0%,0.030029852750000002,0%,+0.08%,p=0.218 n=10
P1,0.03000935885,0%,0.030612798200000003,0%,+2.01%,p=0.000 n=10
geomean,0.030006876897363876,,0.03031992450867028,,+1.04%,
"""


def test_benchstats_answers_are_read() -> None:
    assert programs.read_benchstat(BENCHSTAT, 2) == [(-0.218, 1), (-0.0, 1)]


# What hyperfine 1.15.0 printed here, with `--style basic`.
HYPERFINE = """Benchmark 1: A
  Time (mean ± σ):       8.3 ms ±   6.7 ms    [User: 2.1 ms, System: 0.3 ms]
  Range (min … max):     2.3 ms …  18.7 ms    10 runs
\x20
Summary
  'B' ran
    1.66 ± 1.63 times faster than 'A'
"""


def test_hyperfines_summary_is_read() -> None:
    answers = hyperfine.read_hyperfine(HYPERFINE, [[1.0, 1.1, 1.2], [2.0, 2.1, 2.2]])
    assert (answers["faster"], answers["ratio"], answers["deviation"]) == ("B", 1.66, 1.63)
    assert answers["p"] < 0.05
    with pytest.raises(UserError, match="no summary"):
        hyperfine.read_hyperfine("Benchmark 1: A\n", [[1.0, 1.1], [1.0, 1.1]])


def test_the_table_of_hyperfine_counts_pairs() -> None:
    row = {"extra": 5, "exit": 1, "answers": {"time": "worse", "CPU time": "worse"}, "faster": "A", "ratio": 1.05,
           "deviation": 0.1, "p": 0.001}  # fmt: skip
    lines = hyperfine.table([row, row | {"faster": "B", "ratio": 1.2}]).splitlines()
    assert lines[-1] == "| 5% | 2 | 2 | 0 | 0 | 0 | 2 | 1 | 1 | 1 | 1 | 1 |"
