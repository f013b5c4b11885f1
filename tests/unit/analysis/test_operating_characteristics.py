"""How often a whole page is wrong, under noise of several kinds: bounds on what `make bench-verdicts` publishes.

Pages are judged by the engine itself. A bound fails where the lower limit of the 95% interval of the observed share
lies above it: for a bound of 5%, at 11 wrong pages of 100. A kind of noise that makes 15% of the pages wrong is found
with a probability of 90%.
"""

import csv
import math

import numpy as np
import pytest

from benchmarks import verdicts as bench
from benchmarks.verdicts import BOOTS, Noise, characteristic, differs, trials
from vmtoll.paths import PROJECT
from vmtoll.statistics.proportions import clopper_pearson
from vmtoll.statistics.thresholds import ALPHA

pytestmark = pytest.mark.slow

PAGES = 100
EQUAL = (Noise.NORMAL, Noise.HEAVY, Noise.DRIFTING, Noise.AUTOCORRELATED, Noise.PERSISTENT, Noise.BIMODAL)


def assert_at_most(bound: float, noise: Noise, blocks: int, sd: float = bench.CV) -> None:
    """Wrong pages of twenty comparisons of equal sides."""
    rng = np.random.default_rng([blocks, int(1000 * sd), list(Noise).index(noise)])
    wrong = differs(trials(rng, noise, PAGES, blocks, sd), BOOTS if noise is Noise.BOOTS else 1).any(axis=1).sum()
    assert clopper_pearson(int(wrong), PAGES).low <= bound, f"{wrong} of {PAGES} pages"


@pytest.mark.parametrize("noise", EQUAL)
@pytest.mark.parametrize("blocks", [6, 10, 20])
def test_at_most_one_page_in_twenty_has_a_wrong_difference(noise: Noise, blocks: int) -> None:
    assert_at_most(ALPHA, noise, blocks)


@pytest.mark.parametrize("noise", EQUAL)
@pytest.mark.parametrize(("blocks", "bound"), [(3, 0.09), (4, 0.055), (5, 0.055)])
def test_few_blocks_are_wrong_a_little_more_often(noise: Noise, blocks: int, bound: float) -> None:
    assert_at_most(bound, noise, blocks)


@pytest.mark.parametrize("blocks", [6, 10, 20])
def test_several_boots_share_the_errors(blocks: int) -> None:
    assert_at_most(0.055, Noise.BOOTS, blocks)


@pytest.mark.parametrize("sd", [0.3, 1.0])
@pytest.mark.parametrize("noise", [Noise.NORMAL, Noise.HEAVY, Noise.PERSISTENT])
@pytest.mark.parametrize(("blocks", "bound"), [(3, 0.09), (4, 0.075), (6, 0.05)])
def test_loud_figures_make_no_more_pages_wrong(sd: float, noise: Noise, blocks: int, bound: float) -> None:
    """A log sd of 0.3 and of 1: the rule of every block among them."""
    assert_at_most(bound, noise, blocks, sd)


def test_one_boot_is_known_to_mislead() -> None:
    """Why a page says "one host, one boot": what a boot draws is in all of its blocks; more of them make it worse."""
    rng = np.random.default_rng(1)
    few, many = (differs(trials(rng, Noise.ONE_BOOT, 100, blocks)).any(axis=1).mean() for blocks in (6, 20))
    assert 0.1 < few < many


def test_five_boots_avoid_the_errors_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a boot adds 2%: ten blocks in one boot make most pages wrong, in five boots few."""
    monkeypatch.setattr(bench, "BOOT_SEARCH", 20)
    one, five = (bench.boot_cell(0.02, boots=5, drawn=drawn, pages=40) for drawn in (1, 5))
    assert float(one.split("%")[0]) > 80
    assert one.endswith(", –"), "no smallest difference where most pages are wrong"
    assert float(five.split("%")[0]) <= 10
    assert float(five.split(", ")[1].removesuffix("%")) < 30


def test_a_page_of_ten_blocks_sees_five_percent() -> None:
    """At 2% noise of a trial; with twenty blocks three."""
    rng = np.random.default_rng(2)
    for blocks, difference in ((10, 0.055), (20, 0.032)):
        found = differs(trials(rng, Noise.NORMAL, 150, blocks), shift=-math.log1p(difference))[:, 0].mean()
        assert found > 0.8 - 3 * math.sqrt(0.16 / 150)


@pytest.mark.parametrize(("factor", "cv", "blocks"), [(2.0, 0.02, 6), (3.0, 0.02, 6), (10.0, 0.2, 6), (3.0, 0.2, 10)])
def test_a_multiple_is_not_missed(factor: float, cv: float, blocks: int) -> None:
    """One throughput of twenty comparisons, φ up to 0.8 for ten times: missed in under one page of a hundred."""
    rng = np.random.default_rng(int(factor))
    noises = (Noise.NORMAL, Noise.AUTOCORRELATED, Noise.PERSISTENT) if factor == 10 else (Noise.NORMAL,)
    for noise in noises:
        found = differs(trials(rng, noise, 100, blocks, cv), shift=-math.log(factor))[:, 0]
        assert found.mean() >= 0.99


def test_what_is_never_found_is_not_printed_as_the_ceiling_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "CEILING", 0.04)
    row = characteristic(Noise.NORMAL, 6, 60)
    assert row.detectable == math.inf
    assert bench.detectable_text(row.detectable) == "none below 4%"
    assert "none below 4%" in bench.table([row])
    assert bench.detectable_text(0.0891) == "8.9%" and bench.detectable_text(None) == "–"


def test_the_published_table_is_that_of_the_figures() -> None:
    text = (PROJECT / "docs" / "operating-characteristics.csv").read_text(encoding="utf-8")
    rows = [
        bench.Characteristic(
            Noise(row["noise"]), int(row["blocks"]), int(row["experiments"]), float(row["false_alarms"]),
            float(row["detectable"]) if row["detectable"] else None,
        )
        for row in csv.DictReader(text.splitlines())
    ]  # fmt: skip
    every = {(noise, blocks) for noise in Noise for blocks in bench.BLOCKS}
    cells = {(noise, blocks) for noise, blocks in every if noise is not Noise.BOOTS or blocks >= BOOTS}
    assert {(row.noise, row.blocks) for row in rows} == cells
    assert bench.table(rows) in (PROJECT / "docs" / "statistics.md").read_text(encoding="utf-8")
