"""The verdict of a run: per server and metric, and one sentence for people."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from analysis.compare import choose_source, compare, twin_name
from analysis.equality import UNDECLARED, equality
from analysis.judge import (
    EQUIVALENT,
    INVALID,
    KVM_FASTER,
    METAL_FASTER,
    NOT_DISTINGUISHABLE,
    as_dict,
    judge,
    percent,
)
from analysis.load import VERDICTS, Run, load_run, scenario_labels
from analysis.metrics import METRICS, Metric

SENTENCE_LIMIT = 300


def verdict(run_dir: Path | str) -> dict[str, Any]:
    """Judge a run directory; JSON-serialisable, writes nothing. Raises LoadError.

    Keys: `sentence`, `emulated`, `complete`, `blocks`, `counts` (valid, suspect, invalid, attempts,
    planned), `gates` (code → trials), `noise_floor` (throughput, the worst server; a fraction or null),
    `undeclared_differences` (how many), `results`: one entry per server scenario and guest, with `metrics`
    (`throughput`, `latency_p99`, `cpu`, `host_cpu`), each with its `kind` and figures.
    """
    return verdict_of(load_run(run_dir))


def verdict_of(run: Run) -> dict[str, Any]:
    """The same for a run that is already loaded."""
    trials = run.trials
    counts: dict[str, Any] = {name: int((trials["verdict"] == name).sum()) for name in VERDICTS}
    counts["attempts"] = len(run.attempts)
    counts["planned"] = run.meta.get("trials_planned")
    labels = scenario_labels(run)
    results = [_result(run, scenario, guest, labels[scenario]) for guest in run.guests for scenario in run.scenarios]
    floors = [r["metrics"]["throughput"]["noise_floor"] for r in results]
    gates: dict[str, int] = {}
    for row in trials["codes"]:
        for code in set(row):
            gates[code] = gates.get(code, 0) + 1
    outcome: dict[str, Any] = {
        "emulated": run.emulated,
        "complete": run.meta["status"] == "complete",
        "blocks": int(trials["block"].nunique()),
        "counts": counts,
        "gates": dict(sorted(gates.items(), key=lambda item: (-item[1], item[0]))),
        "noise_floor": max((f for f in floors if f is not None), default=None),
        "undeclared_differences": sum(fact.status == UNDECLARED for fact in equality(run)),
        "results": results,
    }
    return {"sentence": sentence(outcome, len(run.guests)), **outcome}


def _result(run: Run, scenario: tuple[str, ...], guest: str, label: str) -> dict[str, Any]:
    server, workload, tool, load = scenario
    source = choose_source(run, scenario, guest)
    noun = "the emulated guest" if run.accelerator(guest) == "tcg" else "kvm"
    names = {"tool": tool, "twin": twin_name(run, scenario)}

    def one(metric: Metric) -> dict[str, Any]:
        chosen = source if source in metric.columns else next(iter(metric.columns))
        comparison = compare(run, scenario, guest, metric, chosen)
        return as_dict(comparison, judge(comparison), names[chosen], noun)

    return {
        "label": label,
        "server": server,
        "workload": workload,
        "tool": tool,
        "offered_load": load,
        "environment": guest,
        "accelerator": run.accelerator(guest),
        "metrics": {metric.name: one(metric) for metric in METRICS},
    }


def sentence(outcome: dict[str, Any], guests: int = 1) -> str:
    """One sentence of at most 300 characters, from the throughput verdicts."""
    start = ""
    if outcome["emulated"]:
        start = "Emulation (TCG), not KVM: "
    if not outcome["complete"]:
        done = sum(outcome["counts"][name] for name in VERDICTS)
        planned = outcome["counts"]["planned"]
        start += f"incomplete run ({done} of {planned} trials): " if planned else "incomplete run: "
    end = _basis(outcome)
    for body in (_in_words(outcome["results"], guests), _in_counts(outcome["results"])):
        whole = f"{start}{body}{end}."
        if len(whole) <= SENTENCE_LIMIT:
            break
    whole = whole[0].upper() + whole[1:]
    return whole if len(whole) <= SENTENCE_LIMIT else whole[: SENTENCE_LIMIT - 1] + "…"


def _basis(outcome: dict[str, Any]) -> str:
    blocks = outcome["blocks"]
    parts = [f"{blocks} block{'' if blocks == 1 else 's'}"]
    floor = outcome["noise_floor"]
    parts.append("noise floor unknown" if floor is None else f"noise floor {percent(floor)}")
    invalid = outcome["counts"]["invalid"]
    if invalid:
        parts.append(f"{invalid} invalid trial{'' if invalid == 1 else 's'} left out")
    if outcome["undeclared_differences"]:
        count = outcome["undeclared_differences"]
        parts.append(f"{count} undeclared difference{'' if count == 1 else 's'}")
    return f" ({', '.join(parts)})"


def _in_words(results: list[dict[str, Any]], guests: int) -> str:
    if not results:
        return "there is no guest to compare with metal"
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault(result["metrics"]["throughput"]["kind"], []).append(result)
    guest = "the emulated guest" if any(r["accelerator"] == "tcg" for r in results) else "the guest"
    parts = []
    for kind, slower in ((METAL_FASTER, f"than {guest} "), (KVM_FASTER, "than metal ")):
        if members := groups.get(kind):
            subject = "metal" if kind == METAL_FASTER else guest
            parts.append(f"{subject} is faster {slower}{_amounts(members, results, guests)}")
    for kind, phrase in ((EQUIVALENT, "equivalent"), (NOT_DISTINGUISHABLE, NOT_DISTINGUISHABLE)):
        if members := groups.get(kind):
            parts.append(f"{_names(members, guests)}: {_common_text(members, phrase)}")
    if members := groups.get(INVALID):
        reasons = sorted({m["metrics"]["throughput"]["text"] for m in members})
        parts.append(f"{_names(members, guests)}: {reasons[0] if len(reasons) == 1 else 'invalid'}")
    return "; ".join(parts)


def _amounts(members: list[dict[str, Any]], results: list[dict[str, Any]], guests: int) -> str:
    """`with nginx by 8.1%`, or the range over all servers when there are many."""
    ordered = _by_size(members)
    if len(ordered) <= 2:
        return "with " + " and ".join(f"{_name(r, guests)} by {_amount(r)}" for r in ordered)
    every = "every server" if len(members) == len(results) else f"{len(members)} servers"
    low, high = ordered[0], ordered[-1]
    least, most = _amount(low), _amount(high)
    if "a factor of" in least:
        most = most.replace("a factor of ", "")
    return f"with {every}, by {least} ({_name(low, guests)}) to {most} ({_name(high, guests)})"


def _amount(result: dict[str, Any]) -> str:
    return str(result["metrics"]["throughput"]["text"]).split("faster by ", 1)[1]


def _name(result: dict[str, Any], guests: int) -> str:
    return f"{result['label']} on {result['environment']}" if guests > 1 else str(result["label"])


def _names(members: list[dict[str, Any]], guests: int) -> str:
    return ", ".join(_name(member, guests) for member in members)


def _common_text(members: list[dict[str, Any]], phrase: str) -> str:
    texts = {member["metrics"]["throughput"]["text"] for member in members}
    return texts.pop() if len(texts) == 1 else phrase


def _in_counts(results: list[dict[str, Any]]) -> str:
    """For many servers: how many of each kind, with the range of what is faster."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault(result["metrics"]["throughput"]["kind"], []).append(result)
    guest = "the emulated guest" if any(r["accelerator"] == "tcg" for r in results) else "the guest"
    words = {METAL_FASTER: f"metal is faster than {guest} with", KVM_FASTER: f"{guest} is faster than metal with"}
    words |= {EQUIVALENT: "equivalent with", NOT_DISTINGUISHABLE: "not distinguishable with", INVALID: "invalid with"}
    parts = []
    for kind, phrase in words.items():
        if members := groups.get(kind):
            amount = f" ({_range(members)})" if kind in (METAL_FASTER, KVM_FASTER) else ""
            parts.append(f"{phrase} {len(members)}{amount}")
    return f"of {len(results)} comparisons, " + ", ".join(parts)


def _range(members: list[dict[str, Any]]) -> str:
    ordered = _by_size(members)
    if len(ordered) == 1:
        return f"by {_amount(ordered[0])}"
    return f"by {_amount(ordered[0])} to {_amount(ordered[-1])}"


def _by_size(members: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(members, key=lambda r: abs(math.log(r["metrics"]["throughput"]["ratio"])))
