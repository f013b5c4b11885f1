"""Host settings applied and restored: the real role over a simulated /sys, and over that of this machine.

What this machine cannot do (a virtual one governs no clock rate and has no siblings) is tried on the tree only.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.program import vmtoll
from vmtoll.paths import PLAYBOOKS

MODULE = PLAYBOOKS / "plugins/modules/host_tuning.py"
CPU = "sys/devices/system/cpu"
THP, KSM = "sys/kernel/mm/transparent_hugepage/enabled", "sys/kernel/mm/ksm/run"
HUGEPAGES = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
TREE = {
    f"{CPU}/present": "0-3",
    f"{CPU}/smt/control": "on",
    f"{CPU}/intel_pstate/no_turbo": "0",
    **{f"{CPU}/cpu{n}/cpufreq/scaling_governor": "schedutil" if n == 3 else "powersave" for n in range(4)},
    **{f"{CPU}/cpu{n}/cpufreq/scaling_available_governors": "performance schedutil powersave" for n in range(4)},
    "proc/irq/9/smp_affinity_list": "0-1",
    "proc/irq/24/smp_affinity_list": "0-3",
    "proc/irq/25/smp_affinity_list": "2",
    "proc/sys/kernel/random/boot_id": "first",
    HUGEPAGES: "0",
    "sys/module/kvm/parameters/halt_poll_ns": "200000",
    THP: "madvise",
    KSM: "0",
}
ALL: dict[str, Any] = {
    "governor": "performance",
    "turbo": "off",
    "smt": "off",
    "irq_affinity": "0,1",
    "hugepages_2m": 512,
    "halt_poll_ns": 0,
    "transparent_hugepage": "never",
    "ksm": "on",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host's /sys and /proc, as far as the role looks at them."""
    for name, text in TREE.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text + "\n")
    return tmp_path / "root"


def tuning(state: str = "tuned", root: Path | None = None, *, check: bool = False, **settings: Any) -> dict[str, Any]:
    """Run the role's module as Ansible runs it; its answer. Without `root`: on this machine itself."""
    said = {"state": state, "settings": settings, "root": str(root or "/"), "_ansible_check_mode": check}
    told = json.dumps({"ANSIBLE_MODULE_ARGS": said})
    done = subprocess.run([sys.executable, MODULE], input=told, capture_output=True, text=True, check=False)
    answer: dict[str, Any] = json.loads(done.stdout or done.stderr)
    assert bool(answer.get("failed")) == bool(done.returncode)
    return answer


def contents(root: Path) -> dict[str, str]:
    return {str(file.relative_to(root)): file.read_text().strip() for file in root.rglob("*") if file.is_file()}


def record(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "var/lib/vmtoll/host-tuning.json").read_text())
    return found


def test_settings_are_applied_once_and_all_restored(root: Path) -> None:
    would = tuning(root=root, check=True, **ALL)
    assert would["changed"]
    assert contents(root) == TREE, "check mode"
    did = tuning(root=root, **ALL)
    assert did["changed"]
    assert did["diff"] == would["diff"]
    now = contents(root)
    assert {now[f"{CPU}/cpu{n}/cpufreq/scaling_governor"] for n in range(4)} == {"performance"}
    assert (now[f"{CPU}/intel_pstate/no_turbo"], now[f"{CPU}/smt/control"], now[HUGEPAGES]) == ("1", "off", "512")
    assert now["proc/irq/9/smp_affinity_list"] == "0-1", "the same CPUs already"
    assert now["proc/irq/25/smp_affinity_list"] == "0,1"
    assert not tuning(root=root, **ALL)["changed"]
    assert contents(root) == now
    assert tuning("restored", root, check=True)["changed"]
    assert contents(root) == now
    assert tuning("restored", root)["changed"]
    assert contents(root) == TREE
    assert not tuning("restored", root)["changed"]


