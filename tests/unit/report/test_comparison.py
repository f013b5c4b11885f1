"""The comparison of two runs in words."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.snapshots import assert_snapshot
from tests.support.synthetic_run import Row, with_findings
from tests.unit.publish.test_comparison import QUIET, compare, edited
from tests.unit.report.test_words import SNAPSHOTS
from vmtoll.model.agreement import RunComparison
from vmtoll.model.finding import Code
from vmtoll.report.comparison import lines

pytestmark = pytest.mark.slow

AGAIN = replace(QUIET, seed=2)
NOISY = replace(AGAIN, noise=0.02)


def spoilt(row: Row) -> list[Row]:
    return [with_findings(row, Code.WRONG_BODY)]


def of_throughput(result: RunComparison) -> RunComparison:
    """The same with one metric a scenario."""
    scenarios = (
        replace(one, metrics={name: metric for name, metric in one.metrics.items() if name == "throughput"})
        for one in result.scenarios
    )
    return replace(result, scenarios=tuple(scenarios))


def test_the_words_of_a_comparison(tmp_path: Path) -> None:
    results = {
        "the same truth": compare(tmp_path / "same", QUIET, AGAIN),
        "another truth": compare(tmp_path / "other", QUIET, replace(AGAIN, servers={"nginx": 0.7})),
        "another link": compare(tmp_path / "link", QUIET, QUIET, edited("run.json", "link", value="1gbit")),
        "another kernel": compare(
            tmp_path / "kernel", QUIET, AGAIN, edited("hosts.json", "metal", "kernel", value="6.2")
        ),
        "noise": compare(tmp_path / "noise", QUIET, NOISY),
        "a server of the first run alone": compare(
            tmp_path / "alone", replace(QUIET, servers={"nginx": 0.9, "lighttz": 0.8}), AGAIN
        ),
        "no valid trial": compare(tmp_path / "invalid", QUIET, replace(QUIET, change=spoilt)),
    }
    assert_snapshot(SNAPSHOTS / "comparison.txt", {
        "Two runs": {name: list(lines(of_throughput(result))) for name, result in results.items()}
    })  # fmt: skip
