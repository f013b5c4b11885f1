"""A guest's definition and what its KVM host shows of it, as one line of JSON. Changes nothing.

Runs on the host as `python3 - URI DOMAIN`, with kvm_host.py in the same folder: standard library only.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import kvm_host  # type: ignore[import-not-found]


def virsh(uri: str, verb: str, *words: str) -> str:
    """Output of a read-only virsh. Raises RuntimeError with its message."""
    argv = ["virsh", "--readonly", "-c", uri, verb, *words]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False,
                              env={**os.environ, "LC_ALL": "C"})  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"virsh {verb}: no answer within {error.timeout:g} s") from error
    except OSError as error:
        raise RuntimeError(f"virsh: {error.strerror}") from error
    if done.returncode:  # virsh says first what failed, and last why
        raise RuntimeError(" ".join(done.stderr.rpartition("error: ")[2].split())[:300])
    return done.stdout.strip()


def text(path: str) -> str:
    """A file's text without the spaces around it; empty where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def qemu_pid(uuid: str, proc: str = "/proc") -> "int | None":
    """The process of the guest with this UUID, by its command line, as libvirt starts QEMU."""
    for folder in Path(proc).glob("[0-9]*"):
        words = text(f"{folder}/cmdline").split("\0")
        if "-uuid" in words and words[words.index("-uuid") + 1 :][:1] == [uuid]:
            return int(folder.name)
    return None


def vhost_threads(pid: int, proc: str = "/proc") -> int:
    """Number of vhost threads of a QEMU process: its tasks since Linux 6.4, kernel threads named after it before."""
    names = [*Path(f"{proc}/{pid}/task").glob("*/comm"), *Path(proc).glob("[0-9]*/comm")]
    return sum(text(str(name)) == f"vhost-{pid}" for name in names)


def chosen(line: str) -> str:
    """The word in brackets of a kernel's list of choices."""
    return line.partition("[")[2].partition("]")[0]


def facts() -> "dict[str, object]":
    """The host's facts that vmtoll/guests/diagnosis.py uses."""
    now, poll = kvm_host.memory(), text("/sys/module/kvm/parameters/halt_poll_ns")
    return {
        "kvm_device": Path("/dev/kvm").exists(),
        "vhost_net": Path("/dev/vhost-net").exists(),
        "cpus": kvm_host.online_cpus(),
        "hugepages": {
            "size_kib": now.get("Hugepagesize", 2048),
            "free": now.get("HugePages_Free", 0) - now.get("HugePages_Rsvd", 0),
        },
        "transparent_hugepages": chosen(text("/sys/kernel/mm/transparent_hugepage/enabled")),
        "halt_poll_ns": int(poll) if poll.isdigit() else None,
    }


def answer(uri: str, domain: str) -> "dict[str, object]":
    """`xml`, `running` and `facts`; `error` and the names of the domains where libvirt does not know this one."""
    try:
        names = virsh(uri, "list", "--all", "--name").split()
        if domain not in names:
            return {"error": "", "domains": names}
        xml, state = virsh(uri, "dumpxml", domain), virsh(uri, "domstate", domain)
        uuid = virsh(uri, "domuuid", domain)
    except RuntimeError as error:
        return {"error": str(error), "domains": []}
    pid = qemu_pid(uuid)
    threads = {} if pid is None else {"vhost_threads": vhost_threads(pid)}
    return {"xml": xml, "running": state == "running", "facts": {**facts(), **threads}}


if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:3])))
