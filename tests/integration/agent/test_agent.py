"""Real agents on this machine."""

import ast
import base64
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.local_server import server_pids
from vmtoll.agent.facts import without_secrets
from vmtoll.agent.hardware import cpuid, hypervisor
from vmtoll.agent.machine import CPU_LATENCY
from vmtoll.agent.servers import wait_until
from vmtoll.machines.connection import AgentLine, agent_modules
from vmtoll.machines.facts import open_all
from vmtoll.model.errors import AgentError, HostLostError, InventoryError
from vmtoll.model.inventory import Host, Inventory
from vmtoll.sites.manifest import SiteFiles
from vmtoll.spec.machines import from_data, load_inventory


@pytest.fixture
def machines(inventory: Path) -> Inventory:
    # The same as load_inventory, without the second that Ansible takes.
    groups = yaml.safe_load(inventory.read_text())["all"]["children"]
    hostvars = {name: host for group in groups.values() for name, host in group["hosts"].items()}
    lists = {group: {"hosts": list(content["hosts"])} for group, content in groups.items()}
    return from_data({"_meta": {"hostvars": hostvars}, **lists}, ["metal", "metal-two"])


@pytest.fixture
def sut(machines: Inventory) -> Iterator[AgentLine]:
    line = AgentLine(machines.suts["metal"])
    line.open()
    yield line
    line.close()


def site(line: AgentLine) -> SiteFiles:
    path = Path(line.host.root) / "srv/vmtoll/sites/tiny.manifest.json"
    made: SiteFiles = json.loads(path.read_text())
    for entry in made["files"]:
        entry["path"] = f"tiny/{entry['path']}"
    return made


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and ") Z" not in Path(f"/proc/{pid}/stat").read_text()


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


FINISH = "timeout 0.6 sh -c 'while :; do :; done'; sed s/raw/cooked/ log >out; echo a word >&2"


def test_exec_returns_what_the_command_did(sut: AgentLine) -> None:
    script = "cat given; echo bad >&2; echo made > out; for i in 1 2 3; do :; done; exit 3"
    done = sut.call("exec", argv=["sh", "-c", script], files={"given": "hällo\n"}, outputs=["out", "not-there"])
    assert (done["stdout"], done["stderr"], done["exit_status"]) == ("hällo", "bad", 3)
    assert list(done["files"]) == ["out"]
    assert not done["timed_out"]
    assert 0 < done["wall_s"] < 5
    assert done["cpus"] == len(os.sched_getaffinity(0))


def test_exec_counts_the_cpu_time_of_the_command(sut: AgentLine) -> None:
    done = sut.call("exec", argv=["python3", "-c", "import time\nwhile time.process_time() < 0.3: pass"])
    assert 0.25 < done["cpu_s"] < 1.0


def test_exec_finishes_what_a_command_left_outside_of_its_time(sut: AgentLine) -> None:
    """As vegeta's binary log is turned into lines."""
    begin = time.monotonic()
    done = sut.call("exec", argv=["sh", "-c", "echo raw >log"], outputs=["out"], finish=["sh", "-c", FINISH])
    took_s = time.monotonic() - begin
    assert gzip.decompress(base64.b64decode(done["files"]["out"])) == b"cooked\n"
    assert done["stderr"] == "a word"
    assert took_s - done["wall_s"] >= 0.6, "what FINISH takes"
    assert done["cpu_s"] < 0.5


def test_exec_begins_at_an_instant_of_the_machines_clock(sut: AgentLine) -> None:
    """At once where it has passed; the wait is no part of the command's time."""
    now_s = sut.call("ping")["time_s"]
    asked_s = time.time()
    later = sut.call("exec", argv=["true"], start_at_s=now_s + 0.4)
    took_s = time.time() - asked_s
    passed = sut.call("exec", argv=["true"], start_at_s=now_s)
    assert later["started_at"] >= now_s + 0.4
    assert took_s - later["wall_s"] >= now_s + 0.4 - asked_s - 0.01
    assert passed["started_at"] > later["started_at"]


def test_a_scheduled_load_can_be_cancelled(sut: AgentLine) -> None:
    waiting, over = sut.ask("exec", argv=["true"], start_at_s=time.time() + 60), threading.Event()

    def call_off() -> None:
        while not over.wait(0.01):  # again, if it was not waiting yet
            sut.call("kill")

    threading.Thread(target=call_off, daemon=True).start()
    try:
        with pytest.raises(AgentError, match="exec: called off"):
            waiting.wait(30)
    finally:
        over.set()


