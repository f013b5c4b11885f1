"""The end of a command whose exit code is a verdict: the codes, and the JUnit report."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from xml.etree import ElementTree

from vmtoll.files import write_durably
from vmtoll.model.errors import UserError


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


def write_junit(file: Path | None, name: str, cases: Iterable[Case]) -> None:
    """Write a JUnit report, if one was asked for."""
    if file:
        write_durably(file, junit_report(name, cases))


def check_folders(files: Mapping[str, Path | None]) -> None:
    """Raise UserError for an option → file to write whose folder is not there: a verdict would have no file."""
    for option, file in files.items():
        if file and not file.parent.is_dir():
            raise UserError(f"{option} {file}: there is no folder {file.parent}; make it, or name another file")
