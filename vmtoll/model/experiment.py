"""An experiment: a question, its matrix, and the claims of the source that it repeats."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from vmtoll.model.capacity import SharesOf
from vmtoll.model.document import Document
from vmtoll.model.facts import ALWAYS_DIFFER
from vmtoll.model.trial import Arm
from vmtoll.model.until import Until

SMALLEST_BLOCKS = 6

Scale = Literal["full", "small"]
Estimator = Literal["median", "mean-of-three", "trimmed-six"]


class NoiseFloor(Document):
    """The A/A control: `environment` a second time in each block, for these servers."""

    environment: str
    servers: list[str] = Field(min_length=1)

    @property
    def arm(self) -> Arm:
        return Arm(self.environment, 2)


class TuningSteps(Document):
    """`cumulative`: guest profiles from untuned to tuned, each compared with the one before it.

    `single`: profiles that each differ from `base` in one thing, compared with it.
    """

    cumulative: list[str] = Field(min_length=2)
    base: str | None = None
    single: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _a_base(self) -> Self:
        if bool(self.single) != bool(self.base):
            raise ValueError("base and single are given together or not at all")
        if self.base in self.single:
            raise ValueError(f"single: {self.base} is the base, which cannot be compared with itself")
        return self

    def named(self) -> list[tuple[str, list[str]]]:
        """Each key with the environments that it names."""
        return [
            ("cumulative[]", self.cumulative),
            ("base", [self.base] if self.base else []),
            ("single[]", self.single),
        ]

    @property
    def environments(self) -> list[str]:
        """All of them, each once."""
        return list(dict.fromkeys(name for _, names in self.named() for name in names))


class ClaimSide(Document):
    """Which trials: a name, or several names whose trials are taken together. `users`: of these numbers alone."""

    server: str | list[str]
    environment: str | list[str]
    workload: str | list[str]
    users: int | list[int] | None = None


class Claim(Document):
    """One claim and, where they were printed, the published figures (of `of`, of `over`) in the metric's unit.

    With `over` the figures give the direction; without figures `of` is claimed to be the larger. `within_pct` claims
    that both are equal to so many percent. `at_least` and `at_most` are levels and need no `over`.
    """

    says: str
    metric: str
    of: ClaimSide
    over: ClaimSide | None = None
    published: list[float] = Field(default_factory=list, max_length=2)
    within_pct: float | None = Field(default=None, gt=0, lt=100)
    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="before")
    @classmethod
    def _keys_of_the_other_side(cls, data: Any) -> Any:
        """`over` says only what differs from `of`."""
        if isinstance(data, dict) and isinstance(data.get("of"), dict) and isinstance(data.get("over"), dict):
            return data | {"over": data["of"] | data["over"]}
        return data

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        levels = [level for level in (self.at_least, self.at_most) if level is not None]
        if (self.over is None) != (len(levels) == 1):
            raise ValueError("give either over, or one of at_least and at_most")
        if self.within_pct is not None and self.over is None:
            raise ValueError("within_pct: needs over")
        if self.published and len(self.published) != (2 if self.over else 1):
            raise ValueError("published: one figure for each side")
        if self.over and self.within_pct is None and self.published and self.published[0] == self.published[1]:
            raise ValueError("published: equal figures give no direction; say within_pct")
        return self


class Experiment(Document):
    """A question and its matrix. Seconds are wall-clock; `margin_pct`: a smaller difference is of no importance.

    `boots`: the blocks are measured in so many groups, and before each but the first every machine under test boots.
    `pause_idle_guests`: on the physical machine that is measured. `until`: `blocks` and `boots` are those up to the
    first look; more follow, in boots of as many blocks, until the comparisons are known.
    """

    name: str
    question: str
    source: str | None = None  # the article that it repeats: title as in results/published
    purpose: Literal["measure", "smoke"] = "measure"
    scale: Scale | None = None  # which of the document's `scales` these keys are of; None: it has one size
    environments: list[str] = Field(min_length=1)
    servers: list[str] = Field(min_length=1)
    workloads: list[str] = Field(min_length=1)
    users: dict[str, int | list[int]] = Field(default_factory=dict)  # workload → only these of its numbers of users
    blocks: int = Field(default=10, gt=0)
    boots: int = Field(default=1, gt=0)
    until: Until | None = None
    warmup_s: float = Field(gt=0)
    duration_s: float = Field(gt=0)
    crosscheck_duration_s: float | None = Field(default=None, gt=0)
    link: str = "unshaped"
    seed: int | None = Field(default=None, ge=0)
    noise_floor: NoiseFloor | None = None
    shares_of: SharesOf = "baseline"
    pause_idle_guests: bool = True
    margin_pct: float = Field(default=2.0, gt=0, le=50)
    declared_differences: list[str] = Field(default_factory=lambda: list(ALWAYS_DIFFER))
    published_estimator: Estimator = "median"
    claims: list[Claim] = Field(default_factory=list)
    tuning_steps: TuningSteps | None = None

    @model_validator(mode="after")
    def _enough_blocks(self) -> Self:
        if self.blocks < SMALLEST_BLOCKS and self.purpose != "smoke" and self.scale != "small":
            raise ValueError(
                f"blocks: {self.blocks} is below {SMALLEST_BLOCKS}, too few for an interval; "
                "only an experiment with `purpose: smoke` or at `scale: small` may have fewer"
            )
        if self.boots > self.blocks:
            raise ValueError(f"boots: {self.boots} is above the number of blocks, {self.blocks}; a boot needs a block")
        if self.until and self.blocks < SMALLEST_BLOCKS:
            raise ValueError(f"blocks: {self.blocks} is below {SMALLEST_BLOCKS}, the fewest at which `until` may look")
        if self.until and self.blocks % self.boots:
            raise ValueError(
                f"boots: with `until` every boot has as many blocks, and {self.blocks} is no multiple of {self.boots}; "
                "change blocks or boots"
            )
        return self

    def boot_of(self, block: int) -> int:
        """The boot, from 1, that a block is measured in: groups of blocks as equal as can be."""
        return (block - 1) * self.boots // self.blocks + 1 if self.boots > 1 else 1

    @property
    def boot_blocks(self) -> int:
        """How many blocks a look must be a multiple of: those of a boot, 1 with a single boot."""
        return self.blocks // self.boots if self.boots > 1 else 1

    @property
    def crosscheck_s(self) -> float:
        """How long the cross-check should run."""
        return self.crosscheck_duration_s if self.crosscheck_duration_s is not None else self.duration_s

    @property
    def margin(self) -> float:
        """The margin of practical equivalence, a fraction."""
        return self.margin_pct / 100

    @property
    def prescribes_link(self) -> bool:
        """Whether the experiment itself sets the rate of the client's link."""
        return self.link != "unshaped"
