"""What the program settles before its modules are loaded."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vmtoll.__main__ import avoid_emulated_avx2
from vmtoll.model.hardware import TCG_MODEL

VARIABLE = "NPY_DISABLE_CPU_FEATURES"


@pytest.mark.parametrize(
    ("model", "before", "after"),
    [
        (f"{TCG_MODEL} version 2.5+", None, "X86_V3"),
        (f"{TCG_MODEL} version 2.5+", "X86_V4", "X86_V4"),
        ("AMD EPYC 9654 96-Core Processor", None, None),
    ],
)
def test_numpy_does_without_avx2_on_an_emulated_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: str, before: str | None, after: str | None
) -> None:
    monkeypatch.setenv(VARIABLE, before or "")
    if before is None:
        monkeypatch.delenv(VARIABLE)
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nmodel name\t: {model}\n")
    avoid_emulated_avx2(tmp_path / "cpuinfo")
    assert os.environ.get(VARIABLE) == after


def test_numpy_knows_the_name_of_what_it_is_to_avoid() -> None:
    """It warns of a name that it does not know."""
    argv = [sys.executable, "-W", "error", "-c", "import numpy; numpy.argsort(numpy.arange(100)[::-1])"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=os.environ | {VARIABLE: "X86_V3"})
    assert (done.returncode, done.stderr) == (0, "")
