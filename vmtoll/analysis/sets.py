"""The values that a trial's figure may have had, given its findings and the disturbances measured in every trial.

A finding says how far a figure may be off, and in which direction; an analysis then holds for every value that the
findings allow (Manski 2003, "Partial Identification of Probability Distributions"). Each row below is one `Slack`.
docs/statistics.md has the table with the basis of each: a proof, a simulated queue, or a convention.

A disturbance that both sides of a block share is a condition of the comparison and widens nothing. For CPU time taken,
retransmitted segments, the clock rate, late starts, clock steps and failed requests, only the excess over the other
side counts, in every trial, whether a gate fired or not.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.trial import CROSSCHECK, Measurement, TrialRecord
from vmtoll.model.verdict import Cause
from vmtoll.statistics.thresholds import BACKGROUND_PCT, CLOCK_STEP_S, COLD_SHARE, NATURAL_FACTOR, STEAL_PCT

# The sides are not the same thing, a clock source changed, or a capacity is unknown: no bound exists.
NOT_COMPARABLE = frozenset(
    {Code.SYSCTL, Code.FINGERPRINT, Code.WRONG_BODY, Code.CLOCK_SOURCE, Code.CAPACITY_UNKNOWN}
)  # fmt: skip
LOST = frozenset({Code.TIMED_OUT, Code.SERVER_FAILED, Code.HOST_LOST, Code.TOOL_FAILED, Code.LOST_MAIL})
# The client or the link, not the server, set the figure.
OPEN_ENDED = frozenset({Code.CLIENT_SATURATED, Code.PORTS_EXHAUSTED, Code.CLIENT_STARVED, Code.LINK_BOUND})
_MOST_LOAD = 0.9
_LOG_NATURAL = math.log(NATURAL_FACTOR)
_RTO_S = 0.2  # the least retransmission timeout of Linux's TCP
TIMEOUTS = "timeouts"  # an amount without a code: how often TCP waited that long
_SEGMENT = 1448  # payload of a full one, bytes
_TICK_S = 0.01  # the unit in which the kernel counts CPU time
_CPU_TAKEN = (Code.STEAL, Code.BACKGROUND_CPU, Code.HOST_BACKGROUND_CPU)


Floats = npt.NDArray[np.float64]
# (latencies in the figure's unit, ascending; how many requests took at most that long) of a measurement, None without.
Latencies = Callable[[TrialRecord, Role], tuple[Floats, Floats] | None]


class Nature(StrEnum):
    """Kind of a figure, which decides what can move it."""

    RATE = "rate"
    PERCENTILE = "percentile"
    MEAN = "mean"
    CPU = "cpu"
    COUNT = "count"


@dataclass(frozen=True)
class Quantity:
    """A figure, as far as its bounds depend on it."""

    nature: Nature
    percentile: float = 0.0  # a fraction, 0 for other figures
    prefix: str = ""  # that of the record's percentiles, such as `response_time`
    unit_s: float = 1.0  # a second in the figure's unit, 1e6 for µs
    is_open: bool = False  # of an open loop
    prescribed: frozenset[Code] = frozenset()  # findings that are part of the question, so they widen nothing
    # whether the time of a single user's own client may be no part of the figure, as where the source of a claim had
    # another one
    excludes_client: bool = False


_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def is_rate(column: str) -> bool:
    """Return whether a column of trials.csv is a rate, or an amount in a given time."""
    return column.endswith(("_rps", "_mb_per_s")) or column in {"transactions", "transferred_mb"}


def quantity_of(column: str, *, is_open: bool) -> Quantity:
    """The quantity of a column of trials.csv, by its name."""
    prefix, _, name = column.removeprefix(CROSSCHECK).removesuffix("_us").rpartition("_")
    percentile = _PERCENTILES.get(name, 0.0) if column.endswith("_us") else 0.0
    if is_rate(column):
        nature = Nature.RATE
    elif percentile:
        nature = Nature.PERCENTILE
    elif column.endswith(("_mean_ms", "_mean_us")):
        nature = Nature.MEAN
    else:
        nature = Nature.CPU if column.endswith("cpu_us_per_request") else Nature.COUNT
    return Quantity(nature, percentile, prefix, 1e6 if column.endswith("_us") else 1e3, is_open)


@dataclass(frozen=True)
class Slack:
    """How far one finding lets a figure be off."""

    code: Code
    # `low`, `high`: factors on the ends
    low: float = 1.0
    high: float = 1.0
    down: float = 0.0  # subtracted from the low end
    # `down_q`, `up_q`: shares of the requests by which a percentile may lie lower or higher
    down_q: float = 0.0
    up_q: float = 0.0
    # an offset that may replace `low`, `down_q` and `up_q` of a percentile; the tighter bound counts
    offset: float | None = None


@dataclass(frozen=True)
class BoundedFigure:
    """low ≤ value ≤ high, in the figure's unit."""

    low: float
    value: float
    high: float
    # finding → how far it alone moves the lower and the upper end, in logs, infinite if it leaves an end open
    widths: Mapping[Code | Cause, tuple[float, float]] = field(default_factory=dict)
    # the figure without the client's own CPU time, if the quantity excludes it and it is known: the client does the
    # same work for both sides, so it counts on both or on neither
    value_without_client: float | None = None

    @property
    def is_limited(self) -> bool:
        """Return whether the client or the link set the figure, and an end reaches the natural limit."""
        return any(code in OPEN_ENDED and max(width) >= _LOG_NATURAL for code, width in self.widths.items())

    @property
    def without_client(self) -> "BoundedFigure":
        """The same without the client's own CPU time; unchanged if that is not known."""
        scale = self.value_without_client / self.value if self.value_without_client and self.value else 1.0
        return replace(self, low=self.low * scale, value=self.value * scale, high=self.high * scale)


