"""What the role that makes guests is given of each."""

import pytest

from tests.unit.guests.test_needs import guest
from vmtoll.model.errors import UserError
from vmtoll.provisioning.guests import for_role


def test_a_guest_can_be_removed_though_its_profile_no_longer_fits_it() -> None:
    """Three virtual CPUs cannot have one each of two."""
    assert for_role(guest("kvm-pinned", vcpus=3, state="absent"))["xml"] == ""
    assert "<vcpupin" in for_role(guest("kvm-pinned", vcpus=2))["xml"]
    with pytest.raises(UserError, match="one: the profile kvm-pinned does not fit it"):
        for_role(guest("kvm-pinned", vcpus=3))
