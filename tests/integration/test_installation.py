"""vmtoll out of a wheel, in an environment of its own outside of the checkout, by a user who is not root."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.committed_run import DEMO, committed
from tests.support.machines import EXPERIMENT, SITE, WORKLOAD
from vmtoll.paths import PROJECT
from vmtoll.runs.folder import read
from vmtoll.spec.catalog import Registry
from vmtoll.version import version

pytestmark = pytest.mark.slow

NOBODY = 65534
Vmtoll = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that every user can enter, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="vmtoll-installed-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def wheel(place: Path) -> Path:
    words: list[str | Path] = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", place, PROJECT]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    (built,) = place.glob("vmtoll-*.whl")
    return built


@pytest.fixture(scope="module")
def program(place: Path, wheel: Path) -> Path:
    """The program, installed with the dependencies that are pinned and nothing else."""
    pins = re.findall(r"^\S+==\S+", (PROJECT / "requirements.txt").read_text(), re.MULTILINE)
    (place / "pins.txt").write_text("\n".join(pins))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "venv"], check=True)
    words: list[str | Path] = [
        "--python",
        place / "venv/bin/python",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--constraint",
        place / "pins.txt",
        wheel,
    ]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    return place / "venv/bin/vmtoll"


@pytest.fixture(scope="module")
def home(place: Path) -> Path:
    folder = place / "home"
    folder.mkdir()
    return _given(folder)


def _given(path: Path) -> Path:
    """The same, with all in it, as nobody's where root runs the tests."""
    if os.geteuid() == 0:
        for each in (path, *path.rglob("*")):
            os.chown(each, NOBODY, NOBODY, follow_symlinks=False)
    return path


