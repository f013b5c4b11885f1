"""`vmtoll bisect` on this machine: real builds of lighttz, real agents and load tools, real kills."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.history import BUILD, git, lighttz_history
from tests.support.machines import LIGHTTZ
from vmtoll.agent.applied import NOTE
from vmtoll.analysis.equality import FactStatus, equality
from vmtoll.analysis.run import load_run
from vmtoll.model.finding import Code
from vmtoll.spec.catalog import Registry

# Each of these measures for minutes.
pytestmark = pytest.mark.long

WORKLOAD = {
    "description": "one user", "site": "tiny", "tool": "h2load", "users": 1, "keep_alive": True,
}  # fmt: skip
# The command line with the test's project folder in place of the installed one.
PROGRAM = """
import sys
from pathlib import Path
from vmtoll.commands import bisect
from vmtoll.spec.catalog import Registry
from vmtoll.spec.catalog import Registry
root = Path(sys.argv.pop(1))
bisect.Registry = lambda: Registry(root)
from vmtoll.cli import main
main()
"""


@dataclass(frozen=True)
class Bench:
    """`bisect` as a user starts it, on a machine whose server is the file `binary`."""

    project: Path
    inventory: Path
    results: Path
    binary: Path
    root: Path

    def argv(self, *words: str, put: str = "{candidate}") -> list[str]:
        """The command line; `put`: the file that is the server of a candidate."""
        return [
            sys.executable, "-c", PROGRAM, str(self.project), "bisect", "--inventory", str(self.inventory),
            "--results", str(self.results), "--server", "lighttz", "--workload", "tiny", "--metric", "cpu",
            "--blocks", "6", "--duration-s", "0.4", "--until", "1,6", "--apply", f"install -m 755 {put} {self.binary}",
            "--revert", f"install -m 755 {LIGHTTZ} {self.binary}", *words,
        ]  # fmt: skip

    def of_git(self, repository: Path, good: str, *words: str) -> list[str]:
        """The command line for the commits of a repository after `good`."""
        history = ["--git", str(repository), "--good", good, "--bad", "main", "--build", BUILD]
        return self.argv(*history, *words, put="{folder}/build/lighttz")

    def of_list(self, candidates: Sequence[Path], *words: str) -> list[str]:
        """The command line for a list of servers."""
        file = self.results.parent / "candidates.txt"
        file.write_text("".join(f"{candidate}\n" for candidate in candidates))
        return self.argv("--candidates", str(file), *words)

    @property
    def is_restored(self) -> bool:
        """Return whether the server is the one from before, and nothing else is left on the machine."""
        return self.binary.read_bytes() == LIGHTTZ.read_bytes() and not (self.root / NOTE).exists()


@pytest.fixture
def bench(project: Registry, inventory: Path, tmp_path: Path, load_tools: None) -> Bench:
    del load_tools
    (project.root / "workloads" / "tiny.yml").write_text(yaml.safe_dump(WORKLOAD))
    root = tmp_path / "metal"
    binary, file = root / "lighttz", root / "etc/vmtoll/servers/lighttz.json"
    binary.write_bytes(LIGHTTZ.read_bytes())
    binary.chmod(0o755)
    spec = json.loads(file.read_text())
    file.write_text(json.dumps(spec | {"command": [str(binary), *spec["command"][1:]], "binary": str(binary)}))
    return Bench(project.root, inventory, tmp_path / "results", binary, root)


def ran(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=3600)


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.stdout, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def tasks(content: dict[str, Any]) -> list[str]:
    return [finding["sitting"]["task"] for finding in content["findings"]]


def test_the_commit_that_adds_20_us_among_64(bench: Bench, tmp_path: Path) -> None:
    """Nothing is left on the machine, nor in the repository."""
    commits = lighttz_history(tmp_path / "repo", 64, {37: 20})
    before = git(tmp_path / "repo", "status", "--porcelain", "--branch")
    done = ran(bench.of_git(tmp_path / "repo", commits[0], "--json"))
    content = answer(done)
    print(done.stderr, done.stdout)
    assert content["suspects"] == [commits[37]], done.stderr
    assert (done.returncode, content["confirmed"], content["contradictions"]) == (0, True, [])
    assert tasks(content) == ["anchors", *["step"] * 6, "confirmation"]
    assert content["error_spent"] <= 0.05
    assert content["cost"]["low"] > 1
    assert re.search(r"63 candidates .*10 steps and 60 min", done.stderr)
    assert bench.is_restored
    assert git(tmp_path / "repo", "status", "--porcelain", "--branch") == before
    assert git(tmp_path / "repo", "worktree", "list").count("\n") == 0
    assert not list(Path(content["folder"]).glob("builds/*/"))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """lighttz as it is, with a busy loop of 0.2 ms and of 2 ms in each request, and a file that is no server."""
    folder, built = tmp_path_factory.mktemp("servers"), dict[str, Path]()
    commits = lighttz_history(folder / "repo", 2, {1: 200, 2: 2000})
    for name, commit in zip(("good", "bad", "worst"), commits, strict=True):
        git(folder / "repo", "checkout", "-q", commit)
        subprocess.run(["sh", "-c", BUILD], cwd=folder / "repo", check=True)
        built[name] = folder / name
        shutil.copy(folder / "repo" / "build" / "lighttz", built[name])
    built["broken"] = folder / "broken"
    built["broken"].write_text("#!/bin/sh\necho cannot start >&2\nexit 3\n")
    return built


def copies(folder: Path, *servers: Path) -> list[Path]:
    """A list of candidates, in this order, each a file of its own."""
    folder.mkdir()
    return [Path(shutil.copy(server, folder / f"{number}-{server.name}")) for number, server in enumerate(servers)]


def test_a_killed_bisection_goes_on(bench: Bench, servers: dict[str, Path], tmp_path: Path) -> None:
    """`kill -9` in the middle of a step: the machine is restored at once, and no trial is measured again."""
    argv = bench.of_list(copies(tmp_path / "list", servers["good"], servers["good"], servers["bad"]), "--json")
    killed = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def trials() -> list[str]:
        files = list(bench.results.glob("bisect/*/runs/02-*/*/trials.jsonl"))
        return files[0].read_text().splitlines(keepends=True) if files else []

    deadline = time.monotonic() + 900
    while len(trials()) < 4:
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    while not bench.is_restored:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    before = [line for line in trials() if line.endswith("\n")]
    content = answer(ran(argv))
    assert trials()[: len(before)] == before
    assert len(list(bench.results.glob("bisect/*/runs/*/2*"))) == len(content["findings"]) == 2
    assert (content["exit"], [Path(name).name for name in content["suspects"]]) == (0, ["2-bad"])
    assert bench.is_restored
    again = ran(argv)
    assert (answer(again), "block 1 of" in again.stderr) == (content, False)


def test_what_does_not_start_is_skipped_and_named(bench: Bench, servers: dict[str, Path], tmp_path: Path) -> None:
    """Then two are left: the first bad one, and the one before it."""
    listed = copies(tmp_path / "list", servers["good"], servers["broken"], servers["bad"])
    done = ran(bench.of_list(listed, "--json"))
    content = answer(done)
    assert (done.returncode, content["suspects"]) == (125, [str(path) for path in listed[1:]])
    (skipped,) = [finding for finding in content["findings"] if finding["answer"] == "skipped"]
    assert skipped["sitting"]["arms"]["candidate"] == str(listed[1])
    assert "does not start" in skipped["why"]
    assert bench.is_restored


def test_anchors_that_do_not_differ(bench: Bench, servers: dict[str, Path], tmp_path: Path) -> None:
    listed = copies(tmp_path / "list", servers["good"], servers["bad"], servers["good"])
    done = ran([*bench.of_list(listed), "--until", "1,0.2"])
    assert (done.returncode, done.stdout) == (128, "")
    assert "not shown to differ" in done.stderr
    assert bench.is_restored


def test_an_anchor_that_does_not_start(bench: Bench, servers: dict[str, Path], tmp_path: Path) -> None:
    listed = copies(tmp_path / "list", servers["good"], servers["bad"], servers["broken"])
    done = ran(bench.of_list(listed))
    assert done.returncode == 128
    assert f"bad anchor {listed[2]} does " in done.stderr
    assert bench.is_restored


def test_a_build_differs_in_its_binary_alone(bench: Bench, tmp_path: Path) -> None:
    """The binary is expected and declared, each candidate with its own; nothing else is, and nothing else differs."""
    commits = lighttz_history(tmp_path / "repo", 2, {1: 200})
    content = answer(ran(bench.of_git(tmp_path / "repo", commits[0], "--json")))
    anchors = load_run(Path(content["folder"]) / content["findings"][0]["run"])
    assert not {code for record in anchors.records for code in record.codes} & {Code.FINGERPRINT, Code.SYSCTL}
    (fact,) = equality(anchors)
    assert (fact.name, fact.status) == ("servers: lighttz: binary_sha256", FactStatus.DECLARED)
    assert set(fact.values) == {"metal", "good", "bad"}
    assert len({fact.values["good"], fact.values["bad"]}) == 2


def test_two_changes_are_noticed(bench: Bench, servers: dict[str, Path], tmp_path: Path) -> None:
    """One candidate lies between the anchors: the one before it is good, the one after it bad."""
    names = ("good", "good", "good", "bad", "bad", "worst", "worst")
    content = answer(ran(bench.of_list(copies(tmp_path / "list", *(servers[name] for name in names)), "--json")))
    assert content["contradictions"]
    assert [Path(name).name for name in content["suspects"]][-1:] in (["3-bad"], ["5-worst"], ["4-bad"])


def test_git_bisect_run(bench: Bench, tmp_path: Path) -> None:
    """git chooses the commits, vmtoll judges them; a commit that does not compile is skipped."""
    repository = tmp_path / "repo"
    commits = lighttz_history(repository, 7, {5: 200}, broken=(4,))
    git(repository, "bisect", "start", "main", commits[0])
    done = ran(
        ["git", "-C", str(repository), "bisect", "run", *bench.of_git(repository, commits[0], "--judge", "HEAD")]
    )
    found = git(repository, "bisect", "log")
    assert f"git bisect bad {commits[5]}" in found, done.stderr + done.stdout
    assert f"git bisect skip {commits[4]}" in found
    assert bench.is_restored