def test_exec_kills_the_whole_group_at_the_bound(sut: AgentLine) -> None:
    begin = time.monotonic()
    done = sut.call("exec", argv=["sh", "-c", "sleep 60 & echo $!; wait"], limit_s=3)
    assert time.monotonic() - begin < 30
    assert done["timed_out"]
    assert done["exit_status"] == -signal.SIGKILL
    assert gone(int(done["stdout"]))


def test_a_command_that_does_not_exist_is_an_answer(sut: AgentLine) -> None:
    with pytest.raises(AgentError, match=r"metal: exec: FileNotFoundError: .*no-such-tool"):
        sut.call("exec", argv=["no-such-tool"])
    assert not sut.lost_because


def test_a_server_is_started_checked_and_stopped(sut: AgentLine) -> None:
    seen = sut.call("server_start", name="lighttz")
    assert set(seen) == {"answers", "binary_sha256", "config_sha256", "workers", "sysctls", "cores"}
    assert seen["cores"] == len(os.sched_getaffinity(0))
    files = site(sut)["files"]
    check: dict[str, Any] = {"host": "127.0.0.1", "port": sut.host.port, "files": files}
    assert sut.call("http_check", **check) == {"wrong": [], "checked": len(files)}
    before = sut.call("usage", server="lighttz")["server"]
    for _ in range(20):
        sut.call("http_check", **check)
    after = sut.call("usage", server="lighttz")["server"]
    assert after["total_s"] > before["total_s"]
    assert after["processes"] == 2
    assert after["pss_kib"] > 100
    assert after["method"] == "cpu-clock"
    with pytest.raises(AgentError, match=r"port \d+ .*in use.* lighttz "):
        sut.call("server_start", name="lighttz")
    sut.call("server_stop", name="lighttz")
    with pytest.raises(AgentError, match="does not answer"):
        sut.call("http_check", **check, limit_s=0.1)


def test_wrong_bodies_are_named(sut: AgentLine) -> None:
    files = site(sut)["files"]
    victim = Path(sut.host.root) / "srv/vmtoll/sites" / files[0]["path"]
    before = sut.call("tree_digest", path="srv/vmtoll/sites/tiny")
    assert before == site(sut)["digest"]
    victim.write_bytes(b"wrong")
    assert sut.call("tree_digest", path="srv/vmtoll/sites/tiny") != before
    sut.call("server_start", name="lighttz")
    missing = {**files[1], "path": "nothing.html"}
    seen = sut.call("http_check", host="127.0.0.1", port=sut.host.port, files=[files[0], missing, files[2]])
    assert seen["wrong"][0] == f"{files[0]['path']} (status 200, 5 bytes)"
    assert seen["wrong"][1].startswith("nothing.html (status 404")
    sut.call("server_stop", name="lighttz")


def test_a_server_that_never_listens_is_an_answer(sut: AgentLine) -> None:
    spec = Path(sut.host.root) / "etc/vmtoll/servers/lighttz.json"
    data = json.loads(spec.read_text())
    spec.write_text(json.dumps({**data, "command": ["sleep", "60"]}))
    with pytest.raises(AgentError, match=r"lighttz does not .*port \d+ .*0\.2 s"):
        sut.call("server_start", name="lighttz", limit_s=0.2)
    sut.call("server_stop", name="lighttz")


def test_nothing_is_left_after_the_runner_exits(machines: Inventory) -> None:
    line, other = AgentLine(machines.suts["metal"]), AgentLine(machines.suts["metal"])
    line.open()
    line.call("lock", owner="the first run")
    line.call("server_start", name="lighttz")
    note = Path(line.host.root) / "folder"
    sleeper = line.ask("exec", argv=["sh", "-c", f"pwd > {note}; exec sleep 60"])
    wait_until(lambda: note.exists() and bool(note.read_text()), 5, "the command did not start")
    folder = Path(note.read_text().strip())
    other.open()
    assert other.call("lock", owner="the second run") == {"held_by": "the first run"}
    pids = server_pids(Path(line.host.root))
    assert pids
    line.close()
    assert other.call("lock", owner="the second run") == {"held_by": None}
    assert all(gone(pid) for pid in pids)
    assert not folder.exists()
    with pytest.raises(HostLostError):
        sleeper.wait(5)
    other.close()


