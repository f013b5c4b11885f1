"""In a lab of two cells: a campaign measures both at once; in one a machine reboots, in the other a guest dies."""

import csv
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from the_lab import LAB, Ssh

from vmtoll.campaign import Campaign
from vmtoll.cells import cells
from workloads.runner.inventory import load_inventory
from workloads.runner.registry import PROJECT, Registry
from workloads.runner.run import Plan, plan

pytestmark = [pytest.mark.lab, pytest.mark.long]

ELSEWHERE = str(PROJECT / "tests" / "workloads" / "elsewhere.py")
EXPERIMENT = {
    "question": "does a campaign survive a reboot and the loss of a guest?",
    "purpose": "smoke",
    "environments": ["metal", "kvm-default"],
    "servers": ["lighttz"],
    "workloads": ["site-siege"],
    "blocks": 1,
    "warmup_s": 0.5,
    "duration_s": 4.0,
    "twin_duration_s": 1.0,
    "link": "20mbit",
}


def project_with(folder: Path) -> Registry:
    """The project with the experiment `pulled` alone."""
    (folder / "workloads" / "experiments").mkdir(parents=True)
    for entry in ("server-builds", "vm-images"):
        (folder / entry).symlink_to(PROJECT / entry)
    for file in (PROJECT / "workloads").iterdir():
        if file.name != "experiments":
            (folder / "workloads" / file.name).symlink_to(file)
    return Registry(folder)


def planned(registry: Registry) -> Plan:
    """The experiment with a seed that puts metal before the guest."""
    file = registry.experiment_file("pulled")
    for seed in range(50):
        file.write_text(yaml.safe_dump(EXPERIMENT | {"seed": seed}))
        found = plan(file, registry)
        if found.trials[0].scenario.environment == "metal":
            return found
    raise AssertionError("no seed below 50 begins with metal")


def rows_of(run: Path) -> dict[str, list[dict[str, str]]]:
    with (run / "trials.csv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    return {name: [row for row in rows if row["environment"] == name] for name in ("metal", "kvm-default")}


@contextmanager
def planted(*faults: tuple[Callable[[], bool], Callable[[], object]]) -> Iterator[list[bool]]:
    """Do each second thing once its first is so; yields which were done."""
    over, done = threading.Event(), [False] * len(faults)

    def watch(i: int, ready: Callable[[], bool], plant: Callable[[], object]) -> None:
        while not over.wait(0.2):
            if ready():
                plant()
                done[i] = True
                return

    watchers = [threading.Thread(target=watch, args=(i, *fault)) for i, fault in enumerate(faults)]
    for watcher in watchers:
        watcher.start()
    try:
        yield done
    finally:
        over.set()
        for watcher in watchers:
            watcher.join()


def test_two_cells_at_once_a_machine_reboots_and_a_guest_is_pulled_down(multi: Ssh, tmp_path: Path) -> None:
    inventory, folder = LAB / "inventory.yml", tmp_path / "pulled"
    registry = project_with(tmp_path / "project")
    asked = Campaign(
        folder, folder / "data", inventory, {"pulled": planned(registry)}, cells(inventory, "all:!client3"),
        program=[sys.executable, ELSEWHERE, str(registry.root)],
    )  # fmt: skip
    assert [cell.name for cell in asked.cells] == ["cell_a", "cell_b"]
    guest = load_inventory(inventory, ["kvm-default"], limit="cell_b").suts["kvm-default"]
    destroy = [*guest.get("vmtoll_revive")[0][:-2], "destroy", str(guest.get("vmtoll_domain"))]
    log = asked.log(("cell_b", "pulled"))
    metal_is_under_load = (
        lambda: bool(multi("client1", "pgrep -x siege || true")),
        lambda: multi("metal1", "systemctl reboot --no-block"),
    )
    guests_turn = (
        lambda: log.exists() and "trial 1 of 2" in log.read_text(),
        lambda: subprocess.run(destroy, check=True, capture_output=True),
    )
    with planted(metal_is_under_load, guests_turn) as done:
        assert asked.measure() == 0, log.read_text()
    assert done == [True, True]
    runs = {name: asked.run_of((name, "pulled"), "complete") for name in ("cell_a", "cell_b")}
    times = []
    for run in runs.values():
        assert run is not None
        document = json.loads((run / "run.json").read_text())
        times.append([datetime.fromisoformat(document[key]) for key in ("started_at", "ended_at")])
    assert max(begun for begun, _ in times) < min(ended for _, ended in times), "the cells measured at the same time"
    assert runs["cell_a"] is not None and runs["cell_b"] is not None
    for cell, unharmed, harmed in (("cell_a", "kvm-default", "metal"), ("cell_b", "metal", "kvm-default")):
        rows = rows_of(runs[cell])
        assert [row["attempt"] for row in rows[unharmed]] == ["1"]
        lost, again = rows[harmed]
        assert lost["reasons"].startswith("host-lost: "), lost["reasons"]
        assert again["verdict"] in {"valid", "suspect"}, again["reasons"]
    figures = json.loads((folder / "figures.json").read_text())
    assert [(row["cell"], row["blocks"], row["invalid"]) for row in figures["cells"]] == [
        ("cell_a", 1, 0),
        ("cell_b", 1, 0),
    ]
    throughput = next(one for one in figures["effects"] if one["metric"] == "throughput")
    assert {row["cell"] for row in throughput["by_cell"]} == {"cell_a", "cell_b"}
