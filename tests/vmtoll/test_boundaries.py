"""Provisioning, runner and analysis share files, not code."""

import ast
from pathlib import Path

import pytest

from vmtoll.paths import REPO


def imported(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize(
    ("package", "forbidden"), [("workloads", {"analysis", "vmtoll"}), ("analysis", {"workloads", "vmtoll"})]
)
def test_a_package_does_not_import_its_neighbours(package: str, forbidden: set[str]) -> None:
    files = list((REPO / package).rglob("*.py"))
    assert len(files) > 5
    for file in files:
        assert not imported(file) & forbidden, file
