"""A tuning step as a change: which commands, and why there are none."""

from dataclasses import replace

import pytest

from vmtoll.guests.diagnosis.measure import change_of
from vmtoll.model.diagnosis import Diagnosis, State, Step, Tuning
from vmtoll.model.errors import UserError

CACHE = Step(Tuning.CACHE, State.LACKING, "vda", apply="take vda", undo="leave vda")
GUEST = Diagnosis(
    "web 1", "kvm1", True, (CACHE, replace(CACHE, device="vdb", apply="take vdb", undo="leave vdb")), {}, ()
)


def test_a_guest_of_libvirt_gets_its_definition_back_and_boots() -> None:
    change = change_of(GUEST, Tuning.CACHE, uri="qemu:///system", root="/tmp/a root")
    assert (change.on, change.boots) == ("host", True)
    assert change.apply.endswith("take vda; take vdb")
    assert "'/tmp/a root/var/lib/vmtoll/web 1-before.xml'" in change.revert
    assert "dumpxml --inactive --security-info 'web 1'" in change.apply


@pytest.mark.parametrize(("kind", "boots"), [("proxmox", True), ("qemu", False)])
def test_other_guests_have_a_command_for_each_way(kind: str, boots: bool) -> None:
    change = change_of(replace(GUEST, kind=kind), Tuning.CACHE, uri="")
    assert (change.apply, change.revert) == ("set -e; take vda; take vdb", "set -e; leave vdb; leave vda")
    assert change.boots == boots


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (replace(CACHE, state=State.TAKEN), "the guest has this step; it lacks none"),
        (replace(CACHE, state=State.UNKNOWN), "is unknown"),
        (replace(CACHE, state=State.INAPPLICABLE), "cannot have it"),
        (replace(CACHE, tuning=Tuning.VHOST), "no such step; it lacks vhost"),
        (replace(CACHE, apply="", refused="no such bus"), "libvirt refuses the change: no such bus"),
        (replace(CACHE, apply="", pending=True), "at its next start"),
        (replace(CACHE, apply="", options="-drive cache=none"), "start it there with -drive cache=none"),
        (replace(CACHE, apply=""), "no command takes this step"),
    ],
)
def test_a_step_that_cannot_be_measured_says_why(step: Step, why: str) -> None:
    with pytest.raises(UserError, match=why):
        change_of(replace(GUEST, steps=(step,)), Tuning.CACHE, uri="")
