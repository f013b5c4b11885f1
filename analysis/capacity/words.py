"""Capacity in words: the sentence that decides, and the lines behind it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from analysis.capacity.power import power_words
from analysis.capacity.resources import many
from analysis.capacity.rungs import ENDS, HIGH, LOW, MID
from analysis.capacity.slo import Demand, Slo
from analysis.judge import percent
from analysis.load import BASELINE


def sentences(results: list[dict[str, Any]], slo: Slo, demand: Demand) -> list[str]:
    """One sentence per server and ladder: `nginx: 2,000/s at p99 ≤ 50 ms …: you need 3 metal hosts or 5 guests …`."""
    said = []
    for (server, workload), group in groupby(results, key=lambda r: (r["server"], r["workload"])):
        sides = list(group)
        several = len({r["workload"] for r in results}) > 1
        name = f"{server} ({workload})" if several else server
        asked = f"{demand.rate_rps:,.0f}/s at {slo.words}, {demand.headroom_pct:g}% headroom, {demand.spare} spare"
        needs = [_need(side) for side in sides if side["plan"][LOW] and not side["shape_only"]]
        others = [_no_number(side) for side in sides if not side["plan"][LOW] or side["shape_only"]]
        parts = ([f"you need {' or '.join(needs)}"] if needs else []) + others
        exposed = [side["environment"] for side in sides if _host_is_missed(side["plan"][LOW])]
        beware = f" Beware: the loss of one host overloads what is left of {' and '.join(exposed)}." if exposed else ""
        said.append(f"{name}, {asked}: {'; '.join(parts)}.{beware}")
    return said


def _host_is_missed(plan: dict[str, Any] | None) -> bool:
    return plan is not None and (plan["load_after_host_failure"] or math.inf) > 1


def _need(side: dict[str, Any]) -> str:
    plan, most = side["plan"][LOW], "at most " if side["at_least"] else ""
    if side["environment"] == BASELINE:
        return f"{most}{many(plan['units'], 'metal host')}"
    guests = many(plan["units"], "guest")
    return f"{most}{guests} ({side['environment']}) on {many(plan['hosts'], 'host')}"


def _no_number(side: dict[str, Any]) -> str:
    if side["shape_only"]:
        return f"{side['environment']} ran on emulation (TCG): shape only, no number of guests follows"
    name, first = side["environment"], f"{side['measured'][0]:,.0f}/s, the lowest rate measured"
    if side["one"][HIGH] is None:
        return f"{name} misses it at {first}: nothing follows"
    return f"{name} is not shown to meet it at {first}; in the way: {side['binds']}"


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The whole finding as text for a terminal, sentences first."""
    yield from found["sentences"]
    for result in found["results"]:
        yield ""
        yield f"{result['server']} on {result['environment']}, {result['workload']} ({result['size']} each)"
        yield from (f"    {name}: {text}" for name, text in facts(result))
    for more in (list(beside(found)), [f"assumed: {text}" for text in found["assumes"]]):
        if more:
            yield ""
            yield from more


def beside(found: dict[str, Any]) -> Iterator[str]:
    """What is known beside the capacity of one: how many guests may share a host, and how throughput scales."""
    for one in found["guests_per_host"]:
        yield f"{one['server']} on {_where(one)}, {one['workload']}: {one['text']}"
    for law in found["scaling"]:
        name = "Universal Scalability Law"
        yield f"scaling of {law['server']} on {_where(law)} over {law['over']} ({name}): {law['text']}"


def _where(one: dict[str, Any]) -> str:
    return f"{one['environment']}{' (emulated: shape only)' if one['shape_only'] else ''}"


def facts(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, text) of everything that is known of one server on one environment."""
    if result["shape_only"]:
        yield "shape only", "software emulation (TCG): none of these figures is a KVM figure"
    yield "one carries", one_words(result)
    yield "trials", f"{result['trials']} at {many(result['rates'], 'rate')}"
    yield "what binds", result["binds"]
    yield "in use there", used_words(result)
    if result["p99_ms"]:
        yield "p99 there", f"{range_words(result['p99_ms'])} ms"
    yield "a request takes", request_words(result)
    if result["watts"]:
        yield "its host draws", power_words(result["watts"])
    if result["erlang_c"]:
        bound = result["erlang_c"]
        queue = f"a queue for {many(bound['cpus'], 'CPU')} at {bound['work_us']:,.0f} µs a request"
        up_to = f"holds this p99 up to {bound['rate_rps']:,.0f}/s" if bound["rate_rps"] else "never holds this p99"
        yield "Erlang C", f"{queue} {up_to}"
    if result["plan"] and not result["shape_only"]:
        yield from _plan_facts(result)
    yield from (("note", note) for note in result["notes"])


def one_words(result: dict[str, Any]) -> str:
    """`1,000/s (by the estimate 2,000/s, at best 2,000/s; measured from 500 to 3,000/s)`."""
    low, mid, high = (_rate(result["one"][end]) for end in ENDS)
    least = "at least " if result["at_least"] else ""
    other = "" if low == mid == high else f"by the estimate {mid}, at best {high}; "
    first, last = result["measured"]
    return f"{least}{low} ({other}measured from {first:,.0f} to {last:,.0f}/s)"


def used_words(result: dict[str, Any]) -> str:
    """`CPU 40%, memory 0.4%, link unknown`."""
    used = result["used"]
    names = (("CPU", "cpu"), ("memory", "memory"), ("link", "link"))
    return ", ".join(f"{name} {'unknown' if used[key] is None else percent(used[key])}" for name, key in names)


def request_words(result: dict[str, Any]) -> str:
    """`0.045 ms of CPU, 0.0087 MiB`; of a guest also the CPU of its host."""
    each = result["per_request"]
    units = (
        ("cpu_ms", "ms of CPU"),
        ("host_cpu_ms", "ms of the host's CPU"),
        ("host_j", "J"),
        ("mib", "MiB of bodies"),
    )
    return ", ".join(f"{range_words(each[key])} {unit}" for key, unit in units if each[key]) or "unknown"


def range_words(estimate: dict[str, Any]) -> str:
    """`0.045 [0.044, 0.046]`; without the brackets where there is no interval."""
    text = f"{estimate[MID]:.3g}"
    if not estimate[LOW] or estimate[HIGH] is None:
        return text
    low, high = f"{estimate[LOW]:.3g}", f"{estimate[HIGH]:.3g}"
    return text if low == high else f"{text} [{low}, {high}]"


def _plan_facts(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    plan, guest = result["plan"][LOW], result["environment"] != BASELINE
    units = " / ".join("–" if result["plan"][end] is None else str(result["plan"][end]["units"]) for end in ENDS)
    yield ("guests needed" if guest else "hosts needed"), f"{units} (by the low / mid / high rate of one)"
    if plan is None:
        return
    yield "load on each", _load(plan["load"])
    yield "after one fails", _load(plan["load_after_failure"])
    if guest:
        yield "after a host fails", _load(plan["load_after_host_failure"])
    for key, name in (
        ("cost_per_million", "cost of a million requests"),
        ("watt_hours_per_million", "watt-hours per million requests"),
    ):
        if plan[key] is not None:
            figures = [f"{result['plan'][end][key]:.3g}" if result["plan"][end] else "–" for end in ENDS]
            yield name, f"{' / '.join(figures)} (by the same)"


def _load(share: float | None) -> str:
    if share is None:
        return "nothing is left"
    return f"{percent(share)} of the capacity of one" + (": too much" if share > 1 else "")


def _rate(rate: float | None) -> str:
    return "no rate" if rate is None else f"{rate:,.0f}/s"
