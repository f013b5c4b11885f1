"""A bisection: the candidates from good to bad, what each sitting found, and how much of the error it could spend."""

from enum import StrEnum
from typing import Literal

from pydantic import ConfigDict, Field

from vmtoll.model.document import Document
from vmtoll.model.message import WithText
from vmtoll.model.verdict import Kind

GOOD, BAD, CANDIDATE = "good", "bad", "candidate"  # the arms of a sitting
BEFORE, AFTER = "before", "after"  # the two candidates that a confirmation compares


class SittingAnswer(WithText):
    """What a sitting found about its candidate. BETWEEN: worse than the good anchor and better than the bad one."""

    GOOD = "good", "good: better than the known bad"  # better than the bad anchor
    BAD = "bad", "bad: worse than the known good"  # worse than the good anchor
    BETWEEN = "between", "between: worse than the known good, better than the known bad"
    UNDECIDED = "undecided"
    SKIPPED = "skipped"  # it cannot be built or started


class Task(StrEnum):
    """What a sitting is for. CONFIRMATION: compares the first bad candidate with the one before it."""

    ANCHORS = "anchors"
    STEP = "step"
    CONFIRMATION = "confirmation"


class Contrast(Document):
    """One arm of a sitting against another, by the engine. `ratio` of their figures, arm ÷ baseline; `low` and `high`
    at 1 − `level`; `p` before any correction.
    """

    arm: str
    baseline: str
    kind: Kind
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    p: float | None = None
    blocks: int = 0
    half_width_pct: float | None = None


class Sitting(Document):
    """Arms that are measured together."""

    number: int
    task: Task
    arms: dict[str, str]  # arm → its candidate, the anchors always among them
    share: float  # the fraction of the 5% that it may spend

    @property
    def candidate(self) -> str:
        """The candidate that the sitting is about: the bad anchor's where only the anchors are measured."""
        return self.arms.get(CANDIDATE) or self.arms.get(AFTER) or self.arms[BAD]


class SittingResult(Document):
    """An ended sitting."""

    sitting: Sitting
    answer: SittingAnswer
    contrasts: list[Contrast] = Field(default_factory=list)
    why: str = ""  # why its candidate was skipped
    run: str | None = None  # its run, relative to the bisection's folder
    measured_s: float = 0.0

    @property
    def spent(self) -> float:
        """The fraction of the 5% that it spent: none where nothing was looked at."""
        return 0.0 if self.answer is SittingAnswer.SKIPPED else self.sitting.share

    def contrast(self, arm: str, baseline: str) -> Contrast | None:
        """The contrast of two arms; None where it was not judged."""
        return next((c for c in self.contrasts if (c.arm, c.baseline) == (arm, baseline)), None)


class Bisection(Document):
    """bisect.json."""

    model_config = ConfigDict(populate_by_name=True)

    schema_: Literal[1] = Field(default=1, alias="schema")
    candidates: list[str] = Field(min_length=2)  # from the good anchor to the bad one, both included
    request: dict[str, str] = Field(default_factory=dict)  # what the command asked for
    findings: list[SittingResult] = Field(default_factory=list)
    pending: Sitting | None = None  # the sitting that is being measured

    @property
    def good(self) -> str:
        return self.candidates[0]

    @property
    def bad(self) -> str:
        return self.candidates[-1]

    def answers(self) -> dict[str, SittingAnswer]:
        """Candidate → what its step found last."""
        return {each.sitting.candidate: each.answer for each in self.findings if each.sitting.task is Task.STEP}
