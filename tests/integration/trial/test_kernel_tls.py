"""A server for which the kernel is to encrypt: skipped with its reason where a machine's kernel has no TLS."""

import json
import platform
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.machines import WORKLOAD
from tests.support.measured import run
from tests.support.records import records_of
from vmtoll.machines.facts import kernel_has_tls
from vmtoll.model.errors import ExperimentError
from vmtoll.model.event import Event, NotMeasured
from vmtoll.runner import requirements
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import Resolved, load
from vmtoll.spec.machines import load_inventory

Rewrite = Callable[..., Path]
WHY = "the kernel of metal-two has no TLS"


@pytest.fixture
def named(project: Registry, rewrite: Rewrite) -> Path:
    """An experiment on two machines that names lighttz, and a server for which the kernel is to encrypt."""
    folder = project.root / "server-builds/kernel"
    folder.mkdir()
    server = {"of": "lighttz", "description": "the kernel encrypts", "tls": {"http": ["1.1"], "kernel": True}}
    (folder / "server.yml").write_text(yaml.safe_dump(server))
    project.workload_file("tiny-tls").write_text(yaml.safe_dump(WORKLOAD | {"tls": True}))
    return rewrite(servers=["lighttz", "kernel"], workloads=["tiny", "tiny-tls"], blocks=1, noise_floor=None)


def test_a_machine_says_whether_its_kernel_has_tls(inventory: Path) -> None:
    host = load_inventory(inventory, ["metal"]).suts["metal"]
    modules = Path("/lib/modules", platform.release())
    assert kernel_has_tls(host) == (Path("/proc/net/tls_stat").exists() or any(modules.glob("**/tls.ko*")))


def test_where_a_kernel_has_no_tls_the_server_is_skipped_in_the_record(
    project: Registry, inventory: Path, named: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_metal(resolved: Resolved, *others: object) -> Resolved:
        machines = load_inventory(inventory, ["metal", "metal-two"])
        return requirements.without_kernel_tls(resolved, machines, lambda host: host.name == "metal")

    monkeypatch.setattr("vmtoll.runner.run.without_kernel_tls", only_metal)
    events: list[Event] = []
    folder = run(named, inventory, tmp_path / "results", registry=project, listener=events.append)
    assert [event for event in events if isinstance(event, NotMeasured)] == [
        NotMeasured("lighttz, tiny-tls", "does not speak TLS"),
        NotMeasured("kernel, tiny", "is measured over TLS alone"),
        NotMeasured("kernel", WHY),
    ]
    assert json.loads((folder / "run.json").read_text())["skipped"][-1]["why"] == WHY
    assert {(r.scenario.server, r.scenario.workload) for r in records_of(folder)} == {("lighttz", "tiny")}


def test_nobody_is_asked_without_such_a_server_and_kernels_that_have_it_skip_nothing(
    project: Registry, inventory: Path, named: Path, rewrite: Rewrite
) -> None:
    machines = load_inventory(inventory, ["metal", "metal-two"])
    resolved = load(named, project)
    assert requirements.without_kernel_tls(resolved, machines, lambda _: True) == resolved
    plain = load(rewrite(servers=["lighttz"], noise_floor=None), project)
    assert requirements.without_kernel_tls(plain, machines, lambda _: pytest.fail("asked")) == plain


def test_an_experiment_of_nothing_else_is_refused(
    project: Registry, inventory: Path, named: Path, rewrite: Rewrite
) -> None:
    only = load(rewrite(servers=["kernel"], workloads=["tiny-tls"], noise_floor=None), project)
    machines = load_inventory(inventory, ["metal", "metal-two"])
    with pytest.raises(ExperimentError, match=rf"servers: .*: kernel: {WHY}$"):
        requirements.without_kernel_tls(only, machines, lambda host: host.name == "metal")
