"""Closed-loop and open-loop verdicts on one server that do not say the same, side by side, and why."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.judge import EQUIVALENT, KVM_FASTER, METAL_FASTER, NOT_DISTINGUISHABLE
from analysis.load import BASELINE, SCENARIO, Run
from analysis.metrics import CLOSED, OPEN, THROUGHPUT, loop_of

# What the closed loop and the open loop call the same thing.
ALIKE = (("latency_p99", "tail"), ("cpu", "cpu"))
DIRECTION = {METAL_FASTER: 1, KVM_FASTER: -1, EQUIVALENT: 0, NOT_DISTINGUISHABLE: 0}


def disagreements(run: Run, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pairs of verdicts on one server and guest that point in different directions, or only one of them in any.

    An invalid verdict says nothing, so that it disagrees with nothing.
    """
    found = []
    closed, opened = ([r for r in results if loop_of(r["offered_load"]) == loop] for loop in (CLOSED, OPEN))
    for first in closed:
        for second in opened:
            if (first["server"], first["environment"]) != (second["server"], second["environment"]):
                continue
            for ours, theirs in ALIKE:
                one, other = first["metrics"][ours], second["metrics"][theirs]
                if DIRECTION.get(one["kind"]) == DIRECTION.get(other["kind"]):
                    continue
                if one["kind"] in DIRECTION and other["kind"] in DIRECTION:
                    found.append(
                        {
                            "server": first["server"],
                            "environment": first["environment"],
                            "closed": _side(first, ours),
                            "open": _side(second, theirs),
                            "reason": _reason(run, first, second, ours, theirs),
                        }
                    )
    return found


def _side(result: dict[str, Any], metric: str) -> dict[str, Any]:
    one = result["metrics"][metric]
    return {"scenario": result["label"], "offered_load": result["offered_load"]} | {
        "metric": metric, "label": one["label"], "kind": one["kind"], "text": one["text"],
    }  # fmt: skip


def _reason(run: Run, closed: dict[str, Any], opened: dict[str, Any], ours: str, theirs: str) -> str:
    """What the data offer as an explanation; every part is checked against the trials."""
    rows = _rows(run, opened)
    parts = [
        "CPU per request depends on the load"
        if ours == "cpu"
        else "a closed loop asks again only when it has its answer, so that it hides stalls and queues"
    ]
    stalled = sum("stalled" in codes for codes in rows["codes"])
    if stalled:
        parts.append(f"{stalled} open-loop trial{' was' if stalled == 1 else 's were'} stalled")
    if loads := _loads(run, closed, opened):
        parts.append(loads)
    for name, one in (("closed", closed["metrics"][ours]), ("open", opened["metrics"][theirs])):
        if one["limited"]:
            parts.append(f"the client or the link set the pace in {one['limited']} {name}-loop trials")
        if one["kind"] == NOT_DISTINGUISHABLE:
            parts.append(f"the {name} loop is undecided after {one['blocks']} blocks")
    return "; ".join(parts)


def _rows(run: Run, result: dict[str, Any]) -> pd.DataFrame:
    cell = run.cells[tuple(result[key] for key in SCENARIO)]
    return cell[cell["environment"].isin([BASELINE, result["environment"]]) & (cell["verdict"] != "invalid")]


def _loads(run: Run, closed: dict[str, Any], opened: dict[str, Any]) -> str:
    """How far the rate of the open loop lies below what the closed loop drew, per side; empty when unknown."""
    source = "twin" if closed["metrics"]["throughput"]["source"] != closed["tool"] else "tool"
    parts = []
    for environment in (BASELINE, opened["environment"]):
        drawn, offered = (
            rows.loc[rows["environment"] == environment, column].median()
            for rows, column in ((_rows(run, closed), THROUGHPUT.columns[source]), (_rows(run, opened), "offered_rps"))
        )
        if pd.isna(drawn) or pd.isna(offered):
            return ""
        parts.append(f"{offered:,.0f}/s on {environment}, {offered / drawn:.0%} of what the closed loop drew from it")
    return "the open loop offered " + " and ".join(parts)
