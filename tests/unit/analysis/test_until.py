"""Looks at a run that goes on: what is open, what each look may spend, and how often a page is wrong by them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tests.support.synthetic_run import Truth, make_run
from vmtoll.analysis import judge as engine
from vmtoll.analysis.judge import Evidence, judge, weights_of
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.statistics import autocorrelation, holm, paired, two_modes
from vmtoll.analysis.until import compared, look_at
from vmtoll.analysis.verdict import analyse
from vmtoll.benchmarks import until as bench
from vmtoll.benchmarks.verdicts import Noise, trials
from vmtoll.model.metric import METRICS
from vmtoll.model.until import Look, Standing
from vmtoll.model.verdict import Kind, Outcome
from vmtoll.paths import PROJECT
from vmtoll.report.html import render
from vmtoll.report.words import ending_text, looks_text, sentence

PAGES = 150
UNTIL = {"half_width_pct": 2.0, "at_most_min": 60.0}
CLAIM = {
    "says": "the guest is slower", "metric": "throughput_rps",
    "of": {"server": "nginx", "environment": "metal", "workload": "siege-site"}, "over": {"environment": "kvm-default"},
}  # fmt: skip


def run_of(tmp_path: Path, truth: Truth, looks: list[Look], claims: bool = False, **recorded: object) -> Run:
    """A synthetic run that had these looks."""
    path = make_run(tmp_path, truth)
    document = json.loads((path / "run.json").read_text())
    document["experiment"] |= {"until": UNTIL, "claims": [CLAIM] if claims else []}
    document |= {"looks": [look.model_dump(mode="json") for look in looks], **recorded}
    (path / "run.json").write_text(json.dumps(document))
    return load_run(path)


def look(blocks: int, share: float) -> Look:
    return Look(blocks=blocks, measured_s=60.0 * blocks, share=share)


def test_a_comparison_spends_what_the_look_after_its_last_block_may(tmp_path: Path) -> None:
    run = run_of(tmp_path, Truth(blocks=10), [look(6, 0.2), look(10, 0.5)])
    assert [run.share_of(blocks) for blocks in ([1, 2, 6], [5], [7], range(1, 11), [11])] == [0.2, 0.2, 0.5, 0.5, 0.0]


def test_a_fixed_number_of_blocks_spends_all(tmp_path: Path) -> None:
    assert load_run(make_run(tmp_path, Truth())).share_of([6]) == 1.0


def test_the_verdicts_of_a_look_have_its_level(tmp_path: Path) -> None:
    """Two shares that differ by ten: Holm multiplies ten times as much, and the interval that decides is wider."""
    wide, narrow = (
        analyse(run_of(tmp_path / name, Truth(blocks=6), [look(6, share)])).comparisons[0].verdicts["throughput"]
        for name, share in (("a", 0.1), ("b", 1.0))
    )
    assert wide.estimate == narrow.estimate, "the 95% interval stays"
    assert wide.tests.difference == narrow.tests.difference
    assert wide.tests.difference_holm == pytest.approx(10 * (narrow.tests.difference_holm or 0))
    assert wide.confidence and narrow.confidence
    assert 1 - wide.confidence == pytest.approx((1 - narrow.confidence) / 10)
    assert wide.adjusted and narrow.adjusted and wide.adjusted.low and narrow.adjusted.low
    assert wide.adjusted.low < narrow.adjusted.low


def test_no_verdict_before_the_first_look_is_due(tmp_path: Path) -> None:
    """A report of a run that is under way, after eight blocks, of which a look has seen six."""
    run = run_of(tmp_path, Truth(blocks=8), [look(6, 0.2)], claims=True, status="running")
    analysis = analyse(run)
    kinds = {v.kind for c in analysis.comparisons for v in c.verdicts.values() if v.applies}
    assert Kind.UNDECIDED in kinds
    assert kinds.isdisjoint({Kind.FASTER, Kind.SLOWER, Kind.EQUIVALENT})
    assert analysis.claims[0].outcome is Outcome.INCONCLUSIVE
    assert sentence(analysis)


def test_a_look_lists_the_open_comparisons(tmp_path: Path) -> None:
    """Noise of 6% leaves five intervals wide; a server of a tenth of the speed is decided."""
    run = run_of(tmp_path, Truth({"nginx": 1.0, "lighttpd": 0.1}, 1.0, 1.0, blocks=6, noise=0.06), [], claims=True)
    looked = look_at(run.path, [look(6, 0.2)])
    standing = {(each.scenarios[0].server, each.metric): each.standing for each in looked if not each.claim}
    assert standing["lighttpd", "throughput"] is Standing.DECIDED
    assert standing["nginx", "throughput"] is Standing.OPEN
    claim = next(each for each in looked if each.claim)
    assert (claim.claim, claim.standing, claim.scenarios[0].server) == ("the guest is slower", Standing.OPEN, "nginx")
    widths = [each.half_width_pct for each in looked if each.standing is Standing.OPEN]
    assert all(width is not None and width > 2 for width in widths)


def test_an_interval_is_narrow_enough_without_being_decided(tmp_path: Path) -> None:
    """1.5% slower by noise of 0.8%: neither zero nor the margin of 2% is excluded at a small level."""
    truth = Truth({"nginx": 0.985}, 1.0, 1.0, blocks=6, noise=0.008, drift=0.0)
    run = run_of(tmp_path, truth, [look(6, 0.01)])
    standing = {each.metric: each.standing for each in compared(run, analyse(run))}
    assert standing["throughput"] is Standing.NARROW


def test_more_blocks_decide_a_claim(tmp_path: Path) -> None:
    """Noise of 3% and a loss of 4%: open after six blocks, confirmed after 36."""
    truth = Truth({"nginx": 0.96}, blocks=36, noise=0.03, seed=4)
    few = Truth(**{**vars(truth), "blocks": 6})
    first = run_of(tmp_path / "few", few, [look(6, 0.1)], claims=True)
    last = run_of(tmp_path / "many", truth, [look(6, 0.1), look(36, 0.9)], claims=True)
    claims = [next(each for each in compared(run, analyse(run)) if each.claim) for run in (first, last)]
    assert [claim.standing for claim in claims] == [Standing.OPEN, Standing.DECIDED]
    assert analyse(last).claims[0].outcome is Outcome.CONFIRMED


def test_the_report_states_first_how_the_run_ended(tmp_path: Path) -> None:
    found = look(6, 0.6).model_copy(update={"decided": 4, "narrow": 1})
    run = run_of(tmp_path, Truth(), [found], stopped="narrow")
    text = (
        "Stopped after 6 blocks and 6 minutes, because every comparison that blocks decide is decided or "
        "known within ±2%. Comparisons: 4 decided, 1 narrow enough."
    )
    assert ending_text(run.manifest) == text
    assert looks_text(run.manifest) == "after 6 blocks (60% of the 5%)"
    page = render(run, analyse(run))
    assert page.index(text) < page.index("</header>")
    fixed = load_run(make_run(tmp_path / "fixed", Truth()))
    assert ending_text(fixed.manifest) == ""


def test_a_share_divides_the_p_before_holm_orders_it() -> None:
    adjusted = holm([0.004, 0.003], shares=[1.0, 0.25])
    assert [(each.p, each.holm, each.step) for each in adjusted if each] == [
        (0.004, pytest.approx(0.008), 2.0),
        (0.003, pytest.approx(0.012), 4.0),
    ]


@pytest.mark.parametrize("noise", [Noise.NORMAL, Noise.AUTOCORRELATED, Noise.BIMODAL])
def test_the_simulation_of_a_look_judges_as_the_engine_does(noise: Noise) -> None:
    """Comparisons that stopped at different looks, with a difference in half of them."""
    pages = trials(np.random.default_rng(6), noise, 30, 24)
    most = 0.4 if noise is Noise.BIMODAL else 0.06
    pages[:, ::2, :, 2] += np.linspace(0, most, 10)[:, None]
    blocks, shares = np.repeat([10, 24, 24, 16], 5), np.repeat([0.1, 0.5, 0.5, 0.2], 5)
    metrics = [*METRICS.values()] * bench.SERVERS
    differences = 0
    for page in pages:
        ratios = [row[:n, 2] - (row[:n, 0] + row[:n, 1]) / 2 for row, n in zip(page, blocks, strict=True)]
        series = autocorrelation([logs for logs in ratios if len(logs) == 24])
        family = [
            Evidence(
                metric, paired(logs, series.inflation if series else 1.0), paired(row[:n, 1] - row[:n, 0]), share=share,
                two_modes=(two := two_modes(logs) is not None),
                single=paired(row[:n, 2] - row[:n, 0]) if two else None,
            )
            for metric, logs, row, n, share in zip(metrics, ratios, page, blocks, shares, strict=True)
        ]  # fmt: skip
        tests = engine.test(family, None, weights_of(metrics))
        judgements = [judge(evidence, tested, None) for evidence, tested in zip(family, tests, strict=True)]
        simulated = bench.judged(page, blocks, shares)
        different = [judgement.kind in (Kind.FASTER, Kind.SLOWER) for judgement in judgements]
        assert different == simulated.different.tolist()
        differences += sum(different)
    assert differences > 10


@pytest.mark.parametrize("noise", [Noise.NORMAL, Noise.HEAVY, Noise.DRIFTING])
def test_stopping_early_makes_no_more_than_one_page_in_twenty_wrong(noise: Noise) -> None:
    """5% and three Monte-Carlo errors; looks until each interval is within ±1%."""
    pages = trials(np.random.default_rng(8), noise, PAGES, 4 * 82)
    wrong = np.mean([bench.until(page, 0.01).different.any() for page in pages])
    assert wrong <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / PAGES)


def test_the_intervals_at_a_stop_by_width_cover_what_they_should() -> None:
    normal = bench.designs(Noise.NORMAL, 80)
    until, fixed = normal[0], normal[-1]
    assert until.half_width == 0.02
    assert 0.93 < until.coverage < 0.96
    assert 0.93 < fixed.coverage < 0.97
    assert until.coverage_decisive >= 0.95
    assert until.work < 24


def test_the_published_table_is_that_of_the_figures() -> None:
    rows = list(bench.read())
    assert {row.noise for row in rows} == set(bench.NOISES)
    assert {row.pages for row in rows} == {1000}
    assert bench.table(rows) in (PROJECT / "docs" / "statistics.md").read_text(encoding="utf-8")
