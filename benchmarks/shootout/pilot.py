"""The pilot: 30 equal pages of three lengths, which choose the length of the load and the number of blocks."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shootout import record
from benchmarks.shootout.plan import (
    COUNTS,
    LENGTHS,
    PARTS,
    PILOT_COUNTS,
    SEED,
    WEB_TRIAL_MS,
    Kind,
    Plan,
    commit,
    engine_digest,
    machine,
    now,
    read_plan,
)
from benchmarks.shootout.rules import RULES, judged, samples_of
from vmtoll.analysis.recorded import Answer

LONGEST_MS = 30.0
BLOCKS = (40, 60, 80)
WEB_BLOCKS = 50  # two trials each: 20 seconds
TRUTH_BLOCKS = 50  # of each of the ten pages of truth


def pilot(folder: Path, cpu: int | None, minutes: float | None, say: Callable[[str], None] = print) -> bool:
    """Record the pilot, or go on with it; then write the plan. Return whether the plan is written."""
    file = folder / "pilot.json"
    folder.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        with record.programs() as programs:
            iterations = record.iterations_of(programs, cpu, LONGEST_MS)
        requests = record.web_requests_of(WEB_TRIAL_MS / 1000)
        Plan(
            SEED, iterations, LONGEST_MS, max(BLOCKS), cpu, requests, WEB_BLOCKS, TRUTH_BLOCKS, dict(PILOT_COUNTS),
            now(), commit(), machine=machine(),
        ).write(file)  # fmt: skip
    plan = read_plan(file)
    pages = folder / "pilot.jsonl.gz"
    if not record.record_all(plan, pages, minutes, say):
        return False
    rows = measured(plan, record.read_pages(pages))
    chosen = chosen_row(rows)
    for row in rows:
        say(f"{row['trial_ms']:.0f} ms, {row['blocks']} blocks: a trial deviates by {row['trial_sd_pct']:.2f}%, a "
            f"block's ratio by {row['ratio_sd_pct']:.2f}%; 2% found on {row['detected']} of {row['pages']} pages, "
            f"{row['seconds']:.1f} s each{' <- chosen' if row is chosen else ''}")  # fmt: skip
    written = planned(plan, rows)
    written.write(folder / "plan.json")
    hours = sum(written.seconds_of(page.kind) for page in written.pages()) / 3600
    say(f"{folder / 'plan.json'}: {sum(written.counts.values())} pages, {hours:.1f} hours to record; commit it first")
    return True


def measured(plan: Plan, pages: Sequence[record.Recording]) -> list[dict[str, Any]]:
    """For each length and number of blocks the deviations, and how many pages would have found 2%."""
    rows = []
    for kind, length in LENGTHS.items():
        of_kind = [page for page in pages if page.kind is kind]
        for blocks in BLOCKS:
            cut = [_cut(page, blocks) for page in of_kind]
            logs = [np.log([sample.a, sample.b]) for page in cut for sample in samples_of(page)]
            detected = sum(judged(_slower(page, 0.02)).answers == [Answer.WORSE] for page in cut)
            rows.append({
                "trial_ms": round(plan.trial_ms * length, 1), "blocks": blocks, "pages": len(cut), "detected": detected,
                "trial_sd_pct": round(100 * statistics.median(float(each.std(axis=1).mean()) for each in logs), 3),
                "ratio_sd_pct": round(100 * statistics.median(float((each[1] - each[0]).std()) for each in logs), 3),
                "seconds": round(statistics.median(page.seconds for page in of_kind) * blocks / plan.blocks, 2),
            })  # fmt: skip
    return rows


def _cut(page: record.Recording, blocks: int) -> record.Recording:
    """The first blocks of a page, judged with the margin of pages with 2%."""
    values = {metric: of[: 2 * blocks] for metric, of in page.values.items()}
    return replace(page, kind=Kind.TWO, sides=page.sides[: 2 * blocks], values=values)


def _slower(page: record.Recording, by: float) -> record.Recording:
    values = {
        metric: [round(value * (1 + by * (side == "B"))) for side, value in zip(page.sides, of, strict=True)]
        for metric, of in page.values.items()
    }
    return replace(page, values=values)


def chosen_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The shortest page of those by which most of the pilot's pages found 2%."""
    return min(rows, key=lambda row: (-row["detected"], row["seconds"]))


def planned(plan: Plan, rows: Sequence[dict[str, Any]]) -> Plan:
    """The plan of the recording."""
    chosen = chosen_row(rows)
    step = 100 * PARTS
    return replace(
        plan, counts=dict(COUNTS), trial_ms=chosen["trial_ms"], blocks=chosen["blocks"],
        iterations=round(plan.iterations * chosen["trial_ms"] / plan.trial_ms / step) * step,
        written=now(), commit=commit(), engine=engine_digest(), pilot=list(rows),
        versions={"numpy": np.__version__},
        rules={rule.name: {"default": rule.threshold_text(rule.default), "source": rule.source} for rule in RULES},
    )  # fmt: skip
