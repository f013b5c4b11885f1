"""Every committed run: what a reader makes of its tables is what its report says."""

import html
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.committed_run import committed_runs
from tests.support.records import BASELINE
from tests.support.synthetic_run import CONTROL, Row, Truth, failed_trial, make_run
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.campaign.effects import Figures, campaign_figures
from vmtoll.campaign.store import partition
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.claim import Outcome
from vmtoll.model.finding import Code
from vmtoll.model.trial import Arm
from vmtoll.model.verdict import Judged, Kind, Verdict
from vmtoll.model.verdict_columns import claim_rows, comparisons, effect_rows, verdict_rows
from vmtoll.paths import PROJECT
from vmtoll.publish import tables
from vmtoll.publish.intervals import recompute, recompute_claims
from vmtoll.report.html import render
from vmtoll.report.terminal import rows_of, summary

GUEST = Arm("kvm-default")
RUNS = committed_runs()
COMMITTED_RUNS, PUBLISHED = PROJECT / "docs" / "committed-runs.md", PROJECT / "docs" / "published-experiments.md"


@pytest.fixture(scope="module")
def analyses() -> Mapping[Path, RunAnalysis]:
    return {run: analyse(load_run(run)) for run in RUNS}


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Figures:
    """Of a campaign of one test bed that ran them all."""
    data = tmp_path_factory.mktemp("data")
    for run in RUNS:
        partition(run, data, "all", "here")
    return campaign_figures(str(data))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.parent.name)
def test_a_campaign_of_one_test_bed_says_what_its_run_says(
    run: Path, analyses: Mapping[Path, RunAnalysis], figures: Figures
) -> None:
    effects = {
        (effect.scenario, effect.arm, effect.verdict.metric): effect
        for effect in figures.effects
        if effect.experiment == run.parent.name
    }
    verdicts = {
        (comparison.scenario, comparison.arm, verdict.metric): verdict
        for comparison in analyses[run].comparisons
        for verdict in comparison.verdicts.values()
        if verdict.applies
    }
    assert effects.keys() == verdicts.keys()
    assert verdicts
    for key, theirs in verdicts.items():
        effect = effects[key]
        (ours,) = effect.by_testbed
        assert (ours.estimate is None) == (theirs.estimate is None)
        assert (ours.blocks, ours.limited, ours.kind, ours.because) == (
            theirs.blocks, theirs.limited, theirs.kind, theirs.because
        )  # fmt: skip
        if ours.estimate and theirs.estimate and effect.verdict.estimate:
            assert ours.estimate.value == pytest.approx(theirs.estimate.value, rel=1e-12)
            assert effect.verdict.estimate.value == pytest.approx(theirs.estimate.value, rel=1e-12)
            assert (ours.estimate.low, ours.estimate.high) == (theirs.estimate.low, theirs.estimate.high)


NUMBER = re.compile(r"\d[\d,.]*(?:×|%|/s| µs| ms| s\b)")  # with its unit


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.parent.name)
def test_each_number_on_the_terminal_is_in_the_report(run: Path, analyses: Mapping[Path, RunAnalysis]) -> None:
    loaded, analysis = load_run(run), analyses[run]
    terminal = " ".join(summary(loaded, analysis, rows_of(analysis)).plain.split())
    page = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", render(loaded, analysis))).split())
    numbers = set(NUMBER.findall(terminal))
    assert numbers
    assert numbers - set(NUMBER.findall(page)) == set()


def write(analysis: RunAnalysis, folder: Path) -> None:
    """The tables of a bundle that have intervals."""
    rows_of = {"verdicts": verdict_rows, "effects": effect_rows, "claims": claim_rows}
    for table, rows in ((table, of(analysis)) for table, of in rows_of.items()):
        tables.write(folder / f"{table}.csv", table, rows)


def check(analysis: RunAnalysis, folder: Path) -> int:
    """Number of intervals, all of which the script recomputes."""
    write(analysis, folder)
    printed = [
        each.verdict.estimate
        for each in comparisons(analysis)
        if each.verdict and each.verdict.estimate and each.verdict.estimate.low is not None
    ]
    recomputed = [(low, high) for _, low, high in recompute(folder)]
    assert len(recomputed) == len(printed)
    for (low, high), estimate in zip(recomputed, printed, strict=True):
        assert (low, high) == pytest.approx((estimate.low, estimate.high), rel=1e-9)
    claimed = [(number, each.ratio or each.level) for number, each in enumerate(analysis.claims, 1)]
    seen = {int(row["claim"]): (low, high) for row, low, high in recompute_claims(folder)}
    assert seen == {
        number: pytest.approx((estimate.low, estimate.high), rel=1e-9)
        for number, estimate in claimed if estimate and estimate.low is not None
    }  # fmt: skip
    return len(printed) + len(seen)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.parent.name)