@dataclass(frozen=True)
class Disturbance:
    """The disturbances of a measurement, by finding; CPU time and times in s, shares as fractions, segments."""

    amounts: Mapping[str, float]

    @property
    def taken_s(self) -> float:
        """CPU time that background processes and hypervisors took during the load."""
        return math.fsum(self.amounts.get(code, 0.0) for code in _CPU_TAKEN)

    def excess_over(self, common: "Disturbance") -> "Disturbance":
        """The excess over what both sides share. CPU time taken has one excess, split in proportion to its sources."""
        excess = {code: max(0.0, amount - common.amounts.get(code, 0.0)) for code, amount in self.amounts.items()}
        taken = max(0.0, self.taken_s - common.taken_s) / self.taken_s if self.taken_s else 0.0
        return Disturbance(excess | {code: taken * self.amounts[code] for code in _CPU_TAKEN if code in self.amounts})


UNDISTURBED = Disturbance({})


def common_disturbance(sides: Sequence[Sequence[Disturbance]]) -> Disturbance:
    """The disturbance that both sides of a block share: by finding, the smaller mean; none if a side has no trial."""
    if not all(sides):
        return UNDISTURBED
    means = []
    for side in sides:
        codes = {code for each in side for code in each.amounts}
        means.append({code: math.fsum(each.amounts.get(code, 0.0) for each in side) / len(side) for code in codes})
    common = {code: min(mean.get(code, 0.0) for mean in means) for code in {c for mean in means for c in mean}}
    # CPU time taken is compared as one sum over its sources.
    taken = [math.fsum(mean.get(code, 0.0) for code in _CPU_TAKEN) for mean in means]
    return Disturbance({code: amount for code, amount in common.items() if code not in _CPU_TAKEN} | {
        Code.BACKGROUND_CPU: min(taken)
    })  # fmt: skip


