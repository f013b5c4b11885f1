"""A slice of each published web server experiment through the real runner, with the loads that are its own."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.records import BY_CLIENT, measure, number, primary, undisturbed
from tests.lab.the_lab import MACHINES, VMTOLL, Ssh
from vmtoll.model.columns import value_of
from vmtoll.model.finding import Code
from vmtoll.paths import PROJECT
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load

pytestmark = pytest.mark.lab

# Of each experiment what no other test in the lab has: its own loads, links and figures. In order of their links.
SLICES: list[tuple[str, dict[str, Any]]] = [
    ("event-servers-2008", {"servers": ["lighttz"], "environments": ["metal"]}),
    ("image-offload-2007", {"servers": ["apache-proxy-lighttpd"], "environments": ["metal"]}),
    ("lua-2008", {"servers": ["lighttz-lua-reload"], "environments": ["metal"]}),
    ("php-2006", {"servers": ["lighttpd-php-fastcgi"], "environments": ["metal"]}),
    (
        "one-core-four-cores-2009",
        {
            "servers": ["lighttpd-tuned-2009"],
            "environments": ["metal"],
            "workloads": ["index-25-one-core", "list-100-all-cores"],
        },
    ),
    ("metal-vs-kvm-2009", {"servers": ["lighttpd"]}),
    (
        "small-servers-2003",
        {
            "servers": ["mini-httpd", "thttpd"],
            "environments": ["metal"],
            "workloads": ["page-4k-keep"],
            "users": {"page-4k-keep": 1000},
        },
    ),
    ("rate-sweep-2006", {"servers": ["lighttpd-4-workers"], "environments": ["metal"]}),
]
# What an experiment is about, and no other.
FIGURES = {
    "event-servers-2008": ["memory_pss_kib", "processes"],
    "image-offload-2007": ["connect_mean_ms", "connect_max_ms", "first_response_mean_ms", "first_response_min_ms"],
    "metal-vs-kvm-2009": ["availability_pct", "throughput_mb_per_s"],
    "small-servers-2003": ["server_cpu_user_s", "server_cpu_system_s"],
    "rate-sweep-2006": ["goodput_rps"],
}


# What the published loads come to in the lab: tools at their limit, links that are full and drop packets, users who
# wait behind others, a server at a rate that is too high for it.
EXPECTED = BY_CLIENT | {
    Code.LINK_BOUND, Code.STALLED, Code.MEAN_OVER_P99, Code.RATE_NOT_REACHED, Code.CLIENT_LATE, Code.LISTEN_DROPS,
}  # fmt: skip


def sliced(name: str, keys: dict[str, Any], folder: Path) -> Registry:
    """This project with the experiment at its small scale, cut to one block, no control, and what the slice says."""
    (folder / "workloads" / "experiments").mkdir(parents=True)
    for shared in ("server-builds", "vm-images", "workloads/sites", "vmtoll"):
        (folder / shared).symlink_to(PROJECT / shared)
    for workload in (PROJECT / "workloads").glob("*.yml"):
        (folder / "workloads" / workload.name).symlink_to(workload)
    whole = load(Registry().experiment_file(name), scale="small").experiment
    small = whole.model_dump(mode="json", exclude={"name", "claims", "noise_floor"}, exclude_none=True)
    registry = Registry(folder)
    registry.experiment_file(name).write_text(yaml.safe_dump(small | {"blocks": 1, "noise_floor": None} | keys))
    return registry


@pytest.fixture(scope="module")
def as_it_was(lab: Path) -> Iterator[Path]:
    """The lab, with its link as all other tests want it afterwards."""
    yield lab
    subprocess.run([VMTOLL, "lab", "up"], check=True, stdin=subprocess.DEVNULL)


@pytest.mark.guest_minutes
def test_another_link_reboots_nothing(as_it_was: Path, ssh: Ssh) -> None:
    def booted() -> list[str]:
        return [ssh(machine, "stat -c %Y /proc/1; cat /proc/sys/kernel/random/boot_id") for machine in MACHINES]

    before = booted()
    for link, shape in (("100mbit", "tbf"), ("unshaped", "noqueue")):
        subprocess.run([VMTOLL, "lab", "up", "--link", link], check=True, stdin=subprocess.DEVNULL)
        assert yaml.safe_load((as_it_was / "inventory.yml").read_text())["all"]["vars"]["vmtoll_link"] == link
        for namespace, device in (("vmtoll-switch", "sw-client"), ("vmtoll-client", "eth0")):
            show = ["tc", "-n", namespace, "qdisc", "show", "dev", device]
            assert shape in subprocess.run(show, capture_output=True, text=True, check=True).stdout
    assert booted() == before


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        pytest.param(*one, id=one[0], marks=[] if one[0] == "event-servers-2008" else [pytest.mark.guest_minutes])
        for one in SLICES
    ],
)
def test_a_slice_is_measured(as_it_was: Path, tmp_path: Path, name: str, keys: dict[str, Any]) -> None:
    registry = sliced(name, keys, tmp_path / "project")
    resolved = load(registry.experiment_file(name), registry)
    subprocess.run([VMTOLL, "lab", "up", "--link", resolved.experiment.link], check=True, stdin=subprocess.DEVNULL)
    _, records = measure(
        registry.experiment_file(name), as_it_was / "inventory.yml", tmp_path / "results", registry=registry
    )
    loads = sum(len(workload.single_machine_loads) for workload in resolved.workloads.values())
    assert len(records) == loads * len(resolved.servers) * len(resolved.experiment.environments)
    for record in records:
        who = f"{record.scenario}, {record.arm}: {record.findings}"
        assert undisturbed(record) <= EXPECTED, who
        assert record.counts.bodies_wrong == 0, who
        for name_of_figure in FIGURES.get(name, []):
            assert number(value_of(record, name_of_figure)) >= 0, f"{name_of_figure}: {who}"
    throughputs = [number(primary(record).throughput_rps) for record in records]
    # At a rate that is too high for its deadline all may be late: that is what a ramp is to find.
    assert (max if name == "rate-sweep-2006" else min)(throughputs) > 0, [record.findings for record in records]
