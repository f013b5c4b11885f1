"""How often a whole page is wrong, under noise of several kinds: bounds on what `make bench-verdicts` publishes.

The simulation judges many pages at once; the first test compares it with the engine.
"""

import csv
import math

import numpy as np
import pytest

from vmtoll.analysis import judge as engine
from vmtoll.analysis.judge import Evidence, judge, weights_of
from vmtoll.analysis.statistics import autocorrelation, paired, two_modes
from vmtoll.benchmarks import verdicts as bench
from vmtoll.benchmarks.verdicts import BOOTS, Noise, characteristic, differs, trials
from vmtoll.model.metric import METRICS
from vmtoll.model.verdict import Kind
from vmtoll.paths import PROJECT

PAGES = 600


@pytest.mark.parametrize("noise", [Noise.NORMAL, Noise.HEAVY, Noise.AUTOCORRELATED, Noise.BIMODAL])
@pytest.mark.parametrize("blocks", [6, 12])
def test_the_simulation_judges_as_the_engine_does(noise: Noise, blocks: int) -> None:
    """Forty pages with a difference in half of their comparisons, comparison by comparison."""
    logs = trials(np.random.default_rng(5), noise, 40, blocks)
    most = 0.4 if noise is Noise.BIMODAL else 0.06  # several times what each noise hides
    logs[:, ::2, :, 2] += np.linspace(0, most, 10)[:, None]
    metrics = [*METRICS.values()] * bench.SERVERS
    said = 0
    for page, theirs in zip(logs, differs(logs), strict=True):
        pairs = page[..., 2] - (page[..., 0] + page[..., 1]) / 2
        series = autocorrelation(pairs)
        inflation = series.inflation if series else 1.0
        modes = [two_modes(logs) is not None for logs in pairs]
        singles = [paired(logs) for logs in page[..., 2] - page[..., 0]]
        family = [
            Evidence(metric, paired(logs, inflation), paired(same), two_modes=two, single=single if two else None)
            for metric, logs, same, two, single in zip(
                metrics, pairs, page[..., 1] - page[..., 0], modes, singles, strict=True
            )
        ]
        tests = engine.test(family, None, weights_of(metrics))
        ours = [
            judge(one, tested, None).kind in (Kind.FASTER, Kind.SLOWER)
            for one, tested in zip(family, tests, strict=True)
        ]
        assert ours == theirs.tolist()
        said += sum(ours)
    assert said > 15


@pytest.mark.parametrize(
    "noise", [Noise.NORMAL, Noise.HEAVY, Noise.DRIFTING, Noise.AUTOCORRELATED, Noise.BIMODAL, Noise.BOOTS]
)
@pytest.mark.parametrize("blocks", [6, 10, 20, 40])
def test_at_most_one_page_in_twenty_has_a_wrong_difference(noise: Noise, blocks: int) -> None:
    """Twenty comparisons of equal sides; 5% and three Monte-Carlo errors."""
    logs = trials(np.random.default_rng(blocks), noise, PAGES, blocks)
    alarms = differs(logs, BOOTS if noise is Noise.BOOTS else 1).any(axis=1).mean()
    assert alarms <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / PAGES)


def test_one_boot_is_known_to_mislead() -> None:
    """Why a page says "one host, one boot": what a boot draws is in all of its blocks; more of them make it worse."""
    few, many = (characteristic(Noise.ONE_BOOT, blocks, 200).false_alarms for blocks in (6, 20))
    assert 0.2 < few < many


def test_a_page_of_ten_blocks_sees_five_percent() -> None:
    """At 2% noise of a trial; with twenty blocks three."""
    ten, twenty = (characteristic(Noise.NORMAL, blocks, 800).detectable for blocks in (10, 20))
    assert ten is not None and twenty is not None
    assert twenty < 0.03
    assert 0.035 < ten < 0.05


def test_the_published_table_is_that_of_the_figures() -> None:
    text = (PROJECT / "docs" / "operating-characteristics.csv").read_text(encoding="utf-8")
    rows = [
        bench.Characteristic(
            Noise(row["noise"]), int(row["blocks"]), int(row["experiments"]), float(row["false_alarms"]),
            float(row["detectable"]) if row["detectable"] else None,
        )
        for row in csv.DictReader(text.splitlines())
    ]  # fmt: skip
    assert {(row.noise, row.blocks) for row in rows} == {(noise, blocks) for noise in Noise for blocks in bench.BLOCKS}
    assert bench.table(rows) in (PROJECT / "docs" / "statistics.md").read_text(encoding="utf-8")
