"""`vmtoll diagnose` on a guest of a real libvirt with its QEMU driver, in folders and a session of its own."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.program import vmtoll

LIBVIRTD = shutil.which("libvirtd", path="/usr/sbin:/usr/bin")
NOBODY = 65534  # libvirt gives root no session
pytestmark = pytest.mark.skipif(not (LIBVIRTD and shutil.which("virsh")), reason="libvirt-daemon is not installed")

DOMAIN = """<domain type='qemu'>
  <name>web</name><memory unit='MiB'>64</memory><vcpu>2</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/><source file='/nowhere.img'/><target dev='hda' bus='ide'/>
    </disk>
    <interface type='user'><mac address='52:54:00:00:00:01'/><model type='e1000'/></interface>
  </devices>
</domain>"""


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A libvirt session that knows the guest `web`."""
    folder = Path("/tmp") / f"vmtoll-libvirt-{os.getpid()}"  # a socket's path must be short
    run = folder / "run"
    run.mkdir(mode=0o700, parents=True)
    names = {"HOME": "home", "XDG_RUNTIME_DIR": "run", "XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache"}
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
    if user:
        for path in (folder, run):
            os.chown(path, NOBODY, NOBODY)
    socket = run / "libvirt" / "libvirt-sock"
    daemon = subprocess.Popen(
        [*user, str(LIBVIRTD)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder,
        env={"PATH": os.environ["PATH"], **{name: str(folder / sub) for name, sub in names.items()}},
    )  # fmt: skip
    try:
        address = f"qemu:///session?socket={socket}"
        definition = tmp_path_factory.mktemp("domain") / "web.xml"
        definition.write_text(DOMAIN)
        while not socket.exists():
            assert daemon.poll() is None, "libvirtd ended"
        subprocess.run(["virsh", "-c", address, "define", definition], check=True, capture_output=True)
        yield address
    finally:
        daemon.terminate()
        daemon.wait()
        shutil.rmtree(folder)


def diagnose(*words: str) -> "subprocess.CompletedProcess[str]":
    return vmtoll("diagnose", *words)


def dumped(uri: str) -> str:
    return subprocess.run(["virsh", "-c", uri, "dumpxml", "web"], capture_output=True, text=True, check=True).stdout


def test_names_what_a_real_domain_lacks_and_changes_nothing(uri: str) -> None:
    before = dumped(uri)
    done = diagnose("web", "--connect", uri, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    lacking = {step["tuning"]: step["current"] for step in answer["steps"] if step["state"] == "lacking"}
    assert lacking.pop("cpu-model").startswith("qemu64")
    assert lacking.items() >= {
        "kvm": "qemu", "network": "user", "card": "e1000", "disk-bus": "ide",
        "cache": "writeback", "huge-pages": "",
    }.items()  # fmt: skip
    assert answer["running"] is False
    assert dumped(uri) == before


def test_cites_the_committed_tuning_run_and_says_that_it_was_emulated(uri: str) -> None:
    done = diagnose("web", "--connect", uri)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert "emulated network card e1000 (52:54:00:00:00:01)" in text
    assert "by tuning-steps/20261127T233518Z-c085 (kvm-2009 → kvm-virtio-nvhost, " in text
    assert "requests per second: gains 1,458 req/s (43.9%) (3,318 → 4,766 req/s, 95% " in text
    assert "2,636 → 2,614 µs measured; do not " in text
    assert "<model type='virtio'/>" in text
    assert "guests were emulated" in text


def test_an_inventory_names_host_and_domain(uri: str, tmp_path: Path) -> None:
    inventory = tmp_path / "lab.yml"
    host = f"{{ansible_connection: local, vmtoll_libvirt_uri: '{uri}'}}"
    guest = "{vmtoll_kvm_host: kvm1, vmtoll_domain: web}"
    inventory.write_text(
        f"kvm_hosts: {{hosts: {{kvm1: {host}, kvm2: {host}}}}}\nkvm_guests: {{hosts: {{shop: {guest}}}}}\n"
    )
    done = diagnose("shop", "-i", str(inventory))
    assert done.stdout.startswith(f"web on kvm1 ({uri}): lacks "), done.stderr
    elsewhere = diagnose("other", "-i", str(inventory))
    assert elsewhere.returncode == 2
    assert "other is not " in elsewhere.stderr and "--on (there are: kvm1, kvm2)" in elsewhere.stderr
    assert diagnose("web", "-i", str(inventory), "--on", "kvm2").stdout.startswith("web on kvm2")


def test_a_guest_or_a_libvirt_that_is_not_there_is_one_sentence(uri: str) -> None:
    misspelt = diagnose("wbe", "--connect", uri)
    assert misspelt.returncode == 2
    assert "'wbe' (did you mean 'web'?)" in misspelt.stderr
    silent = diagnose("web", "--connect", "qemu:///session?socket=/nowhere")
    assert silent.returncode == 2
    assert "start libvirtd" in silent.stderr
    assert "Traceback" not in misspelt.stderr + silent.stderr


def test_a_host_without_guests_is_said_to_have_none(uri: str, tmp_path: Path) -> None:
    definition = tmp_path / "web.xml"
    definition.write_text(dumped(uri))
    subprocess.run(["virsh", "-c", uri, "undefine", "web"], check=True, capture_output=True)
    try:
        done = diagnose("web", "--connect", uri)
    finally:
        subprocess.run(["virsh", "-c", uri, "define", definition], check=True, capture_output=True)
    assert (done.returncode, "has no guest; " in done.stderr) == (2, True), done.stderr


def test_an_interrupt_leaves_no_ssh_to_a_host_that_says_nothing(tmp_path: Path) -> None:
    """The agent is larger than a pipe: it is being written as long as ssh waits for the host."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = str(silent.getsockname()[1])
        file = tmp_path / "lab.yml"
        way = f"ansible_host: 127.0.0.1, ansible_port: {port}, ansible_ssh_common_args: -o ConnectTimeout=600"
        file.write_text(f"kvm_hosts: {{hosts: {{big: {{{way}}}}}}}\n")

        def ways_there() -> list[str]:
            found = []
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):  # of one that has ended
                    words = file.read_text(errors="replace").split("\0")
                    found += ["ssh"] if words[0] == "ssh" and port in words else []
            return found

        argv = [sys.executable, "-m", "vmtoll", "diagnose", "web", "-i", str(file)]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            accepted, _ = silent.accept()
            with accepted:
                assert ways_there() == ["ssh"]
                process.send_signal(signal.SIGINT)
                assert process.wait(20) == 130
                deadline = time.monotonic() + 20
                while (left := ways_there()) and time.monotonic() < deadline:
                    time.sleep(0.1)
        assert not left
