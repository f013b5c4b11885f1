"""What the role that makes guests is given of each."""

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from tests.unit.guests.test_needs import guest
from vmtoll.builds import image
from vmtoll.builds.suite import guest_release
from vmtoll.model.errors import InventoryError, UserError
from vmtoll.model.release import Release, release_of_suite
from vmtoll.provisioning import guests
from vmtoll.provisioning.guests import make_guests, role_entry


def test_a_guest_can_be_removed_though_its_profile_no_longer_fits_it() -> None:
    """Three virtual CPUs cannot have one each of two."""
    assert role_entry(guest("kvm-pinned", vcpus=3, state="absent"))["xml"] == ""
    assert "<vcpupin" in role_entry(guest("kvm-pinned", vcpus=2))["xml"]
    with pytest.raises(UserError, match=r"one: .*profile kvm-pinned does "):
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


def of_two_releases(tmp_path: Path, **of_host: str) -> dict[str, Any]:
    """An inventory of a KVM host with a guest of the inventory's release, and one of the other."""
    (tmp_path / "key.pub").write_text("key\n")
    names = {"old": "kvm-default-release-bookworm", "plain": "kvm-default"}
    guests = {
        name: {
            "vmtoll_environment": profile, "vmtoll_profile": profile, "vmtoll_kvm_host": "big1", "vmtoll_cpus": "0",
            "vmtoll_public_key": str(tmp_path / "key.pub"),
        }
        for name, profile in names.items()
    }  # fmt: skip
    return {
        "_meta": {"hostvars": {"big1": of_host, **guests}}, "kvm_hosts": {"hosts": ["big1"]},
        "kvm_guests": {"hosts": list(guests)},
    }  # fmt: skip


def test_a_host_gets_the_image_of_each_release_of_its_guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[dict[str, Any]] = []

    def ensure(say: object, release: Release, kernels: Collection[str]) -> Path:
        folder = tmp_path / f"of-{release.suite}"
        folder.mkdir()
        (folder / "guest.qcow2").touch()
        return folder

    monkeypatch.setattr(image, "ensure", ensure)
    monkeypatch.setattr(guests, "_check_needs", lambda present, inventory: {})
    monkeypatch.setattr(guests, "host_key", lambda: tmp_path / "host_key")
    monkeypatch.setattr(
        guests, "play", lambda name, flag, variables, *rest, **keys: played.append(json.loads(variables))
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    make_guests(of_two_releases(tmp_path), Path("hosts.yml"), [], release_of_suite("trixie"))
    (variables,) = played
    images = {Path(image["source"]).name: image["files"] for image in variables["kvm_guest_images"]["big1"]}
    assert images == {"of-bookworm": ["guest.qcow2"], "of-trixie": ["guest.qcow2"]}
    of_guests = {entry["name"]: entry["image"] for entry in variables["kvm_guest_lists"]["big1"]}
    assert of_guests == {"old": "of-bookworm", "plain": "of-trixie"}, "also the one without a release of its own"


def test_a_host_that_fetches_its_image_has_guests_of_one_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guests, "_check_needs", lambda present, inventory: {})
    data = of_two_releases(tmp_path, vmtoll_image_url="http://cache/trixie", vmtoll_image_sha256="0" * 64)
    said = "big1: vmtoll_image_url is one image, and its guests have Debian 12 and Debian 13; leave the URL out"
    with pytest.raises(UserError, match=said):
        make_guests(data, Path("hosts.yml"), [], release_of_suite("trixie"))
