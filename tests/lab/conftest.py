"""The real embedded lab, brought up once for all tests here; `make lab-down` takes it down."""

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.lab.records import MEASURED
from tests.lab.the_lab import LAB, VMTOLL, Ssh


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that take the lab down last."""
    items.sort(key=lambda item: item.path.name == "test_teardown.py")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that is marked `injects(code, …)` unless each code is in a record that it measured."""
    MEASURED.clear()
    result = yield
    fired = {code for record in MEASURED for code in record.codes}
    missing = {code for mark in item.iter_markers("injects") for code in mark.args} - fired
    assert not missing, f"injected, and no gate fired: {sorted(missing)}; fired: {sorted(fired)}"
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Also print a failure when it happens: some of these stages last an hour."""
    report = yield
    if report.failed:
        item.config.get_terminal_writer().line(f"\n{report.longreprtext}")
    return report


def run_there(lab: Path) -> Ssh:
    """Return a function that runs a command on a machine of the lab in this folder and returns its output, stripped."""

    def run(machine: str, command: str) -> str:
        argv = ["ssh", "-F", str(lab / "ssh_config"), machine, command]
        return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=1200).stdout.strip()

    return run


@pytest.fixture(scope="session")
def lab() -> Path:
    """Bring the lab up; return its folder."""
    if os.geteuid() != 0:
        pytest.fail("the embedded lab needs root")
    subprocess.run([VMTOLL, "lab", "up"], check=True, stdin=subprocess.DEVNULL)
    return LAB


@pytest.fixture(scope="session")
def ssh(lab: Path) -> Ssh:
    """A function that runs a command on a machine of the lab and returns its output, stripped."""
    return run_there(lab)


@pytest.fixture(scope="module")
def multi() -> Ssh:
    """Bring the topology `multi` up over slow links; return a function that runs a command on one of its machines."""
    subprocess.run([VMTOLL, "lab", "up", "--topology", "multi", "--link", "20mbit"], check=True)
    return run_there(LAB)
