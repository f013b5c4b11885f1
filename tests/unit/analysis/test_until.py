"""Looks at a run that goes on: what is open, what each look may spend, and how often a page is wrong by them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks import until as bench
from benchmarks import verdicts
from benchmarks.verdicts import Noise, trials
from tests.support.synthetic_run import Row, Truth, failed_trial, make_run, with_findings
from tests.support.verdicts import GUEST, ends, verdict
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.until import comparisons_at_look, look_at
from vmtoll.analysis.verdict import analyse
from vmtoll.model.claim import Outcome
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.until import ComparisonState, Look, Stop
from vmtoll.model.verdict import DIFFERENT, Kind, VerdictReason
from vmtoll.paths import PROJECT
from vmtoll.report.html import render
from vmtoll.report.words import ending_text
from vmtoll.statistics.proportions import clopper_pearson
from vmtoll.statistics.thresholds import ALPHA

pytestmark = pytest.mark.slow

PAGES = 25
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
        verdict(analyse(run_of(tmp_path / name, Truth(blocks=6), [look(6, share)])))
        for name, share in (("a", 0.1), ("b", 1.0))
    )
    assert wide.half_width == narrow.half_width, "the 95% interval by sampling alone stays"
    assert wide.tests.difference == narrow.tests.difference
    assert wide.tests.difference_holm == pytest.approx(10 * (narrow.tests.difference_holm or 0))
    assert wide.confidence and narrow.confidence
    assert 1 - wide.confidence == pytest.approx((1 - narrow.confidence) / 10)
    assert ends(wide)[0] < ends(narrow)[0] < ends(narrow)[2] < ends(wide)[2]


def test_no_verdict_before_the_first_look_is_due(tmp_path: Path) -> None:
    """A run that is under way, ten times as slow, after eight blocks, of which a look has seen six."""
    truth = Truth({"nginx": 0.1}, 10.0, 10.0, blocks=8)
    run = run_of(tmp_path, truth, [look(6, 0.2)], claims=True, status="running")
    analysis = analyse(run)
    applying = [v for c in analysis.comparisons for v in c.verdicts.values() if v.applies]
    assert {(v.kind, v.because) for v in applying} == {(Kind.UNDECIDED, VerdictReason.NO_LOOK_YET)}
    assert all(v.estimate and v.estimate.low is v.confidence is None for v in applying)
    assert analysis.claims[0].outcome is Outcome.INCONCLUSIVE
    assert {each.standing for each in comparisons_at_look(run, analysis) if not each.claim} <= {
        ComparisonState.OPEN,
        ComparisonState.NARROW,
    }


def test_what_more_blocks_may_decide_is_open(tmp_path: Path) -> None:
    """Findings and noise and too few blocks are; a limit in every block, no figure, and unlike sides are refused."""

    def standing(name: str, change: Callable[[Row], list[Row]] | None = None, ratio: float = 0.95) -> ComparisonState:
        truth = Truth({"nginx": ratio}, noise=0.03, change=change)
        run = run_of(tmp_path / name, truth, [look(truth.blocks, 0.2)])
        analysis = analyse(run)
        (each,) = [each for each in comparisons_at_look(run, analysis) if each.metric == "throughput"]
        reasons[name] = verdict(analysis).because
        return each.standing

    def on_guest(*codes: Code, **figures: float) -> Callable[[Row], list[Row]]:
        roles = [Finding(code, role=role) for code in codes for role in Role]
        return lambda row: [with_findings(row, *roles) | figures if row["arm"] == GUEST else row]

    reasons: dict[str, VerdictReason | None] = {}
    assert standing("noise") is standing("findings", on_guest(steal_pct=30.0), 0.8) is ComparisonState.OPEN
    assert standing("few", lambda row: [row | {"boot": 1 + (row["block"] > 3)}]) is ComparisonState.OPEN, "two boots"
    for name, code in (("limit", Code.CLIENT_SATURATED), ("unlike", Code.FINGERPRINT)):
        assert standing(name, on_guest(code)) is ComparisonState.REFUSED
    assert (
        standing("none", lambda row: [failed_trial(row, Code.SERVER_FAILED) if row["arm"] == GUEST else row])
        is ComparisonState.REFUSED
    )
    assert reasons == {
        "noise": VerdictReason.NOISE, "findings": VerdictReason.FINDINGS,
        "few": VerdictReason.FEW_BLOCKS, "limit": VerdictReason.LIMIT, "unlike": VerdictReason.NOT_COMPARABLE,
        "none": VerdictReason.NO_FIGURE,
    }  # fmt: skip


def test_a_look_lists_the_open_comparisons(tmp_path: Path) -> None:
    """Noise of 6% leaves five intervals wide; a server of a tenth of the speed is decided."""
    run = run_of(tmp_path, Truth({"nginx": 1.0, "lighttpd": 0.1}, 1.0, 1.0, blocks=6, noise=0.06), [], claims=True)
    looked = look_at(run.path, [look(6, 0.2)])
    standing = {(each.scenarios[0].server, each.metric): each.standing for each in looked if not each.claim}
    assert standing["lighttpd", "throughput"] is ComparisonState.DECIDED
    assert standing["nginx", "throughput"] is ComparisonState.OPEN
    claim = next(each for each in looked if each.claim)
    assert (claim.claim, claim.standing, claim.scenarios[0].server) == (
        CLAIM["says"],
        ComparisonState.OPEN,
        "nginx",
    )
    widths = [each.half_width_pct for each in looked if each.standing is ComparisonState.OPEN]
    assert all(width is not None and width > 2 for width in widths)


def test_an_interval_is_narrow_enough_without_being_decided(tmp_path: Path) -> None:
    """1.5% slower by noise of 0.4%: neither zero nor the margin of 2% is excluded at a small level."""
    truth = Truth({"nginx": 0.985}, 1.0, 1.0, blocks=6, noise=0.004, drift=0.0)
    run = run_of(tmp_path, truth, [look(6, 0.01)])
    standing = {each.metric: each.standing for each in comparisons_at_look(run, analyse(run))}
    assert standing["throughput"] is ComparisonState.NARROW


def test_more_blocks_decide_a_claim(tmp_path: Path) -> None:
    """Noise of 3% and a loss of 4%: open after six blocks, confirmed after 36."""
    truth = Truth({"nginx": 0.96}, blocks=36, noise=0.03, seed=4)
    few = Truth(**{**vars(truth), "blocks": 6})
    first = run_of(tmp_path / "few", few, [look(6, 0.1)], claims=True)
    last = run_of(tmp_path / "many", truth, [look(6, 0.1), look(36, 0.9)], claims=True)
    claims = [next(each for each in comparisons_at_look(run, analyse(run)) if each.claim) for run in (first, last)]
    assert [claim.standing for claim in claims] == [ComparisonState.OPEN, ComparisonState.DECIDED]
    assert analyse(last).claims[0].outcome is Outcome.CONFIRMED


@pytest.mark.usefixtures("without_charts")
def test_the_report_states_first_how_the_run_ended(tmp_path: Path) -> None:
    found = look(6, 0.6).model_copy(update={"decided": 4, "narrow": 1})
    run = run_of(tmp_path, Truth(), [found], stopped="narrow")
    assert (run.manifest.stopped, run.manifest.looks) == (Stop.NARROW, [found])
    text = ending_text(run.manifest)
    assert text
    page = render(run, analyse(run))
    assert page.index(text) < page.index("</header>")
    fixed = load_run(make_run(tmp_path / "fixed", Truth()))
    assert ending_text(fixed.manifest) == ""


def test_looks_of_their_own_are_judged_as_one_page() -> None:
    """Comparisons that stopped at different looks: each has its blocks and its share, all of them one correlation."""
    (logs,) = trials(np.random.default_rng(6), Noise.AUTOCORRELATED, 1, 24)
    blocks, shares = [10] * 5 + [24] * 10 + [16] * 5, [0.1] * 5 + [0.5] * 10 + [0.2] * 5
    page = verdicts.judged_family(logs, share=shares, measured=blocks)
    assert [evidence.bounds.mid.n for evidence in page.tested] == blocks
    assert [evidence.share for evidence in page.tested] == shares
    stopped = bench.judged_look(logs, np.array(blocks), np.array(shares))
    assert stopped.different.tolist() == [kind in DIFFERENT for kind in page.decide()]
    assert stopped.work == pytest.approx(18.5)


@pytest.mark.parametrize("noise", [Noise.NORMAL, Noise.HEAVY, Noise.DRIFTING])
def test_stopping_early_makes_no_more_than_one_page_in_twenty_wrong(noise: Noise) -> None:
    """Looks until each interval is within ±2%."""
    pages = trials(np.random.default_rng(8), noise, PAGES, 4 * 82)
    wrong = sum(bool(bench.measure_until(page, 0.02).different.any()) for page in pages)
    assert clopper_pearson(wrong, PAGES).low <= ALPHA


def test_the_intervals_at_a_stop_by_width_cover_what_they_should(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of twenty whose correlation is not known are no surer than 95%, and hardly less."""
    monkeypatch.setattr(bench, "HALF_WIDTHS", (0.02,))
    monkeypatch.setattr(bench, "FIXED", (54,))
    until, fixed = bench.designs(Noise.NORMAL, 20)
    assert until.coverage > 0.9 and fixed.coverage > 0.9
    assert until.coverage_decisive >= 0.9
    assert until.work < 30


def test_the_published_table_is_that_of_the_figures() -> None:
    rows = list(bench.read())
    assert {row.noise for row in rows} == set(bench.NOISES)
    assert len({row.pages for row in rows}) == 1
    assert bench.table(rows) in (PROJECT / "docs" / "statistics.md").read_text(encoding="utf-8")
