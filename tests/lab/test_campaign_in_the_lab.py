"""In a lab of two test beds: a campaign measures both at once; in one a machine reboots, in the other a guest dies."""

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

from tests.lab.records import BY_CLIENT, Records, records_of, undisturbed
from tests.lab.the_lab import LAB, Ssh
from tests.support.measured import plan
from tests.support.records import BASELINE
from vmtoll.campaign.campaign import Campaign
from vmtoll.campaign.testbeds import read_testbeds
from vmtoll.model.finding import ACCIDENTS, Code
from vmtoll.model.trial import Arm
from vmtoll.paths import PROJECT
from vmtoll.runner.run import Plan
from vmtoll.spec.catalog import Registry
from vmtoll.spec.machines import load_inventory

pytestmark = [pytest.mark.lab, pytest.mark.long]

RUN_IN_PROJECT = str(PROJECT / "tests" / "support" / "run_in_project.py")
GUEST = Arm("kvm-default")
EXPERIMENT = {
    "question": "does a campaign survive a reboot and the loss of a guest?",
    "purpose": "smoke",
    "environments": ["metal", "kvm-default"],
    "servers": ["lighttz"],
    "workloads": ["site-siege"],
    "blocks": 1,
    "warmup_s": 0.5,
    "duration_s": 4.0,
    "crosscheck_duration_s": 1.0,
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
        if found.trials[0].arm == BASELINE:
            return found
    raise AssertionError("no seed below 50 begins with metal")


def by_arm(run: Path) -> dict[Arm, Records]:
    records = records_of(run)
    return {arm: [record for record in records if record.arm == arm] for arm in (BASELINE, GUEST)}


@contextmanager
def injected(*faults: tuple[Callable[[], bool], Callable[[], object]]) -> Iterator[list[bool]]:
    """Do each second thing once its first is so; yields which were done."""
    over, done = threading.Event(), [False] * len(faults)

    def watch(i: int, ready: Callable[[], bool], inject: Callable[[], object]) -> None:
        while not over.wait(0.2):
            if ready():
                inject()
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


@pytest.mark.injects(Code.HOST_LOST)
def test_two_test_beds_at_once_a_machine_reboots_and_a_guest_is_pulled_down(multi: Ssh, tmp_path: Path) -> None:
    inventory, folder = LAB / "inventory.yml", tmp_path / "pulled"
    registry = project_with(tmp_path / "project")
    asked = Campaign(
        folder, folder / "data", inventory, {"pulled": planned(registry)}, read_testbeds(inventory, "all:!client3"),
        program=[sys.executable, RUN_IN_PROJECT, str(registry.root)],
    )  # fmt: skip
    assert [bed.name for bed in asked.testbeds] == ["cell_a", "cell_b"]
    guest = load_inventory(inventory, ["kvm-default"], limit="cell_b").suts["kvm-default"]
    assert guest.vars.revive is not None
    destroy = [*guest.vars.revive[0][:-2], "destroy", str(guest.vars.domain)]
    metal_is_under_load = (
        lambda: bool(multi("client1", "pgrep -x siege || true")),
        lambda: multi("metal1", "systemctl reboot --no-block"),
    )
    guests_turn = (
        lambda: any(file.stat().st_size for file in asked.results("cell_b").glob("pulled/*/trials.jsonl")),
        lambda: subprocess.run(destroy, check=True, capture_output=True),
    )
    with injected(metal_is_under_load, guests_turn) as done:
        assert asked.measure() == 0, asked.log(("cell_b", "pulled")).read_text()
    assert done == [True, True]
    runs = {name: asked.run_of((name, "pulled"), "complete") for name in ("cell_a", "cell_b")}
    times = []
    for run in runs.values():
        assert run is not None
        document = json.loads((run / "run.json").read_text())
        times.append([datetime.fromisoformat(document[key]) for key in ("started_at", "ended_at")])
    assert max(begun for begun, _ in times) < min(ended for _, ended in times), "both measured at the same time"
    # Metal stands first: when the guest is lost, the block is measured again with it.
    cells = (("cell_a", GUEST, BASELINE, [1]), ("cell_b", BASELINE, GUEST, [1, 2]))
    for cell, unharmed, harmed, attempts in cells:
        run = runs[cell]
        assert run is not None
        records = by_arm(run)
        assert [record.attempt for record in records[unharmed]] == attempts
        lost, again = records[harmed]
        assert Code.HOST_LOST in lost.codes <= ACCIDENTS
        # Over links of 20 Mbit/s, which siege fills; the guest has just booted.
        link = {Code.LINK_BOUND}
        assert undisturbed(again) <= BY_CLIENT | link | {Code.BACKGROUND_CPU}, again.findings
    figures = json.loads((folder / "figures.json").read_text())
    assert [(row["testbed"], row["blocks"], row["invalid"]) for row in figures["testbeds"]] == [
        ("cell_a", 1, 0),
        ("cell_b", 1, 0),
    ]
    throughput = next(one for one in figures["effects"] if one["verdict"]["metric"] == "throughput")
    assert {row["testbed"] for row in throughput["by_testbed"]} == {"cell_a", "cell_b"}
