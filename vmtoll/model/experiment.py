"""An experiment: a question, its matrix, and the claims of the source that it repeats."""

import itertools
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from vmtoll.model.capacity import SharesOf
from vmtoll.model.change import Change
from vmtoll.model.density import Density
from vmtoll.model.document import Document
from vmtoll.model.exits import Explain
from vmtoll.model.facts import ALWAYS_DIFFER
from vmtoll.model.first_answer import FirstAnswer, Way
from vmtoll.model.operation import Operation
from vmtoll.model.service import Service
from vmtoll.model.trial import METAL, Arm, MachineKind, kind_of
from vmtoll.model.until import Until

SMALLEST_BLOCKS = 6

Scale = Literal["full", "small"]
Estimator = Literal["median", "mean-of-three", "trimmed-six"]


class NoiseFloor(Document):
    """The A/A control: `environment` a second time in each block, for these servers."""

    environment: str = Field(description="environment that is measured a second time in each block")
    servers: list[str] = Field(min_length=1, description="servers for which it is")

    @property
    def arm(self) -> Arm:
        return Arm(self.environment, 2)


class TuningSteps(Document):
    """Guest profiles that are compared step by step."""

    cumulative: list[str] = Field(
        min_length=2, description="guest profiles from untuned to tuned, each compared with the one before it"
    )
    base: str | None = Field(default=None, description="profile that each of `single` is compared with")
    single: list[str] = Field(default_factory=list, description="profiles that each differ from `base` in one thing")

    @model_validator(mode="after")
    def _a_base(self) -> Self:
        if bool(self.single) != bool(self.base):
            raise ValueError("base and single are given together or not at all")
        if self.base in self.single:
            raise ValueError(f"single: {self.base} is the base, which cannot be compared with itself")
        return self

    def names_by_key(self) -> list[tuple[str, list[str]]]:
        """(key, environments that it names) for each key."""
        return [
            ("cumulative[]", self.cumulative),
            ("base", [self.base] if self.base else []),
            ("single[]", self.single),
        ]

    @property
    def environments(self) -> list[str]:
        """Environments of all steps, each once."""
        return list(dict.fromkeys(name for _, names in self.names_by_key() for name in names))


class ClaimSide(Document):
    """Trials that a claim is about."""

    server: str | list[str] = Field(description="server, or several whose trials are taken together")
    environment: str | list[str] = Field(description="environment, or several")
    workload: str | list[str] = Field(description="workload, or several")
    users: int | list[int] | None = Field(
        default=None, description="of a workload with several numbers of users, only these"
    )


class Claim(Document):
    """One claim of the source, with the published values where it prints them."""

    says: str = Field(description="the claim in one sentence")
    metric: str = Field(description="column of `results/schema/trials.json`, `peak_goodput_rps` or `goodput_knee_rps`")
    of: ClaimSide = Field(
        description="the trials that it is about; without `published` they are claimed to have the larger value"
    )
    over: ClaimSide | None = Field(
        default=None, description="what they are compared with; a key that is not given is as in `of`"
    )
    published: list[float] = Field(
        default_factory=list,
        max_length=2,
        description="printed values of `of` and of `over`, in the metric's unit; they give the direction",
    )
    within_pct: float | None = Field(
        default=None, gt=0, lt=100, description="claims that both sides are equal within this percentage"
    )
    at_least: float | None = Field(default=None, description="claims a level, instead of `over`")
    at_most: float | None = Field(default=None, description="claims a level, instead of `over`")

    @model_validator(mode="before")
    @classmethod
    def _keys_of_the_other_side(cls, data: Any) -> Any:
        """Fill in `over`, which states only what differs from `of`."""
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
            raise ValueError("published: one value for each side")
        if self.over and self.within_pct is None and self.published and self.published[0] == self.published[1]:
            raise ValueError("published: equal values give no direction; give within_pct")
        return self


class ProfileVariant(Document):
    """A guest profile made out of another one; it becomes a separate guest."""

    of: str = Field(description="profile that it builds on")
    keys: dict[str, str | int | list[str] | dict[str, Any]] = Field(
        min_length=1, description="keys of a guest profile and their values here; `cmdline` adds to that of `of`"
    )

    @field_validator("keys", mode="before")
    @classmethod
    def _of_yaml(cls, given: object) -> object:
        for key, value in given.items() if isinstance(given, Mapping) else ():
            is_texts = isinstance(value, list) and all(isinstance(word, str) for word in value)
            if not (is_texts or isinstance(value, (str, int, Mapping))):
                raise ValueError(f"{key}: {value!r} is no text, number or list of texts, and no mapping of kvm and tcg")
        return given


