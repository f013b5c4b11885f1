"""A guest whose kernel panics: named within a minute with its console's last lines, and ended."""

import subprocess
import time
from pathlib import Path

import pytest

from tests.lab.the_lab import Ssh, virsh
from vmtoll.machines.panics import Watch
from vmtoll.paths import INVENTORY
from vmtoll.spec.inventory import hosts_by_role, read_inventory

pytestmark = [pytest.mark.lab, pytest.mark.guest_minutes]
NAMED_WITHIN_S = 60
CRASH = "sync; echo 0 >/proc/sys/kernel/panic; nohup sh -c 'sleep 1; echo c >/proc/sysrq-trigger' >/dev/null 2>&1 &"


def test_a_guest_that_panics_is_named_and_ended(lab: Path, ssh: Ssh) -> None:
    by_role = hosts_by_role(read_inventory(INVENTORY))
    (host,), (guest,) = by_role["kvm_host"], by_role["kvm_guest"]
    watch = Watch({guest.name: (guest, host)})
    try:
        assert watch.look() == "", "it runs"
        ssh(guest.name, CRASH)
        began, text = time.monotonic(), ""
        while not text and time.monotonic() - began < NAMED_WITHIN_S:
            time.sleep(2)
            text = watch.look()
        assert text.startswith(f"{guest.name} panicked, and vmtoll stopped it: "), text
        assert "Kernel panic - not syncing: sysrq triggered crash; its console ends with: " in text
        assert virsh(lab, "domstate", str(guest.guest_name)).strip() == "shut off"
        virsh(lab, "start", str(guest.guest_name))
        assert watch.look() == "", "the panic of the boot before does not count"
    finally:
        watch.close()
        subprocess.run(
            ["virsh", "-c", host.libvirt_uri, "start", str(guest.guest_name)], capture_output=True, check=False
        )
        for _ in range(60):
            reach = ["ssh", "-F", str(lab / "ssh_config"), "-o", "ConnectTimeout=20", guest.name, "true"]
            if not subprocess.run(reach, capture_output=True, check=False).returncode:
                break
            time.sleep(2)
        ssh(guest.name, "timeout 600 systemctl is-system-running --wait || true")
