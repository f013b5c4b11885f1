"""`make bench-limit` of lighttz asks vmtoll's engine and prints its verdicts."""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[3] / "server-builds/lighttz/bench"
MODULES = ("judged", "bench", "heads", "peers", "suite")


def test_verdicts_against_the_limit_probe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    judged = importlib.import_module("judged")
    noise = random.Random(1)

    def times(us: float) -> list[float]:
        return [us * noise.gauss(1, 0.03) for _ in range(40)]

    rows = [judged.Row(f"cell {us}", times(us), times(4)) for us in (4, 5, 3)]
    judged.judge("CPU time per request", rows, judged.CPU_MARGIN)
    printed = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if "| cell " in line]
    verdicts = {name: (float(ratio), kind) for name, _, _, _, ratio, _, kind in printed[1:]}
    assert {name: kind for name, (_, kind) in verdicts.items()} == {
        "cell 4": "equivalent", "cell 5": "slower", "cell 3": "faster",
    }  # fmt: skip
    assert [ratio for ratio, _ in verdicts.values()] == pytest.approx([1, 1.25, 0.75], rel=0.03)
    for name in MODULES:  # other tests may have modules of these names
        sys.modules.pop(name, None)
