"""Names of machines out of an SSH configuration."""

from pathlib import Path

import pytest

from vmtoll.commands.init import _machine
from vmtoll.folder.machines import Machine
from vmtoll.folder.sources import ListedGuest, ssh_names
from vmtoll.model.errors import UserError


def test_patterns_are_no_machines(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        "Host load1 load2\n  HostName 192.0.2.1\nhost=big1\nHost *.example !not web?\nMatch user ada\nHost load1\n"
    )
    assert ssh_names(tmp_path / "config") == ["load1", "load2", "big1"]


def test_included_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d/a.conf").write_text("Host a\nInclude conf.d/*.conf\n")  # as ssh: not without end
    (tmp_path / "other").write_text('Host "b"\n')
    (tmp_path / "config").write_text(f"Include conf.d/*.conf {tmp_path}/oth*\nInclude none/*\nHost c\n")
    assert ssh_names(tmp_path / "config") == ["a", "b", "c"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^{tmp_path}/none: No such file"):
        ssh_names(tmp_path / "none")


@pytest.mark.parametrize(
    ("guest", "machine"),
    [
        (ListedGuest("web1", "running", "192.0.2.7"), Machine("web1", "192.0.2.7")),
        (ListedGuest("Web server (old)", "running", "192.0.2.7"), Machine("Web-server-old", "192.0.2.7")),
        (ListedGuest("web2", "shut off"), Machine("web2", "web2")),
    ],
)
def test_a_guest_of_a_host_is_named_as_ansible_can(guest: ListedGuest, machine: Machine) -> None:
    assert _machine(guest, [guest]) == machine
