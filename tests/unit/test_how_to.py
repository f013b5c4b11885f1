"""The how-to pages: their examples are sound.

A block whose first line is `# <path>` is a file of the project; the tests write it into a copy and read it there.
"""

import re
import shutil
import textwrap
from pathlib import Path

import pytest

from vmtoll import loadgen
from vmtoll.builds import servers
from vmtoll.guests import profiles
from vmtoll.guests.domain import files_of_role, render
from vmtoll.guests.inventory import Guest
from vmtoll.guests.profiles import ACCELERATORS
from vmtoll.loadgen import ClosedLoad, Output, ToolError
from vmtoll.model.inventory import GuestAccelerator
from vmtoll.model.release import RELEASES
from vmtoll.paths import PROJECT
from vmtoll.spec import experiment, workload
from vmtoll.spec.catalog import Registry
from vmtoll.spec.server import read_server

PAGES = PROJECT / "docs" / "how-to"
OWN_FOLDER = PAGES / "your-own-folder.md"  # its files are of a folder, not of the project
BLOCK = re.compile(r"^( *)```\w+\n\1# (\S+/\S+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
HEY = (
    "response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,status-code,offset\n"
    "0.0059,0.0021,0.0000,0.0001,0.0036,0.0001,200,0.0001\n"
    "0.0073,0.0038,0.0000,0.0000,0.0034,0.0001,200,0.0025\n"
    "0.0009,0.0002,0.0000,0.0000,0.0005,0.0001,404,0.0061\n"
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what users edit, with the files of all how-to pages."""
    root = tmp_path_factory.mktemp("project")
    for folder in ("workloads", "server-builds", "vm-images", "vmtoll/loadgen"):
        shutil.copytree(
            PROJECT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", "build", "tests", "fuzz")
        )
    for page in sorted({*PAGES.glob("*.md")} - {OWN_FOLDER}):
        for indent, name, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            file = root / name
            assert not file.exists(), f"{page}: {name} exists"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(text) if indent else text, encoding="utf-8")
    return root


def test_every_experiment_of_the_pages_can_be_planned(project: Path) -> None:
    registry = Registry(project)
    added = set(registry.experiments()) - set(Registry().experiments())
    assert added == {"webfs", "shop-front", "e1000", "two-guests"}
    for name in added:
        experiment.load(registry.experiment_file(name), registry)


def test_the_folder_of_the_page_can_be_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab.yml").write_text("all: {}\n")
    for indent, name, text in BLOCK.findall(OWN_FOLDER.read_text(encoding="utf-8")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text) if indent else text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    resolved = experiment.load(Registry().experiment_file("shop"))
    assert resolved.definitions["nginx-4-workers"].workers == 4
    assert {each.file.partition("/")[0] for each in resolved.documents if each.own} == {
        "experiments", "workloads", "sites", "servers", "environments",
    }  # fmt: skip


def test_every_workload_of_the_pages_can_be_read(project: Path) -> None:
    registry = Registry(project)
    added = set(workload.names(registry)) - set(workload.names(Registry()))
    assert added == {"shop-rate", "shop-users-close", "shop-users-keep", "hello-hey"}
    for name in added:
        assert workload.load_workloads(name, registry)


def test_the_servers_of_the_page_render(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "SERVER_BUILDS", project / "server-builds")
    nginx, webfs = (read_server(name, project / "server-builds") for name in ("nginx-2-workers", "webfs"))
    assert (nginx.workers, nginx.packages) == (2, ["nginx-light"])
    files = servers._files(webfs, servers.Policy(port=8081), RELEASES[0])
    assert b"-p 8081 -r /srv/vmtoll/sites -c 1024\n" in files["/etc/vmtoll/servers/webfs/webfs.sh"][0]
    assert (
        b"ExecStart=/bin/sh /etc/vmtoll/servers/webfs/webfs.sh" in files["/etc/systemd/system/vmtoll-webfs.service"][0]
    )


@pytest.mark.parametrize("accelerator", ACCELERATORS)
def test_the_profile_of_the_page_is_a_domain(project: Path, accelerator: GuestAccelerator) -> None:
    profile = profiles.load("kvm-e1000", project / "vm-images")
    given = Guest(name="one", profile="kvm-e1000", accelerator=accelerator, cpus="2-5")
    text = render(profile, given, files_of_role("one", profile.kernel), project / "vm-images")
    assert '<model type="e1000"' in text
    assert '<memory unit="MiB">2048</memory>' in text


def test_the_adapter_of_the_page_reads_what_the_tool_printed(project: Path) -> None:
    tool = loadgen.get("hey", project / "vmtoll" / "loadgen")
    load = ClosedLoad(["http://h/pages/hello.html"], 2, 3, keep_alive=False)
    command = tool.command(load)
    assert command.argv[:7] == ["hey", "-o", "csv", "-n", "4", "-c", "2"]
    assert "-disable-keepalive" in command.argv
    result = tool.parse(load, Output(HEY, "", 0))
    assert (result.transactions, result.successful, result.failed) == (3, 2, 2), "one 404, one without an answer"
    assert result.elapsed_s == pytest.approx(0.0097)
    assert result.latencies_us is not None and list(result.latencies_us) == [5900, 7300, 900]
    for output in (Output(HEY[:-5], "", 0), Output("", "", 1), Output(HEY + HEY.partition("\n")[2], "", 0)):
        with pytest.raises(ToolError, match=r"^hey: "):
            tool.parse(load, output)
