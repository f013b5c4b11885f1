"""A guest of machine type microvm, which plain QEMU runs beside libvirt, is measured to the end like any other."""

import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.records import number, primary, records_of
from tests.lab.the_lab import VMTOLL, Ssh, virsh
from tests.support.qemu_process import QEMU
from tests.support.real_servers import wait_for
from vmtoll.model.finding import Validity

pytestmark = [pytest.mark.lab, pytest.mark.guest_minutes]

SWITCH, TAP, BOOT_LIMIT_S = "vmtoll-switch", "vt-microvm", 180


@pytest.fixture
def socket(lab: Path, ssh: Ssh, tmp_path: Path) -> Iterator[Path]:
    """The QMP socket of a microvm that has the kernel, disk, card and address of the lab's guest, in its place."""
    system = ET.fromstring(virsh(lab, "dumpxml", "kvm"))
    kernel, initrd, append = (system.findtext(f"os/{name}") or "" for name in ("kernel", "initrd", "cmdline"))
    card = system.find("devices/interface/mac")
    disk = system.find("devices/disk/source")
    assert card is not None and disk is not None
    ssh("kvm", "systemctl --no-block poweroff")
    wait_for(lambda: "shut off" in virsh(lab, "domstate", "kvm"), 60)
    firmware = [
        word
        for entry in system.findall("sysinfo[@type='fwcfg']/entry")
        for word in ("-fw_cfg", f"name={entry.get('name')},file={entry.get('file')}")
    ]
    path = tmp_path / "qmp.sock"
    in_switch = ["ip", "-n", SWITCH]
    subprocess.run([*in_switch, "tuntap", "add", TAP, "mode", "tap"], check=True)
    subprocess.run([*in_switch, "link", "set", TAP, "master", "vt-br0", "up"], check=True)
    argv = [
        "ip", "netns", "exec", SWITCH, QEMU, "-M", "microvm,pcie=on,rtc=on", "-accel", "tcg", "-cpu", "max",
        "-smp", "1", "-m", "1024", "-name", "guest=microvm", "-nodefaults", "-no-user-config", "-display", "none",
        "-kernel", kernel, "-initrd", initrd, "-append", append, "-serial", f"file:{tmp_path}/console",
        "-blockdev", f"qcow2,node-name=d,file.driver=file,file.filename={disk.get('file')},file.cache.no-flush=on",
        "-device", "virtio-blk-pci,drive=d", "-netdev", f"tap,id=n,ifname={TAP},script=no,downscript=no",
        "-device", f"virtio-net-pci,netdev=n,mac={card.get('address')}", "-device", "virtio-rng-pci",
        *firmware, "-qmp", f"unix:{path},server=on,wait=off",
    ]  # fmt: skip
    with subprocess.Popen(argv) as process:
        try:
            yield path
        finally:
            process.kill()
            process.wait()
            subprocess.run([*in_switch, "link", "delete", TAP], check=True)
            virsh(lab, "start", "kvm")


def answers(lab: Path) -> bool:
    argv = ["ssh", "-F", str(lab / "ssh_config"), "-o", "ControlPath=none", "kvm", "systemctl is-system-running --wait"]
    return subprocess.run(argv, capture_output=True, check=False, timeout=60).returncode != 255


def test_it_is_measured_against_metal(lab: Path, socket: Path, tmp_path: Path) -> None:
    wait_for(lambda: answers(lab), BOOT_LIMIT_S)
    inventory = yaml.safe_load((lab / "inventory.yml").read_text())
    guest = inventory["all"]["children"]["suts"]["children"]["kvm_guests"]["hosts"]["kvm"]
    for name in ("vmtoll_domain", "vmtoll_revive"):
        del guest[name]
    guest |= {"vmtoll_environment": "microvm", "vmtoll_qmp_socket": str(socket)}
    for name, content in {
        "lab.yml": inventory,
        "environments/microvm.yml": {"description": "a microvm of plain QEMU"},
        "experiments/microvm.yml": {
            "question": "what does a microvm cost?", "purpose": "smoke", "environments": ["metal", "microvm"],
            "servers": ["nginx"], "workloads": ["site-rate-100"], "blocks": 2, "warmup_s": 0.3, "duration_s": 1.0,
        },
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(yaml.safe_dump(content))
    words: list[str | Path] = [VMTOLL, "run", "microvm", "--inventory", "lab.yml", "--results", "results", "--json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    run = (tmp_path / "results/latest").resolve()
    of_guest = [record for record in records_of(run) if record.arm.environment == "microvm"]
    assert len(of_guest) >= 2
    for record in of_guest:
        assert record.validity is not Validity.INVALID, record.findings
        assert number(primary(record).host_cpu_us_per_request) > number(primary(record).server_cpu_us_per_request)
