"""The QEMU that emulates the lab's KVM hosts: Debian's with two corrections, built once on the controller.

Debian's QEMU delivers an interrupt twice to a guest inside of an emulated host, whose kernel then hangs or panics, and
keeps the programs of that guest from I/O ports: docs/qemu-nested-svm.md. `python -m vmtoll.builds.emulator` builds the
corrected one and prints its path; with `--no-build` it prints the path of Debian's where the corrected one is not built
yet.
"""

import argparse
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from vmtoll.files import lock
from vmtoll.model.architecture import X86_64, here
from vmtoll.model.errors import UserError
from vmtoll.paths import CACHE, PACKAGE
from vmtoll.shell import run, say

RECIPE = PACKAGE / "builds" / "qemu"
VARIABLE = "VMTOLL_EMULATOR"  # a QEMU to use in its place
# The first release of QEMU that delivers an injected interrupt once. None has the correction (2026-11).
CORRECTED_SINCE: tuple[int, ...] | None = None


def delivers_once(version: str, since: tuple[int, ...] | None = CORRECTED_SINCE) -> bool:
    """Return whether a QEMU needs no correction, by what its `--version` prints."""
    number = re.search(r"version (\d+(?:\.\d+)+)", version)
    return bool(since and number and tuple(map(int, number[1].split("."))) >= since)


def is_corrected(version: str) -> bool:
    """Return whether a QEMU delivers interrupts once, by what its `--version` prints: a release, or one built here."""
    return delivers_once(version) or "svm-interrupt.patch" in version


def ensure(say: Callable[[str], None], *, build: bool = True) -> Path:
    """Return the QEMU that emulates KVM hosts: the one that VMTOLL_EMULATOR names, an installed one that delivers
    interrupts once, else the corrected one, which it builds unless the cache has it. Without `build`, the installed one
    takes the place of one that is not built.

    Raises UserError when it cannot be built.
    """
    if chosen := os.environ.get(VARIABLE):
        if not os.access(chosen, os.X_OK):
            raise UserError(f"{VARIABLE}: {chosen} is not a program")
        return Path(chosen)
    installed = Path(here().emulator)
    if here().name != X86_64.name or delivers_once(version_of(installed)):
        return installed
    try:
        version = run(["dpkg-query", "-W", "-f", "${source:Version}", "qemu-system-x86"])
        program = CACHE / "tools" / f"qemu-{_key(version)}"
        if not build:
            return program if program.exists() else installed
        _build(program, version, say)
        return program
    except UserError as error:
        raise UserError(
            f"QEMU for the emulated KVM hosts: {error}; to go on with the installed one, in which guests may hang or "
            f"panic, set {VARIABLE}={installed}"
        ) from error


def version_of(program: Path) -> str:
    """The first line of a QEMU's `--version`: `QEMU emulator version 7.2.22 (…)`. Raises UserError."""
    return run([program, "--version"]).partition("\n")[0]


def _build(program: Path, version: str, say: Callable[[str], None]) -> None:
    with lock("emulator"):
        if program.exists():
            return
        say(f"building QEMU {version} for the emulated KVM hosts, once; on two idle cores it takes about 3 minutes")
        began, work, log = time.monotonic(), CACHE / ".partial-qemu", CACHE / "logs" / "build-qemu.log"
        log.unlink(missing_ok=True)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        program.parent.mkdir(exist_ok=True)
        try:
            run(["nice", "sh", RECIPE / "build.sh", work / "qemu", version], log=log, cwd=work)
            (work / "qemu").rename(program)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        say(f"built QEMU in {(time.monotonic() - began) / 60:.0f} min")


def _key(version: str) -> str:
    """Digest of the source's version and the recipe."""
    digest = hashlib.sha256(version.encode())
    for file in sorted(RECIPE.iterdir()):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-build", action="store_true")
    print(ensure(say, build=not parser.parse_args().no_build))
