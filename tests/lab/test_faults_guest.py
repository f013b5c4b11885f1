"""Faults of the guest: it is not what metal is, its clock jumps, its host is shared, its cache is cold."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab.faults import changed, measured, once, ruled
from tests.lab.records import BY_CLIENT, finding, number, undisturbed
from tests.lab.the_lab import Ssh
from tests.support.records import BASELINE
from vmtoll.model.event import Phase
from vmtoll.model.finding import Code, Validity
from vmtoll.model.trial import Arm
from vmtoll.spec.machines import load_inventory

pytestmark = pytest.mark.lab

CLOCK_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
LIGHTTZ = "/usr/local/sbin/lighttz"
NGINX = "/etc/vmtoll/servers/nginx"
GUEST = Arm("kvm-default")


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


@pytest.mark.injects(Code.FINGERPRINT, Code.SYSCTL)
@pytest.mark.guest_minutes
def test_two_sides_that_differ(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """Another binary of one server, another worker count of the other, another kernel parameter."""
    usual = ssh("kvm", "sysctl -n net.core.somaxconn")
    inject = (
        f"cp -p {LIGHTTZ} /root/lighttz; printf x >> {LIGHTTZ}; "
        f'cp -p {NGINX}.json /root/nginx.json; sed -i \'s/"workers": 1/"workers": 2/\' {NGINX}.json; '
        f"cp -p {NGINX}/nginx.conf /root/nginx.conf; sed -i 's/processes 1/processes 2/' {NGINX}/nginx.conf; "
        "sysctl -qw net.core.somaxconn=128"
    )
    back = (
        f"mv /root/lighttz {LIGHTTZ}; mv /root/nginx.json {NGINX}.json; mv /root/nginx.conf {NGINX}/nginx.conf; "
        f"sysctl -qw net.core.somaxconn={usual}"
    )
    with changed(ssh, "kvm", inject, back):
        records = measured(tmp_path, environments=["metal", "kvm-default"], servers=["lighttz", "nginx"])
    found = {(record.arm, record.scenario.server): record for record in records}
    assert len(found) == 4
    differ = {Code.FINGERPRINT, Code.SYSCTL}
    for server in ("lighttz", "nginx"):
        assert not differ & found[BASELINE, server].codes
        guest = found[GUEST, server]
        sysctl = finding(guest, Code.SYSCTL)
        assert (sysctl.machine, sysctl.detail) == ("kvm", "net.core.somaxconn: 4096 -> 128")
        assert guest.validity is Validity.INVALID
        assert undisturbed(guest) - BY_CLIENT == differ
    assert finding(found[GUEST, "lighttz"], Code.FINGERPRINT).detail == "binary_sha256"
    assert finding(found[GUEST, "nginx"], Code.FINGERPRINT).detail == "config_sha256, workers"


@pytest.mark.injects(Code.CLOCK_STEPPED, Code.CLOCK_SOURCE, Code.HOST_BACKGROUND_CPU)
@pytest.mark.guest_minutes
def test_clocks_that_jump_and_a_sibling_on_the_core(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    usual = ssh("kvm", f"cat {CLOCK_SOURCE}")
    other = next(name for name in ssh("kvm", f"cat {CLOCK_SOURCE.replace('current', 'available')}").split()
                 if name != usual)  # fmt: skip

    def jump() -> None:
        ssh("kvm", f"date -s '+5 seconds'; echo {other} > {CLOCK_SOURCE}")

    try:
        with sibling(lab) as pid:
            record = measured(tmp_path, once(Phase.MEASURING, jump, "h2load"), environments=["kvm-default"])[0]
    finally:
        ssh("kvm", f"date -s '-5 seconds'; echo {usual} > {CLOCK_SOURCE}")
    assert finding(record, Code.CLOCK_STEPPED).machine == "kvm"
    assert 4000 <= abs(number(record.conditions.clock_step_ms)) < 6000
    source = finding(record, Code.CLOCK_SOURCE)
    assert (source.machine, source.detail) == ("kvm", f"{usual} -> {other}")
    background = finding(record, Code.HOST_BACKGROUND_CPU)
    assert background.machine == "this-machine"
    assert f"qemu-system-x86 (pid {pid})" in (background.process or "")
    assert record.validity is Validity.SUSPECT
    assert undisturbed(record) - BY_CLIENT == {Code.CLOCK_STEPPED, Code.CLOCK_SOURCE}


@pytest.mark.injects(Code.WARMUP_DRIFT)
@pytest.mark.guest_minutes
def test_no_warm_up_and_a_cold_cache(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """Every file comes from a disk that reads 25 times a second, until all of them have been asked for.

    From nginx, which keeps no content in its own memory.
    """
    tune = ["virsh", "-c", _libvirt(lab), "blkdeviotune", "kvm", "vda", "--live", "--total-iops-sec"]

    def cool() -> None:
        subprocess.run([*tune, "25"], check=True, capture_output=True)
        ssh("kvm", "echo 3 > /proc/sys/vm/drop_caches")

    keys: dict[str, Any] = {"environments": ["kvm-default"], "servers": ["nginx"], "warmup_s": 0.01, "duration_s": 3.0}
    with ruled([], [[*tune, "0"]]):
        record = measured(tmp_path, once(Phase.MEASURING, cool, "h2load"), **keys)[0]
    assert finding(record, Code.WARMUP_DRIFT).machine == "kvm"
    assert number(record.conditions.warmup_slower_pct) > 10
    # While the disk is read, everyone waits for it.
    waits = {Code.STALLED, Code.MEAN_OVER_P99}
    assert undisturbed(record) <= waits


def _libvirt(lab: Path) -> str:
    guest = load_inventory(lab / "inventory.yml", ["kvm-default"])
    return guest.kvm_hosts["this-machine"].libvirt_uri
