"""A ladder of guest profiles: what an experiment says of the order in which they are compared."""

from typing import Self

from pydantic import Field, model_validator

from workloads.runner.documents import Model


class Ladder(Model):
    """`cumulative`: profiles from the first rung up, each compared with the one below it.

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
