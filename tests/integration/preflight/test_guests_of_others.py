"""Preflight asks what runs a guest whether it runs: a real QEMU, and one that is not there."""

from pathlib import Path

from tests.support.qemu_process import qemu
from tests.support.this_machine import data
from vmtoll.machines.connection import AgentLine
from vmtoll.preflight import Lab, guests


def test_each_guest_is_looked_for_where_its_name_says(tmp_path: Path) -> None:
    with qemu(tmp_path, "-nodefaults") as socket:
        of_host = {"vmtoll_kvm_host": "host"}
        hosts = data(
            host={"group": "kvm_hosts", "ansible_connection": "local", "vmtoll_root": str(tmp_path)},
            runs={"group": "kvm_guests", **of_host, "vmtoll_qmp_socket": str(socket)},
            gone={"group": "kvm_guests", **of_host, "vmtoll_qmp_socket": str(tmp_path / "gone.qmp")},
            unit={"group": "kvm_guests", **of_host, "vmtoll_unit": "no-such.service"},
        )
        lab = Lab(tmp_path / "lab.yml", hosts)
        line = AgentLine(next(host for host in lab.hosts if host.name == "host"))
        line.open()
        lab.lines["host"] = line
        try:
            results = {result.machine: result.level for result in guests(lab)}
        finally:
            lab.close()
    assert results == {"runs": "ok", "gone": "fail", "unit": "fail"}