def disturbance(trial: TrialRecord, measurement: Measurement) -> Disturbance:
    """The disturbance of one measurement; a condition that its record lacks is taken from the trial. A CPU share that
    was not recorded counts as the limit of its gate. The guest's own steal counts as none if its host was watched,
    because it is the host's other work.
    """
    conditions, load_s = trial.conditions, measurement.duration_s or 0.0

    def amount(name: str, trial_value: float | None = None) -> float | None:
        value: float | None = getattr(measurement, name, None)
        return trial_value if value is None else value

    def seconds(share_pct: float | None, default_pct: float, cpus: float | None) -> float:
        return (default_pct if share_pct is None else share_pct) / 100 * (cpus or cores(trial)) * load_s

    background = amount("background_cpu_pct", conditions.background_cpu_pct)
    on_host = amount("host_background_cpu_pct", conditions.host_background_cpu_pct)
    cpus, host_cpus = amount("cpus"), amount("host_cpus")
    amounts: dict[str, float] = {Code.BACKGROUND_CPU: seconds(background, BACKGROUND_PCT, cpus)}
    if on_host is None:
        amounts[Code.STEAL] = seconds(amount("steal_pct", trial.resources.steal_pct), STEAL_PCT, cpus)
    else:
        amounts[Code.HOST_BACKGROUND_CPU] = seconds(on_host, 0.0, host_cpus)
        amounts[Code.STEAL] = seconds(amount("host_steal_pct"), STEAL_PCT, host_cpus)
    segments = amount("retransmitted_segments")
    if segments is None:
        segments = (conditions.retransmitted_pct or 0.0) / 100 * _segments(measurement)
    failed = (measurement.failed or 0) / measurement.requests if measurement.requests else 0.0
    amounts |= {
        Code.RETRANSMITS: segments,
        TIMEOUTS: segments if measurement.retransmission_timeouts is None else measurement.retransmission_timeouts,
        Code.FREQUENCY_SPREAD: (amount("cpu_mhz_spread_pct", conditions.cpu_mhz_spread_pct) or 0.0) / 100,
        Code.START_SPREAD: (measurement.start_spread_ms or 0.0) / 1000,
        Code.CLOCK_STEPPED: (amount("clock_step_ms", conditions.clock_step_ms) or 0.0) / 1000,
        Code.FAILED_REQUESTS: failed,
    }
    return Disturbance({code: value for code, value in amounts.items() if value})


def _segments(measurement: Measurement) -> float:
    """Estimated number of segments that a load sends: one per request, and the full ones of the bodies."""
    return (measurement.transactions or 0) + (measurement.transferred_mb or 0.0) * 1e6 / _SEGMENT


def cores(trial: TrialRecord) -> float:
    """The cores of the server, over all machines that share the load."""
    return (trial.resources.server_cores or 1) * max(trial.guests, 1)


def _cpu_headroom(trial: TrialRecord, measurement: Measurement) -> float:
    """Factor by which a server could have answered more if nothing else had limited it. By the utilization law its
    cores carry 1 ÷ busy times as much at the same CPU time per request, where busy is the share of them that it used
    (Denning and Buzen, "The operational analysis of queueing network models", 1978). CPU time per request falls with
    the rate, at most by its 0.17th power between 2% and 96% busy (the experiment tails, nginx and lighttz). The cube
    root of the rate is allowed for, which gives busy^(−1 ÷ (1 − 1/3)). Infinite if the CPU time or the cores are not
    known.
    """
    if trial.resources.server_cores is None:
        return math.inf
    return math.pow(_inverse(min(_busy(trial, measurement), 1.0)), 1.5) * _requests_per_answer(measurement)


def _requests_per_answer(measurement: Measurement) -> float:
    """Requests per answer, at least 1: requests that were given up used the CPU and the link as well."""
    return (
        max(1.0, (measurement.requests or 0) * _inverse(measurement.transactions or 0)) if measurement.requests else 1.0
    )


def load_of(trial: TrialRecord, measurement: Measurement) -> float:
    """The share of its cores that the server used, at most 0.9, so that queues stay finite."""
    return min(_MOST_LOAD, _busy(trial, measurement))


