"""Three clients of the lab, each behind a link of 20 Mbit/s, send one load to one metal machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from planted import Rows, changed, measured, reasons
from the_lab import LAB, Ssh

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
def by(tmp_path: Path, multi: Ssh) -> Callable[..., Rows]:
    """The rows of a short run on metal1 by these clients; `metal`: more of that machine's variables."""

    def go(clients: tuple[str, ...], workload: dict[str, Any], **metal: Any) -> Rows:
        tree = yaml.safe_load((LAB / "inventory.yml").read_text())
        groups = tree["all"]["children"]
        groups["clients"]["hosts"] = {name: groups["clients"]["hosts"][name] for name in clients}
        machines = groups["suts"]["children"]["metal"]
        machines["hosts"] = {"metal1": machines["hosts"]["metal1"] | metal}
        del groups["cells"]
        folder = tmp_path / f"{len(clients)}{len(metal)}"
        return measured(folder, workload=workload, tree=tree, link="20mbit", duration_s=3.0)

    return go


def test_three_clients_at_the_rate_of_one_are_the_same_load(by: Callable[..., Rows]) -> None:
    [one], [three] = by(THREE[:1], RATE), by(THREE, RATE)
    assert (one["clients"], three["clients"]) == ("1", "3")
    for row in (one, three):
        assert row["verdict"] in {"valid", "suspect"}, row["reasons"]
        assert row["requests"] == row["successful"] == "180"
    assert one["transferred_mb"] == three["transferred_mb"]
    medians_us = sorted(float(row["response_time_p50_us"]) for row in (one, three))
    assert medians_us[1] / medians_us[0] < 3, "of 4 KB over links of one rate"
    assert float(three["goodput_rps"]) / float(one["goodput_rps"]) == pytest.approx(1, abs=0.1)


def test_three_links_carry_more_than_one(by: Callable[..., Rows]) -> None:
    """Each client's own link is its ceiling, and is named; so is the server's, where it has one."""
    [one], [three] = by(THREE[:1], FULL), by(THREE, FULL, vmtoll_link_mbit=40)
    assert reasons(one)["link-bound"].startswith("client1: ")
    assert float(three["throughput_rps"]) / float(one["throughput_rps"]) > 2
    for machine in (*THREE, "metal1"):
        assert f"link-bound: {machine}: " in three["reasons"]


def test_a_tool_that_begins_late_on_one_client(by: Callable[..., Rows], multi: Ssh) -> None:
    back = "cd /usr/local/bin && mv vegeta.real vegeta"
    with changed(multi, "client3", LATE, back):
        [row] = by(THREE, RATE)
    assert reasons(row)["start-spread"].startswith("vegeta: the clients began ")
    assert float(row["start_spread_ms"]) > 900
    assert row["verdict"] == "suspect"