# In place of ssh: the same command line without the part that is for ssh.
SSH = """\
#!/bin/sh
while [ "$1" != there ]; do shift; done
shift
echo $$ >"$SSH_PID"
exec sh -c "$*"
"""
HOLDING = """\
import os, signal
from vmtoll.machines.connection import AgentLine
from vmtoll.spec.machines import from_data
machines = from_data({
    "_meta": {"hostvars": {"there": {"vmtoll_root": os.environ["ROOT"]}, "metal": {"vmtoll_environment": "metal"}}},
    "clients": {"hosts": ["there"]}, "metal_hosts": {"hosts": ["metal"]},
}, ["metal"])
line = AgentLine(machines.client)
line.open()
assert line.call("lock", owner="the one that is killed")["held_by"] is None
line.suspend()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_machine_whose_ssh_was_stopped_is_free_when_the_runner_is_killed(tmp_path: Path) -> None:
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SSH_PID": str(tmp_path / "pid"), "ROOT": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", HOLDING], env=environment, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    ssh = int((tmp_path / "pid").read_text())
    wait_until(lambda: not alive(ssh), 10, "the stopped ssh outlives its runner")


def test_an_agent_that_dies_is_noticed_at_once(sut: AgentLine) -> None:
    pid = sut.call("hello", root=sut.host.root)["pid"]
    pending = sut.ask("exec", argv=["sleep", "30"])
    os.kill(pid, signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(HostLostError, match="metal: "):
        pending.wait(20)
    assert time.monotonic() - begin < 3
    with pytest.raises(HostLostError):
        sut.call("usage")
    sut.open(10)
    assert sut.call("usage")["machine"]["time_s"] > 0


def test_waiting_ends_when_a_watched_machine_is_lost(sut: AgentLine, machines: Inventory) -> None:
    watched = AgentLine(machines.suts["metal-two"])
    watched.open()
    begun = Path(sut.host.root) / "begun"
    pending = sut.ask("exec", argv=["sh", "-c", f"echo >{begun}; exec sleep 30"])
    wait_until(begun.exists, 20, "the command did not start")
    os.kill(watched.call("hello")["pid"], signal.SIGKILL)
    with pytest.raises(HostLostError, match="metal-two: "):
        pending.wait(20, [watched])
    sut.call("kill")
    assert pending.wait(5)["exit_status"] == -signal.SIGKILL
    watched.close()


def test_no_answer_in_time_is_a_lost_machine(sut: AgentLine) -> None:
    with pytest.raises(HostLostError, match=r"answer to exec .*0\.2 s"):
        sut.call("exec", 0.2, argv=["sleep", "5"])


def test_the_error_names_why_a_machine_is_unreachable() -> None:
    line = AgentLine(Host("far", "client", {"ansible_connection": "local", "ansible_python_interpreter": "/bin/false"}))
    with pytest.raises(HostLostError, match="far: "):
        line.open(5)
    line.close()


def test_every_machine_that_cannot_be_reached_is_named_with_the_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        closed = {"ansible_host": "127.0.0.1", "ansible_port": port, "ansible_user": "somebody"}
        lines = [AgentLine(Host(name, "client", closed)) for name in ("one", "two")]
        with pytest.raises(HostLostError) as lost:
            open_all(lines)
    counted, *whys = str(lost.value).splitlines()
    assert counted.startswith("2 machines ")
    assert [why.partition(":")[0].strip() for why in whys] == ["one", "two"]
    assert all(f"port {port} of 127.0.0.1: start sshd" in why and "ansible_port" in why for why in whys)
    for line in lines:
        line.close()


def test_samples_are_counters_over_time(sut: AgentLine) -> None:
    sut.call("sample_start", interval_s=0.05)
    time.sleep(0.3)
    rows = sut.call("sample_stop")["counters"]
    assert len(rows) >= 4
    assert {"time_s", "user_s", "system_s", "idle_s", "steal_s", "rx_bytes", "load1", "pressure_us"} <= set(rows[0])
    assert [r["time_s"] for r in rows] == sorted(r["time_s"] for r in rows)
    assert sut.call("sample_stop")["counters"] == []


def test_usage_of_a_domain_is_that_of_its_qemu(sut: AgentLine) -> None:
    # A process that looks like QEMU: its name, and guest=<domain> among its words.
    words = ["qemu-system-x86_64", "-c", "import time; time.sleep(30)", "-name", "guest=toll,x=1"]
    process = subprocess.Popen(words, executable="/usr/bin/python3")
    try:
        deadline = time.monotonic() + 10
        # It may not have been on a CPU yet.
        while not sut.call("usage", domains=["toll"])["domains"]["toll"]["total_s"]:
            assert time.monotonic() < deadline
        with pytest.raises(AgentError, match=r"QEMU process .*toll-two"):
            sut.call("usage", domains=["toll-two"])
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(not os.access(CPU_LATENCY, os.W_OK), reason="needs /dev/cpu_dma_latency, and root")
def test_a_client_keeps_idle_cpus_awake_until_its_agent_ends(machines: Inventory) -> None:
    def latency_us() -> int | None:
        limit_us: int | None = line.call("facts")["cpu_latency_us"]
        return limit_us

    line = AgentLine(machines.client)
    line.open()
    before = latency_us()
    line.call("stay_awake")
    lightest_us = Path("/sys/devices/system/cpu/cpu0/cpuidle/state1/latency")
    assert latency_us() in {0, int(lightest_us.read_text()) if lightest_us.exists() else 1}
    line.open()
    assert latency_us() == before
    line.close()


def test_cpuid_and_the_kernel_agree_on_a_hypervisor() -> None:
    seen = hypervisor(cpuid())
    if os.uname().machine != "x86_64":
        assert seen["cpuid_bit"] is None
    else:
        assert seen["cpuid_bit"] is seen["cpuinfo_flag"]
        assert bool(seen["cpuid_signature"]) <= bool(seen["cpuid_bit"])


def test_the_agent_is_plain_python_of_3_9() -> None:
    allowed = {
        "__future__",
        "ansible",  # of host_settings, a module of Ansible's, which does without it on a machine
        "base64",
        "collections",
        "contextlib",
        "ctypes",  # of the virtual machine that prices exits, where it runs
        "datetime",
        "email",
        "errno",
        "fcntl",
        "functools",
        "gzip",
        "hashlib",
        "http",
        "json",
        "mmap",
        "os",
        "pathlib",
        "pwd",
        "re",
        "resource",
        "selectors",
        "shlex",
        "shutil",
        "signal",
        "socket",
        "ssl",
        "struct",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "typing",
        "urllib",
        "vmtoll",
        "xml",  # of libvirt's definitions, read on KVM hosts alone
    }
    for source in agent_modules().values():
        tree = ast.parse(source, feature_version=(3, 9))
        for node in ast.walk(tree):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            assert {n.split(".")[0] for n in names} <= allowed
        assert "from __future__ import annotations" in source


def test_ssh_uses_the_settings_of_the_inventory() -> None:
    host = Host(
        "metal",
        "metal",
        {
            "ansible_host": "198.18.0.20",
            "ansible_user": "root",
            "ansible_port": 2222,
            "ansible_ssh_common_args": "-F /lab/ssh_config -o 'ProxyCommand=nc %h'",
            "ansible_ssh_private_key_file": "/lab/key",
        },
    )
    argv = host.argv()
    assert argv[:5] == ["ssh", "-F", "/lab/ssh_config", "-o", "ProxyCommand=nc %h"]
    assert argv[-2:] == ["198.18.0.20", "python3"]
    assert {"ServerAliveInterval=2", "ServerAliveCountMax=4"} <= set(argv)
    assert argv[argv.index("-p") + 1] == "2222"
    assert argv[argv.index("-i") + 1] == "/lab/key"


def test_inventories_that_lack_something_are_refused(tmp_path: Path, inventory: Path) -> None:
    with pytest.raises(InventoryError, match=r"0 hosts .*vmtoll_environment 'kvm-default'.*: metal, metal-two"):
        load_inventory(inventory, ["metal", "kvm-default"])
    with pytest.raises(InventoryError, match="no such inventory"):
        load_inventory(tmp_path / "none.yml", ["metal"])
    (tmp_path / "run.json").touch()
    with pytest.raises(InventoryError, match="folder of a run"):
        load_inventory(tmp_path, ["metal"])
    with pytest.raises(InventoryError, match="`clients` is empty"):
        from_data({}, ["metal"])
    guest = {"vmtoll_environment": "kvm-default", "vmtoll_kvm_host": "box"}
    data = {
        "_meta": {"hostvars": {"g": guest}},
        "clients": {"hosts": ["c"]},
        "kvm_guests": {"hosts": ["g"]},
    }
    with pytest.raises(InventoryError, match=r"'box' .*`kvm_hosts`"):
        from_data(data, ["kvm-default"])


def test_no_credential_of_a_domain_reaches_the_results() -> None:
    xml = "<entry>io.systemd.credential.binary:a.key=c2VjcmV0</entry><entry>io.systemd.credential:b=secret</entry><x/>"
    assert without_secrets(xml) == (
        "<entry>io.systemd.credential.binary:a.key=removed</entry><entry>io.systemd.credential:b=removed</entry><x/>"
    )