def _busy(trial: TrialRecord, measurement: Measurement) -> float:
    """The share of its cores that the server used; 0 where that is not known."""
    return (
        (measurement.server_cpu_s or 0.0) / (measurement.duration_s * cores(trial)) if measurement.duration_s else 0.0
    )


def bounds_of_figure(
    trial: TrialRecord, role: Role, value: float, quantity: Quantity, excess: Disturbance, latencies: Latencies
) -> BoundedFigure:
    """The values that a trial's figure may have had. `excess`: its disturbance beyond the other side's."""
    measurement = trial.measurement(role)
    if measurement is None or quantity.nature is Nature.COUNT:
        return BoundedFigure(value, value, value)
    if value <= 0:
        return _bounds_of_zero(measurement, quantity)
    slacks = [
        slack for slack in _slacks(trial, measurement, value, quantity, excess)
        if slack.code not in quantity.prescribed
    ]  # fmt: skip
    value_without_client = _without_client(trial, measurement, value, quantity)
    if not slacks:
        return BoundedFigure(value, value, value, value_without_client=value_without_client)
    quantile = _quantile_of(trial, role, measurement, quantity, latencies)
    highest = value * _link_headroom(trial, measurement, quantity)
    low, high = _ends(value, slacks, quantity, quantile)
    high = min(high, highest)
    widths = {}
    for slack in slacks:
        ends = _ends(value, [slack], quantity, quantile)
        ends = ends[0], min(ends[1], highest)
        widths[slack.code] = (log_of(value) - log_of(ends[0]), log_of(ends[1]) - log_of(value))
    kept: dict[Code | Cause, tuple[float, float]] = {c: width for c, width in widths.items() if max(width) > 0}
    return BoundedFigure(low, value, high, kept, value_without_client)


def _link_headroom(trial: TrialRecord, measurement: Measurement, quantity: Quantity) -> float:
    """Factor by which a rate could have been higher on a link whose rate the experiment prescribes: by the free part of
    the link, and the part that retransmitted segments took. Infinite for other figures, if the experiment prescribes no
    link, and if its use is not known: a record has only that of the primary measurement, of the busiest client.
    """
    used_pct = trial.resources.link_used_pct if measurement.role is Role.PRIMARY and trial.clients == 1 else None
    if quantity.nature is not Nature.RATE or Code.LINK_BOUND not in quantity.prescribed or not used_pct:
        return math.inf
    segments = measurement.retransmitted_segments
    retransmitted_pct = (
        trial.conditions.retransmitted_pct or 0.0 if segments is None
        else 100 * segments / (segments + _segments(measurement) or 1)
    )  # fmt: skip
    return max(1.0, 100 / used_pct) * _inverse(1 - retransmitted_pct / 100) * _requests_per_answer(measurement)


def log_of(value: float) -> float:
    """The natural logarithm; infinite for zero and for infinity."""
    return math.log(value) if 0 < value < math.inf else math.copysign(math.inf, value - 1)


def _bounds_of_zero(measurement: Measurement, quantity: Quantity) -> BoundedFigure:
    """The values of a figure of zero: at most one answer in the load, or one tick of the kernel's CPU clock."""
    if quantity.nature is Nature.RATE:
        highest = 1 / (measurement.duration_s or 1.0)
    else:
        highest = _TICK_S * quantity.unit_s / max(measurement.transactions or 1, 1)
    return BoundedFigure(0.0, highest, highest)


Quantile = Callable[[float, bool], float]


def _ends(value: float, slacks: Sequence[Slack], quantity: Quantity, quantile: Quantile) -> tuple[float, float]:
    """The low and the high end under all slacks: factors multiply, offsets and shares of requests add up."""
    down = math.fsum(slack.down for slack in slacks)
    if quantity.nature is not Nature.PERCENTILE:
        factors = math.prod(slack.low for slack in slacks), math.prod(slack.high for slack in slacks)
        return max(0.0, value * factors[0] - down), value * factors[1]

    def lower(route: tuple[list[Slack], float]) -> float:
        counted, offset = route
        shift = math.fsum(slack.down_q for slack in counted)
        start = min(value, quantile(quantity.percentile - shift, False)) if shift else value
        return start * math.prod(slack.low for slack in counted) - offset - down

    def upper(route: tuple[list[Slack], float]) -> float:
        counted, offset = route
        shift = math.fsum(slack.up_q for slack in counted)
        start = max(value, quantile(quantity.percentile + shift, True)) if shift else value
        return start * math.prod(slack.high for slack in slacks) + offset

    high = min(map(upper, _routes([slack for slack in slacks if slack.up_q or slack.high > 1])))
    return max(0.0, *map(lower, _routes(slacks))), high


