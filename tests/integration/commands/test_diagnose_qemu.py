"""`vmtoll diagnose` on a guest that plain QEMU runs: a real, emulated QEMU process."""

import json
import os
import shlex
import socket as sockets
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import vmtoll
from tests.support.qemu_process import PLAIN, QEMU, qemu

NAME = f"vmtoll-test-{os.getpid()}"


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """A guest with most of what holds one back."""
    file = tmp_path_factory.mktemp("disks") / "disk.img"
    file.write_bytes(bytes(1 << 20))
    node = {"driver": "raw", "node-name": "d", "file": {"driver": "file", "filename": str(file), "locking": "off"}}
    limits = "throttling.iops-total=100"
    return [
        "-name", f"guest={NAME}", "-nodefaults", "-smp", "2", "-cpu", "qemu64,-pcid", "-machine", "pc",
        "-netdev", "user,id=n0", "-device", "e1000,netdev=n0,mac=52:54:00:00:00:01",
        "-netdev", "hubport,id=n1,hubid=0", "-device",
        "virtio-net-pci,netdev=n1,mac=52:54:00:00:00:02,csum=off,guest_tso4=off",
        "-drive", f"file={file},if=none,id=slow,format=raw,readonly=on,file.locking=off,{limits}",
        "-device", "ide-cd,id=c", "-device", "ide-hd,drive=old,id=ide-old",
        "-drive", f"file={file},if=none,id=old,format=raw,snapshot=on,file.locking=off",
        "-device", "virtio-blk-pci,drive=slow,id=slow-device",
        "-blockdev", json.dumps(node),
        "-device", json.dumps({"driver": "virtio-blk-pci", "drive": "d", "event_idx": False, "share-rw": True}),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def socket(words: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with qemu(tmp_path_factory.mktemp("qemu"), *words) as path:
        yield path


def diagnose(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return vmtoll("diagnose", *arguments)


@pytest.fixture(scope="module")
def answer(socket: Path) -> Any:
    done = diagnose(NAME, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def lacking(answer: Any) -> dict[tuple[str, str], Any]:
    return {(step["tuning"], step["device"]): step for step in answer["steps"] if step["state"] == "lacking"}


def test_finds_the_same_as_in_a_definition_of_libvirt(answer: Any) -> None:
    found = lacking(answer)
    assert (answer["guest"], answer["kind"], answer["running"], answer["monitor"]) == (NAME, "qemu", True, "")
    assert set(found) >= {
        ("kvm", ""), ("timers", ""), ("cpu-model", ""), ("huge-pages", ""), ("network", "52:54:00:00:00:01"),
        ("card", "52:54:00:00:00:01"), ("disk-bus", "old"), ("cache", "old"), ("cache", "d"), ("disk-limit", "slow"),
        ("notifications", "d"), ("offloads", "52:54:00:00:00:02"),
    }  # fmt: skip
    assert found["disk-limit", "slow"]["current"] == "total_iops_sec 100"
    assert found["offloads", "52:54:00:00:00:02"]["current"] == "host csum, guest tso4"
    assert not any(step["changes"] or step["xml"] for step in answer["steps"])


def test_names_the_options_of_each_change_and_those_that_it_replaces(answer: Any) -> None:
    card = lacking(answer)["card", "52:54:00:00:00:01"]
    assert card["options"] == "-device virtio-net-pci,netdev=n0,mac=52:54:00:00:00:01"
    assert card["instead"] == "-device e1000,netdev=n0,mac=52:54:00:00:00:01"
    assert lacking(answer)["kvm", ""]["options"] == "-accel kvm"
    assert lacking(answer)["kvm", ""]["instead"] == "-accel tcg"


def exchanged(argv: Sequence[str], step: Any) -> list[str]:
    """The command line with a step's options instead of those that they replace."""
    old, rest, at = shlex.split(step["instead"]), list(argv), len(argv)
    for name, text in zip(old[::2], old[1::2], strict=True):
        at = next(n for n in range(len(rest)) if rest[n : n + 2] == [name, text])
        del rest[at : at + 2]
    return [*rest[:at], *shlex.split(step["options"]), *rest[at:]]


def test_a_real_qemu_takes_each_change(answer: Any, words: Sequence[str], tmp_path: Path) -> None:
    """Without those that need a device of the host: KVM, a bridge, huge pages."""
    tried = list[tuple[str, str]]()
    for (tuning, device), step in lacking(answer).items():
        if tuning in ("kvm", "network", "huge-pages", "pinning") or not step["options"]:
            continue
        folder = tmp_path / str(len(tried))
        folder.mkdir()
        with qemu(folder, *exchanged(words, step)):
            tried.append((tuning, device))
    assert len(tried) >= 8


def test_pins_are_commands_and_so_is_the_way_back(answer: Any) -> None:
    (pinning,) = [step for step in answer["steps"] if step["tuning"] == "pinning"]
    assert pinning["undo"].count("taskset -pc") == pinning["apply"].count("taskset -pc") == 2
    threads = {str(thread["tid"]) for thread in answer["threads"]}
    assert {command.split()[-1] for command in pinning["apply"].split(";")} <= threads


def test_the_text_has_options_and_the_way_back(socket: Path, tmp_path: Path) -> None:
    done = diagnose(NAME)
    assert done.returncode == 0, done.stderr
    assert "-device virtio-net-pci,netdev=n0" in done.stdout
    (keep,) = [line.split("`")[1] for line in done.stdout.splitlines() if line.startswith("Save the definition")]
    subprocess.run(keep, shell=True, check=True, cwd=tmp_path)
    kept = (tmp_path / f"{NAME}-before.cmdline").read_bytes().split(b"\0")
    assert kept[0].decode() == QEMU
    assert [word.decode() for word in kept[1 : len(PLAIN) + 1]] == list(PLAIN)


def test_all_lists_it_and_a_socket_of_the_inventory_names_it(socket: Path, tmp_path: Path) -> None:
    inventory = tmp_path / "lab.yml"
    guest = f"{{vmtoll_kvm_host: big, vmtoll_qmp_socket: {socket}}}"
    hosts = "kvm_hosts: {hosts: {big: {ansible_connection: local}}}"
    inventory.write_text(f"{hosts}\nkvm_guests: {{hosts: {{shop: {guest}}}}}\n")
    named = diagnose("shop", "-i", str(inventory), "--json")
    assert json.loads(named.stdout)["guest"] == NAME, named.stderr
    every = diagnose("--all", "-i", str(inventory), "--json")
    assert NAME in {each["guest"] for each in json.loads(every.stdout)}, every.stderr


def test_a_monitor_that_another_client_holds_is_done_without(socket: Path) -> None:
    with sockets.socket(sockets.AF_UNIX) as other:
        other.connect(str(socket))
        other.makefile().readline()
        done = diagnose(NAME, "--json")
    answer = json.loads(done.stdout)
    assert "serves one client" in answer["monitor"], done.stderr
    assert ("card", "52:54:00:00:00:01") in lacking(answer)


def test_a_guest_that_nobody_runs_is_one_sentence(socket: Path, tmp_path: Path) -> None:
    done = diagnose(f"{NAME}x")
    assert done.returncode == 2
    assert "unknown guest" in done.stderr or "start libvirtd" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_guest_of_another_libvirt_is_named(socket: Path, tmp_path: Path) -> None:
    """A QEMU with the monitor that libvirt gives one, of no libvirt that is asked here."""
    name, monitor = f"a,b 'c' {os.getpid()}", f"socket,id=charmonitor,path={tmp_path}/m,server=on,wait=off"
    with qemu(tmp_path, "-name", f"guest={name.replace(',', ',,')}", "-nodefaults", "-chardev", monitor):
        listed, named = diagnose("--all"), diagnose(name)
    assert listed.returncode == 0, "others run here"
    for done in (listed, named):
        assert "localhost: another libvirt than qemu:///system runs " in done.stderr
        assert f"{name} (PID " in done.stderr
    assert named.returncode == 2
