"""A git history of lighttz, one of whose commits makes every request cost more CPU."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from vmtoll.paths import SERVER_BUILDS

LIGHTTZ = SERVER_BUILDS / "lighttz"
BUILD = "make -s MAKEFLAGS= CFLAGS=-O1 HARDEN= build/lighttz"
_BEGIN = "void serve(struct conn *c, const struct request *r, bool more)\n{\n"
_LOOP = """    const double begin = clock_s(CLOCK_MONOTONIC);
    while (clock_s(CLOCK_MONOTONIC) - begin < {us}e-6)
        continue;
"""


def git(repository: Path, *words: str) -> str:
    options = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", str(repository), *options, *words], capture_output=True, text=True, check=True
    )  # fmt: skip
    return done.stdout.strip()


def lighttz_history(folder: Path, commits: int, slower: Mapping[int, int], broken: tuple[int, ...] = ()) -> list[str]:
    """Make a repository of lighttz with a first commit and this many after it; return their hashes.

    `slower`: number of a commit → the busy loop of every request from it on, in µs; `broken`: commits that do not
    compile.
    """
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for name in ("Makefile", "src"):
        source = LIGHTTZ / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    serve = folder / "src" / "serve.c"
    original, loop, hashes = serve.read_text(), "", list[str]()
    for number in range(commits + 1):
        if number in slower:
            loop = _LOOP.format(us=slower[number])
        text = original.replace(
            '#include "serve.h"\n', f'#include "serve.h"\n#include "clock.h"\n/* change {number} */\n'
        )
        text = text.replace(_BEGIN, _BEGIN + loop)
        serve.write_text(text + "#error broken\n" * (number in broken))
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"Change {number}")
        hashes.append(git(folder, "rev-parse", "HEAD"))
    return hashes