def _routes(slacks: Sequence[Slack]) -> Iterator[tuple[list[Slack], float]]:
    """Yield each way to bound a percentile: the slacks that count by factors and shares, and the sum of the offsets of
    the others. Every bound holds, so the tightest one counts.
    """
    choices = [(False,) if slack.offset is None else (False, True) for slack in slacks]
    for replaced in itertools.product(*choices):
        counted = [slack for slack, by_offset in zip(slacks, replaced, strict=True) if not by_offset]
        yield counted, math.fsum(s.offset or 0.0 for s, by_offset in zip(slacks, replaced, strict=True) if by_offset)


def _quantile_of(
    trial: TrialRecord, role: Role, measurement: Measurement, quantity: Quantity, latencies: Latencies
) -> Quantile:
    """Return the quantile of a trial's histogram; without one, the next lower or higher percentile of its record."""
    names = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p999"), (1.0, "max"))

    def quantile(q: float, upwards: bool) -> float:
        if latency_counts := latencies(trial, role):
            values, cumulative_counts = latency_counts
            rank = math.ceil(min(max(q, 0.0), 1.0) * cumulative_counts[-1] - 1e-9)
            return (
                float(values[min(np.searchsorted(cumulative_counts, max(rank, 1)), len(values) - 1)]) if q > 0 else 0.0
            )
        figures = [(share, measurement.times(quantity.prefix).of(name)) for share, name in names]
        known = [(share, float(number)) for share, number in figures if number is not None]
        if upwards:
            return next((number for share, number in known if share >= q), math.inf)
        return next((number for share, number in reversed(known) if share <= q), 0.0)

    return quantile


def _slacks(
    trial: TrialRecord, measurement: Measurement, value: float, quantity: Quantity, excess: Disturbance
) -> list[Slack]:
    """How far each disturbance and each finding lets the figure be off."""
    by_code: dict[Code, Slack] = {}
    for finding in trial.findings:
        if finding.role in (measurement.role, None) and (slack := _by_finding(finding, trial, measurement, quantity)):
            by_code[slack.code] = _merge_slacks(slack, by_code.get(slack.code, slack))
    rows = [
        _cpu_taken(trial, measurement, quantity, excess),
        *_disturbance_slacks(trial, measurement, quantity, excess),
        *by_code.values(),
    ]
    return [slack for slack in rows if slack is not None]


def _merge_slacks(first: Slack, second: Slack) -> Slack:
    """Merge two findings of one code, from several clients: they are one disturbance, as large as the larger."""
    return Slack(
        first.code, min(first.low, second.low), max(first.high, second.high), max(first.down, second.down),
        max(first.down_q, second.down_q), max(first.up_q, second.up_q),
    )  # fmt: skip


