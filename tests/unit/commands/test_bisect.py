"""`vmtoll bisect`: what it prints before it measures, bad input, and its answer."""

import json
from pathlib import Path

import pytest

from tests.support.history import git
from vmtoll import cli
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

APPLY = ["--apply", "true {candidate}"]


def exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *words: str) -> object:
    monkeypatch.setattr("sys.argv", ["vmtoll", "bisect", *words, "--results", str(tmp_path / "results")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    file = tmp_path / "kernels.txt"
    file.write_text("".join(f"linux-6.{number}\n" for number in range(1, 10)))
    return file


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "missing option '--apply'"),
        (APPLY, "give either --candidates FILE or --git REPOSITORY"),
        ([*APPLY, "--candidates", "{file}", "--git", "."], "give either --candidates FILE or --git REPOSITORY"),
        ([*APPLY, "--candidates", "{file}", "--metric", "speed"], "--metric speed: unknown metric"),
        ([*APPLY, "--candidates", "{file}", "--metric", "throughput"], "site-steady has no such figure"),
        ([*APPLY, "--candidates", "{file}", "--workload", "site-sweep"], "--workload site-sweep: has"),
        ([*APPLY, "--candidates", "{file}", "--workload", "site-search"], "searches for its rate"),
        ([*APPLY, "--candidates", "{file}", "--at-most-min", "5"], "--at-most-min is 5"),
        ([*APPLY, "--candidates", "{file}", "--machine", "metol"], "unknown environment 'metol'"),
        ([*APPLY, "--candidates", "{file}", "--on", "host"], "metal has no KVM host"),
        ([*APPLY, "--candidates", "{file}", "--skip", "linux-5"], "--skip linux-5: is no candidate"),
        ([*APPLY, "--candidates", "{file}", "--skip", "linux-6.1"], "--skip linux-6.1: is no candidate"),
        ([*APPLY, "--candidates", "{file}", "--good", "linux-6.9", "--bad", "linux-6.2"], "does not come before"),
        ([*APPLY, "--git", "{folder}", "--good", "a", "--bad", "b"], "no git repository"),
    ],
)
def test_an_error_is_no_verdict_and_leaves_nothing(
    words: list[str], said: str, listed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """`git bisect run` would take 2 for bad; from 128 on it stops."""
    given = [word.format(file=listed, folder=tmp_path, candidate="{candidate}") for word in words]
    assert exit_code(monkeypatch, tmp_path, *given) == 128
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list((tmp_path / "results").rglob("*.*"))


def test_what_it_takes_is_said_and_a_dry_run_writes_nothing(
    listed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*APPLY, "--candidates", str(listed), "--until", "1,5", "--dry-run"]
    assert exit_code(monkeypatch, tmp_path, *words, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["candidates_left"], said["sittings"], said["at_most_min"]) == (7, 7, 35.0)
    assert said["candidates"][0] == "linux-6.1"
    assert said["requests_to_first_looks"] > 0
    assert exit_code(monkeypatch, tmp_path, *words) == 0
    assert "7 candidates between the anchors: at most 7 sittings and 35 minutes" in capsys.readouterr().out
    assert not list((tmp_path / "results").rglob("*.*"))


def test_the_commits_of_a_history(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "-q")
    for number in range(5):
        git(repository, "commit", "-q", "--allow-empty", "-m", f"Change {number}")
    words = [*APPLY, "--git", str(repository), "--good", "HEAD~4", "--bad", "HEAD", "--dry-run", "--json"]
    assert exit_code(monkeypatch, tmp_path, *words) == 0
    assert json.loads(capsys.readouterr().out)["candidates"][-1] == git(repository, "rev-parse", "HEAD")


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


def test_the_answer_says_how_sure_it_is_and_what_the_change_costs() -> None:
    assert lines(ANCHORS, GOOD_STEP, CONFIRMED, confirmed=CONFIRMED) == [
        "commit c is the first bad one; wrong with a probability of at most 3.8%",
        "it has 1.4× the CPU per request (1.26 to 1.54) of the one before it; the bad anchor has 1.5× the CPU per "
        "request (1.35 to 1.65) of the good one",
    ]


def test_what_was_left_out_is_named() -> None:
    skipped = found(Task.STEP, SittingAnswer.SKIPPED, why="does not build (exit code 2); see b.log")
    said = lines(ANCHORS, skipped, suspects=("b", "c"))
    assert said[0].startswith("the first bad one is among 2: commit b, commit c; wrong with")
    assert said[1] == "commit b skipped: it does not build (exit code 2); see b.log"


def test_what_is_not_confirmed_is_no_answer() -> None:
    open_end = found(Task.CONFIRMATION, SittingAnswer.UNDECIDED, contrast(AFTER, BEFORE, Kind.UNDECIDED, 1.01))
    (said,) = lines(ANCHORS, GOOD_STEP, open_end, confirmed=open_end)
    assert said.startswith("not confirmed: commit c")
    assert "more than one change" in said


def test_contradictions_are_named() -> None:
    between = found(Task.STEP, SittingAnswer.BETWEEN, contrast(CANDIDATE, GOOD, Kind.SLOWER, 1.2))
    beyond = found(Task.STEP, SittingAnswer.GOOD, contrast(CANDIDATE, GOOD, Kind.FASTER, 0.8))
    rest = found(
        Task.CONFIRMATION, SittingAnswer.BAD, contrast(AFTER, BEFORE, Kind.SLOWER, 1.2), contrast(BEFORE, GOOD, W, 1.2)
    )  # fmt: skip
    assert [contradiction_text(each, CPU, named).split(" (")[0] for each in (between, beyond, rest)] == [
        "commit b is between the anchors: worse than the good one, better than the bad one after 8 blocks; 1.2× the "
        "CPU per request",
        "commit b has 0.8× the CPU per request",
        "commit b has 1.2× the CPU per request",
    ]


W = Kind.SLOWER


@pytest.mark.parametrize(
    ("kind", "said"),
    [(Kind.UNDECIDED, "are not shown to differ after 8 blocks"), (Kind.FASTER, "exchange --good and --bad")],
)
def test_why_a_bisection_does_not_begin(kind: Kind, said: str) -> None:
    refused = found(Task.ANCHORS, SittingAnswer.UNDECIDED, contrast(BAD, GOOD, kind, 0.98))
    assert said in refusal_text(refused, CPU, named)


@pytest.mark.parametrize("finding", [ANCHORS, GOOD_STEP, CONFIRMED])
def test_each_sitting_has_a_line(finding: SittingResult) -> None:
    assert " after 8 blocks; " in finding_text(finding, CPU, named)
