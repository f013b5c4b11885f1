"""A bisection in words."""

from tests.support.snapshots import assert_snapshot
from tests.unit.report.test_words import SNAPSHOTS
from vmtoll.model.bisection import (
    AFTER,
    BAD,
    BEFORE,
    CANDIDATE,
    GOOD,
    Bisection,
    Contrast,
    Sitting,
    SittingAnswer,
    SittingResult,
    Task,
)
from vmtoll.model.metric import CPU
from vmtoll.model.verdict import Kind
from vmtoll.report.words.bisection import answer_lines, contradiction_text, finding_text, refusal_text


def contrast(arm: str, baseline: str, kind: Kind, ratio: float) -> Contrast:
    return Contrast(arm=arm, baseline=baseline, kind=kind, ratio=ratio, low=0.9 * ratio, high=1.1 * ratio, blocks=8)


def found(
    task: Task, answer: SittingAnswer, *contrasts: Contrast, why: str = "", candidate: str = "b"
) -> SittingResult:
    arms = {
        Task.ANCHORS: {}, Task.STEP: {CANDIDATE: candidate}, Task.CONFIRMATION: {BEFORE: "b", AFTER: "c"},
    }  # fmt: skip
    sitting = Sitting(number=1, task=task, arms={GOOD: "a", BAD: "d", **arms[task]}, share=0.25)
    return SittingResult(sitting=sitting, answer=answer, contrasts=list(contrasts), why=why)


def named(candidate: str) -> str:
    return f"commit {candidate}"


ANCHORS = found(Task.ANCHORS, SittingAnswer.BAD, contrast(BAD, GOOD, Kind.SLOWER, 1.5))
GOOD_STEP = found(Task.STEP, SittingAnswer.GOOD, contrast(CANDIDATE, BAD, Kind.FASTER, 0.66))
CONFIRMED = found(Task.CONFIRMATION, SittingAnswer.BAD, contrast(AFTER, BEFORE, Kind.SLOWER, 1.4))


def lines(
    *findings: SittingResult, confirmed: SittingResult | None = None, suspects: tuple[str, ...] = ("c",)
) -> list[str]:
    bisection = Bisection(candidates=["a", "b", "c", "d"], findings=list(findings))
    cost = confirmed.contrast(AFTER, BEFORE) if confirmed else None
    return answer_lines(
        bisection, CPU, named, None, suspects=suspects, confirmed=confirmed, cost=cost, contradictions=[], spent=0.75
    )  # fmt: skip


OPEN_END = found(Task.CONFIRMATION, SittingAnswer.UNDECIDED, contrast(AFTER, BEFORE, Kind.UNDECIDED, 1.01))
SKIPPED = found(Task.STEP, SittingAnswer.SKIPPED, why="does not build (exit code 2); see b.log")
BETWEEN = found(Task.STEP, SittingAnswer.BETWEEN, contrast(CANDIDATE, GOOD, Kind.SLOWER, 1.2))
BEYOND = found(Task.STEP, SittingAnswer.GOOD, contrast(CANDIDATE, GOOD, Kind.FASTER, 0.8))
REST = found(
    Task.CONFIRMATION, SittingAnswer.BAD, contrast(AFTER, BEFORE, Kind.SLOWER, 1.2),
    contrast(BEFORE, GOOD, Kind.SLOWER, 1.2),
)  # fmt: skip


def refused(kind: Kind) -> SittingResult:
    return found(Task.ANCHORS, SittingAnswer.UNDECIDED, contrast(BAD, GOOD, kind, 0.98))


def test_the_words_of_a_bisection() -> None:
    """The answer says how sure it is and what the change costs; what is left out, open or contradicts it is named."""
    sittings = {"the anchors": ANCHORS, "a good step": GOOD_STEP, "a confirmation": CONFIRMED}
    contradictions = {"between the anchors": BETWEEN, "beyond them": BEYOND, "a rest": REST}
    assert_snapshot(SNAPSHOTS / "bisection.txt", {
        "The answer": {
            "confirmed": lines(ANCHORS, GOOD_STEP, CONFIRMED, confirmed=CONFIRMED),
            "a candidate was skipped": lines(ANCHORS, SKIPPED, suspects=("b", "c")),
            "not confirmed": lines(ANCHORS, GOOD_STEP, OPEN_END, confirmed=OPEN_END),
        },
        "A contradiction": {name: contradiction_text(one, CPU, named) for name, one in contradictions.items()},
        "Why it does not begin": {
            kind: refusal_text(refused(kind), CPU, named) for kind in (Kind.UNDECIDED, Kind.FASTER)
        },
        "A sitting": {name: finding_text(one, CPU, named) for name, one in sittings.items()},
    })  # fmt: skip