def _cpu_taken(trial: TrialRecord, measurement: Measurement, quantity: Quantity, excess: Disturbance) -> Slack | None:
    """The slack of CPU time B that other work took, a share s of the server's: no departure is later by more than B
    (max-plus algebra of a queue), and at most a share 2s of the requests was touched, 2ks in an open loop and for CPU,
    where k is 1 ÷ (1 − load).
    """
    taken_s, load_s, count = excess.taken_s, measurement.duration_s or 0.0, cores(trial)
    if taken_s <= 0 or load_s <= 0:
        return None
    share, load = min(taken_s / (load_s * count), 1.0), load_of(trial, measurement)
    code = max(_CPU_TAKEN, key=lambda code: excess.amounts.get(code, 0.0))
    touched_share = 2 * share / (1 - load) if quantity.is_open or quantity.nature is Nature.CPU else 2 * share
    kept, longer, taken = max(0.0, 1 - touched_share), _inverse(1 - share), taken_s * quantity.unit_s
    steal_share = excess.amounts.get(Code.STEAL, 0.0) / taken_s
    charged = 1.0 if not steal_share else max(0.0, 1 - steal_share * share / load) if load else 0.0
    return _by_nature(
        quantity.nature,
        rate=Slack(code, 1 - share, _inverse(1 - max(2 * share, share * count))),
        percentile=Slack(code, kept, longer, down_q=touched_share, offset=taken),
        cpu=Slack(code, kept * charged, longer),
        mean=Slack(code, high=longer, down=taken),
    )


def _disturbance_slacks(
    trial: TrialRecord, measurement: Measurement, quantity: Quantity, excess: Disturbance
) -> list[Slack | None]:
    """The slacks of disturbances that every trial's columns record, by their excess over the other side."""
    amounts, load_s, requests = excess.amounts, measurement.duration_s or 0.0, max(measurement.transactions or 1, 1)
    queueing = 1 / (1 - load_of(trial, measurement))
    nature = quantity.nature
    slacks: list[Slack | None] = []
    segments = amounts.get(Code.RETRANSMITS, 0.0)
    if segments or amounts.get(TIMEOUTS):
        retransmit_share = _retransmit_share(amounts, _in_flight(trial), load_s, requests) if load_s else 0.0
        slacks.append(_by_nature(
            nature, rate=Slack(Code.RETRANSMITS, high=_inverse(1 - retransmit_share)),
            percentile=Slack(Code.RETRANSMITS, down_q=2 * max(segments, amounts.get(TIMEOUTS, 0.0)) / requests),
        ))  # fmt: skip
    if spread := min(amounts.get(Code.FREQUENCY_SPREAD, 0.0), 1.0):
        code, moved = Code.FREQUENCY_SPREAD, min(queueing * spread, 1.0)
        symmetric = Slack(code, 1 - spread, 1 + spread)
        slacks.append(_by_nature(nature, rate=symmetric, percentile=Slack(code, 1 - moved, 1 + moved), cpu=symmetric))
    if load_s and (spread_share := min(amounts.get(Code.START_SPREAD, 0.0) / load_s, 1.0)):
        code = Code.START_SPREAD
        slacks.append(_by_nature(
            nature, rate=Slack(code, 1 - spread_share, 1 + spread_share),
            percentile=Slack(code, up_q=(1 - quantity.percentile) * spread_share),
        ))  # fmt: skip
    if load_s and (step := amounts.get(Code.CLOCK_STEPPED)):
        code = Code.CLOCK_STEPPED
        part = min(1.0, step / CLOCK_STEP_S)
        slacks.append(_by_nature(
            nature, rate=Slack(code, load_s / (load_s + step), _inverse(1 - step / load_s)),
            percentile=Slack(code, down_q=0.01 * part, up_q=0.009 * part, offset=step * quantity.unit_s),
        ))  # fmt: skip
    if failed := amounts.get(Code.FAILED_REQUESTS):
        code = Code.FAILED_REQUESTS
        slacks.append(_by_nature(nature, rate=Slack(code, 1 - failed), percentile=Slack(code, up_q=failed)))
    return slacks


def _retransmit_share(amounts: Mapping[str, float], users: int, load_s: float, requests: float) -> float:
    """The share of the users' time that retransmitted segments cost: a timeout each, or a round trip if later segments
    revealed the loss. A round trip takes no longer than a request does on average.
    """
    timeouts = amounts.get(TIMEOUTS, 0.0)
    at_once = max(0.0, amounts.get(Code.RETRANSMITS, 0.0) - timeouts)
    return _RTO_S * timeouts / (users * load_s) + at_once / requests


