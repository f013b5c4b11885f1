"""The table of faults and gates in README says what gates.json says, and every gate has its planted fault."""

import json
import re
from typing import Any

from workloads.runner.registry import PROJECT

GATES: dict[str, dict[str, Any]] = json.loads((PROJECT / "results/schema/gates.json").read_text())
README = (PROJECT / "README.md").read_text()
SECTION = README.partition("## Faults and gates")[2].partition("\n## ")[0]
TESTS = {"lab": "tests/lab", "readings": "tests/workloads"}


def test_the_table_is_that_of_the_gates() -> None:
    rows = [line for line in SECTION.splitlines() if line.startswith("| ")][1:]
    planted = {code: gate for code, gate in GATES.items() if gate["planted"] == "lab"}
    assert rows == [f"| {gate['fault']} | `{code}` | {gate['verdict']} |" for code, gate in planted.items()]
    named = re.findall(r"`([a-z0-9-]+)`", SECTION.partition("planted in readings")[0].rpartition("|")[2])
    assert named == [code for code, gate in GATES.items() if gate["planted"] == "readings"]


def test_every_gate_has_a_test_that_plants_its_fault() -> None:
    sources = {
        where: "".join(path.read_text() for path in (PROJECT / folder).glob("test_*.py"))
        for where, folder in TESTS.items()
    }
    for code, gate in GATES.items():
        assert re.search(rf"""["']{code}["':]""", sources[gate["planted"]]), code
        assert set(gate) == {"verdict", "meaning", "fault", "planted"}
        assert gate["verdict"] in {"suspect", "invalid"}
