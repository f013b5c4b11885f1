"""What `vmtoll status` says of a machine."""

from pathlib import Path

from tests.support.snapshots import assert_snapshot
from vmtoll.agent.protocol import MachineChanges
from vmtoll.commands.status import sentences

SNAPSHOT = Path(__file__).with_name("snapshots") / "status.txt"
NOTHING: MachineChanges = {
    "provisioned": None, "tuned": [], "guests": [], "paused": [], "servers": [], "change": None, "traces": [],
    "held_by": None,
}  # fmt: skip


def test_a_machine_on_which_nothing_is_changed() -> None:
    assert sentences(NOTHING) == []


def test_all_that_is_changed() -> None:
    said = sentences(
        {
            "provisioned": {
                "since": "2026-01-02T03:04:05Z",
                "packages": ["nginx-light"],
                "files": ["/a", "/b"],
                "sysctls": [],
                "units": ["nginx.service"],
            },
            "tuned": ["governor", "turbo"],
            "guests": ["guest1"],
            "paused": ["guest1"],
            "servers": ["vmtoll-nginx.service"],
            "change": "thp",
            "traces": ["vmtoll-12-345"],
            "held_by": None,
        }
    )
    in_use = sentences(NOTHING | {"paused": ["guest1"], "servers": ["vmtoll-nginx.service"], "held_by": "the run 1"})
    assert len(in_use) == 1, "a run that goes on has left nothing"
    assert_snapshot(SNAPSHOT, {"A machine": {"with all that vmtoll changes": said, "in use": in_use}})
