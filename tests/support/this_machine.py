"""Labs whose machines all run on this one: real agents, folders of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from vmtoll import preflight
from vmtoll.model.complaint import Complaint
from vmtoll.preflight import Lab


def data(**hosts: dict[str, Any]) -> dict[str, Any]:
    """An inventory as ansible-inventory prints it, from each host's `group` and its variables."""
    tree: dict[str, Any] = {"_meta": {"hostvars": {}}}
    for name, host_data in hosts.items():
        variables = dict(host_data)
        tree.setdefault(variables.pop("group"), {"hosts": []})["hosts"].append(name)
        tree["_meta"]["hostvars"][name] = variables
    return tree


def local_lab(tmp_path: Path, **more: dict[str, Any]) -> dict[str, Any]:
    """A client and a metal machine, both on this machine; `more`: host → further variables."""
    port, hosts = free_port(), dict[str, dict[str, Any]]()
    for name, group in (("client", "clients"), ("metal", "metal_hosts")):
        (tmp_path / name).mkdir(exist_ok=True)
        hosts[name] = {
            "group": group,
            "ansible_connection": "local",
            "ansible_host": "127.0.0.1",
            "vmtoll_root": str(tmp_path / name),
            "vmtoll_http_port": port,
            **more.get(name, {}),
        }
    hosts["metal"]["vmtoll_environment"] = "metal"
    return data(**hosts)


@contextmanager
def opened_lab(tree: dict[str, Any]) -> Iterator[tuple[Lab, list[Complaint]]]:
    """Open the lab's connections; yield the lab, and the results of the check `reach`."""
    lab = Lab(Path("lab.yml"), tree)
    try:
        yield lab, list(preflight.reach(lab))
    finally:
        lab.close()
