"""Shell completion: by the protocol of each shell, and in a real bash."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from shutil import copytree

import pytest

BIN = Path(sys.executable).parent
VMTOLL = BIN / "vmtoll"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that `init` made, which no test writes to."""
    parent = tmp_path_factory.mktemp("made")
    words = ["init", "my-lab", "--client", "load1", "--metal", "big1"]
    subprocess.run([VMTOLL, *words], cwd=parent, check=True, stdout=subprocess.DEVNULL)
    return parent / "my-lab"


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A folder of the test's own."""
    return copytree(made, tmp_path / "my-lab")


def asked(line: str, folder: Path, shell: str) -> list[str]:
    """Answer to a line that ends where the cursor is."""
    words = line.split(" ")
    environment = {"_VMTOLL_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    environment |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_ARGS": line}
    done = subprocess.run(
        [VMTOLL], capture_output=True, text=True, check=False, cwd=folder, env=os.environ | environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vmtoll in", ["init"]),
        ("vmtoll run fir", ["first", "first-answer"]),
        ("vmtoll run smo", ["smoke"]),
        ("vmtoll run first --limit load", ["load1"]),
        ("vmtoll run first --limit cl", ["clients"]),
        ("vmtoll ab metal kvm-def", ["kvm-default"]),
        ("vmtoll ab metal kvm-default --server lighttpd-tun", ["lighttpd-tuned-2009"]),
        ("vmtoll ab metal kvm-default --workload site-steady-", ["site-steady-2000"]),
        ("vmtoll run first --scale f", ["full"]),
        ("vmtoll lab up --topology sin", ["single"]),
        ("vmtoll report res", []),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_answered(line: str, expected: list[str], shell: str, folder: Path) -> None:
    answer = asked(line, folder, shell)
    if shell == "zsh":
        text = " ".join(answer)
        assert all(f'"{name}"' in text for name in expected) if expected else text == "_files"
    else:
        assert [each.partition("\t")[0] for each in answer if each] == expected


def test_a_run_is_completed(folder: Path) -> None:
    run = folder / "results/first/20260101T000000Z-aaaa"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    for command in ("report", "show", "publish", "run first --resume"):
        assert asked(f"vmtoll {command} res", folder, "bash") == [str(run.relative_to(folder))]


def test_completion_loads_no_command(folder: Path) -> None:
    """To load them takes a second, at each press of a key; Typer itself has pydantic."""
    program = (
        "import sys\nfrom vmtoll.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*{name.partition('.')[0] for name in sys.modules}, 'vmtoll.cli' in sys.modules, file=sys.stderr)"
    )
    environment = {"_VMTOLL_COMPLETE": "complete_bash", "COMP_WORDS": "vmtoll\nrun\nsmo", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=folder,
        env=os.environ | environment,
    )  # fmt: skip
    assert done.stdout == "smoke\n"
    loaded = set(done.stderr.split())
    assert "False" in loaded
    assert not loaded & {"numpy", "scipy", "pandas", "jinja2", "ansible", "matplotlib"}


def test_a_key_in_a_real_bash_completes(folder: Path) -> None:
    """With the script that `vmtoll --show-completion` prints, typed into an interactive shell."""
    script = subprocess.run(
        [VMTOLL], capture_output=True, text=True, check=True, env=os.environ | {"_VMTOLL_COMPLETE": "source_bash"}
    ).stdout
    (folder / "completion.sh").write_text(f"PS1='ready> '\n{script}\n")
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb", "INPUTRC": "/dev/null"}
    controller, terminal = pty.openpty()
    words = ["bash", "--noprofile", "--rcfile", "completion.sh", "-i"]
    with subprocess.Popen(
        words, stdin=terminal, stdout=terminal, stderr=terminal, cwd=folder, env=environment, start_new_session=True
    ) as shell:
        os.close(terminal)
        try:
            _until(controller, "ready> ")
            os.write(controller, b"vmtoll run smo\t")
            assert "vmtoll run smoke " in _until(controller, "smoke ")
            os.write(controller, b"--limit lo\t")
            _until(controller, "load1 ")
        finally:
            shell.kill()
    os.close(controller)


def _until(terminal: int, text: str) -> str:
    """What a terminal shows up to this text."""
    seen, deadline = "", time.monotonic() + 60
    while text not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 4096).decode(errors="replace")
    return seen


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_names_the_program(shell: str) -> None:
    done = subprocess.run(
        [VMTOLL], capture_output=True, text=True, check=False, env=os.environ | {"_VMTOLL_COMPLETE": f"source_{shell}"}
    )
    assert done.returncode == 0, done.stderr
    assert "_VMTOLL_COMPLETE=complete_" in done.stdout
    assert "vmtoll" in done.stdout