def _by_finding(finding: Finding, trial: TrialRecord, measurement: Measurement, quantity: Quantity) -> Slack | None:
    """How far a finding lets the figure be off, by the finding's value and limit; None if it does not move it."""
    code, nature, load = finding.code, quantity.nature, load_of(trial, measurement)
    requests = measurement.requests or measurement.transactions or 1
    amount, limit = finding.value or 0.0, finding.limit or 0.0
    if code is Code.CLIENT_SATURATED and _users(trial) == 1 and (
        measurement.client_cpu_s or not quantity.excludes_client
    ):  # fmt: skip
        return None  # what one user gets includes the client; for a claim see _without_client
    rate: Slack | None = None
    percentile: Slack | None = None
    mean: Slack | None = None
    cpu: Slack | None = None
    match code:
        case _ if code in OPEN_ENDED:
            rate, percentile = Slack(code, high=_cpu_headroom(trial, measurement)), Slack(code, low=0.0)
            mean = percentile
        case Code.LITTLES_LAW if 0 < amount < limit:
            rate = Slack(code, high=limit / amount)
            mean = percentile = None if quantity.is_open else rate
        case Code.RATE_NOT_REACHED if 0 < amount < 1 and trial.offered.offered_rps:
            late_s = (1 / amount - 1) * requests / trial.offered.offered_rps
            mean = percentile = Slack(code, down=late_s * quantity.unit_s)
        case Code.CLIENT_LATE if measurement.lateness.max_us is not None:
            mean = percentile = Slack(code, down=measurement.lateness.max_us / 1e6 * quantity.unit_s)
        case Code.CLIENT_LATE:
            p99_us = amount or measurement.lateness.p99_us or 0.0
            percentile = Slack(code, down=p99_us / 1e6 * quantity.unit_s, down_q=0.02 / (1 - load))
            mean = Slack(code, low=0.0)
        case Code.WARMUP_DRIFT:
            third = min(amount / 100, 1.0) / 3
            rate, percentile = Slack(code, high=_inverse(1 - third)), Slack(code, down_q=1 / 3)
            mean = cpu = Slack(code, low=1 - third)
        case Code.NOT_COLD if limit > 0:
            read = min(amount / limit, 1.0) * COLD_SHARE
            rate, percentile = Slack(code, low=read), Slack(code, up_q=(1 - quantity.percentile) * (1 - read))
    return _by_nature(nature, rate=rate, percentile=percentile, mean=mean, cpu=cpu)


def _without_client(trial: TrialRecord, measurement: Measurement, value: float, quantity: Quantity) -> float | None:
    """The figure v of a single user in a closed loop without the CPU time of its own client, u per request. Nothing
    else waits for that client, so the server and the network took 1 ÷ v − u. It replaces the slack of client-saturated.
    None if it does not apply, or if the client used all of the time.
    """
    if not quantity.excludes_client or quantity.is_open or _users(trial) != 1:
        return None
    if not measurement.client_cpu_s or not measurement.transactions:
        return None
    client_s = measurement.client_cpu_s / measurement.transactions
    if quantity.nature is Nature.RATE:
        share = measurement.client_cpu_s / (measurement.duration_s or math.inf)
        return value / (1 - share) if share < 1 else None
    client_time = client_s * quantity.unit_s
    return value - client_time if quantity.nature in (Nature.PERCENTILE, Nature.MEAN) and value > client_time else None


def _by_nature(
    nature: Nature, *, rate: Slack | None = None, percentile: Slack | None = None, cpu: Slack | None = None,
    mean: Slack | None = None,
) -> Slack | None:  # fmt: skip
    return {Nature.RATE: rate, Nature.PERCENTILE: percentile, Nature.CPU: cpu, Nature.MEAN: mean}.get(nature)


def _users(trial: TrialRecord) -> int:
    return trial.offered.users or 0


def _in_flight(trial: TrialRecord) -> int:
    return max(_users(trial), 1)


def _inverse(value: float) -> float:
    return 1 / value if value > 0 else math.inf
