"""Names of machines out of an SSH configuration."""

from collections.abc import Callable
from pathlib import Path

import pytest

from vmtoll.commands.init import _machine
from vmtoll.folder.machines import Machine
from vmtoll.folder.sources import ListedGuest, SshConfig
from vmtoll.model.errors import UserError


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], SshConfig]:
    def made(text: str) -> SshConfig:
        (tmp_path / "config").write_text(text)
        return SshConfig(tmp_path / "config")

    return made


def test_names_are_read_as_ssh_reads_them(config: Callable[[str], SshConfig]) -> None:
    text = (
        'Host load1 load2  # the senders\n  HostName 192.0.2.1\nhost=big1\nHost = big2\nHost\tbig3 "big4"\n'
        'Host *.example !not web? eps,zeta "two words"\nMatch user ada\nHost load1\n# Host the old one\n'
    )
    assert config(text).names == ["load1", "load2", "big1", "big2", "big3", "big4"]


def test_included_files_are_read(tmp_path: Path, config: Callable[[str], SshConfig]) -> None:
    """A relative one is in ~/.ssh, as ssh has it, wherever the file lies."""
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d/a.conf").write_text(f"Host a\nInclude {tmp_path}/conf.d/*.conf\n")  # as ssh: not without end
    (tmp_path / "other").write_text('Host "b"\n')
    text = f"Include {tmp_path}/conf.d/*.conf {tmp_path}/oth*\nInclude {tmp_path}/none/*\nHost c\n"
    assert config(text).names == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("name", "is_known", "user"),
    [
        ("load1", True, "deploy"), ("LOAD1", True, None), ("web-1", True, "admin"), ("web-9", False, None),
        ("big1", True, None), ("192.0.2.99", True, "x"), ("the", False, None), ("gamma", False, None),
    ],
)  # fmt: skip
def test_ssh_itself_says_what_it_knows(
    config: Callable[[str], SshConfig], name: str, is_known: bool, user: str | None
) -> None:
    ssh = config(
        "Host load1   # the sender\n  User deploy\nHost web-*  !web-9\n  HostName %h.example.net\n  User admin\n"
        "Host=big1\nMatch host 192.0.2.99\n  User x\nHost *\n  ServerAliveInterval 60\n"
    )
    assert (ssh.knows(name), ssh.user_of(name)) == (is_known, user)


def test_a_user_for_all_is_one(config: Callable[[str], SshConfig]) -> None:
    assert config("Host big1\n  Port 2222\nHost *\n  User ops\n").user_of("big1") == "ops"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, config: Callable[[str], SshConfig]) -> None:
    with pytest.raises(UserError, match=f"^{tmp_path}/none: No such file"):
        _ = SshConfig(tmp_path / "none").names
    with pytest.raises(UserError, match=r"config: ssh refuses it: .*line 1: Bad configuration option: hots"):
        config("Hots big1\n").knows("big1")


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
