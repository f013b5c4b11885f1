"""The course of a bisection: sitting after sitting to its answer, or to that on a single candidate."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmtoll.bisect import search
from vmtoll.bisect.candidates import inside_of
from vmtoll.bisect.sitting import Sitter
from vmtoll.model.bisection import Bisection, Sitting, SittingAnswer, Task
from vmtoll.model.errors import UserError
from vmtoll.model.metric import Metric
from vmtoll.report.words.bisection import answer_lines, finding_text, refusal_text
from vmtoll.shell import run, say
from vmtoll.statistics.thresholds import ALPHA


@dataclass(frozen=True)
class Course:
    """A bisection while it is measured. It prints a line for each ended sitting."""

    sitter: Sitter
    metric: Metric
    repository: Path | None  # whose commits the candidates are

    @property
    def bisection(self) -> Bisection:
        """What it knows so far."""
        return self.sitter.store.bisection

    def search(self) -> bool:
        """Measure all sittings; return whether a single suspect is left, which no confirmation contradicts."""
        while (sitting := search.next_sitting(self.bisection)) is not None:
            self._sit(sitting)
        return len(search.suspects(self.bisection)) == 1 and self._is_confirmed is not False

    def judge(self, candidate: str) -> SittingAnswer:
        """Judge one candidate, after the anchors; a kept answer is not measured again."""
        while self.bisection.pending or not search.anchors_differ(self.bisection):
            if sitting := search.next_sitting(self.bisection):
                self._sit(sitting)
        anchors = {self.bisection.good: SittingAnswer.GOOD, self.bisection.bad: SittingAnswer.BAD}
        answer = (anchors | self.bisection.answers()).get(candidate)
        return self._sit(search.step(self.bisection, candidate)) if answer is None else answer

    def _sit(self, sitting: Sitting) -> SittingAnswer:
        """Measure a sitting and print what it found. Raises UserError where the anchors do not differ."""
        finding = self.sitter.sit_and_keep(sitting)
        if finding.sitting.task is Task.ANCHORS and finding.answer is not SittingAnswer.BAD:
            raise UserError(refusal_text(finding, self.metric, self._named))
        say(finding_text(finding, self.metric, self._named))
        return finding.answer

    def _named(self, candidate: str) -> str:
        """A candidate by name; a commit by its short hash and its subject."""
        if self.repository is None:
            return candidate
        return run(["git", "-C", self.repository, "log", "-1", "--format=%h %s", candidate]).strip()

    @property
    def _is_confirmed(self) -> bool | None:
        """Whether a confirmation found that the suspect is worse than the candidate before it; None without one."""
        confirmed = search.confirmation(self.bisection)
        return None if confirmed is None else confirmed.answer is SittingAnswer.BAD

    def lines(self, judged: str | None) -> Iterator[str]:
        """The answer; `judged`: the candidate that alone was to be judged."""
        bisection, suspects = self.bisection, search.suspects(self.bisection)
        yield from answer_lines(
            bisection, self.metric, self._named, judged, suspects=suspects, confirmed=search.confirmation(bisection),
            cost=search.cost_of(bisection), contradictions=search.contradictions(bisection),
            spent=search.spent(bisection),
        )  # fmt: skip
        if self.repository and len(suspects) == 1 and (inside := inside_of(self.repository, suspects[0])):
            good, bad = (commit[:12] for commit in inside)
            yield f"it is a merge; to search its branch: the same command with --good {good} --bad {bad}"
        yield f"steps and runs: {self.sitter.store.folder}"

    def document(self) -> dict[str, Any]:
        """The answer for programs."""
        bisection, cost = self.bisection, search.cost_of(self.bisection)
        return {
            "folder": self.sitter.store.folder, "metric": self.metric.name, "good": bisection.good,
            "bad": bisection.bad, "suspects": search.suspects(bisection), "confirmed": self._is_confirmed,
            "cost": cost and cost.model_dump(mode="json"), "error_spent": round(ALPHA * search.spent(bisection), 6),
            "contradictions": [finding.sitting.candidate for finding in search.contradictions(bisection)],
            "findings": [finding.model_dump(mode="json") for finding in bisection.findings],
        }  # fmt: skip
