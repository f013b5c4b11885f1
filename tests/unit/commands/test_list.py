"""What `vmtoll list` prints."""

import pytest

from vmtoll.commands.list import list_names


def test_a_server_that_a_release_does_not_ship_is_shown_so(capsys: pytest.CaptureFixture[str]) -> None:
    list_names()
    (servers,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("servers: ")]
    names = servers.removeprefix("servers: ").split(", ")
    assert "h2o (not in Debian 13)" in names
    assert [name for name in names if "(" in name] == ["h2o (not in Debian 13)"]
