"""The script that measures KVM on a machine of others, and its workflow: all of it that needs no lab."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.committed_run import DEMO
from tests.support.program import vmtoll
from vmtoll.paths import PROJECT

SCRIPT = PROJECT / "scripts/kvm-evidence"
KVM = {"check": "kvm", "machine": "metal", "advice": ""}
LINK = {"check": "link", "machine": "metal", "level": "ok", "found": "9 Gbit/s", "advice": ""}


def evidence(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = [str(SCRIPT), *map(str, words)]
    return subprocess.run(argv, env=os.environ | environment, capture_output=True, text=True, check=False)


def test_a_machine_without_kvm_gets_one_sentence_and_its_own_exit_code(tmp_path: Path) -> None:
    summary = tmp_path / "of-the-job"
    done = evidence(tmp_path / "out", KVM_DEVICE=str(tmp_path / "kvm"), GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 69
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"No measurement: {tmp_path}/kvm does not exist. Take a machine")
    assert summary.read_text() == (tmp_path / "out/summary.md").read_text() == f"{line}\n"


@pytest.mark.parametrize(
    ("findings", "fit", "code"),
    [
        ([LINK, KVM | {"level": "ok", "found": "KVM runs code, and boots vmlinuz"}], True, 0),
        ([LINK, KVM | {"level": "warn", "found": "KVM does not work: no kernel boots"}], True, 69),
        ([LINK], True, 69),
        ([LINK | {"level": "fail"}, KVM | {"level": "ok", "found": "KVM runs code"}], False, 1),
    ],
)
def test_preflight_decides_whether_it_is_measured(
    tmp_path: Path, findings: list[dict[str, str]], fit: bool, code: int
) -> None:
    file = tmp_path / "preflight.json"
    file.write_text(json.dumps({"fit": fit, "findings": findings}))
    done = evidence("--preflight-text", file)
    assert done.returncode == code, done.stderr
    assert [line.split("\t")[:2] for line in done.stdout.splitlines()] == [[f["level"], f["check"]] for f in findings]


def test_the_table_is_that_of_the_run() -> None:
    done = evidence("--table", DEMO)
    assert done.returncode == 0, done.stderr
    heading, _, *lines = done.stdout.rstrip("\n").splitlines()
    assert (heading, lines[0], lines[-1]) == ("## demo", "```text", "```")
    assert "\n".join(lines[1:-1]) == vmtoll("show", DEMO).stdout.rstrip("\n")


@pytest.mark.parametrize(("rehearse", "blocks", "boots"), [("false", 8, 4), ("true", 2, 2)])
def test_its_experiments_can_be_planned(tmp_path: Path, rehearse: str, blocks: int, boots: int) -> None:
    assert evidence("--experiments", tmp_path, rehearse).returncode == 0
    plan = vmtoll("run", "demo-boots", "--dry-run", "--json", cwd=tmp_path)
    assert plan.returncode == 0, plan.stderr
    document = json.loads(plan.stdout)
    assert document["boots"]["count"] == boots
    assert {trial["block"] for trial in document["trials"]} == set(range(1, blocks + 1))
    assert vmtoll("run", "tuning-steps", "--scale", "small", "--dry-run", cwd=tmp_path).returncode == 0


def test_the_workflow_runs_the_script_and_keeps_its_files() -> None:
    workflow = yaml.safe_load((PROJECT / ".github/workflows/kvm.yml").read_text())
    assert set(workflow["on"]) == {"schedule", "workflow_dispatch"}
    (job,) = workflow["jobs"].values()
    assert job["container"] == {"image": "debian:13", "options": "--privileged"}
    *_, run, upload = job["steps"]
    assert run["run"] == f"scripts/kvm-evidence {upload['with']['path']}"
    assert upload["if"] == "always()"
