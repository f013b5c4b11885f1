"""The advice has no fault of its own: with a step taken as it is advised, a diagnosis no longer finds it, nor another.

The guests are made up here, as text and without the readers' code, by Hypothesis.
"""

import os
import select
import shlex
import signal
import subprocess
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vmtoll.guests.diagnosis import diagnose, steps_of
from vmtoll.guests.diagnosis.definition import edited
from vmtoll.guests.diagnosis.options import OptionsWriter
from vmtoll.guests.diagnosis.qm import QmWriter
from vmtoll.hypervisors.command_line import parse_command_line
from vmtoll.hypervisors.proxmox_config import guest_of_config, parse_config
from vmtoll.hypervisors.qemu_config import guest_of_line
from vmtoll.model.diagnosis import State, Step, Tuning

FEW_GUESTS, MANY_GUESTS = 60, 1500  # of each kind
FEW = st.integers(0, 2)
FLAGS = ["aes", "avx", "avx2", "pcid", "popcnt", "sse4_1", "sse4_2", "ssse3"]
# Steps that a step makes possible: an emulated card has neither queues nor vhost.
OPENS = {
    Tuning.CARD: {Tuning.VHOST, Tuning.MULTIQUEUE}, Tuning.NETWORK: {Tuning.VHOST, Tuning.MULTIQUEUE},
    Tuning.KVM: {Tuning.VHOST, Tuning.TIMERS, Tuning.HALT_POLLING},
}  # fmt: skip


