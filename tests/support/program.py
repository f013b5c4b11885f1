"""The program vmtoll as a process of its own, with what a shell gives it: words, environment, folder, streams.

The checkout's results are the committed runs, whatever its user has there. The process is a fork of one that has loaded
what the program needs and what no environment decides: to load that takes half a second to a second of each start.
tests/integration/test_installation.py starts the program as users do.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.committed_run import linked

VMTOLL = Path(sys.executable).parent / "vmtoll"  # as a shell finds it
_CONTEXT = multiprocessing.get_context("forkserver")
# None of them imports vmtoll.paths, which reads environment and folder.
_CONTEXT.set_forkserver_preload(["jinja2", "pandas", "rich.table", "typer", "yaml", "vmtoll.analysis.verdict"])


def vmtoll(*words: str | Path, cwd: Path | None = None, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the program with these words, its input empty, and return its exit code and what it wrote."""
    argv = ["vmtoll", *map(str, words)]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, name) for name in ("stdout", "stderr")]
        shipped = linked(Path(folder, "results"))
        arguments = (argv, os.environ | environment, cwd or Path.cwd(), outputs, shipped)
        process = _CONTEXT.Process(target=_main, args=arguments)
        process.start()
        process.join()
        written = [output.read_text() for output in outputs]
    assert process.exitcode is not None
    return subprocess.CompletedProcess(argv, process.exitcode, *written)


def started(*words: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The same of the installed program, by an interpreter of its own."""
    return subprocess.run([VMTOLL, *words], capture_output=True, text=True, check=False, env=os.environ | environment)


def _main(argv: list[str], environment: dict[str, str], cwd: Path, outputs: list[Path], shipped: Path) -> None:
    """Become the program, for which the checkout's results are those in `shipped`. Exits with its exit code."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in enumerate([Path(os.devnull), *outputs]):
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.dup2(opened, descriptor)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 (as at a start)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = argv
    from vmtoll import paths  # noqa: PLC0415 (it reads environment and folder)

    if paths.RESULTS == paths.SHIPPED_RESULTS:
        paths.RESULTS = shipped
    paths.SHIPPED_RESULTS = shipped
    from tests.support.users_state import guarded  # noqa: PLC0415
    from vmtoll.__main__ import main  # noqa: PLC0415

    with guarded():
        main()
