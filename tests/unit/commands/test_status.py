"""What `vmtoll status` says of a machine."""

from vmtoll.agent.protocol import MachineChanges
from vmtoll.commands.status import sentences

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
    assert said == [
        "provisioned since 2026-01-02T03:04:05Z: 1 package, 2 files; masked while active: nginx.service",
        "tuned: governor, turbo",
        "guests made: guest1",
        "guests paused by a run that was killed: guest1",
        "servers left by a run that was killed: vmtoll-nginx.service",
        "change left by a run that was killed: thp",
        "traces of exits left by a run that was killed: vmtoll-12-345",
    ]


def test_a_run_that_goes_on_has_left_nothing() -> None:
    said = sentences(NOTHING | {"paused": ["guest1"], "servers": ["vmtoll-nginx.service"], "held_by": "the run 1"})
    assert said == ["in use by the run 1"]
