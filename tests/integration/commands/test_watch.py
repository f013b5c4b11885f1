"""`vmtoll watch` over real runs on this machine, whose server becomes slower on one night."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.history import BUILD, git, lighttz_history
from tests.support.machines import EXPERIMENT, LIGHTTZ
from tests.support.measured import run
from vmtoll.commands import run as run_command
from vmtoll.commands.outcome import Exit
from vmtoll.commands.watch import watch
from vmtoll.spec.catalog import Registry
from vmtoll.statistics.change_points import FEWEST_NIGHTS, LEAST_NIGHTS

WORKLOAD = {"description": "one user", "site": "tiny", "tool": "h2load", "users": 1, "keep_alive": True}


@pytest.fixture
def slower(tmp_path: Path) -> Path:
    """lighttz with a busy loop of 2 ms in each request."""
    commits = lighttz_history(tmp_path / "repo", 1, {1: 2000})
    git(tmp_path / "repo", "checkout", "-q", commits[1])
    subprocess.run(["sh", "-c", BUILD], cwd=tmp_path / "repo", check=True)
    return tmp_path / "repo" / "build" / "lighttz"


@pytest.mark.long  # thirteen runs
def test_a_server_that_becomes_slower_is_found(
    project: Registry, inventory: Path, tmp_path: Path, slower: Path, load_tools: None,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (project.root / "workloads" / "tiny.yml").write_text(yaml.safe_dump(WORKLOAD))
    experiment = {key: value for key, value in EXPERIMENT.items() if key != "noise_floor"}
    file = project.experiment_file("tiny")
    file.write_text(yaml.safe_dump(experiment | {"environments": ["metal"], "duration_s": 0.3}))
    binary, spec_file = tmp_path / "metal/lighttz", tmp_path / "metal/etc/vmtoll/servers/lighttz.json"
    spec = json.loads(spec_file.read_text())
    spec_file.write_text(json.dumps(spec | {"command": [str(binary), *spec["command"][1:]], "binary": str(binary)}))
    shutil.copy(LIGHTTZ, binary)
    results = tmp_path / "results"
    for night in range(FEWEST_NIGHTS + LEAST_NIGHTS - 1):
        if night == FEWEST_NIGHTS:
            binary.unlink()
            shutil.copy(slower, binary)
        run(file, inventory, results, registry=project)
    monkeypatch.setattr(run_command, "Registry", lambda: project)
    with pytest.raises(SystemExit) as ended:
        watch("tiny", inventory=inventory, results=results, as_json=True)
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert ended.value.code == document["exit"] == Exit.WORSE, document
    (figure,) = document["figures"]
    assert (figure["metric"], len(figure["nights"])) == ("throughput", FEWEST_NIGHTS + LEAST_NIGHTS)
    (change,) = figure["changes"]
    assert change["run"] == figure["nights"][FEWEST_NIGHTS]["run"]
    assert change["ratio_high"] < 0.5
    assert "servers: lighttz: binary_sha256" in {fact["fact"] for fact in change["facts"]}
