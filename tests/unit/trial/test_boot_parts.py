"""The parts of a boot and what the server waited for: of a recorded boot of the embedded lab's guest, emulated beside
other work, in which a unit slept 5 s before the server; and of an EFI with systemd in the initial RAM disk.
"""

from itertools import pairwise
from pathlib import Path

import pytest

from vmtoll.model.first_answer import UnitWait
from vmtoll.trial.boot_parts import parts_of, show_command, units_of, waits_of

RECORDED = Path(__file__).parents[2] / "support" / "recorded_boot"
MANAGER, UNITS = (RECORDED / "manager.txt").read_text(), (RECORDED / "units.txt").read_text()
SERVER = "vmtoll-nginx.service"
# What the client and the clocks said of the same boot.
KERNEL_AT_S, NETWORK_S, ANSWER_S = 4.795561, 86.123868, 86.370361


def test_the_parts_of_a_recorded_boot_are_its_time() -> None:
    parts = parts_of(MANAGER, UNITS, SERVER, KERNEL_AT_S, NETWORK_S, ANSWER_S)
    assert list(parts) == ["host", "kernel", "systemd", "network", "server"]
    assert sum(parts.values()) == pytest.approx(ANSWER_S)
    assert parts["host"] == KERNEL_AT_S
    assert parts["kernel"] == pytest.approx(26.444656)
    assert parts["systemd"] == pytest.approx(39.430071)
    assert parts["network"] == pytest.approx(15.45, abs=0.01), "the server was up before its network"
    assert parts["server"] == pytest.approx(ANSWER_S - NETWORK_S)
    early = parts_of(MANAGER, UNITS, SERVER, KERNEL_AT_S, 60.0, ANSWER_S)
    assert "network" not in early
    assert early["server"] == pytest.approx(15.70, abs=0.01)


def test_the_unit_that_the_server_waited_for_is_named_with_the_time_that_it_took() -> None:
    waits = waits_of(UNITS, SERVER)
    assert (waits[0].unit, waits[0].begin_s) == ("slow-start.service", 58.20237)
    assert waits[0].length_s == pytest.approx(7.496032)
    begins = [wait.begin_s for wait in waits]
    assert begins == sorted(begins, reverse=True), "from the last one back"
    assert all(later.begin_s >= one.begin_s + one.length_s for later, one in pairwise(waits))
    assert waits_of(UNITS, "missing.service") == ()


def test_an_efi_and_systemd_in_the_initial_ram_disk_have_parts_of_their_own() -> None:
    manager = (
        "FirmwareTimestampMonotonic=3500000\nLoaderTimestampMonotonic=1500000\n"
        "InitRDTimestampMonotonic=800000\nUserspaceTimestampMonotonic=2000000\n"
    )
    units = "Id=web.service\nExecMainStartTimestampMonotonic=5000000\n"
    parts = parts_of(manager, units, "web.service", 4.0, 9.0, 10.0)
    assert parts == pytest.approx({
        "host": 0.5, "firmware": 2.0, "loader": 1.5, "kernel": 0.8, "initrd": 1.2, "systemd": 3.0, "server": 1.0,
    })  # fmt: skip


def test_a_server_that_systemd_did_not_start_has_no_parts() -> None:
    units = f"Id={SERVER}\nExecMainStartTimestampMonotonic=0\n"
    for text in ("", units):
        with pytest.raises(ValueError, match=f"did not start {SERVER} "):
            parts_of(MANAGER, text, SERVER, 1.0, 2.0, 3.0)


def test_a_unit_that_ran_once_and_ended_counts_until_its_end() -> None:
    units = (
        "Id=web.service\nAfter=once.service loop.service gone.service\nInactiveExitTimestampMonotonic=9000000\n\n"
        "Id=once.service\nAfter=web.service\nInactiveExitTimestampMonotonic=3000000\n"
        "ActiveEnterTimestampMonotonic=0\nInactiveEnterTimestampMonotonic=8000000\n\n"
        "Id=loop.service\nActiveEnterTimestampMonotonic=9500000\n"
    )
    assert waits_of(units, "web.service") == (UnitWait(unit="once.service", begin_s=3.0, length_s=5.0),)


def test_what_is_asked_is_what_is_read() -> None:
    assert len(units_of(UNITS)) == 65
    assert "ExecMainStartTimestampMonotonic" in show_command("*")
    assert show_command()[:3] == ["systemctl", "show", "--no-pager"]
