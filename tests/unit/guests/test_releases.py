"""The release of a guest's image: of its profile, else of the lab or the inventory."""

import shutil
from pathlib import Path

import pytest

from vmtoll.guests import profiles
from vmtoll.model.errors import UserError
from vmtoll.model.release import release_of_suite
from vmtoll.paths import VM_IMAGES

TRIXIE, BOOKWORM = release_of_suite("trixie"), release_of_suite("bookworm")


def test_each_release_gets_the_kernels_of_its_guests(tmp_path: Path) -> None:
    images = tmp_path / "vm-images"
    shutil.copytree(VM_IMAGES, images)
    (images / "guests/old.yml").write_text("of: [kvm-default]\nrelease: bookworm\n")
    (images / "guests/old-cloud.yml").write_text("of: [old]\nkernel: linux-image-cloud-amd64\n")
    made = [profiles.load(name, images) for name in ("kvm-default", "old", "old-cloud")]
    wanted = {TRIXIE: [], BOOKWORM: ["linux-image-cloud-amd64"]}
    assert profiles.kernels_by_release(made, TRIXIE) == wanted
    assert profiles.kernels_by_release(made, BOOKWORM) == {BOOKWORM: ["linux-image-cloud-amd64"]}


def test_an_unknown_suite_is_named_with_its_profile(tmp_path: Path) -> None:
    images = tmp_path / "vm-images"
    shutil.copytree(VM_IMAGES, images)
    (images / "guests/sid.yml").write_text("of: [kvm-default]\nrelease: sid\n")
    with pytest.raises(UserError, match=r"sid: release: suite: .*'sid'; .*trixie or bookworm"):
        profiles.kernels_by_release([profiles.load("sid", images)], TRIXIE)
