"""The end of a command whose exit code is a verdict: the codes, and the JUnit report."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from xml.etree import ElementTree


class Exit(IntEnum):
    """Exit codes as `git bisect run` reads them: good, bad, cannot be judged."""

    NOT_WORSE = 0
    WORSE = 1
    UNDECIDED = 125

    @property
    def line(self) -> str:
        """`exit 125: undecided`."""
        return f"exit {self.value}: {self.name.lower().replace('_', ' ')}"


@dataclass(frozen=True)
class Case:
    """A test case of a JUnit report. `outcome`: of JUnit's elements, empty for a case that passed; `text`: details."""

    group: str
    name: str
    outcome: str = ""  # failure, error or skipped
    message: str = ""
    text: str | None = None


def junit_report(name: str, cases: Iterable[Case]) -> bytes:
    """A JUnit report: a test suite of these cases."""
    suite = ElementTree.Element("testsuite", name=name)
    for case in cases:
        element = ElementTree.SubElement(suite, "testcase", classname=case.group, name=case.name)
        if case.outcome:
            ElementTree.SubElement(element, case.outcome, message=case.message).text = case.text
    counts = {"tests": "testcase", "failures": "testcase/failure", "errors": "testcase/error"}
    for key, path in (counts | {"skipped": "testcase/skipped"}).items():
        suite.set(key, str(len(suite.findall(path))))
    text: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return text + b"\n"
