"""The key of the lab's image: what it depends on, and what it must not."""

from pathlib import Path

import yaml

from vmtoll.builds import archives
from vmtoll.builds.image import image_key, recipe_files
from vmtoll.model.release import RELEASES
from vmtoll.paths import PLAYBOOKS


def test_only_what_is_tracked_decides_what_is_in_the_image(tmp_path: Path) -> None:
    """A cache that a linter or Ansible leaves in the folder must not make another image."""
    for name in ("image.yml", "site.yml", "roles/machine/tasks/main.yml", "group_vars/all.yml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    before = recipe_files(tmp_path)
    for name in (".ruff_cache/0.1/1", ".ansible/x.yml", "roles/machine/README.md", "roles/kvm_guest/tasks/main.yml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert recipe_files(tmp_path) == before
    assert {"image.yml", "site.yml", "main.yml", "all.yml"} <= {file.name for file in before}
    assert [file for file in recipe_files(PLAYBOOKS) if "web_servers" in file.parts]


def test_what_makes_containers_is_in_no_image_and_provisions_them_as_any_other_machine() -> None:
    assert not [file for file in recipe_files(PLAYBOOKS) if "container" in str(file.relative_to(PLAYBOOKS.parent))]
    site, of_containers = (
        [role for play in yaml.safe_load((PLAYBOOKS / name).read_text()) for role in play["roles"]]
        for name in ("site.yml", "container-site.yml")
    )
    assert of_containers == site


def test_the_release_is_part_of_the_images_key(tmp_path: Path) -> None:
    (tmp_path / "servers.tar").write_bytes(b"the same for both")
    keys = set()
    for release in RELEASES:
        archive = str(tmp_path / "servers.tar")
        variables: archives.ProvisioningVariables = {
            "web_servers_by_suite": {release.suite: {"servers": [], "archive": archive, "files": []}},
            "web_servers_newest": release.suite,
            "site_content_sites": [],
            "load_tools_binaries": [],
            "load_tools_packages": [],
            "load_tools_masked_units": [],
        }
        assert image_key(variables, release) == image_key(variables, release)
        keys.add(image_key(variables, release))
    assert len(keys) == len(RELEASES)
