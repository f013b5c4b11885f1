"""Findings: the table of gates, and that a test injects the fault of each."""

from pathlib import Path

import pytest

from vmtoll.model.finding import ACCIDENTS, FINDINGS, Code, Finding, Validity, validity
from vmtoll.paths import PROJECT

# A fault is injected in the lab, or, where no lab can do that, in readings that a unit test makes up.
LAB = PROJECT / "tests" / "lab"
UNIT = PROJECT / "tests" / "unit"


class Marks:
    """A plugin that gathers the codes of the marks `injects`."""

    def __init__(self) -> None:
        self.codes: set[Code] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.codes |= {code for item in items for mark in item.iter_markers("injects") for code in mark.args}


@pytest.mark.parametrize(
    ("folders", "injected"), [([LAB], True), ([UNIT / "runner", UNIT / "trial"], False)], ids=["lab", "readings"]
)
def test_every_gate_has_a_test_that_injects_its_fault(
    folders: list[Path], injected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a test is marked; in the lab tests/lab/conftest.py fails it unless the gate fires."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    marks = Marks()
    status = pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *map(str, folders)], plugins=[marks])
    assert status == pytest.ExitCode.OK
    assert marks.codes == {code for code, kind in FINDINGS.items() if kind.injected is injected}


def test_every_code_has_its_kind_and_only_findings_that_void_a_trial_are_accidents() -> None:
    assert set(FINDINGS) == set(Code)
    assert all(kind.meaning and kind.fault for kind in FINDINGS.values())
    assert {FINDINGS[code].severity for code in ACCIDENTS} == {Validity.INVALID}


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], Validity.VALID),
        ([Code.STEAL], Validity.SUSPECT),
        ([Code.STEAL, Code.HOST_LOST], Validity.INVALID),
    ],
)
def test_the_worst_finding_decides(codes: list[Code], expected: Validity) -> None:
    assert validity(map(Finding, codes)) is expected
