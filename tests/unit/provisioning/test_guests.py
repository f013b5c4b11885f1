"""What the role that makes guests is given of each."""

import pytest

from tests.unit.guests.test_needs import guest
from vmtoll.model.errors import UserError
from vmtoll.provisioning.guests import role_entry


def test_a_guest_can_be_removed_though_its_profile_no_longer_fits_it() -> None:
    """Three virtual CPUs cannot have one each of two."""
    assert role_entry(guest("kvm-pinned", vcpus=3, state="absent"))["xml"] == ""
    assert "<vcpupin" in role_entry(guest("kvm-pinned", vcpus=2))["xml"]
    with pytest.raises(UserError, match="one: the profile kvm-pinned does not fit it"):
        role_entry(guest("kvm-pinned", vcpus=3))
