"""The script that measures KVM on a machine of others, and its workflow: all of it that needs no lab."""

import json
import os
import shutil
import subprocess
import sys
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


# In place of the program: it notes its words, and answers as one that measured on a lab of this machine.
PROGRAM = """#!/bin/sh
echo "$*" >>"$CALLS"
case "$1 $2" in
"preflight --json") printf '{"fit": true, "findings": [{"level": "%s", "check": "kvm", "machine": "metal", ' "$KVM"
    echo '"found": "KVM runs code", "advice": ""}]}' ;;
run*) mkdir -p results/$2/1 && echo report >results/$2/1/report.html && echo "{\\"run\\": \\"$PWD/results/$2/1\\"}"
    [ "$2" != "$BREAKS" ] ;;
publish*) mkdir "$4" ;;
show*) echo "a table" ;;
esac
"""
# KVM works, whatever this machine has.
PYTHON = f"""#!/bin/sh
case "$*" in *kvm_host*) ;; *) exec {sys.executable} "$@" ;; esac
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with the script, whose other programs are those above."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts/kvm-evidence")
    shutil.copytree(PROJECT / "workloads/experiments", tmp_path / "workloads/experiments")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name, text in {"scripts/setup": "#!/bin/sh", ".venv/bin/vmtoll": PROGRAM, ".venv/bin/python": PYTHON}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def ran_in(tree: Path, **variables: str) -> tuple[int, list[str]]:
    """The exit code of the script, and the words that it gave vmtoll."""
    given = {"CALLS": f"{tree}/calls", "KVM_DEVICE": "/dev/null", "KVM": "ok", "BREAKS": "", "VMTOLL_AUTHOR": "Ada B"}
    argv, environment = [str(tree / "scripts/kvm-evidence")], os.environ | given | variables
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, (tree / "calls").read_text().splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="the script needs root")
def test_it_measures_publishes_and_takes_the_lab_down(tree: Path) -> None:
    code, calls = ran_in(tree)
    assert code == 0
    out = tree / "build/kvm-evidence"
    assert [call.split()[:2] for call in calls] == [
        ["lab", "up"], ["preflight", "--json"],
        ["run", "demo-boots"], ["publish", *calls[3].split()[1:2]], ["show", *calls[4].split()[1:2]],
        ["lab", "up"],
        ["run", "tuning-steps"], ["publish", *calls[7].split()[1:2]], ["show", *calls[8].split()[1:2]],
        ["lab", "down"],
    ]  # fmt: skip
    assert calls[3].endswith(f"--output {out}/demo-boots --author Ada B")
    assert calls[5] == "lab up --guests kvm-2009,kvm-virtio-nvhost,kvm-default,kvm-multiqueue"
    assert sorted(path.name for path in out.iterdir()) == [
        "demo-boots", "demo-boots.html", "preflight.txt", "summary.md", "tuning-steps", "tuning-steps.html",
    ]  # fmt: skip
    tables = [f"## {name}\n\n```text\na table\n```\n\n" for name in ("demo-boots", "tuning-steps")]
    assert (out / "summary.md").read_text() == "".join(tables)


@pytest.mark.skipif(os.geteuid() != 0, reason="the script needs root")
@pytest.mark.parametrize(("variables", "code", "last"), [({"KVM": "warn"}, 69, 2), ({"BREAKS": "demo-boots"}, 1, 3)])
def test_the_lab_is_down_when_it_cannot_go_on(tree: Path, variables: dict[str, str], code: int, last: int) -> None:
    ended, calls = ran_in(tree, **variables)
    assert (ended, len(calls), calls[-1]) == (code, last + 1, "lab down")


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