@st.composite
def hosts(draw: st.DrawFn) -> dict[str, Any]:
    nodes, cores, threads = (
        draw(st.sampled_from([1, 2, 4])),
        draw(st.sampled_from([1, 2, 4, 14])),
        draw(st.integers(1, 2)),
    )
    count = nodes * cores
    cpus = list(range(count * threads))
    return {
        "architecture": "x86_64", "kvm_device": True, "vhost_net": draw(st.booleans()), "cpus": cpus,
        "cores": {str(cpu): cpu % count for cpu in cpus}, "nodes": {str(cpu): cpu % count // cores for cpu in cpus},
        "used": draw(st.lists(st.sampled_from(cpus), max_size=3, unique=True)), "bridges": ["br0"], "groups": [],
        "flags": draw(st.lists(st.sampled_from(FLAGS), unique=True)),
        "model_flags": draw(st.none() | st.just(["ssse3"])),
        "cgroup_version": draw(st.integers(1, 2)), "hugepages": {"size_kib": 2048, "free": 64},
        "transparent_hugepages": "always", "halt_poll_ns": draw(st.sampled_from([0, 200000])),
    }  # fmt: skip


def some(draw: st.DrawFn, *choices: str) -> str:
    return draw(st.sampled_from(choices))


def node_count(host: dict[str, Any]) -> int:
    return len(set(host["nodes"].values()))


def lacking(steps: Sequence[Step]) -> "Counter[Tuning]":
    return Counter(step.tuning for step in steps if step.state is State.LACKING)


def check(step: Step, before: Sequence[Step], after: Sequence[Step]) -> None:
    was, now = lacking(before), lacking(after)
    assert now[step.tuning] < was[step.tuning], (step, [s for s in after if s.tuning is step.tuning])
    new = {tuning for tuning in now if now[tuning] > was[tuning]} - OPENS.get(step.tuning, set())
    assert not new, (step, [s for s in after if s.tuning in new])


# ---- libvirt


@st.composite
def domains(draw: st.DrawFn, host: dict[str, Any]) -> str:
    count, cpus = draw(st.integers(1, 6)), host["cpus"]
    tune = "".join(f"<vcpupin vcpu='{n}' cpuset='{draw(st.sampled_from(cpus))}'/>" for n in range(count))
    tune = draw(st.sampled_from(["", f"<cputune><quota>{draw(st.integers(1000, 90000))}</quota>{tune}</cputune>",
                                 f"<cputune><shares>{draw(st.integers(2, 5000))}</shares></cputune>"]))  # fmt: skip
    memory = some(
        draw, "", f"<numatune><memory mode='strict' nodeset='{draw(st.integers(0, node_count(host) - 1))}'/></numatune>"
    )
    cell = f"<cell id='0' cpus='0-{count - 1}' memory='1' unit='GiB'/>"
    cpu = some(
        draw, "", "<cpu mode='host-passthrough'/>",
        "<cpu mode='host-model'><feature policy='disable' name='aes'/></cpu>",
        f"<cpu><model>Nehalem</model><topology sockets='1' cores='{count}' threads='1'/><numa>{cell}</numa></cpu>",
        "<cpu match='exact' check='full'><model>Haswell</model><vendor>Intel</vendor>"
        "<feature policy='require' name='sse4.1'/><feature policy='disable' name='avx'/></cpu>",
    )  # fmt: skip
    clock = some(draw, "", "<clock offset='utc'/>", "<clock offset='utc'><timer name='hpet' present='yes'/></clock>",
                 "<clock offset='utc'><timer name='rtc'/><timer name='kvmclock' present='no'/></clock>")  # fmt: skip
    hidden = some(draw, "", "<features><acpi/><kvm><hidden state='on'/></kvm></features>")
    devices = ""
    for number in range(draw(FEW)):
        bus, cache = (
            some(draw, "sata", "ide", "scsi", "virtio", "usb"),
            some(draw, "", " cache='unsafe'", " cache='none'"),
        )
        switch = some(draw, "", " ioeventfd='off'", " iommu='on' ats='on'") if bus == "virtio" else ""
        driver = some(draw, "", f"<driver name='qemu' type='qcow2'{cache}{switch}/>")
        limit = some(draw, "", "<iotune><total_iops_sec>100</total_iops_sec></iotune>")
        name = {"virtio": "vd", "ide": "hd"}.get(bus, "sd") + "abc"[number]
        devices += f"<disk type='file' device='disk'>{driver}<source file='/{name}'/><target dev='{name}' bus='{bus}'/>"
        devices += f"{limit}<address type='drive' controller='0'/></disk>"
    devices += some(
        draw,
        "",
        "<controller type='scsi' index='0' model='lsilogic'/>",
        "<controller type='scsi' model='virtio-scsi'/>",
    )
    for number in range(draw(FEW)):
        kind, model = some(draw, "bridge", "user", "network", "direct"), some(draw, "virtio", "e1000", "rtl8139")
        inside = some(draw, "", "<bandwidth><inbound average='100'/></bandwidth>")
        if model == "virtio":
            inside += some(draw, "", "<driver name='qemu'/>", "<driver queues='2' event_idx='off' txmode='timer'/>",
                           "<driver><host tso4='off' gso='on'/><guest csum='off'/></driver>")  # fmt: skip
        devices += f"<interface type='{kind}'><mac address='52:54:00:00:00:0{number}'/><source bridge='br0'/>"
        devices += f"<model type='{model}'/>{inside}</interface>"
    boot = some(draw, "", "<kernel>/k</kernel>", "<kernel>/k</kernel><cmdline>quiet</cmdline>")
    limit = some(
        draw, "", "<memtune><hard_limit unit='MiB'>512</hard_limit><swap_hard_limit>9</swap_hard_limit></memtune>"
    )
    return (
        f"<domain type='{some(draw, 'kvm', 'kvm', 'qemu')}'><name>made-up</name>"
        f"<memory unit='MiB'>512</memory>{limit}{memory}"
        f"<vcpu>{count}</vcpu>{tune}<os><type arch='x86_64' machine='pc'>hvm</type>{boot}</os>{hidden}{cpu}{clock}"
        f"<devices>{devices}</devices></domain>"
    )


def a_change_of_a_libvirt_definition_takes_its_step(data: st.DataObject) -> None:
    host: Any = data.draw(hosts())
    xml = data.draw(domains(host))
    before = diagnose(xml, host)
    for step in before:
        if step.state is State.LACKING and step.changes:
            after = ET.tostring(edited(ET.fromstring(xml), step.changes), encoding="unicode")
            check(step, before, diagnose(after, host))


# ---- Proxmox VE


@st.composite
def configs(draw: st.DrawFn, host: dict[str, Any]) -> dict[str, str]:
    count, nodes = draw(st.integers(1, 6)), node_count(host)
    affinity = draw(st.lists(st.sampled_from(host["cpus"]), min_size=1, unique=True))
    values = {
        "cores": str(count), "memory": "2048", "ostype": some(draw, "l26", "win11", "other"),
        "machine": some(draw, "", "q35", "pc-q35-8.1"), "cpulimit": some(draw, "", "0", "0.5"),
        "cpuunits": some(draw, "", "50", "4000"), "kvm": some(draw, "", "", "0"),
        "cpu": some(draw, "", "host", "kvm64", "x86-64-v2-AES,flags=+pcid;-aes;+nested-virt", "host,hidden=1", "EPYC",
                    "custom-a,hidden=1", "host,flags=-avx2"),
        "args": some(draw, "", "", "-cpu kvm64,+aes,kvm=off", "-machine hpet=on",
                     "-cpu host,-kvmclock -smbios type=0,vendor='A B'"),
        "scsihw": some(draw, "", "lsi", "virtio-scsi-pci", "virtio-scsi-single"), "hugepages": some(draw, "", "2"),
        "affinity": some(draw, "", ",".join(map(str, affinity))),
    }  # fmt: skip
    if draw(st.booleans()):
        values["numa"] = "1"
        split = draw(st.integers(1, count))
        for number, cpus in enumerate([range(split), range(split, count)]):
            if cpus:
                node = draw(st.integers(0, nodes - 1))
                values[f"numa{number}"] = f"cpus={cpus[0]}-{cpus[-1]},hostnodes={node},memory=1024,policy=bind"
    for bus in ("sata", "scsi", "ide", "virtio"):
        for number in range(draw(FEW)):
            cache, rate = some(draw, "", ",cache=writeback"), some(draw, "", ",mbps_rd=5.5,iops_wr_max=9", ",iops=0")
            values[f"{bus}{number}"] = f"local:vm-1-disk-{bus}{number}{cache}{rate},size=1G"
    disks = [name for name in values if name[-1].isdigit() and not name.startswith("numa")]
    if disks:
        values["boot"] = some(draw, "", "order=" + ";".join(disks), "c")
        values["bootdisk"] = draw(st.sampled_from(["", *disks]))
    for number in range(draw(FEW)):
        model, bridge = (
            some(draw, "virtio", "e1000", "vmxnet3"),
            some(draw, "", ",bridge=vmbr0", ",bridge=vmbr0,queues=2"),
        )
        values[f"net{number}"] = f"{model}=BC:24:11:00:00:0{number}{bridge}{some(draw, '', ',rate=5')}"
    return {name: value for name, value in values.items() if value}


def diagnosed(values: dict[str, str], host: Any) -> tuple[Step, ...]:
    config = parse_config("101", "".join(f"{name}: {value}\n" for name, value in values.items()))
    guest = guest_of_config(config)
    return steps_of(guest, host, QmWriter(config, guest, host))


def set_by_qm(values: dict[str, str], commands: str) -> dict[str, str]:
    """The options after these commands, as `qm set` takes them: `--name value`, and `--delete` with a list."""
    for command in commands.split("; qm set 101 "):
        words = shlex.split(command.removeprefix("qm set 101 "))
        for option, value in zip(words[::2], words[1::2], strict=True):
            if option == "--delete":
                values = {name: kept for name, kept in values.items() if name not in value.split(",")}
            else:
                values = {**values, option.removeprefix("--"): value}
    return values


def a_command_of_qm_takes_its_step_and_its_undo_takes_it_back(data: st.DataObject) -> None:
    host = data.draw(hosts())
    values = data.draw(configs(host))
    before = diagnosed(values, host)
    for step in before:
        if step.state is State.LACKING and step.apply.startswith("qm "):
            taken = set_by_qm(values, step.apply)
            check(step, before, diagnosed(taken, host))
            assert set_by_qm(taken, step.undo) == values


# ---- QEMU


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    count = draw(st.integers(1, 4))
    words = [
        "-nodefaults",
        "-display",
        "none",
        "-m",
        "32",
        "-smp",
        some(draw, f"{count}", f"{count},sockets=1,cores={count},threads=1"),
    ]
    words += draw(
        st.sampled_from([["-accel", "tcg"], ["-machine", "pc,accel=tcg"], ["-machine", "q35", "-accel", "tcg"]])
    )
    words += draw(st.sampled_from([[], ["-cpu", "qemu64,-pcid"], ["-cpu", "max,-aes"], ["-cpu", "kvm64", "-cpu", "max"],
                                   ["-cpu", "Nehalem,+avx,l3-cache=on"]]))  # fmt: skip
    for number in range(draw(FEW)):
        name, image = f"d{number}", f"@{number}"
        limit = some(draw, "", ",throttling.iops-total=100", ",bps_rd=1000")
        cache = some(draw, "", ",cache=unsafe", ",cache=writethrough", ",cache.direct=on")
        device = some(
            draw, "ide-hd", "virtio-blk-pci", "virtio-blk-pci,event_idx=off,ioeventfd=off", "usb-storage,removable=on"
        )
        way = some(draw, "drive", "blockdev", "if")
        if way == "if":
            words += [
                "-drive",
                f"file={image},format=raw,if={some(draw, 'virtio', 'ide')},index={number}{cache}{limit}",
            ]
            continue
        if way == "drive":
            words += ["-drive", f"file={image},if=none,id={name},format=raw{cache}{limit}"]
        else:
            direct = some(draw, "", ',"cache":{"direct":false}')
            words += [
                "-blockdev",
                f'{{"driver":"raw","node-name":"{name}","file":{{"driver":"file","filename":"{image}"}}{direct}}}',
            ]
        words += ["-device", "qemu-xhci"] if "usb" in device and "qemu-xhci" not in words else []
        words += ["-device", f"{device},drive={name}"]
    for number in range(draw(FEW)):
        model = some(
            draw, "e1000", "rtl8139", "virtio-net-pci", "virtio-net-pci,csum=off,guest_tso4=off,tx=timer", "e1000e"
        )
        mac = f"mac=52:54:00:00:00:0{number}"
        words += [
            "-netdev",
            f"{some(draw, 'user', 'hubport,hubid=0')},id=n{number}",
            "-device",
            f"{model},netdev=n{number},{mac}",
        ]
    return words + draw(st.sampled_from([[], ["-global", "virtio-blk-pci.ioeventfd=off"], ["-s"], ["-no-reboot"]]))


def of_words(words: Sequence[str], host: Any) -> tuple[Step, ...]:
    line = parse_command_line(["qemu-system-x86_64", *words])
    guest = guest_of_line(line, "made-up", architecture="x86_64")
    return steps_of(guest, host, OptionsWriter(line, guest, host))


def exchanged(words: Sequence[str], step: Step) -> list[str]:
    """The command line with a step's options in place of those that they replace."""
    old, rest = shlex.split(step.instead), list(words)
    while old:
        size = 2 if len(old) > 1 and not (old[1].startswith("-") and not old[1].startswith("-d")) else 1
        at = max(n for n in range(len(rest)) if rest[n : n + size] == old[:size])
        del rest[at : at + size], old[:size]
    return [*rest, *shlex.split(step.options)]


def options_of_qemu_take_their_step(data: st.DataObject) -> None:
    host, words = data.draw(hosts()), data.draw(lines())
    before = of_words(words, host)
    for step in before:
        if step.state is State.LACKING and step.options:
            check(step, before, of_words(exchanged(words, step), host))


CASES = [
    a_change_of_a_libvirt_definition_takes_its_step, a_command_of_qm_takes_its_step_and_its_undo_takes_it_back,
    options_of_qemu_take_their_step,
]  # fmt: skip


def try_on(guests: int, case: Callable[..., None], of: "st.SearchStrategy[Any]") -> None:
    checks = list(HealthCheck)
    settings(
        max_examples=guests, deadline=None, derandomize=True, database=None, suppress_health_check=checks
    )(given(of)(case))()  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_on_made_up_guests(case: Callable[..., None]) -> None:
    try_on(FEW_GUESTS, case, st.data())


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_on_thousands_of_made_up_guests(case: Callable[..., None]) -> None:
    try_on(MANY_GUESTS, case, st.data())


@pytest.mark.long
def test_a_hundred_made_up_guests_start_with_the_advice_in_a_real_qemu(tmp_path: Path) -> None:
    """Stopped, emulated, without the steps that need a device of the host."""
    program, tried, started = "qemu-system-x86_64", list[Step](), list[int]()
    for number in range(2):
        (tmp_path / str(number)).write_bytes(bytes(1 << 20))
    host: Any = {
        "architecture": "x86_64", "kvm_device": True, "vhost_net": True, "cpus": [0, 1], "cores": {}, "nodes": {},
        "groups": [], "flags": FLAGS, "cgroup_version": 2, "hugepages": {"size_kib": 2048, "free": 0}, "bridges": [],
    }  # fmt: skip

    def end(pid: int) -> None:
        """The next guest has the same images, whose locks a process has until it is gone."""
        process = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            assert select.select([process], [], [], 60)[0], f"QEMU ({pid}) did not end in 60 s"
        finally:
            os.close(process)

    def starts(words: Sequence[str]) -> str:
        """What QEMU complains of; empty if it starts."""
        pid_file = tmp_path / "pid"
        argv = [
            program,
            *(word.replace("@", f"{tmp_path}/") for word in words),
            "-S",
            "-daemonize",
            "-pidfile",
            str(pid_file),
        ]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode == 0:
            end(int(pid_file.read_text()))
            pid_file.unlink()
        return done.stderr if done.returncode else ""

    def start(words: list[str]) -> None:
        if "-s" in words:
            words.remove("-s")  # two guests cannot have one port
        if starts(words):
            return  # a guest that QEMU refuses as it is
        started.append(1)
        steps = [s for s in of_words(words, host) if s.state is State.LACKING and s.options]
        for step in steps:
            if step.tuning not in (Tuning.KVM, Tuning.HUGE_PAGES, Tuning.NETWORK):
                complaint = starts(exchanged(words, step))
                assert not complaint, (step, complaint)
                tried.append(step)

    try_on(160, start, lines())
    assert len(started) >= 100 and len(tried) > 100