def test_the_record_is_of_what_was_before_the_first_time(root: Path) -> None:
    tuning(root=root, governor="performance")
    tuning(root=root, governor="schedutil", halt_poll_ns=0)
    was = record(root)["was"]
    assert was["governor"][f"{CPU}/cpu0/cpufreq/scaling_governor"] == "powersave"
    assert was["halt_poll_ns"] == {"sys/module/kvm/parameters/halt_poll_ns": "200000"}
    tuning("restored", root)
    assert contents(root) == TREE


def test_interrupts_of_cpus_that_go_are_recorded_with_smt(root: Path) -> None:
    tuning(root=root, smt="off")
    (root / "proc/irq/25/smp_affinity_list").write_text("0")  # as the kernel does when CPU 2 goes
    tuning("restored", root)
    assert contents(root) == TREE


def test_a_reboot_has_set_it_back_already(root: Path) -> None:
    tuning(root=root, governor="performance", hugepages_2m=8)
    for name, text in {**TREE, "proc/sys/kernel/random/boot_id": "second", HUGEPAGES: "16"}.items():
        (root / name).write_text(text)
    assert not tuning("restored", root)["changed"]
    assert contents(root)[HUGEPAGES] == "16"
    assert not (root / "var/lib/vmtoll/host-tuning.json").exists()


def test_settings_that_a_host_lacks_are_named_before_any_change(root: Path) -> None:
    for file in root.glob(f"{CPU}/cpu*/cpufreq/*"):
        file.unlink()
    (root / f"{CPU}/smt/control").write_text("notsupported")
    (root / "sys/module/kvm/parameters/halt_poll_ns").unlink()
    before = contents(root)
    said = tuning(root=root, **{**ALL, "irq_affinity": "0-7"})
    assert said["failed"]
    for lack in (
        "governor: this host does not govern its clock rate",
        "smt/control is notsupported",
        "irq_affinity: 0-7 is not a list of CPUs of this host, which has 0-3",
        "`modprobe kvm_intel`",
    ):
        assert lack in said["msg"]
    assert contents(root) == before


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"governer": "performance"}, "Unsupported parameters"),
        ({"tuned_profile": "no-such"}, "tuned_profile: tuned "),
        ({"smt": "maybe"}, "value of smt must be one of: on, off"),
        ({"governor": "fast"}, "governor: there is no fast here; there are: performance, schedutil, powersave"),
    ],
)
def test_a_setting_that_is_none_is_named(root: Path, settings: dict[str, Any], said: str) -> None:
    assert said in tuning(root=root, **settings)["msg"]
    assert contents(root) == TREE


def test_the_verbs_do_it_by_inventory(root: Path, tmp_path: Path) -> None:
    """`off` without quotes is false to YAML; it means off."""
    inventory = tmp_path / "lab.yml"
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "host_tuning_root": str(root)}
    plain, tuned = {"ansible_connection": "local"}, {**host, "vmtoll_tuning": {**ALL, "smt": False}}
    hosts = {"big1": tuned, "big1-metal": tuned, "load1": {**plain, **host}}
    inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts}}))

    def changed(*words: str) -> dict[str, int]:
        done = vmtoll(*words, "--inventory", inventory)
        assert done.returncode == 0, done.stdout + done.stderr
        return {name: int(n) for name, n in re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+)", done.stdout, re.M)}

    assert changed("tune", "--check") == {"big1": 1, "big1-metal": 1, "load1": 0}
    assert contents(root) == TREE
    assert changed("tune") == {"big1": 1, "big1-metal": 0, "load1": 0}, "two names of one machine"
    assert contents(root)[f"{CPU}/smt/control"] == "off"
    assert changed("tune") == {"big1": 0, "big1-metal": 0, "load1": 0}
    assert sum(changed("untune").values()) == 1
    assert contents(root) == TREE


