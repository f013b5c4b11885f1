"""An image of the user's own, made here from a small root file system, measured in container runtimes by podman."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.measured import run
from tests.support.ports import free_port
from tests.support.root_filesystem import make
from vmtoll.model.errors import AgentError, VmtollError
from vmtoll.runs.folder import read
from vmtoll.spec.catalog import Registry

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("podman"), reason="only root, with podman"),
    pytest.mark.usefixtures("load_tools"),
]

NAME = f"shop{os.getpid()}"
IMAGE, CONTAINER = f"localhost/vmtoll-test-{NAME}:1", f"vmtoll-image-{NAME}"


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[str]:
    """The image by its digest: nginx with a page, which writes nowhere but in a tmpfs."""
    root = make(tmp_path_factory.mktemp("image") / "root", port)
    (root / "run/vmtoll-nginx").mkdir()
    with subprocess.Popen(["tar", "--create", f"--directory={root}", "."], stdout=subprocess.PIPE) as tar:
        command = '--change=CMD ["/usr/sbin/nginx", "-c", "/etc/nginx.conf"]'
        subprocess.run(["podman", "import", "--quiet", command, "-", IMAGE], stdin=tar.stdout, check=True)
    yield f"{IMAGE.partition(':')[0]}@{podman('image', 'inspect', '--format', '{{.Digest}}', IMAGE)}"
    podman("image", "rm", IMAGE)


def podman(*words: str) -> str:
    return subprocess.run(["podman", *words], capture_output=True, text=True, check=True).stdout.strip()


def containers() -> str:
    return podman("ps", "--all", "--quiet", "--filter", f"name={CONTAINER}")


def command(folder: Path, image: str, port: int, *options: str) -> subprocess.CompletedProcess[str]:
    """The command, which plans the run and sends nothing."""
    (folder / "urls.txt").write_text("/pages/page.html\n")
    argv: list[str | Path] = [
        Path(sys.executable).with_name("vmtoll"), "measure-service", "--image", image, "--port", str(port), "--name",
        NAME, "--urls", "urls.txt", "--at-most-rps", "500", "--rate", "60", "--results", "results", "--dry-run",
        "--run-option=--memory=512m", *options,
    ]  # fmt: skip
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def planned(tmp_path: Path, pinned: str, port: int) -> tuple[Path, Path]:
    """The experiment that the command wrote, made short, and its inventory with this test's folder."""
    done = command(tmp_path, pinned, port)
    assert done.returncode == 0, done.stderr
    assert f"at most {8 * (3 * (60 * 12 + 2)) + 4:,} requests to http://127.0.0.1:{port}" in done.stdout
    file, inventory = (tmp_path / "results/services" / name for name in (f"{NAME}.yml", "containers.inventory.yml"))
    experiment = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(experiment | {"blocks": 1, "warmup_s": 0.2, "duration_s": 1.0, "purpose": "smoke"}))
    tree = yaml.safe_load(inventory.read_text())
    tree["all"]["children"]["metal_hosts"]["hosts"]["this-machine"]["vmtoll_root"] = str(tmp_path / "machine")
    inventory.write_text(yaml.safe_dump(tree))
    return file, inventory


def test_its_cpu_in_each_runtime(planned: tuple[Path, Path], tmp_path: Path, project: Registry) -> None:
    file, inventory = planned
    run_dir = run(file, inventory, tmp_path / "runs", registry=project)
    cpu_us: dict[str, float] = {}
    for record in read(run_dir).records:
        assert record.primary
        assert (record.primary.requests, record.primary.failed) == (60, 0)
        assert record.resources
        assert (record.resources.processes or 0) >= 2
        cpu_us[str(record.arm)] = record.primary.server_cpu_us_per_request or 0
    assert sorted(cpu_us) == ["runc", "runsc-systrap"]
    assert 10 < cpu_us["runc"] < cpu_us["runsc-systrap"] < 100_000
    assert containers() == ""


def test_an_image_that_another_one_may_replace_is_refused(tmp_path: Path, pinned: str, port: int) -> None:
    done = command(tmp_path, IMAGE, port)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.endswith(f"give it by its digest: {pinned}\n")
    missing = f"localhost/nothing@sha256:{'0' * 64}"
    done = command(tmp_path, missing, port)
    assert (done.returncode, f"has no image {missing} here" in done.stderr) == (2, True)
    done = command(tmp_path, pinned, port, "--runtimes", "runc,process")
    assert (done.returncode, "'process' is unknown or repeated; choose among crun, kata" in done.stderr) == (2, True)


def test_a_container_of_somebody_else_with_the_name_stays(
    planned: tuple[Path, Path], tmp_path: Path, project: Registry
) -> None:
    file, inventory = planned
    podman("create", f"--name={CONTAINER}", IMAGE)
    try:
        with pytest.raises((AgentError, VmtollError), match=f"the container name .*{CONTAINER}.* is already in use"):
            run(file, inventory, tmp_path / "runs", registry=project)
        assert containers()
    finally:
        podman("rm", CONTAINER)


def test_an_image_that_does_not_listen_on_the_port(
    planned: tuple[Path, Path], tmp_path: Path, project: Registry, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, inventory = planned
    other = free_port()
    file.write_text(file.read_text().replace(str(port), str(other)))
    monkeypatch.setattr("vmtoll.trial.service.START_S", 1.0)
    with pytest.raises(VmtollError, match=f"127.0.0.1 does not listen on port {other}"):
        run(file, inventory, tmp_path / "runs", registry=project)
    assert containers() == ""
