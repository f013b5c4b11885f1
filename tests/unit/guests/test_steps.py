"""The tuning steps between two guest profiles."""

import pytest

from vmtoll.guests.steps import gained
from vmtoll.model.diagnosis import Tuning


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        ("kvm-2009", "kvm-virtio-nvhost", {Tuning.CPU_MODEL, Tuning.CARD, Tuning.DISK_BUS}),
        ("kvm-virtio-nvhost", "kvm-default", {Tuning.VHOST}),
        ("kvm-default", "kvm-multiqueue", {Tuning.MULTIQUEUE}),
        ("kvm-default", "kvm-pinned", {Tuning.PINNING}),
        ("kvm-default", "kvm-hugepages", {Tuning.HUGE_PAGES}),
        ("kvm-default", "kvm-halt-poll", {Tuning.HALT_POLLING}),
        ("kvm-ide", "kvm-default", {Tuning.DISK_BUS}),
        ("kvm-default", "kvm-ide", set()),
        ("kvm-step-hugepages", "kvm-tuned", {Tuning.HALT_POLLING}),
        ("kvm-default", "kvm-tuned",
         {Tuning.MULTIQUEUE, Tuning.PINNING, Tuning.HUGE_PAGES, Tuning.HALT_POLLING}),
        ("kvm-default", "a-profile-of-old", set()),
    ],
)  # fmt: skip
def test_the_steps_that_the_second_profile_has_and_the_first_lacks(before: str, after: str, steps: set[Tuning]) -> None:
    assert gained(before, after) == steps