@pytest.mark.long
def test_programs_get_what_changed_on_each_machine(root: Path, tmp_path: Path) -> None:
    inventory = tmp_path / "lab.yml"
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "host_tuning_root": str(root)}
    hosts = {"big1": {**host, "vmtoll_tuning": {"halt_poll_ns": 0}}, "load1": host}
    inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts}}))

    def answer(*words: str) -> dict[str, Any]:
        done = vmtoll(*words, "--inventory", inventory, "--json")
        assert "PLAY RECAP" in done.stderr
        parsed: dict[str, Any] = json.loads(done.stdout)
        return parsed

    place = "sys/module/kvm/parameters/halt_poll_ns"
    change = {
        "task": "host_tuning : Apply or restore the performance settings",
        "diff": [{"before": f"{place}: 200000\n", "after": f"{place}: 0\n"}],
    }
    machines = [{"name": "big1", "changes": [change]}, {"name": "load1", "changes": []}]
    assert answer("tune", "--check") == {"check": True, "machines": machines}
    assert answer("tune") == {"check": False, "machines": machines}
    assert not answer("tune")["machines"][0]["changes"]
    assert answer("untune")["machines"][0]["changes"][0]["diff"][0]["after"] == f"{place}: 200000\n"
    assert contents(root) == TREE


def test_what_a_host_lacks_is_one_line(root: Path, tmp_path: Path) -> None:
    inventory = tmp_path / "lab.yml"
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "host_tuning_root": str(root)}
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {"big1": {**host, "vmtoll_tuning": {"governor": "fast"}}}}}))
    done = vmtoll("tune", "-i", inventory, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("vmtoll: tune.yml: big1: host_tuning : Apply or restore the performance settings: ")
    assert "governor: there is no fast " in last
    assert last.endswith(" output above")


def test_an_inventory_without_settings_gets_a_message(tmp_path: Path) -> None:
    inventory = tmp_path / "lab.yml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {"big1": None}}}))
    done = vmtoll("tune", "-i", inventory)
    assert done.returncode == 2
    assert "no host has vmtoll_tuning; " in done.stderr and "docs/real-hosts.md" in done.stderr


# On this machine itself, for the blink of an eye.


def digest(pattern: str) -> str:
    return hashlib.sha256("".join(f"{f}:{f.read_text()}" for f in sorted(Path("/").glob(pattern))).encode()).hexdigest()


def chosen(file: Path) -> str:
    """A value, or of several the one in brackets."""
    text = file.read_text().strip()
    return text.partition("[")[2].partition("]")[0] or text


def writable(file: Path) -> bool:
    """Whether the kernel takes what is there already."""
    try:
        file.write_text(chosen(file))
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("setting", "pattern", "value"),
    [
        ("hugepages_2m", HUGEPAGES, lambda now: int(now) + 2),
        ("halt_poll_ns", "sys/module/kvm/parameters/halt_poll_ns", lambda now: int(now) + 1000),
        ("irq_affinity", "proc/irq/[0-9]*/smp_affinity_list", lambda now: "0"),
        ("transparent_hugepage", THP, lambda now: "never" if now == "madvise" else "madvise"),
        ("ksm", KSM, lambda now: "off" if now == "1" else "on"),
    ],
)
def test_this_machine_itself_is_set_and_set_back(setting: str, pattern: str, value: Any) -> None:
    files = sorted(Path("/").glob(pattern))
    if Path("/var/lib/vmtoll/host-tuning.json").exists():
        pytest.skip("this machine is tuned; `vmtoll untune` sets it back")
    if os.geteuid() != 0 or not any(writable(file) for file in files):
        pytest.skip(f"this machine does not let {setting} be set")
    before, asked = digest(pattern), value(chosen(files[0]))
    kept = {"on": "1", "off": "0"}.get(asked, str(asked))
    try:
        did = tuning(**{setting: asked})
        assert did.get("changed"), did
        assert any(chosen(file) == kept for file in files)
        assert not tuning(**{setting: asked})["changed"]
    finally:
        back = tuning("restored")
    assert not back.get("failed"), back
    assert digest(pattern) == before
