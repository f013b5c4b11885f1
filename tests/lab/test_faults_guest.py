"""Faults of the guest: it is not what metal is, its clock jumps, its host is shared, its cache is cold."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from planted import changed, measured, once, reasons, ruled
from the_lab import Ssh

from workloads.runner.inventory import load_inventory

pytestmark = pytest.mark.lab

CLOCK_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
LIGHTTZ = "/usr/local/sbin/lighttz"
NGINX = "/etc/vmtoll/servers/nginx"


@contextmanager
def sibling(lab: Path) -> Iterator[int]:
    """Another guest on the same CPU, busy booting the image's kernel; its pid."""
    kernel = Path(json.loads((lab / "built.json").read_text())["image"]) / "vmlinuz"
    cpus = Path("/proc/self/status").read_text().partition("Cpus_allowed_list:")[2].split()[0]
    qemu = ["qemu-system-x86_64", "-accel", "tcg", "-m", "256", "-display", "none", "-kernel", str(kernel)]
    last = cpus.replace("-", ",").split(",")[-1]
    # Through a shell that ends at once: a child of the runner would be taken for a part of it.
    started = subprocess.run(
        ["sh", "-c", f"setsid taskset -c {last} {' '.join(qemu)} >/dev/null 2>&1 </dev/null & echo $!"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    try:
        yield int(started.stdout)
    finally:
        subprocess.run(["kill", started.stdout.strip()], check=True)


def test_two_sides_that_are_not_alike(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """Another binary of one server, another worker count of the other, another kernel parameter."""
    usual = ssh("kvm", "sysctl -n net.core.somaxconn")
    plant = (
        f"cp -p {LIGHTTZ} /root/lighttz; printf x >> {LIGHTTZ}; "
        f'cp -p {NGINX}.json /root/nginx.json; sed -i \'s/"workers": 1/"workers": 2/\' {NGINX}.json; '
        f"cp -p {NGINX}/nginx.conf /root/nginx.conf; sed -i 's/processes 1/processes 2/' {NGINX}/nginx.conf; "
        "sysctl -qw net.core.somaxconn=128"
    )
    back = (
        f"mv /root/lighttz {LIGHTTZ}; mv /root/nginx.json {NGINX}.json; mv /root/nginx.conf {NGINX}/nginx.conf; "
        f"sysctl -qw net.core.somaxconn={usual}"
    )
    with changed(ssh, "kvm", plant, back):
        rows = measured(tmp_path, environments=["metal", "kvm-default"], servers=["lighttz", "nginx"])
    found = {(row["environment"], row["server"]): reasons(row) for row in rows}
    for server in ("lighttz", "nginx"):
        assert not {"fingerprint", "sysctl"} & set(found["metal", server])
        assert found["kvm-default", server]["sysctl"].startswith("kvm: net.core.somaxconn is '128', not '4096'")
    assert found["kvm-default", "lighttz"]["fingerprint"] == "lighttz: binary_sha256 differ"
    assert found["kvm-default", "nginx"]["fingerprint"] == "nginx: config_sha256, workers differ"
    assert {row["verdict"] for row in rows if row["environment"] == "kvm-default"} == {"invalid"}


def test_clocks_that_jump_and_a_sibling_on_the_core(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    usual = ssh("kvm", f"cat {CLOCK_SOURCE}")
    other = next(name for name in ssh("kvm", f"cat {CLOCK_SOURCE.replace('current', 'available')}").split()
                 if name != usual)  # fmt: skip

    def jump() -> None:
        ssh("kvm", f"date -s '+5 seconds'; echo {other} > {CLOCK_SOURCE}")

    try:
        with sibling(lab) as pid:
            row = measured(tmp_path, once("h2load measures", jump), environments=["kvm-default"])[0]
    finally:
        ssh("kvm", f"date -s '-5 seconds'; echo {usual} > {CLOCK_SOURCE}")
    found = reasons(row)
    assert re.match(r"kvm: the clock was set by \+[45]\.", found["clock-stepped"])
    assert found["clock-source"].startswith(f"kvm: {other}, at the start of the run {usual}")
    assert found["host-foreign-cpu"].startswith("this-machine: others than kvm took ")
    assert f"qemu-system-x86 (pid {pid})" in found["host-foreign-cpu"]
    assert row["verdict"] == "suspect"


def test_no_warm_up_and_a_cold_cache(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """Every file comes from a disk that reads 25 times a second, until all of them have been asked for.

    From nginx, which keeps no content in its own memory.
    """
    tune = ["virsh", "-c", _libvirt(lab), "blkdeviotune", "kvm", "vda", "--live", "--total-iops-sec"]

    def cool() -> None:
        subprocess.run([*tune, "25"], check=True, capture_output=True)
        ssh("kvm", "echo 3 > /proc/sys/vm/drop_caches")

    keys = {"environments": ["kvm-default"], "servers": ["nginx"], "warmup_s": 0.01, "duration_s": 3.0}
    with ruled([], [[*tune, "0"]]):
        row = measured(tmp_path, once("h2load measures", cool), **keys)[0]
    assert reasons(row)["warmup-drift"].startswith("kvm: the first third was "), row["reasons"]
    assert float(row["warmup_slower_pct"]) > 10


def _libvirt(lab: Path) -> str:
    guest = load_inventory(lab / "inventory.yml", ["kvm-default"])
    return str(guest.kvm_hosts["this-machine"].get("vmtoll_libvirt_uri"))
