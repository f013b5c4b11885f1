"""What preflight makes of the system that a machine runs."""

from typing import Any, cast

import pytest

from vmtoll import preflight
from vmtoll.model.inventory import Host, Role
from vmtoll.preflight import Lab

UNTESTED = "vmtoll is written for Debian 13 or Debian 12; this is untested."


class Machine:
    """A lab of one machine, which runs this."""

    def __init__(self, **seen: Any) -> None:
        self.seen = {"id": "debian", "version": "13", "apt": True, "systemd": 257, "booted": True} | seen

    on_each = Lab.on_each

    def answering_hosts(self, *roles: Role) -> list[Host]:
        return [Host("metal", "metal", {}, "inventory")]

    def ask(self, host: Host, op: str) -> dict[str, Any]:
        return self.seen


@pytest.mark.parametrize(
    ("seen", "level", "advice"),
    [
        ({}, "ok", ""),
        ({"version": "12", "systemd": 252}, "ok", ""),
        ({"version": "11", "systemd": 247}, "warn", UNTESTED),
        ({"id": "ubuntu", "version": "24.04"}, "warn", UNTESTED),
        ({"apt": False}, "fail", "Install Debian 13 or Debian 12: packages come by apt."),
        ({"booted": False}, "fail", "Boot it with systemd: servers are its units."),
    ],
)
def test_known_releases_pass_and_others_are_untested(seen: dict[str, Any], level: str, advice: str) -> None:
    (result,) = preflight.system(cast(Lab, Machine(**seen)))
    assert (result.level, result.advice) == (level, advice)
