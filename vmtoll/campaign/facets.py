"""What a campaign's effects depend on: properties of the hosts (facets), and hosts that are unlike their kind.

All facets of all comparisons of a campaign are one family: together they report one that has no effect in at most 5% of
campaigns, by Bonferroni's inequality. So are all hosts: alike hosts whose log effects are normal have any reported as
odd in at most 5% of campaigns. A facet, or a host, also has to make a difference of the campaign's margin.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vmtoll.campaign.dataset import BedComparison, Subject
from vmtoll.model.host_columns import FACETS
from vmtoll.model.verdict import Estimate, Ratio
from vmtoll.statistics.groups import (
    Groups,
    explaining,
    numbered,
    outlier_limit,
    robust_deviations,
    without_groups,
)  # fmt: skip
from vmtoll.statistics.student import half_width
from vmtoll.statistics.thresholds import ALPHA, MIN_FLEET

Hosts = Mapping[str, Mapping[str, str | None]]  # test bed → column of the table of hosts → value


@dataclass(frozen=True)
class FacetValue:
    """The effect on the test beds whose host has one value; `estimate` with Student's interval at 95%."""

    value: str
    testbeds: int
    estimate: Ratio


@dataclass(frozen=True)
class Facet:
    """A property of hosts that an effect depends on, and the effect for each of its values."""

    comparison: Subject
    column: str
    values: tuple[FacetValue, ...]


@dataclass(frozen=True)
class OddHost:
    """A test bed whose effect is unlike that of its kind."""

    comparison: Subject
    testbed: str
    ratio: float
    expected: float  # the ratio of test beds with the same facets
    deviation: float  # in their standard deviations, beyond `limit`
    limit: float


@dataclass(frozen=True)
class Fleet:
    """`hosts`: the test beds with known hosts; `tested`: the pairs of comparison and facet. Empty with fewer than
    MIN_FLEET such test beds.
    """

    hosts: int = 0
    tested: int = 0
    facets: tuple[Facet, ...] = ()
    odd: tuple[OddHost, ...] = ()


def fleet(rows: Sequence[BedComparison], hosts: Hosts, margin: float) -> Fleet:
    """Facets and odd hosts of a campaign; `margin`: the least difference that matters, a fraction."""
    groups: dict[Subject, list[BedComparison]] = {}
    for row in rows:
        if row.mid is not None and row.testbed in hosts:
            groups.setdefault(row.subject, []).append(row)
    large = {key: members for key, members in groups.items() if len(members) >= MIN_FLEET}
    if not large:
        return Fleet(hosts=len(hosts))
    factors = {key: _factors(members, hosts) for key, members in large.items()}
    tested = sum(map(len, factors.values()))
    error_of_host = ALPHA / sum(map(len, large.values()))
    facets, odd = list[Facet](), list[OddHost]()
    for key, members in large.items():
        found, hosts_found = _facets_and_odd_hosts(
            key, members, factors[key], ALPHA / max(1, tested), error_of_host, margin
        )
        facets += found
        odd += hosts_found
    return Fleet(
        len(hosts), tested, tuple(facets), tuple(sorted(odd, key=lambda host: -abs(host.deviation)))
    )  # fmt: skip


def _factors(members: Sequence[BedComparison], hosts: Hosts) -> dict[str, tuple[list[str], Groups]]:
    """Column → its frequent values and their places, for the columns that differ between these test beds."""
    factors = {column: numbered([hosts[row.testbed].get(column) for row in members]) for column in FACETS}
    return {column: (names, groups) for column, (names, groups) in factors.items() if len(names) > 1}


def _facets_and_odd_hosts(
    key: Subject, members: Sequence[BedComparison], factors: Mapping[str, tuple[list[str], Groups]], level: float,
    error_of_host: float, margin: float,
) -> tuple[list[Facet], list[OddHost]]:  # fmt: skip
    logs = np.array([row.mid for row in members], dtype=float)
    least = math.log1p(margin)
    chosen = explaining(logs, {column: groups for column, (_, groups) in factors.items()}, level)
    rest, facets = logs, list[Facet]()
    for column in chosen:
        names, groups = factors[column]
        values = tuple(_value(name, logs[groups == number]) for number, name in enumerate(names))
        ratios = [value.estimate.value for value in values]
        if math.log(max(ratios) / min(ratios)) >= least:
            facets.append(Facet(key, column, tuple(sorted(values, key=lambda value: value.estimate.value))))
        rest = without_groups(rest, groups)
    deviations, centred = robust_deviations(rest), rest - np.median(rest)
    limit = outlier_limit(len(rest), error_of_host)
    places = np.flatnonzero((np.abs(deviations) > limit) & (np.abs(centred) >= least))
    return facets, [
        OddHost(
            key, members[int(place)].testbed, math.exp(logs[place]), math.exp(logs[place] - centred[place]),
            float(deviations[place]), limit,
        )
        for place in places
    ]  # fmt: skip


def _value(name: str, logs: np.ndarray) -> FacetValue:
    mean, half = float(logs.mean()), half_width(float(logs.std(ddof=1)), len(logs))
    return FacetValue(name, len(logs), Estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half)))
