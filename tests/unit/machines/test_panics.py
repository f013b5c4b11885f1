"""A guest whose kernel has panicked is stopped and named, wherever vmtoll waits for it."""

from typing import Any

import pytest

from vmtoll.machines import panics
from vmtoll.machines.panics import Watch
from vmtoll.model.errors import HostLostError
from vmtoll.model.inventory import Host

HOST = Host("host", "kvm_host", {})
GUESTS = {name: (Host(name, "kvm_guest", {"vmtoll_domain": f"d-{name}"}), HOST) for name in ("one", "two")}


class Line:
    """The line to a KVM host whose guest `two` has panicked."""

    def __init__(self, host: Host) -> None:
        self.host, self.lost_because, self.ran, self.opened = host, "not connected", list[list[str]](), 0
        self.panics = {"d-two": "Kernel panic - not syncing"}

    def open(self, _timeout_s: float = 60.0) -> None:
        self.opened += 1
        self.lost_because = ""

    def close(self) -> None:
        self.lost_because = "closed"

    def call(self, op: str, _timeout_s: float = 30.0, **args: Any) -> Any:
        if op == "panics":
            return {guest["name"]: self.panics.get(guest["name"], "") for guest in args["guests"]}
        self.ran.append(args["argv"])
        return {"exit_status": 0, "stdout": "", "stderr": ""}


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    made = Line(HOST)
    monkeypatch.setattr(panics, "AgentLine", lambda _host: made)
    return made


def test_the_guest_that_panicked_is_named_and_stopped(line: Line) -> None:
    watch = Watch(GUESTS)
    assert watch.look() == "two panicked, and vmtoll stopped it: Kernel panic - not syncing"
    assert line.ran == [["virsh", "-q", "-c", "qemu:///system", "destroy", "d-two"]]
    line.panics.clear()
    assert watch.look() == ""
    assert line.opened == 1
    watch.close()
    assert line.lost_because == "closed"


def test_a_host_that_does_not_answer_is_asked_again(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_timeout_s: float) -> None:
        raise HostLostError("host: not yet", "host")

    watch = Watch(GUESTS)
    with monkeypatch.context() as patched:
        patched.setattr(line, "open", fail)
        assert watch.look() == ""
    assert "two panicked" in watch.look()
