"""Guests under KVM, looked at from inside and from their host; guests of one domain are looked at once."""

import json
import re
import subprocess
from dataclasses import dataclass

from tests.lab.the_lab import LAB, Ssh
from vmtoll.guests import profiles
from vmtoll.guests.domain import Files, render
from vmtoll.guests.inventory import Guest

LOOK = """
import json, os, pathlib
disk = next(line.split()[0] for line in open("/proc/mounts") if line.split()[1] == "/")
way = pathlib.Path("/sys/class/block", os.path.basename(os.path.realpath(disk))).resolve()
print(json.dumps({
    "nic": pathlib.Path("/sys/class/net/eth0/device/driver").resolve().name,
    "disk": [(folder / "driver").resolve().name for folder in way.parents if (folder / "driver").exists()],
    "queues": len(list(pathlib.Path("/sys/class/net/eth0/queues").glob("rx-*"))),
    "cmdline": open("/proc/cmdline").read().split(),
}))
"""
FILES = Files("/vmlinuz", "/initrd.img", "/disk.qcow2", "/console.log", {}, {})


@dataclass(frozen=True)
class Seen:
    """Drivers, queues and words of the kernel command line inside; domain, vhost thread and huge pages on the host."""

    nic: str
    disk: list[str]
    queues: int
    cmdline: list[str]
    domain: str
    vhost: bool
    free_huge_pages: int


# Domain, but for its name → what its guest looks like.
SEEN: dict[str, Seen] = {}


def domain_of(profile: str, vcpus: int = 0) -> str:
    """The domain of a guest of this profile on a host of one CPU, without what tells one guest from another."""
    described = Guest(name="one", profile=profile, cpus="0", vcpus=vcpus, uplink="up0")
    return re.sub("<description>.*?</description>", "", render(profiles.load(profile), described, FILES), flags=re.S)


def look(machines: Ssh, domain: str, address: str) -> Seen:
    """Look at a guest of the machine `host`."""
    reach = ["ssh", "-F", str(LAB / "ssh_config"), address, "python3", "-"]
    inside = json.loads(subprocess.run(reach, input=LOOK, capture_output=True, text=True, check=True).stdout)
    pages = "awk '/HugePages_Free/ { n += $2 } /HugePages_Rsvd/ { n -= $2 } END { print n }' /proc/meminfo"
    vhost = f"ps -eLo comm | grep -cx vhost-$(cat /run/libvirt/qemu/{domain}.pid) || true"
    return Seen(
        **inside,
        domain=machines("host", f"virsh -c qemu:///system dumpxml {domain}"),
        vhost=machines("host", vhost) != "0",
        free_huge_pages=int(machines("host", pages)),
    )