def test_a_reader_recomputes_every_interval(run: Path, analyses: Mapping[Path, RunAnalysis], tmp_path: Path) -> None:
    analysis = analyses[run]
    enough = any(len([e for e in c.effects if e.mid is not None]) >= 3 for c in comparisons(analysis) if c.verdict)
    enough |= any(figure.low is not None for each in analysis.claims if (figure := each.ratio or each.level))
    assert (check(analysis, tmp_path) > 0) == enough


def slow(row: Row, share: float) -> list[Row]:
    return [row | {"throughput_rps": share * row["throughput_rps"]}]


CASES: dict[str, tuple[Callable[[Row], list[Row]], Callable[[Judged], object]]] = {
    "boots": (lambda row: [row | {"boot": (row["block"] + 1) // 2}], lambda judged: judged.boots == 4),
    "skewed": (
        lambda row: slow(row, 0.2 if (row["block"], row["arm"]) == (3, CONTROL) else 1),
        lambda judged: any(effect.first_low is not None for effect in judged.effects),
    ),
    "lost": (
        lambda row: [failed_trial(row, Code.HOST_LOST)] if (row["block"], row["arm"]) == (4, BASELINE) else [row],
        lambda judged: any(effect.mid is None for effect in judged.effects),
    ),
    "lost too often": (
        lambda row: [failed_trial(row, Code.HOST_LOST)] if row["block"] > 2 and row["arm"] == GUEST else slow(row, 1),
        lambda judged: judged.kind is Kind.FASTER and judged.open_high and judged.blocks == 2,
    ),
    "widened": (
        lambda row: slow(row, 0.9 if row["arm"] == CONTROL else 1),
        lambda judged: judged.widened > 0.05,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_reader_recomputes_intervals_of_other_shapes(case: str, tmp_path: Path) -> None:
    change, shows = CASES[case]
    ratio = 100.0 if case == "lost too often" else 0.9
    truth = Truth(servers={"nginx": ratio}, blocks=8, change=change, aa="lost" not in case)
    analysis = analyse(load_run(make_run(tmp_path / "run", truth)))
    assert any(shows(compared.verdict) for compared in comparisons(analysis) if compared.verdict)
    assert check(analysis, tmp_path) > 0


def test_most_comparisons_are_decided(analyses: Mapping[Path, RunAnalysis]) -> None:
    """Of those with a figure on both sides that neither client nor link set in most trials of both, without runtimes:
    runc and crun there differ from a plain process by less than its blocks show.
    """
    judged = [
        verdict
        for folder, analysis in analyses.items()
        for comparison in analysis.comparisons
        for verdict in comparison.verdicts.values()
        if folder.parent.name != "runtimes" and verdict.applies and verdict.kind is not Kind.NOT_JUDGED
    ]
    decided = [verdict for verdict in judged if verdict.is_decided]
    open_ones = [verdict for verdict in judged if not verdict.is_decided and not _is_full(verdict)]
    (percent,) = re.findall(r"^At least (\d+)% of", COMMITTED_RUNS.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(decided) >= int(percent) / 100 * (len(decided) + len(open_ones))


def test_published_claims_are_counted(analyses: Mapping[Path, RunAnalysis]) -> None:
    outcomes = Counter(claim.outcome for analysis in analyses.values() for claim in analysis.claims)
    confirmed, refuted, open_ones = (
        outcomes[kind] for kind in (Outcome.CONFIRMED, Outcome.REFUTED, Outcome.INCONCLUSIVE)
    )
    sentence = (
        f"Of {outcomes.total()} published claims, {confirmed} were confirmed, {refuted} refuted, and {open_ones} are "
        "inconclusive on this setup."
    )
    assert sentence in PUBLISHED.read_text(encoding="utf-8")


def _is_full(verdict: Verdict) -> bool:
    return all(2 * side.limited >= side.used for side in (verdict.baseline, verdict.compared))