@pytest.fixture(scope="module")
def vmtoll(program: Path, home: Path) -> Vmtoll:
    """Run the program with no more than a user's environment."""
    user: Any = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}

    def run(*words: str | Path, cwd: Path = home, **environment: str) -> "subprocess.CompletedProcess[str]":
        variables = {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"} | environment
        return subprocess.run(
            [program, *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
            env=variables,
            **user,
        )

    return run


@pytest.fixture(scope="module")
def folder(vmtoll: Vmtoll, home: Path) -> Path:
    """A folder that `init` made, with a committed run among its results."""
    done = vmtoll("init", "my-lab", "--embedded")
    assert done.returncode == 0, done.stderr
    shutil.copytree(DEMO, home / "my-lab/results/demo" / DEMO.name)
    _given(home / "my-lab/results")
    return home / "my-lab"


def test_the_wheel_has_the_data_of_the_checkout(wheel: Path) -> None:
    names = {name.removeprefix("vmtoll/_data/") for name in zipfile.ZipFile(wheel).namelist()}
    files = committed("playbooks", "server-builds", "vm-images", "workloads", "results/schema")
    tracked = [str(file.relative_to(PROJECT)) for file in files]
    left_out = re.compile(r"server-builds/lighttz/(tests|fuzz)/")
    assert {name for name in tracked if not left_out.match(name)} <= names
    assert not [name for name in names if "/build/" in name or left_out.match(name)]
    assert "commit" in names


def test_it_says_its_version_and_lists_what_it_brings(vmtoll: Vmtoll) -> None:
    assert vmtoll("--version").stdout == f"vmtoll {version()}\n"
    assert "init" in vmtoll("--help").stdout
    listed = json.loads(vmtoll("list", "--json").stdout)
    registry = Registry()
    assert listed["experiments"] == registry.experiments()
    assert [server["name"] for server in listed["servers"]] == registry.servers()


@pytest.mark.parametrize("experiment", ["demo", "mail-stack-2009", "first"])
def test_experiments_can_be_planned(vmtoll: Vmtoll, folder: Path, experiment: str) -> None:
    done = vmtoll("run", experiment, "--dry-run", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"]


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("report results/demo/{run}", "results/demo/{run}/report.html"),
        ("site --json", "site/index.html"),
        ("publish results/demo/{run} --output bundle --author A", "bundle/SHA256SUMS"),
        ("replication results/demo/{run} --output page.html", "page.html"),
    ],
)
def test_runs_can_be_read_and_published(vmtoll: Vmtoll, folder: Path, words: str, written: str) -> None:
    done = vmtoll(*words.format(run=DEMO.name).split(), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / written.format(run=DEMO.name)).stat().st_size


def test_a_run_can_be_shown_and_a_bundle_replayed(vmtoll: Vmtoll, folder: Path) -> None:
    shown = json.loads(vmtoll("show", f"results/demo/{DEMO.name}", "--json", cwd=folder).stdout)
    assert shown["run"] == DEMO.name and shown["verdicts"]
    assert vmtoll("publish", f"results/demo/{DEMO.name}", "--output", "again", cwd=folder).returncode == 0
    planned = vmtoll("replay", "again", "--dry-run", "--json", cwd=folder)
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["trials"]


def test_a_guest_is_diagnosed(vmtoll: Vmtoll, home: Path) -> None:
    done = vmtoll("diagnose", "test", "--connect", "test:///default", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["steps"]
    assert answer["runs"], "the tuning run that is committed with vmtoll"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("lab up", "needs root" if os.geteuid() == 0 else "root"),
        ("demo", "needs root"),
        ("run first", "needs root"),
        ("notebook tails results/demo/{run}", "install vmtoll with its extra"),
    ],
)
def test_what_an_installation_lacks_is_one_sentence(vmtoll: Vmtoll, folder: Path, words: str, said: str) -> None:
    done = vmtoll(*words.format(run=DEMO.name).split(), cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    (sentence,) = done.stderr.splitlines()
    assert said in sentence


def test_an_experiment_of_the_folder_is_measured_on_this_machine(
    vmtoll: Vmtoll, home: Path, inventory: Path, project: Registry
) -> None:
    """With the machines of the other tests, each a folder and a port of this machine; its lighttz runs as this user."""
    machines = _given(Path(shutil.move(project.root.parent, home / "machines")))
    made = home / "own"
    assert vmtoll("init", "own", "--client", "a", "--metal", "b").returncode == 0
    for kind, name, document in (
        ("sites", "tiny", SITE),
        ("workloads", "tiny", WORKLOAD),
        ("experiments", "tiny", EXPERIMENT),
    ):
        (made / kind / f"{name}.yml").write_text(yaml.safe_dump(document))
    (made / "environments/metal-two.yml").write_text("description: this machine once more, in place of a guest\n")
    old, new = str(project.root.parent), str(machines)
    for file in (machines / "inventory.yml", *machines.rglob("lighttz.conf"), *machines.rglob("lighttz.json")):
        file.write_text(file.read_text().replace(old, new).replace("user = 0", f"user = {NOBODY}"))
    lab = yaml.safe_load((machines / "inventory.yml").read_text())
    groups = lab["all"]["children"]
    groups["kvm_guests"] = {"hosts": {"metal-two": groups["metal_hosts"]["hosts"].pop("metal-two")}}
    (made / "lab.yml").write_text(yaml.safe_dump(lab))
    done = vmtoll("run", "tiny", "--json", cwd=made)
    assert done.returncode == 0, done.stderr
    run = read(Path(json.loads(done.stdout)["run"]))
    assert run.path.is_relative_to(made / "results/tiny")
    assert run.manifest.versions["vmtoll"] == version()
    assert {each.file for each in run.manifest.documents if each.own} == {
        "experiments/tiny.yml", "workloads/tiny.yml", "sites/tiny.yml", "environments/metal-two.yml",
    }  # fmt: skip
    assert any(each.file == "servers/lighttz/server.yml" and not each.own for each in run.manifest.documents)
    assert run.records
    assert (run.path / "report.html").exists()
