"""Guests that libvirt does not run, by their command lines and Proxmox' files."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vmtoll.agent.kvm_host import cpu_list
from vmtoll.agent.monitors import guests, is_libvirts, is_monitor, is_qemu, name_of, pid_of
from vmtoll.agent.protocol import GuestAddress


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("/usr/bin/qemu-system-x86_64", True), ("/usr/bin/kvm", True), ("/usr/libexec/qemu-kvm", True),
        ("qemu-img", False), ("/usr/bin/python3", False), ("", False),
    ],
)  # fmt: skip
def test_programs_of_qemu(program: str, expected: bool) -> None:
    assert is_qemu(program) is expected


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["kvm", "-name", "web"], "web"), (["kvm", "-name", "guest=web,debug-threads=on"], "web"),
        (["kvm", "-name", "web,debug-threads=on"], "web"), (["kvm", "-name"], ""), (["kvm"], ""),
        (["kvm", "-name", "guest=a,,b 'c',debug-threads=on"], "a,b 'c'"), (["kvm", "-name", "debug-threads=on"], ""),
        (["kvm", "-name", "process=x,guest=-web"], "-web"), (["kvm", "--name", "web"], "web"),
    ],
)  # fmt: skip
def test_names_of_qemus_guests(words: list[str], name: str) -> None:
    assert name_of(words) == name


def test_libvirts_guests_are_known_by_their_monitor() -> None:
    assert is_libvirts(["kvm", "-chardev", "socket,id=charmonitor,fd=3,server=on,wait=off"])
    assert not is_libvirts(["kvm", "-chardev", "socket,id=qmp,path=/q"])


def test_a_guest_of_libvirt_is_found_by_its_whole_name_and_listed_with_its_monitor(tmp_path: Path) -> None:
    names = ["a,b", "a"]
    guest = "import sys, time; time.sleep(60)"
    argv = ["-c", guest, "-chardev", "socket,id=charmonitor,fd=3", "-name"]
    program = tmp_path / "qemu-system-x86_64"
    program.symlink_to(sys.executable)
    processes = [subprocess.Popen([program, *argv, f"guest={name.replace(',', ',,')},x=on"]) for name in names]
    try:
        while not all(Path(f"/proc/{process.pid}/cmdline").read_bytes() for process in processes):
            time.sleep(0.01)  # Popen returns before the kernel has set the new program's arguments
        for name, process in zip(names, processes, strict=True):
            assert pid_of({"kind": "libvirt", "name": name}) == str(process.pid)
        assert pid_of({"kind": "libvirt", "name": "b"}) is None
        listed = {g["process"]["pid"]: g for g in guests(tmp_path) if g["kind"] == "libvirt" and g["process"]}
        assert {listed[process.pid]["name"] for process in processes} == {*names}
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_monitors_are_known_by_their_programs() -> None:
    assert is_monitor("/opt/firecracker", str(os.getpid()))
    assert not is_monitor("/usr/bin/python3", str(os.getpid()))


def test_guests_of_proxmox_that_are_off_are_listed(tmp_path: Path) -> None:
    """The number in a file of Proxmox may be another process's by now."""
    configs, running = tmp_path / "etc/pve/qemu-server", tmp_path / "var/run/qemu-server"
    configs.mkdir(parents=True)
    running.mkdir(parents=True)
    (configs / "101.conf").write_text("name: web\n")
    (running / "101.pid").write_text(f"{os.getpid()}\n")
    (found,) = [guest for guest in guests(tmp_path) if guest["kind"] == "proxmox"]
    assert (found["name"], found["config"], found["process"]) == ("101", "name: web", None)
    assert pid_of({"kind": "proxmox", "name": "web", "vmid": "101"}, tmp_path) is None


@pytest.mark.parametrize("option", ["unix:q.s,server=on", "unix:{folder}/q.s,server=on", "unix:./../{name}/q.s"])
def test_a_socket_may_be_relative_to_the_folder_of_qemu(tmp_path: Path, option: str) -> None:
    text = option.format(folder=tmp_path, name=tmp_path.name)
    argv = ["/usr/bin/qemu-system-x86_64", "-c", "print(flush=True); input()", "-qmp", text]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, executable=sys.executable, stdin=pipe, stdout=pipe, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # it runs
            address: GuestAddress = {"kind": "qemu", "name": "web", "socket": str(tmp_path / "q.s")}
            assert pid_of(address) == str(process.pid)
            assert pid_of({**address, "socket": "/other/q.s"}) is None
        finally:
            process.kill()


def test_a_file_with_the_pid_of_nobody(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    file.write_text("none\n")
    address = {"kind": "process", "name": "web", "unit": "", "pid_file": str(file)}
    assert pid_of(address) is None  # type: ignore[arg-type]
    file.write_text(f"{os.getpid()}\n")
    assert pid_of(address) == str(os.getpid())  # type: ignore[arg-type]


def test_lists_of_cpus() -> None:
    assert cpu_list("0-2,5\n") == [0, 1, 2, 5]
