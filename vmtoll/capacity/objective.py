"""The objective that one machine must meet, and the demand that all machines must carry together."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class SloPart(StrEnum):
    """The part of an objective that is missed. GROWTH: response times grow within the trials, so p99 depends on how
    long these last; NO_FIGURES: the objective cannot be judged.
    """

    P99 = "p99"
    AVAILABILITY = "availability"
    GROWTH = "growing-response-times"
    NO_FIGURES = "no-figures"


@dataclass(frozen=True)
class Slo:
    """The objective: 99% of the requests answered within `p99_ms`, counted from the intended send, and
    `availability_pct` of all requests answered with success; no number of requests can show 100%.
    """

    p99_ms: Positive
    availability_pct: Annotated[float, Field(gt=0, lt=100)] = 99.9


@dataclass(frozen=True)
class Demand:
    """`rate_rps`: for all machines together; the plan adds `headroom_pct` to the rate, and `spare` machines.

    `guests_per_host`: how many guests share a host. Costs are in the user's own currency per host and hour, `watts` per
    host under load; None leaves the figure out.
    """

    rate_rps: Positive
    headroom_pct: NotNegative = 30.0
    spare: Annotated[int, Field(ge=0)] = 1
    guests_per_host: Annotated[int, Field(ge=1)] = 1
    host_cost_per_hour: NotNegative | None = None
    watts: NotNegative | None = None
