"""What a machine says of itself."""

import pytest

from vmtoll.agent.facts import release


@pytest.mark.parametrize(
    ("os_release", "name"),
    [
        ('NAME="Debian GNU/Linux"\nVERSION_ID="13"\nVERSION_CODENAME=trixie\nID=debian\n', "Debian 13"),
        ("NAME='Ubuntu'\nVERSION_ID='24.04'\nID=ubuntu\n", "Ubuntu 24.04"),
        ("NAME=Gentoo\nID=gentoo\n", "Gentoo"),
        ("", "unknown"),
    ],
)
def test_the_operating_system_has_a_name_and_a_version(os_release: str, name: str) -> None:
    assert release(os_release) == name
