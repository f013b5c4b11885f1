"""The rehearsal of pull requests: what it makes, what a job sees, and what counts as too many red ones."""

import subprocess
from pathlib import Path

import pytest

from benchmarks import pull_requests
from benchmarks.pull_requests import PullRequest, environment, is_within, lines, read, repository


def jobs(kind: str, red: int, of: int = 20, verdict: str = "0") -> list[PullRequest]:
    return [
        PullRequest(kind, number, *((1, "1") if number <= red else (0, verdict)), 9.0) for number in range(1, of + 1)
    ]


@pytest.mark.parametrize(("equal", "slower", "within"), [(0, 20, True), (3, 16, True), (4, 16, False), (3, 15, False)])
def test_few_equal_and_many_slower_ones_are_red(equal: int, slower: int, within: bool) -> None:
    done = [*jobs("equal", equal, verdict="125"), *jobs("slower", slower)]
    assert is_within(done) == within
    assert next(lines(done)).startswith(f"equal: {equal} of 20 red; exit codes: ")
    assert not is_within([*done, PullRequest("equal", 21, 128, "", 1.0)]), "one that broke"


def test_each_job_has_a_home_and_nothing_else_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOME": "/root", "GH_TOKEN": "x", "VMTOLL_CACHE": "x", "PIP_CERT": "/cert"}.items():
        monkeypatch.setenv(name, value)
    seen = environment(tmp_path)
    assert (seen["HOME"], seen["PIP_CERT"]) == (str(tmp_path / "home"), "/cert")
    assert not {"GH_TOKEN", "VMTOLL_CACHE"} & seen.keys()


def test_the_slower_head_counts_five_percent_further(tmp_path: Path) -> None:
    repository(tmp_path / "repository")
    git = ["git", "-C", str(tmp_path / "repository")]

    def changed(branch: str) -> str:
        return subprocess.run([*git, "diff", "main", branch], check=True, capture_output=True, text=True).stdout

    assert "+    for (unsigned long turn = 0; turn < 420000000UL; turn++)" in changed("slower")
    added = [line for line in changed("equal").splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert added == ["+/* equal */"]


def test_what_was_rehearsed_is_not_rehearsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, int, str]] = []

    def rehearse(folder: Path, kind: str, number: int, until: str) -> PullRequest:
        ran.append((kind, number, until))
        return PullRequest(kind, number, int(kind == "slower"), str(int(kind == "slower")), 1.5)

    monkeypatch.setattr(pull_requests, "prepare", lambda folder: None)
    monkeypatch.setattr(pull_requests, "rehearse", rehearse)
    for count, expected in (("1", 2), ("2", 4)):
        monkeypatch.setattr("sys.argv", ["", str(tmp_path), "--equal", count, "--slower", count])
        assert pull_requests.main() == 0
        assert len(ran) == expected
    assert ran[:2] == [("equal", 1, "2,10"), ("slower", 1, "2,10")]
    assert [(each.kind, each.number) for each in read(tmp_path / "pull-requests.csv")] == [each[:2] for each in ran]
