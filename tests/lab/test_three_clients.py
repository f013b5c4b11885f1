"""Three clients of the lab, each behind a link of 20 Mbit/s, send one load to one metal machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.faults import changed, measured
from tests.lab.records import Records, finding, findings, number, primary, undisturbed
from tests.lab.the_lab import LAB, Ssh
from vmtoll.model.finding import Code, Validity

pytestmark = [pytest.mark.lab, pytest.mark.long]

THREE = ("client1", "client2", "client3")
RATE = {
    "kind": "rate", "site": "pages", "page": "page-4k.html", "tool": "vegeta", "users": None,
    "rate_rps": 60, "deadline_ms": 100.0,
}  # fmt: skip
FULL = {"site": "pages", "page": "page-100k.html", "users": 6}
LATE = (
    "cd /usr/local/bin && mv vegeta vegeta.real && "
    "printf '#!/bin/sh\\nsleep 1\\nexec vegeta.real \"$@\"\\n' >vegeta && chmod +x vegeta"
)


@pytest.fixture
def by(tmp_path: Path, multi: Ssh) -> Callable[..., Records]:
    """The records of a short run on metal1 by these clients; `metal`: more of that machine's variables."""

    def go(clients: tuple[str, ...], workload: dict[str, Any], **metal: Any) -> Records:
        tree = yaml.safe_load((LAB / "inventory.yml").read_text())
        groups = tree["all"]["children"]
        groups["clients"]["hosts"] = {name: groups["clients"]["hosts"][name] for name in clients}
        machines = groups["suts"]["children"]["metal_hosts"]
        machines["hosts"] = {"metal1": machines["hosts"]["metal1"] | metal}
        del groups["cells"]
        folder = tmp_path / f"{len(clients)}{len(metal)}"
        return measured(folder, workload=workload, tree=tree, link="20mbit", duration_s=3.0)

    return go


def test_three_clients_at_the_rate_of_one_are_the_same_load(by: Callable[..., Records]) -> None:
    [one], [three] = by(THREE[:1], RATE), by(THREE, RATE)
    assert (one.clients, three.clients) == (1, 3)
    for record in (one, three):
        assert undisturbed(record) == set(), record.findings
        assert primary(record).requests == primary(record).successful == 180
    assert primary(one).transferred_mb == primary(three).transferred_mb
    medians_us = sorted(number(primary(record).response_time.p50_us) for record in (one, three))
    assert medians_us[1] / medians_us[0] < 3, "of 4 KB over links of one rate"
    assert number(primary(three).goodput_rps) / number(primary(one).goodput_rps) == pytest.approx(1, abs=0.1)


@pytest.mark.injects(Code.LINK_BOUND)
def test_three_links_carry_more_than_one(by: Callable[..., Records]) -> None:
    """Each client's own link is its ceiling, and is named; so is the server's, where it has one."""
    [one], [three] = by(THREE[:1], FULL), by(THREE, FULL, vmtoll_link_mbit=40)
    assert finding(one, Code.LINK_BOUND).machine == "client1"
    assert number(primary(three).throughput_rps) / number(primary(one).throughput_rps) > 2
    assert {found.machine for found in findings(three, Code.LINK_BOUND)} == {*THREE, "metal1"}


@pytest.mark.injects(Code.START_SPREAD)
def test_a_tool_that_begins_late_on_one_client(by: Callable[..., Records], multi: Ssh) -> None:
    back = "cd /usr/local/bin && mv vegeta.real vegeta"
    with changed(multi, "client3", LATE, back):
        [record] = by(THREE, RATE)
    assert finding(record, Code.START_SPREAD).tool == "vegeta"
    assert number(primary(record).start_spread_ms) > 900
    assert record.validity is Validity.SUSPECT
    assert undisturbed(record) <= {Code.START_SPREAD}
