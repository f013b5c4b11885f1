"""Gates: what makes a trial suspect or invalid. Pure functions; each gives reasons or none."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from workloads.runner.registry import PROJECT

Verdict = Literal["valid", "suspect", "invalid"]

CLIENT_SHARE = 0.85
LINK_SHARE = 0.90
LITTLE_OFF = 0.05
STEAL_PCT = 0.5
# Headers are served, not read; what is read ahead makes more than up for them.
COLD_SHARE = 0.95
RATE_REACHED = 0.98
SPREAD_S = 0.050
SPREAD_SHARE = 0.02

# Code → verdict: results/schema/gates.json is the one place that names the gates.
GATES: dict[str, Verdict] = {
    code: gate["verdict"]
    for code, gate in json.loads((PROJECT / "results" / "schema" / "gates.json").read_text(encoding="utf-8")).items()
}
FINGERPRINT_KEYS = ("binary_sha256", "config_sha256", "workers")


@dataclass(frozen=True)
class Reason:
    """A gate that fired: its code, and what was seen."""

    code: str
    detail: str

    def __str__(self) -> str:
        return f"{self.code}: {' '.join(self.detail.replace('|', '/').split())}"


def client_saturated(share: float | None, tool: str, *, twin: bool = False) -> list[Reason]:
    """The tool used more than 85 % of the CPU time its threads could have had."""
    if share is None or share <= CLIENT_SHARE:
        return []
    code = "twin-client-saturated" if twin else "client-saturated"
    return [Reason(code, f"{tool} used {share:.0%} of the CPU time it could have had")]


def link_bound(used_pct: float, client: str) -> list[Reason]:
    """More than 90 % of the line rate: no evidence of low overhead."""
    if used_pct <= LINK_SHARE * 100:
        return []
    return [Reason("link-bound", f"{client}: {used_pct:.1f} % of the line rate")]


def start_spread(spread_s: float | None, wall_s: float, tool: str) -> list[Reason]:
    """The clients' first requests lay more than 50 ms and 2 % of the load's time apart."""
    if spread_s is None or spread_s <= max(SPREAD_S, SPREAD_SHARE * wall_s):
        return []
    return [Reason("start-spread", f"{tool}: the clients began {spread_s * 1000:.0f} ms apart")]


def littles_law(concurrency: float | None, users: int, elapsed_s: float, tick_s: float, tool: str) -> list[Reason]:
    """Requests in flight on average must be the number of users, in a closed loop without pauses.

    A tool that counts time in ticks of `tick_s` sees only so many of them: what two standard deviations of
    that count explain is no finding.
    """
    if concurrency is None or elapsed_s <= 0:
        return []
    noise = 2 * math.sqrt(tick_s / (users * elapsed_s))
    if abs(concurrency / users - 1) <= max(LITTLE_OFF, noise):
        return []
    return [Reason("littles-law", f"{tool} had {concurrency:.2f} requests in flight, {users} users")]


def rate_not_reached(requests: int, rate_rps: float, last_late_us: float, tool: str) -> list[Reason]:
    """An open loop sent less than 98 % of its rate: its last request left so many µs late."""
    reached = requests / (requests + rate_rps * max(last_late_us, 0) / 1e6)
    if reached >= RATE_REACHED:
        return []
    return [Reason("rate-not-reached", f"{tool} sent {reached:.1%} of the {rate_rps:.0f} requests per second offered")]


def mean_over_p99(row: Mapping[str, object], kind: str) -> list[Reason]:
    """A mean above the 99th percentile: under one request in a hundred took most of the time. `kind`: service_time…"""
    mean, p99 = row.get(f"{kind}_mean_us"), row.get(f"{kind}_p99_us")
    if not isinstance(mean, float) or not isinstance(p99, float) or mean <= p99:
        return []
    return [Reason("mean-over-p99", f"{kind.replace('_', ' ')}: mean {mean:.0f} µs, p99 {p99:.0f} µs")]


def not_cold(read_mb: float, served_mb: float, machine: str) -> list[Reason]:
    """Less was read from the disks than was served."""
    if read_mb >= COLD_SHARE * served_mb:
        return []
    return [Reason("not-cold", f"{machine} read {read_mb:.1f} MB to serve {served_mb:.1f} MB")]


def steal(steal_pct: float | None) -> list[Reason]:
    """The machine's own host took CPU time away."""
    if steal_pct is None or steal_pct <= STEAL_PCT:
        return []
    return [Reason("steal", f"{steal_pct:.2f} % of the CPU time was stolen")]


def failed_requests(planned: int, transactions: int, successful: int, failed: int, tool: str) -> list[Reason]:
    """Every planned request was made and succeeded, or the trial is void."""
    if failed == 0 and transactions == successful == planned:
        return []
    seen = f"{tool}: {successful} of {planned} requests succeeded, {failed} failed"
    return [Reason("failed-requests", seen)]


def lost_mail(counted: Mapping[str, int]) -> list[Reason]:
    """A message that the server accepted is in no mailbox, or in one twice. `counted`: the columns `messages_*`."""
    if not counted["messages_lost"] and not counted["messages_doubled"]:
        return []
    lost, doubled, accepted = (counted[f"messages_{what}"] for what in ("lost", "doubled", "accepted"))
    return [Reason("lost-mail", f"of {accepted} messages accepted {lost} are in no mailbox, {doubled} are there twice")]


def wrong_bodies(wrong: Sequence[str]) -> list[Reason]:
    """Bodies whose digest is not the manifest's."""
    if not wrong:
        return []
    return [Reason("wrong-body", f"{len(wrong)} wrong, first {wrong[0]}")]


def fingerprint(reference: Mapping[str, object], seen: Mapping[str, object], server: str) -> list[Reason]:
    """Binary, configuration and worker count are those of the reference machine."""
    differ = [key for key in FINGERPRINT_KEYS if reference.get(key) != seen.get(key)]
    return [Reason("fingerprint", f"{server}: {', '.join(differ)} differ")] if differ else []


def content(expected: str, seen: str | None) -> list[Reason]:
    """The site on the machine is the one that the experiment names."""
    if seen == expected:
        return []
    return [Reason("fingerprint", f"content digest {str(seen)[:12]} instead of {expected[:12]}")]


def verdict(reasons: Sequence[Reason]) -> Verdict:
    """The worst of the reasons. An unknown code is a bug and raises ValueError."""
    for reason in reasons:
        if reason.code not in GATES:
            raise ValueError(f"no such gate: {reason.code}")
    found = {GATES[r.code] for r in reasons}
    return "invalid" if "invalid" in found else "suspect" if found else "valid"


def join(reasons: Sequence[Reason]) -> str:
    """The `reasons` column."""
    return " | ".join(str(r) for r in reasons)