class Experiment(Document):
    """A question, its matrix, and how it is measured."""

    name: str
    question: str = Field(description="what it should answer, one sentence")
    source: str | None = Field(
        default=None, description="title of the article that it repeats, as in `results/published`"
    )
    purpose: Literal["measure", "smoke"] = Field(
        default="measure", description="`smoke` may have fewer than six blocks, too few to show equality"
    )
    scale: Scale | None = Field(
        default=None, description="which of the file's `scales` these keys are of; set by vmtoll"
    )
    environments: list[str] = Field(
        min_length=1, description="`metal`, guest profiles, and names of `changes` and `during`"
    )
    changes: dict[str, Change] = Field(
        default_factory=dict,
        description="name of an environment → the change that makes it out of another, on the same machine",
    )
    profiles: dict[str, ProfileVariant] = Field(
        default_factory=dict,
        description="name of an environment → the guest profile that it is, made out of another one; `vary` writes "
        "them, and vmtoll those of `environments` that are `of` another environment",
    )
    vary: dict[str, list[str | int | list[str] | None]] = Field(
        default_factory=dict,
        description="factor → values: key of guest profiles (`kernel: [null, linux-image-cloud-amd64]`), setting of "
        "`vmtoll_tuning` or kernel parameter (`halt_poll_ns: [0, 200000]`); the experiment's one environment becomes "
        "one for each combination, named after its values: a separate guest for keys of profiles, else a change of "
        "its machine; null: as it is",
    )
    during: dict[str, Operation] = Field(
        default_factory=dict,
        description="name of an environment → the operation that happens in the middle of its measured loads; or one "
        "operation without a name, for each guest among `environments`. It needs open loops of vegeta",
    )
    explain: Explain | None = Field(
        default=None,
        description="`exits`: after the last block each scenario is measured again on each guest while its KVM host "
        "counts and times the exits, in trials that enter no comparison",
    )
    first_answer: FirstAnswer | None = Field(
        default=None,
        description="in each block the guests are shut down, saved or paused and started again, while the client asks "
        "them: the time to the first answer, and its parts",
    )
    density: Density | None = Field(
        default=None,
        description="guests of one host that run at once, each with its own load: every number of them up to `at_most` "
        "is a scenario; instead of `workloads`",
    )
    kinds: dict[str, Literal["process", "container"]] = Field(
        default_factory=dict,
        description="environment → what it is, of the environments of `vm-images/runtimes`; set by vmtoll",
    )
    baseline: str | None = Field(
        default=None,
        description="environment that the others are compared with; unset: `metal`, else the first environment",
    )
    service: Service | None = Field(
        default=None,
        description="a service that runs already, in place of `servers` and `workloads`; environments have any names",
    )
    servers: list[str] = Field(min_length=1, description="folders of `server-builds`; `service` has its own name")
    workloads: list[str] = Field(
        min_length=1, description="workloads, or files with several variants; `service` has `loads`"
    )
    users: dict[str, int | list[int]] = Field(
        default_factory=dict, description="workload → the numbers of users to measure, of those that it has"
    )
    blocks: int = Field(
        default=10,
        gt=0,
        description="how often each scenario is measured on each side; with `until`, before the first check",
    )
    boots: int = Field(
        default=1,
        gt=0,
        description="groups of blocks; before each but the first every machine under test boots; unset, at "
        "`scale: full` and where vmtoll may restart every machine: 5 with ten blocks or more, 4 with eight or nine",
    )
    until: Until | None = Field(default=None, description="measure more blocks until each comparison is known")
    warmup_s: float = Field(gt=0, description="load before each measurement, wall clock")
    duration_s: float = Field(gt=0, description="load of the measurement, wall clock")
    crosscheck_duration_s: float | None = Field(
        default=None, gt=0, description="load of the cross-check, wall clock; unset: `duration_s`"
    )
    link: str = Field(default="unshaped", description="the clients' link; `unshaped`: the line as it is")
    seed: int | None = Field(
        default=None, ge=0, description="of the order of trials and the arrivals; unset: drawn, and recorded"
    )
    noise_floor: NoiseFloor | None = Field(
        default=None,
        description="the A/A control: an environment a second time in each block; unset: the baseline, in the first "
        "server, where others are compared with it; `null`: none",
    )
    shares_of: SharesOf = Field(
        default="baseline",
        description="`baseline`: shares are of the baseline's capacity; `slowest`: of the smallest of all "
        "environments'; `own`: each side's own, so the sides get different rates",
    )
    pause_idle_guests: bool = Field(
        default=True, description="vmtoll pauses guests of other environments on the physical machine of a trial"
    )
    margin_pct: float = Field(
        default=2.0,
        gt=0,
        le=50,
        description="margin of practical equivalence: a smaller difference is of no importance",
    )
    declared_differences: list[str] = Field(
        default_factory=lambda: list(ALWAYS_DIFFER),
        description="facts in which environments may differ; unset: what a guest or a container brings along, between "
        "two guests what their profiles differ in",
    )
    published_estimator: Estimator = Field(default="median", description="how the source averaged its runs")
    claims: list[Claim] = Field(default_factory=list, description="what the source claimed, judged by this run")
    tuning_steps: TuningSteps | None = Field(default=None, description="guest profiles that are compared step by step")

    @model_validator(mode="after")
    def _enough_blocks(self) -> Self:
        if self.blocks < SMALLEST_BLOCKS and self.purpose != "smoke" and self.scale != "small":
            raise ValueError(
                f"blocks: {self.blocks} is below {SMALLEST_BLOCKS}, too few to show equality; "
                "only an experiment with `purpose: smoke` or at `scale: small` may have fewer"
            )
        if self.boots > self.blocks:
            raise ValueError(f"boots: {self.boots} is above the number of blocks, {self.blocks}; a boot needs a block")
        if self.until and self.blocks < SMALLEST_BLOCKS:
            raise ValueError(f"blocks: {self.blocks} is below {SMALLEST_BLOCKS}, the fewest at which `until` may look")
        if self.until and self.blocks % self.boots:
            raise ValueError(
                f"boots: with `until` every boot has as many blocks, and {self.blocks} is not a multiple of "
                f"{self.boots}; change blocks or boots"
            )
        return self

    @model_validator(mode="after")
    def _guests_to_explain(self) -> Self:
        if self.explain and not self.explained:
            raise ValueError(f"explain: {self.explain} are of guests, and no environment is one; add one, or remove it")
        return self

    @model_validator(mode="after")
    def _guests_to_start(self) -> Self:
        if self.first_answer and self.changes:
            raise ValueError("first_answer: a machine with `changes` would boot without its change; remove one of them")
        if self.first_answer and not self.started:
            raise ValueError(
                "first_answer: metal is not started, and no environment is a guest or a container runtime; add one, or "
                "remove it"
            )
        for name in (name for name in self.started if not self.starts_of(name)):
            is_runtime = name in self.kinds
            raise ValueError(
                f"first_answer: of: {name} is {'a container runtime' if is_runtime else 'a guest'}; add "
                f"{'`start`' if is_runtime else '`boot`, `restore` or `resume`'}"
            )
        return self

    @model_validator(mode="after")
    def _operations_of_machines(self) -> Self:
        for name, operation in self.during.items():
            if name in self.changes:
                raise ValueError(f"during: {name}: is also a name of `changes`; choose another one")
            if operation.of not in self.environments or operation.of in self.during:
                raise ValueError(
                    f"during: {name}: of: {operation.of!r} is not one of `environments` without an operation, and the "
                    "operation is compared with it; add it there"
                )
            if operation.of in self.changes:
                raise ValueError(f"during: {name}: of: {operation.of!r} is a change; name the machine's environment")
            if kind_of(operation.of, self.kinds) is not MachineKind.GUEST and operation.on == "kvm_host":
                raise ValueError(f"during: {name}: {operation.of} has no KVM host; use `on: guest`, `do: command`")
            others = {each.at_s for each in self.during.values() if each.of == operation.of}
            if len(others) > 1:
                raise ValueError(
                    f"during: {name}: at_s: all operations of {operation.of} begin at the same time of a load, with "
                    "which its trials without one are compared; give them one at_s"
                )
            if operation.at_s + (operation.for_s or 0) >= self.duration_s:
                raise ValueError(
                    f"during: {name}: it would not end within duration_s, {self.duration_s:g} s; raise that"
                )
        return self

    @model_validator(mode="after")
    def _changes_of_machines(self) -> Self:
        for (name, change), (other, other_change) in itertools.combinations(self.changes.items(), 2):
            if change == other_change:
                raise ValueError(f"changes: {name} and {other} are identical; remove one")
        for key, variants in (("changes", self.changes), ("during", self.during)):
            for name in variants:
                if name not in self.environments:
                    raise ValueError(f"{key}: {name}: is not one of `environments`; add it there")
        for name, change in self.changes.items():
            if change.of in self.changes:
                raise ValueError(
                    f"changes: {name}: of: {change.of!r} is a change itself; name the machine's environment"
                )
            if change.on == "host" and kind_of(change.of, self.kinds) is not MachineKind.GUEST:
                raise ValueError(f"changes: {name}: on: {change.of} has no KVM host; leave it out")
            if change.isolation and kind_of(change.of, self.kinds) is not MachineKind.CONTAINER:
                raise ValueError(f"changes: {name}: isolation: {change.of} is not a container runtime; leave it out")
            if change.boots and change.values and kind_of(change.of, self.kinds) is MachineKind.METAL:
                raise ValueError(
                    f"changes: {name}: boots: settings of {change.of} do not outlast its boot; leave one out"
                )
        return self

    def machine_of(self, environment: str) -> str:
        """The environment by which inventories name the machine of this environment: another one for a change or an
        operation.
        """
        variant = self.variants.get(environment)
        return variant.of if variant else environment

    def kind_of(self, environment: str) -> MachineKind:
        """The kind of this environment's machine."""
        return kind_of(self.machine_of(environment), self.kinds)

    @property
    def variants(self) -> Mapping[str, Change | Operation]:
        """The environments that are made out of another one: its machine with a change, or with an operation."""
        return {**self.changes, **self.during}

    @property
    def explained(self) -> list[str]:
        """The environments whose exits are explained: guests, without those of operations."""
        names = self.environments if self.explain else []
        return [name for name in names if self.kind_of(name) is MachineKind.GUEST and name not in self.during]

    @property
    def started(self) -> list[str]:
        """The environments that are started: guests and container runtimes, without those of operations."""
        names = [name for name in self.environments if name not in self.variants] if self.first_answer else []
        return [name for name in names if name in self.kinds or self.kind_of(name) is MachineKind.GUEST]

    def starts_of(self, environment: str) -> list[tuple[Way, int]]:
        """Each way of `first_answer` that this environment can go, with each number at once."""
        starts = self.first_answer.starts if self.first_answer else []
        return [(way, count) for way, count in starts if (way == "start") == (environment in self.kinds)]

    @property
    def baseline_arm(self) -> Arm:
        """The arm that every other arm is compared with."""
        return Arm(self.baseline or (METAL if METAL in self.environments else self.environments[0]))

    def boot_of(self, block: int) -> int:
        """The boot, from 1, in which a block is measured; boots have as equal numbers of blocks as possible."""
        return (block - 1) * self.boots // self.blocks + 1 if self.boots > 1 else 1

    @property
    def boot_blocks(self) -> int:
        """Blocks per boot, 1 with a single boot; a look comes only after a multiple of this number."""
        return self.blocks // self.boots if self.boots > 1 else 1

    @property
    def other_servers(self) -> list[str]:
        """The servers of single guests, beside those that are measured."""
        return list(dict.fromkeys(tile.server for tile in self.density.tiles if tile.server)) if self.density else []

    @property
    def crosscheck_s(self) -> float:
        """Duration of the cross-check, in seconds."""
        return self.crosscheck_duration_s if self.crosscheck_duration_s is not None else self.duration_s

    @property
    def margin(self) -> float:
        """The margin of practical equivalence, a fraction."""
        return self.margin_pct / 100

    @property
    def prescribes_link(self) -> bool:
        """Return whether the experiment itself sets the rate of the client's link."""
        return self.link != "unshaped"
