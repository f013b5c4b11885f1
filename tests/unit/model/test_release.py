"""The releases of Debian, by suite, by /etc/os-release and by name."""

import pytest

from vmtoll.model.errors import UserError
from vmtoll.model.release import NAMES, RELEASES, SUITES, release_of_name, release_of_suite, release_of_system


def test_each_release_is_found_by_all_of_its_names() -> None:
    for release in RELEASES:
        assert release_of_suite(release.suite) is release
        assert release_of_system("debian", release.version) is release
        assert release_of_name(release.name) is release
    assert [release.suite for release in RELEASES] == list(SUITES) == ["trixie", "bookworm"]
    assert NAMES == "Debian 13 or Debian 12"


def test_other_systems_are_no_release_and_an_unknown_suite_names_the_known_ones() -> None:
    assert release_of_system("ubuntu", "24.04") is None
    assert release_of_system("debian", "11") is None
    assert release_of_name("Ubuntu 24.04") is None
    with pytest.raises(UserError, match=r"^suite: .*'sid'; choose trixie or bookworm$"):
        release_of_suite("sid")
