"""Why a comparison is undecided: findings are a reason only where some widen it."""

import pytest

from vmtoll.analysis.judge import Evidence, Family
from vmtoll.analysis.pairs import Bounds
from vmtoll.model.metric import THROUGHPUT
from vmtoll.model.verdict import VerdictReason
from vmtoll.statistics.series import Series

BLOCKS = tuple(range(1, 6))
CALM = Series(BLOCKS, (0.0005, -0.0005, 0.0, 0.0004, -0.0004))  # equal, if five blocks were enough for that


@pytest.mark.parametrize(("widened", "because"), [(0.0, VerdictReason.NOISE), (0.05, VerdictReason.FINDINGS)])
def test_few_calm_blocks_have_no_findings(widened: float, because: VerdictReason) -> None:
    bounds = Bounds(CALM, CALM, CALM).widened(widened) if widened else Bounds(CALM, CALM, CALM)
    (judged,) = Family([Evidence(THROUGHPUT, bounds)], 0.02).judge()
    assert judged.because is because
