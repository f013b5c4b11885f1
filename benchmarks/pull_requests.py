"""How often the action for pull requests is red: `python -m benchmarks.pull_requests FOLDER`.

Rehearses `scripts/judge-pull-request` as a runner calls it, in a fresh clone of this checkout's commit: for each pull
request a fresh clone of a small repository, with its own home and nothing else in the environment, whose head is either
equal to its base or does 5% more turns of a counted loop. The first installs vmtoll as the action does, and the others
use that installation. FOLDER keeps each clone, log, summary and judge file, and one line for each in pull-requests.csv;
those that are there are not run again. Exit code 1: more red ones among the equal, or fewer among the slower, than
MOST_RED and LEAST_RED allow.
"""

import argparse
import csv
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from vmtoll.paths import PROJECT

MOST_RED = 3 / 20  # of equal pull requests
LEAST_RED = 16 / 20  # of slower ones
TURNS = 400_000_000  # of the loop: about 0.2 s of CPU time
SLOWER = 1.05
UNTIL = "2,10"  # the action's default
_KEPT = re.compile(r"PATH|PIP_.*|.*_proxy|SSL_CERT.*|LANG", re.IGNORECASE)
_PROGRAM = """\
#include <stdio.h>
int main(void)
{{
    volatile unsigned long sum = 0;
    for (unsigned long turn = 0; turn < {turns}UL; turn++)
        sum += turn;
    printf("%lu\\n", sum);
    return 0;
}}
/* {comment} */
"""


@dataclass(frozen=True)
class PullRequest:
    """What one came to. `exit_code`: of the job, where 1 is red; `verdict`: vmtoll's exit code, 125 for undecided."""

    kind: str  # equal or slower
    number: int
    exit_code: int
    verdict: str
    seconds: float


def repository(folder: Path) -> None:
    """Make a repository whose branches `equal` and `slower` are a commit each after `main`."""
    folder.mkdir(parents=True)
    _git(folder, "init", "-q", "-b", "main")
    for branch, turns in (("main", TURNS), ("equal", TURNS), ("slower", round(TURNS * SLOWER))):
        if branch != "main":
            _git(folder, "checkout", "-q", "-b", branch, "main")
        (folder / "bench.c").write_text(_PROGRAM.format(turns=turns, comment=branch))
        _git(folder, "add", "bench.c")
        _git(folder, "commit", "-q", "-m", f"Count for {branch}")


def _git(folder: Path, *words: str) -> None:
    options = ["-c", "user.name=Rehearsal", "-c", "user.email=rehearsal@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *options, *words], check=True)


def environment(folder: Path) -> dict[str, str]:
    """What a job sees: a home and a folder for temporary files that are new, and how to reach package registries."""
    for name in ("home", "tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    own = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "RUNNER_TEMP": str(folder / "tmp")}
    return {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)} | own


def rehearse(folder: Path, kind: str, number: int, until: str) -> PullRequest:
    """Run the script on one pull request. It installs vmtoll unless it did so for an earlier one."""
    own = folder / f"{kind}-{number:02}"
    shutil.rmtree(own, ignore_errors=True)  # of a rehearsal that was ended
    inputs = {
        "INPUT_RUN": "./bench", "INPUT_BUILD": "cc -O1 -o bench bench.c", "INPUT_UNTIL": until, "BASE_REF": "main",
        "GITHUB_STEP_SUMMARY": str(own / "summary.md"), "GITHUB_OUTPUT": str(own / "outputs"),
        "VMTOLL": installed(folder),
    }  # fmt: skip
    variables = environment(own) | inputs
    began = time.monotonic()
    with (own / "log").open("wb") as log:

        def run(*argv: str | Path, cwd: Path = own) -> int:
            done = subprocess.run(
                argv,
                cwd=cwd,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
            return done.returncode

        run("git", "clone", "-q", "--branch", kind, folder / "repository", own / "checkout")
        code = run(folder / "vmtoll/scripts/judge-pull-request", cwd=own / "checkout")
    outputs = own / "outputs"
    verdict = re.search(r"^exit-code=(\d+)$", outputs.read_text(), re.MULTILINE) if outputs.exists() else None
    return PullRequest(kind, number, code, verdict[1] if verdict else "", round(time.monotonic() - began, 1))


def installed(folder: Path) -> str:
    """The vmtoll that the first rehearsal's script has installed, as an action does; empty before."""
    found = sorted(folder.glob("*/tmp/vmtoll-judge-*/python/bin/vmtoll"))
    return str(found[0]) if found else ""


def prepare(folder: Path) -> None:
    """Make the repository, and a fresh clone of this checkout's commit."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "vmtoll").exists():
        subprocess.run(["git", "clone", "-q", PROJECT, folder / "vmtoll"], check=True)
    if not (folder / "repository").exists():
        repository(folder / "repository")


def read(file: Path) -> Iterator[PullRequest]:
    """Those that were rehearsed; none without the file."""
    if file.exists():
        with file.open(encoding="utf-8", newline="") as handle:
            for row in csv.DictReader(handle):
                yield PullRequest(
                    row["kind"], int(row["number"]), int(row["exit_code"]), row["verdict"], float(row["seconds"])
                )


def lines(done: Sequence[PullRequest]) -> Iterator[str]:
    """A line for each kind: how many were red, of how many, and vmtoll's exit codes."""
    for kind in dict.fromkeys(each.kind for each in done):
        of_kind = [each for each in done if each.kind == kind]
        red = sum(each.exit_code == 1 for each in of_kind)
        verdicts = Counter(each.verdict or "none" for each in of_kind)
        codes = ", ".join(f"{count} times {verdict}" for verdict, count in sorted(verdicts.items()))
        seconds = sum(each.seconds for each in of_kind) / len(of_kind)
        yield f"{kind}: {red} of {len(of_kind)} red; exit codes: {codes}; {seconds:.0f} s each"


def is_within(done: Sequence[PullRequest]) -> bool:
    """Return whether no job broke, few equal pull requests are red, and many slower ones are."""
    red: Mapping[str, list[bool]] = {
        kind: [each.exit_code == 1 for each in done if each.kind == kind] for kind in ("equal", "slower")
    }
    broken = [each for each in done if each.exit_code not in (0, 1) or each.verdict not in ("0", "1", "125")]
    few = sum(red["equal"]) <= MOST_RED * len(red["equal"])
    return not broken and few and sum(red["slower"]) >= LEAST_RED * len(red["slower"])


def main() -> int:
    """Rehearse what is missing, in turns of equal and slower ones, and print what all of them came to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--equal", type=int, default=20)
    parser.add_argument("--slower", type=int, default=20)
    parser.add_argument("--until", default=UNTIL, help=f"the action's input (default: {UNTIL})")
    given = parser.parse_args()
    folder: Path = given.folder.resolve()
    prepare(folder)
    table = folder / "pull-requests.csv"
    done = list(read(table))
    wanted = [
        (kind, number) for number in range(1, max(given.equal, given.slower) + 1)
        for kind, count in (("equal", given.equal), ("slower", given.slower)) if number <= count
    ]  # fmt: skip
    for kind, number in wanted:
        if (kind, number) in {(each.kind, each.number) for each in done}:
            continue
        done.append(rehearse(folder, kind, number, given.until))
        with table.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(PullRequest)], lineterminator="\n")
            writer.writeheader()
            writer.writerows(map(asdict, done))
        print(f"{kind} {number}: exit code {done[-1].exit_code}, {done[-1].seconds:g} s", flush=True)
    print("\n".join(lines(done)))
    return 0 if is_within(done) else 1


if __name__ == "__main__":
    sys.exit(main())
