"""Each kind of addition is one new file; nothing that exists is edited."""

import hashlib
import shutil
from pathlib import Path

import pytest

from tests.support.measured import plan
from vmtoll import sites
from vmtoll.builds import servers
from vmtoll.builds import tools as load_tools
from vmtoll.model.errors import UserError
from vmtoll.model.release import RELEASES
from vmtoll.paths import PROJECT
from vmtoll.report import charts
from vmtoll.spec.catalog import Registry

FOLDERS = ("server-builds", "workloads", "vm-images", "vmtoll")
EXPERIMENT = """
question: does everything new take part?
environments: [metal, kvm-new]
servers: [new-server]
workloads: [new-workload]
blocks: 6
warmup_s: 1
duration_s: 1
"""
WORKLOAD = """
description: the new site with the new tool
site: new-site
tool: new_tool
users: 1
keep_alive: true
"""
SERVER = """
description: a server
packages: [new-package]
binary: /usr/sbin/new
templates: [new.conf]
exec_start: /usr/sbin/new
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of every folder that is a registry, with one of each added."""
    skip = shutil.ignore_patterns("__pycache__", "build")
    for folder in FOLDERS:
        shutil.copytree(PROJECT / folder, tmp_path / folder, ignore=skip)
    before = digests(tmp_path)
    (tmp_path / "server-builds/new-server").mkdir()
    (tmp_path / "server-builds/new-server/server.yml").write_text(SERVER)
    (tmp_path / "server-builds/new-server/new.conf.j2").write_text("port {{ server_port }}\n")
    (tmp_path / "workloads/new-workload.yml").write_text(WORKLOAD)
    office = (PROJECT / "workloads/sites/office.yml").read_text()
    (tmp_path / "workloads/sites/new-site.yml").write_text(office)
    shutil.copy(PROJECT / "vmtoll/loadgen/siege.py", tmp_path / "vmtoll/loadgen/new_tool.py")
    shutil.copytree(PROJECT / "vmtoll/loadgen/vegeta", tmp_path / "vmtoll/loadgen/new_built_tool")
    (tmp_path / "vmtoll/loadgen/new_built_tool/Makefile").write_text("$(OUT):\n\tprintf 'made %s' $(CURDIR) >$@\n")
    (tmp_path / "workloads/experiments/new.yml").write_text(EXPERIMENT)
    (tmp_path / "vm-images/guests/kvm-new.yml").write_text("description: a guest\n")
    after = digests(tmp_path)
    assert {path: after[path] for path in before} == before
    return tmp_path


def digests(root: Path) -> dict[Path, str]:
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in root.rglob("*") if path.is_file()}


def test_an_experiment_finds_everything_new(project: Path) -> None:
    registry = Registry(project)
    planned = plan(registry.experiment_file("new"), registry)
    assert {trial.scenario.server for trial in planned.trials} == {"new-server"}
    assert {trial.arm.environment for trial in planned.trials} == {"metal", "kvm-new"}
    assert planned.resolved.workloads["new-workload"].tool == "new_tool"
    assert {"new_tool", "new_built_tool"} <= set(registry.tools())
    assert sites.load_site(registry.site_file("new-site")).name == "new-site"


def test_the_new_tool_is_built_once(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_tools, "CACHE", tmp_path / "cache")
    folder = tmp_path / "only-the-new"
    folder.mkdir()
    (folder / "new_built_tool").symlink_to(project / "vmtoll/loadgen/new_built_tool")
    (built,) = load_tools.binaries(folder)
    assert built["name"] == "new_built_tool"
    assert not Path(built["binary"]).exists()
    load_tools.build(folder=folder)
    assert Path(built["binary"]).read_text().startswith("made ")
    recipe = folder / "new_built_tool/Makefile"
    made_at = Path(built["binary"]).stat().st_mtime_ns
    load_tools.build(folder=folder)
    assert load_tools.binaries(folder) == [built]
    assert Path(built["binary"]).stat().st_mtime_ns == made_at, "it was in the cache"
    recipe.write_text("$(OUT):\n\t@echo no compiler here >&2; false\n")
    with pytest.raises(UserError, match="no compiler here"):
        load_tools.build(folder=folder)


def test_the_new_server_reaches_the_machines(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "SERVER_BUILDS", project / "server-builds")
    (server,) = [server for server in servers.definitions() if server.name == "new-server"]
    assert servers._files(server, servers.Policy(), RELEASES[0])


def test_charts_are_found_by_listing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "vmtoll/report/charts/new.py").write_text(
        "ORDER = 0\n\n\ndef draw(run, outcome):\n    return [('drawn for', outcome['server'])]\n"
    )
    monkeypatch.setattr(charts, "__path__", [str(project / "vmtoll/report/charts")])
    for name in (path.stem for path in (PROJECT / "vmtoll/report/charts").glob("[!_]*.py")):
        monkeypatch.setattr(
            f"vmtoll.report.charts.{name}.CHARTS", {"none": (1, lambda run, outcome: [])}, raising=False
        )
    drawn = charts.draw_all(None, {"server": "new-server"})  # type: ignore[arg-type]
    assert drawn == [("new-1", ("drawn for", "new-server"))]  # type: ignore[comparison-overlap]
