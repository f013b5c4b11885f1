"""What would name a run's machines and their users in public; a publication removes it everywhere."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from workloads.runner.bench import Bench
from workloads.runner.inventory import Host

# The host name, then its addresses, then whatever identifies hardware or installation, one a line.
_SCRIPT = """
uname -n
echo "$(hostname -I 2>/dev/null)"
cat /etc/machine-id /sys/class/net/*/address /sys/block/*/serial /sys/block/*/device/serial \
    /sys/class/dmi/id/*_serial /sys/class/dmi/id/product_uuid 2>/dev/null
true
"""
_LIMIT_S = 30.0


def gather(bench: Bench) -> dict[str, Any]:
    """private.json: `hosts` (inventory name → texts that name this machine) and `users` (names and key files)."""
    machines = bench.inventory.hosts()
    with ThreadPoolExecutor(16) as pool:
        found = dict(pool.map(lambda host: (host.name, _names(bench, host)), machines))
    said = {host.get(key) for host in machines for key in ("ansible_user", "ansible_ssh_private_key_file")}
    return {"hosts": found, "users": sorted(str(text) for text in said if text)}


def _names(bench: Bench, host: Host) -> list[str]:
    done = bench.line(host).call("exec", _LIMIT_S + 10, argv=["sh", "-c", _SCRIPT], limit_s=_LIMIT_S)
    lines = [str(line).strip() for line in done["stdout"].splitlines()]
    known = {*lines[:1], *" ".join(lines[1:2]).split(), host.address}
    known |= {str(host.get(key, "")) for key in ("ansible_host", "vmtoll_domain")}
    known |= {line for line in lines[2:] if len(line) > 4 and any(letter in "123456789" for letter in line)}
    return sorted(known - {""})
