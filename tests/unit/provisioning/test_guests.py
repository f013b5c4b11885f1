"""What the role that makes guests is given of each."""

from pathlib import Path

import pytest

from tests.unit.guests.test_needs import guest
from vmtoll.builds.suite import guest_release
from vmtoll.model.errors import InventoryError, UserError
from vmtoll.provisioning.guests import make_guests, role_entry


def test_a_guest_can_be_removed_though_its_profile_no_longer_fits_it() -> None:
    """Three virtual CPUs cannot have one each of two."""
    assert role_entry(guest("kvm-pinned", vcpus=3, state="absent"))["xml"] == ""
    assert "<vcpupin" in role_entry(guest("kvm-pinned", vcpus=2))["xml"]
    with pytest.raises(UserError, match="one: the profile kvm-pinned does not fit it"):
        role_entry(guest("kvm-pinned", vcpus=3))


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"vmtoll_image_url": "http://cache/trixie"}, "big1: vmtoll_image_url needs vmtoll_image_sha256, which"),
        ({"vmtoll_image_sha256": "0" * 64}, "big1: vmtoll_image_sha256 needs vmtoll_image_url"),
        ({"vmtoll_image_url": "cache/trixie", "vmtoll_image_sha256": "0" * 64}, "big1: vmtoll_image_url"),
        ({"vmtoll_image_url": "http://cache/trixie", "vmtoll_image_sha256": "abc"}, "big1: vmtoll_image_sha256"),
    ],
)  # fmt: skip
def test_an_image_to_fetch_has_a_url_and_a_digest(variables: dict[str, str], said: str) -> None:
    data = {"_meta": {"hostvars": {"big1": variables}}, "kvm_hosts": {"hosts": ["big1"]}}
    with pytest.raises(InventoryError) as refused:
        make_guests(data, Path("hosts.yml"), [], guest_release(""))
    assert said in str(refused.value)
