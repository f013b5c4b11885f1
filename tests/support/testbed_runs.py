"""Synthetic runs on test beds of a campaign, and one effect of its figures."""

from pathlib import Path
from typing import Any

from tests.support.records import BASELINE
from tests.support.synthetic_run import (
    Row,
    Truth,
    closed_load,
    failed_trial,
    make_run,
    rate_load,
    role_findings,
    with_findings,
)
from vmtoll.campaign.effects import Effect, Figures
from vmtoll.model.finding import Code, Role
from vmtoll.model.load import Load
from vmtoll.model.trial import Arm

GUEST = Arm("kvm-default")
CLOSED, OPEN = closed_load(10), rate_load(1000)


def refuse_one(row: Row) -> list[Row]:
    """Gates and failures: an invalid trial, one that was tried twice, one that the client limited."""
    place = row["block"], row["arm"], row["server"], row["load"]
    if place == (2, GUEST, "nginx", CLOSED):
        return [failed_trial(row, Code.FINGERPRINT)]
    if place == (3, BASELINE, "lighttz", CLOSED):
        return [failed_trial(row, Code.HOST_LOST), row | {"attempt": 2}]
    if place == (4, BASELINE, "nginx", CLOSED):
        return [with_findings(row, *role_findings(Code.CLIENT_SATURATED, Role.PRIMARY))]
    return [row]


def run_of(parent: Path, testbed: str, ratio: float, **keys: Any) -> Path:
    """A run on one test bed, with a run id of its own."""
    truth = Truth(
        {"nginx": ratio, "lighttz": ratio - 0.05},
        loads=(CLOSED, OPEN),
        latency_ratio=1 / ratio,
        change=refuse_one,
        seed=sum(map(ord, testbed)),
    )
    for key, value in keys.items():
        setattr(truth, key, value)
    folder = make_run(parent / testbed, truth)
    for file in ("run.json", "trials.jsonl"):
        path = folder / file
        path.write_text(path.read_text().replace("20260101T000000-synthetic", f"20260101T000000Z-{testbed}"))
    return folder


def entry(figures: Figures, metric: str, server: str, load: Load) -> Effect:
    (effect,) = [
        one
        for one in figures.effects
        if (one.verdict.metric.name, one.scenario.server, one.scenario.load) == (metric, server, load)
    ]
    return effect
