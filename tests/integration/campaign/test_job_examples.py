"""The jobs that docs/campaigns.md shows for Kubernetes and for Nomad: their form, and the commands that they start."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import hcl2
import kubernetes_validate
import pytest
import yaml

from tests.integration.campaign.test_campaign import write_inventory
from vmtoll.campaign.slices import write_list, write_slices
from vmtoll.campaign.testbeds import read_testbeds
from vmtoll.paths import PROJECT
from vmtoll.spec.inventory import read_inventory

SHARED, LIST = "/shared/spring", "beds-3f2a91c0d7e4.txt"
PAGE = (PROJECT / "docs" / "campaigns.md").read_text()
VMTOLL = f'#!/bin/sh\nexec {sys.executable} -m vmtoll "$@" --dry-run --json\n'
BEDS = ("rack1", "rack2")


def example(language: str, beginning: str) -> str:
    (found,) = re.findall(rf"```{language}\n({re.escape(beginning)}.*?)```", PAGE, re.DOTALL)
    return str(found)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder of a campaign with two slices, and a program `vmtoll` that plans and measures nothing."""
    groups: dict[str, Any] = {
        bed: {f"client-{bed}": {}, f"metal-{bed}": {"vmtoll_environment": "metal"}} for bed in BEDS
    }
    inventory = write_inventory(tmp_path / "hosts.yml", groups)
    write_slices(read_inventory(inventory), read_testbeds(inventory), tmp_path / "spring" / "slices")
    write_list(BEDS, tmp_path / "spring").rename(tmp_path / "spring" / LIST)
    (tmp_path / "vmtoll").write_text(VMTOLL)
    (tmp_path / "vmtoll").chmod(0o755)
    return tmp_path


def planned(words: list[str], shared: Path, **variables: str) -> list[str]:
    """The test beds that a job would measure."""
    words = [word.replace(SHARED, str(shared / "spring")) for word in words]
    environment = os.environ | variables | {"PATH": f"{shared}:{os.environ['PATH']}", "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return [bed["name"] for bed in json.loads(done.stdout)["testbeds"]]


def test_each_index_of_the_kubernetes_job_is_a_test_bed(shared: Path) -> None:
    job = yaml.safe_load(example("yaml", "apiVersion"))
    kubernetes_validate.validate(job, "1.29", strict=True)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    script = container["args"][0].replace("s3://lab/spring", str(shared / "data"))
    words = [*container["command"], script]
    measured = [planned(words, shared, JOB_COMPLETION_INDEX=str(index)) for index in range(len(BEDS))]
    assert measured == [[bed] for bed in BEDS]


def test_each_dispatch_of_the_nomad_job_is_a_test_bed(shared: Path) -> None:
    job = hcl2.loads(example("hcl", "job"))["job"][0]
    (body,) = (unquoted(job)["vmtoll-spring"],)
    assert body["parameterized"][0]["meta_required"] == ["bed"]
    config = body["group"][0]["bed"]["task"][0]["measure"]["config"][0]
    assert Path(config["command"]).name == "vmtoll"
    bed = BEDS[-1]
    words = [word.replace("${NOMAD_META_bed}", bed) for word in config["args"]]
    assert planned(["vmtoll", *words], shared) == [bed]


def unquoted(tree: Any) -> Any:
    """Without the quotes that this parser keeps."""
    if isinstance(tree, dict):
        return {unquoted(key): unquoted(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [unquoted(item) for item in tree]
    return tree.strip('"') if isinstance(tree, str) else tree
