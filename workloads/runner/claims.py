"""What a published experiment claims: one side against another, or one side against a level."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from workloads.runner.documents import Model, check_names
from workloads.runner.registry import PROJECT

# Highest goodput of a ladder's rungs: the one metric that is not a column.
PEAK_GOODPUT = "peak_goodput_rps"
_FIELDS = json.loads((PROJECT / "results" / "schema" / "trials.json").read_text())["fields"]
METRICS = [str(f["name"]) for f in _FIELDS if f["type"] in {"number", "integer"}] + [PEAK_GOODPUT]


class Side(Model):
    """Which trials: each of the three is a name, or several names whose trials are taken together."""

    server: str | list[str]
    environment: str | list[str]
    workload: str | list[str]


class Claim(Model):
    """One claim and, where they were printed, the published figures (of `of`, of `over`) in the metric's unit.

    With `over` the figures give the direction; without figures `of` is claimed to be the larger. `within_pct` claims
    that both are equal to so many percent. `at_least` and `at_most` are levels and need no `over`.
    """

    says: str
    metric: str
    of: Side
    over: Side | None = None
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


def check_claims(path: Path, claims: Sequence[Claim], names: dict[str, list[str]]) -> None:
    """Every name of every claim is one of the experiment's. `names`: allowed by key. Raises ExperimentError."""
    for i, claim in enumerate(claims):
        check_names(path, f"claims[{i}].metric", "metric", [claim.metric], METRICS)
        for key, side in (("of", claim.of), ("over", claim.over)):
            for kind, said in side.model_dump().items() if side else ():
                values = [said] if isinstance(said, str) else said
                check_names(path, f"claims[{i}].{key}.{kind}", kind, values, names[kind])
