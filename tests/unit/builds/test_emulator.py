"""The QEMU of emulated KVM hosts: how vmtoll chooses it, builds it once, and reports a failed build."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vmtoll import files, paths
from vmtoll.builds import emulator
from vmtoll.model.architecture import AARCH64, X86_64, Architecture
from vmtoll.model.errors import UserError

VERSION = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)"


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A machine with Debian's QEMU; sets the commands of the recipe."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"dpkg-query": "printf 1:7.2+dfsg-7", "qemu": f"echo '{VERSION}'\necho Copyright"}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.delenv(emulator.VARIABLE, raising=False)
    monkeypatch.setattr(emulator, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(files, "STATE", tmp_path / "state")
    monkeypatch.setattr(emulator, "RECIPE", tmp_path / "recipe")
    monkeypatch.setattr(emulator, "here", lambda: Architecture(**(vars(X86_64) | {"program": str(programs / "qemu")})))
    (tmp_path / "recipe").mkdir()

    def recipe(commands: str) -> None:
        (tmp_path / "recipe/build.sh").write_text(commands)

    return recipe


def test_a_release_with_the_correction_is_taken_as_it_is() -> None:
    assert not emulator.delivers_once(VERSION), "none has it yet"
    assert not emulator.delivers_once(VERSION, (11, 1))
    assert emulator.delivers_once("QEMU emulator version 11.1.0 (Debian 1:11.1.0+ds-1)", (11, 1))
    assert emulator.delivers_once("QEMU emulator version 12.0.2", (11, 1))
    assert not emulator.delivers_once("another program", (11, 1))


def test_it_is_built_once_and_again_for_another_recipe(build: Callable[[str], None], tmp_path: Path) -> None:
    said = list[str]()
    build('echo "$2" >"$1"')
    assert emulator.ensure(said.append, build=False) == tmp_path / "bin/qemu", "the installed one"
    program = emulator.ensure(said.append)
    assert program.read_text() == "1:7.2+dfsg-7\n"
    assert emulator.ensure(said.append) == emulator.ensure(said.append, build=False) == program
    assert [line.split(" ")[0] for line in said] == ["building", "built"]
    build('echo other >"$1"')
    assert emulator.ensure(said.append) not in (program, None)
    assert program.exists(), "a lab may run it"
    assert not list(program.parent.parent.glob(".partial*"))


def test_where_it_cannot_be_built_the_cause_and_the_way_out_are_said(
    build: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build('echo "apt has no source package qemu $2"; exit 1')
    with pytest.raises(UserError, match=r"no source package qemu 1:7\.2\+dfsg-7; see .*VMTOLL_EMULATOR=/.*/qemu$"):
        emulator.ensure(print)
    monkeypatch.setenv(emulator.VARIABLE, str(tmp_path / "bin/qemu"))
    assert emulator.ensure(print) == tmp_path / "bin/qemu"
    assert emulator.version_of(emulator.ensure(print)) == VERSION
    monkeypatch.setenv(emulator.VARIABLE, str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"VMTOLL_EMULATOR: .*/none is not a program"):
        emulator.ensure(print)


def test_on_other_architectures_it_is_debians(build: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    build("exit 1")
    monkeypatch.setattr(emulator, "here", lambda: AARCH64)
    assert emulator.ensure(print) == Path("/usr/bin/qemu-system-aarch64")


def test_the_recipe_names_missing_packages(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
    recipe = paths.PACKAGE / "builds/qemu/build.sh"
    argv = ["/bin/sh", str(recipe), "out", "1:7.2"]
    done = subprocess.run(argv, env={"PATH": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    missing = "dpkg-dev patch gcc meson ninja-build pkg-config"
    assert done.stdout.startswith(f"packages are missing: apt-get install {missing}")
