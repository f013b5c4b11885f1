"""`vmtoll campaign run --bed` on another project folder: python job_in_project.py FOLDER EXPERIMENT --bed …"""

import argparse
import sys
from pathlib import Path

from tests.support.measured import plan
from vmtoll import cli
from vmtoll.campaign.campaign import Campaign
from vmtoll.campaign.testbeds import read_testbeds
from vmtoll.spec.catalog import Registry

parser = argparse.ArgumentParser()
parser.add_argument("project", type=Path)
parser.add_argument("experiment")
parser.add_argument("--bed")
parser.add_argument("--inventory", type=Path)
parser.add_argument("--output", type=Path)
parser.add_argument("--dataset", type=Path)


def run() -> None:
    asked = parser.parse_args()
    registry = Registry(asked.project)
    plans = {asked.experiment: plan(registry.experiment_file(asked.experiment), registry)}
    (bed,) = [each for each in read_testbeds(asked.inventory) if each.name == asked.bed]
    program = [sys.executable, str(Path(__file__).with_name("run_in_project.py")), str(asked.project)]
    campaign = Campaign(
        asked.output / "jobs" / bed.name, asked.dataset, asked.inventory, plans, [bed], program=program,
        of=asked.output.name,
    )  # fmt: skip
    raise SystemExit(campaign.measure())


if __name__ == "__main__":
    cli.main(run)
