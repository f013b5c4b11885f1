"""`make setup` on a machine whose apt lacks something: one clear sentence, and nothing is installed."""

import os
import subprocess
from pathlib import Path

import pytest

from vmtoll.paths import PROJECT

# Nothing is installed here, and apt offers all but what $LACKS names.
PROGRAMS = {
    "dpkg-query": "",
    "apt-get": 'echo "$@" >>"$CALLS"',
    "apt-cache": 'case " $LACKS " in *" $2 "*) ;; *) echo "  Candidate: 1.0" ;; esac',
    "id": "echo $USER_ID",
    "go": "echo go version go1.0",
    "cargo": "echo cargo 1.0",
}


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """An environment in which these programs come before the machine's own."""
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    calls = str(tmp_path / "calls")
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": calls, "LACKS": "", "USER_ID": "0"}


def setup(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROJECT / "scripts/setup"], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def link(folder: Path, *words: str) -> str:
    """What scripts/link prints, when programs are in this folder."""
    argv = [str(PROJECT / "scripts/link"), *words]
    environment = os.environ | {"VMTOLL_BIN": str(folder)}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a link in /usr/local/bin")
def test_the_program_is_on_the_path_until_clean(tmp_path: Path) -> None:
    program = tmp_path / "bin/vmtoll"
    assert "now runs this checkout's vmtoll; 'make clean' removes it" in link(program.parent)
    assert program.readlink() == PROJECT / ".venv/bin/vmtoll"
    assert link(program.parent) == ""
    assert "removed" in link(program.parent, "--remove")
    assert not program.is_symlink()
    assert link(program.parent, "--remove") == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a link in /usr/local/bin")
def test_a_program_of_that_name_stays(tmp_path: Path) -> None:
    program = tmp_path / "vmtoll"
    program.write_text("another")
    assert "it stays. Run " in link(tmp_path)
    assert link(tmp_path, "--remove") == ""
    assert program.read_text() == "another"
    program.unlink()
    program.symlink_to(tmp_path / "gone/.venv/bin/vmtoll")
    assert "now runs" in link(tmp_path), "of a checkout that was removed"


def test_a_package_that_apt_lacks_is_named_and_nothing_is_installed(machine: dict[str, str]) -> None:
    done = setup(machine | {"LACKS": "mmdebstrap zstd"})
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert ": mmdebstrap zstd — " in last and "Debian 13 and 12" in last
    assert Path(machine["CALLS"]).read_text() == "update -qq\n"


def test_rust_too_old_for_oha_names_a_fix(machine: dict[str, str]) -> None:
    done = setup(machine | {"LACKS": "cargo-web"})
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("has no cargo-web: put cargo on PATH, run again.")


def test_without_root_it_names_what_is_missing_and_how(machine: dict[str, str]) -> None:
    done = setup(machine | {"USER_ID": "1000"})
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("run it as root or by sudo.")
    assert "libjemalloc-dev" in done.stderr
    assert not Path(machine["CALLS"]).exists()
