"""What `vmtoll list` prints."""

import json

import pytest

from vmtoll.commands.list import list_names


def test_a_server_that_a_release_does_not_ship_is_shown_so(capsys: pytest.CaptureFixture[str]) -> None:
    list_names()
    (servers,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("servers: ")]
    names = servers.removeprefix("servers: ").split(", ")
    assert "h2o (not in Debian 13)" in names
    assert [name for name in names if "(" in name] == ["h2o (not in Debian 13)"]


def test_programs_get_the_same_names(capsys: pytest.CaptureFixture[str]) -> None:
    list_names(as_json=True)
    listed = json.loads(capsys.readouterr().out)
    assert list(listed) == ["experiments", "workloads", "servers", "environments"]
    assert "demo" in listed["experiments"]
    assert {"metal", "kvm-default", "kvm-default-kernel-cloud-amd64"} <= set(listed["environments"])
    assert [server for server in listed["servers"] if server["not_in"]] == [{"name": "h2o", "not_in": ["trixie"]}]
