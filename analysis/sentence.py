"""The verdict of a run as one sentence for people: throughput, and the tail where the run has one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from analysis.judge import EQUIVALENT, INVALID, KVM_FASTER, METAL_FASTER, NOT_DISTINGUISHABLE, percent
from analysis.load import VERDICTS

SENTENCE_LIMIT = 300


def sentence(outcome: dict[str, Any]) -> str:
    """One sentence of at most 300 characters; the long form where it fits, else counts of each kind."""
    start = "Emulation (TCG), not KVM: " if outcome["emulated"] else ""
    if not outcome["complete"]:
        done = sum(outcome["counts"][name] for name in VERDICTS)
        planned = outcome["counts"]["planned"]
        start += f"incomplete run ({done} of {planned} trials): " if planned else "incomplete run: "
    end = _basis(outcome)
    for body in _bodies(outcome["results"], searched=bool(outcome["searches"])):
        whole = f"{start}{body}{end}."
        if len(whole) <= SENTENCE_LIMIT:
            break
    whole = whole[0].upper() + whole[1:]
    return whole if len(whole) <= SENTENCE_LIMIT else whole[: SENTENCE_LIMIT - 1] + "…"


def _bodies(results: list[dict[str, Any]], *, searched: bool) -> list[str]:
    """The same said at length, shorter, shortest."""
    throughput, tail = (Told.of(results, metric) for metric in ("throughput", "tail"))
    if not results and searched:
        return ["a search for the highest rate that each side carries: see the capacity of one"]
    if not throughput.members and not tail.members:
        return ["there is no guest to compare with metal"]
    if not tail.members:
        return [throughput.in_words(), throughput.in_counts()]
    name = "p99 under open load: "
    if not throughput.members:
        return [name + tail.in_words(), name + tail.in_counts()]
    long, short = throughput.in_words(), throughput.in_counts()
    return [
        f"{a}; {name}{b}" for a, b in ((long, tail.in_words()), (long, tail.in_counts()), (short, tail.in_counts()))
    ]


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


@dataclass(frozen=True)
class Told:
    """The results of one metric, to be put into words."""

    metric: str
    members: list[dict[str, Any]]
    several_guests: bool
    guest: str

    @classmethod
    def of(cls, results: list[dict[str, Any]], metric: str) -> Told:
        """The results under whose load the metric says something."""
        members = [r for r in results if r["metrics"][metric]["applies"]]
        emulated = any(r["accelerator"] == "tcg" for r in members)
        several = len({r["environment"] for r in results}) > 1
        return cls(metric, members, several, "the emulated guest" if emulated else "the guest")

    def in_words(self) -> str:
        """Every server by name."""
        groups = self._groups()
        parts = []
        for kind, slower in ((METAL_FASTER, f"than {self.guest} "), (KVM_FASTER, "than metal ")):
            if members := groups.get(kind):
                subject = "metal" if kind == METAL_FASTER else self.guest
                parts.append(f"{subject} is faster {slower}{self._amounts(members)}")
        for kind, phrase in ((EQUIVALENT, "equivalent"), (NOT_DISTINGUISHABLE, NOT_DISTINGUISHABLE)):
            if members := groups.get(kind):
                texts = {self._one(member)["text"] for member in members}
                parts.append(f"{self._names(members)}: {texts.pop() if len(texts) == 1 else phrase}")
        if members := groups.get(INVALID):
            reasons = sorted({self._one(m)["text"] for m in members})
            parts.append(f"{self._names(members)}: {reasons[0] if len(reasons) == 1 else 'invalid'}")
        return "; ".join(parts)

    def in_counts(self) -> str:
        """For many servers: how many of each kind, with the range of what is faster."""
        groups, guest = self._groups(), self.guest
        words = {METAL_FASTER: f"metal is faster than {guest} with", KVM_FASTER: f"{guest} is faster than metal with"}
        words |= {EQUIVALENT: "equivalent with", NOT_DISTINGUISHABLE: "not distinguishable with"}
        words |= {INVALID: "invalid with"}
        parts = []
        for kind, phrase in words.items():
            if members := groups.get(kind):
                amount = f" ({self._range(members)})" if kind in (METAL_FASTER, KVM_FASTER) else ""
                parts.append(f"{phrase} {len(members)}{amount}")
        return f"of {len(self.members)} comparisons, " + ", ".join(parts)

    def _one(self, result: dict[str, Any]) -> dict[str, Any]:
        return dict(result["metrics"][self.metric])

    def _groups(self) -> dict[str, list[dict[str, Any]]]:
        groups: dict[str, list[dict[str, Any]]] = {}
        for result in self.members:
            groups.setdefault(self._one(result)["kind"], []).append(result)
        return groups

    def _amounts(self, members: list[dict[str, Any]]) -> str:
        """`with nginx by 8.1%`, or the range over all servers when there are many."""
        ordered = self._by_size(members)
        if len(ordered) <= 2:
            return "with " + " and ".join(f"{self._name(r)} by {self._amount(r)}" for r in ordered)
        things = "servers" if len({r["server"] for r in members}) == len(members) else "scenarios"
        every = f"every {things[:-1]}" if len(members) == len(self.members) else f"{len(members)} {things}"
        low, high = ordered[0], ordered[-1]
        least, most = self._amount(low), self._amount(high)
        if "a factor of" in least:
            most = most.replace("a factor of ", "")
        return f"with {every}, by {least} ({self._name(low)}) to {most} ({self._name(high)})"

    def _range(self, members: list[dict[str, Any]]) -> str:
        ordered = self._by_size(members)
        if len(ordered) == 1:
            return f"by {self._amount(ordered[0])}"
        return f"by {self._amount(ordered[0])} to {self._amount(ordered[-1])}"

    def _by_size(self, members: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(members, key=lambda r: abs(math.log(self._one(r)["ratio"])))

    def _amount(self, result: dict[str, Any]) -> str:
        return str(self._one(result)["text"]).split("faster by ", 1)[1]

    def _name(self, result: dict[str, Any]) -> str:
        return f"{result['label']} on {result['environment']}" if self.several_guests else str(result["label"])

    def _names(self, members: list[dict[str, Any]]) -> str:
        return ", ".join(self._name(member) for member in members)
