"""Which release an image is made of: asked for, else the newest for the lab, this machine's own for other guests."""

from pathlib import Path

import pytest

from vmtoll.builds.suite import VARIABLE, guest_release, lab_release
from vmtoll.model.errors import UserError

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux {0}"\nNAME="Debian GNU/Linux"\nVERSION_ID="{0}"\nID=debian\n'


@pytest.fixture
def os_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "os-release"


@pytest.mark.parametrize(
    ("text", "suite"),
    [
        (DEBIAN.format(12), "bookworm"),
        (DEBIAN.format(13), "trixie"),
        ('NAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu\n', "trixie"),
        ("ID=arch\n", "trixie"),
    ],
)
def test_guests_of_an_inventory_default_to_the_machines_own_else_the_newest(
    os_release: Path, text: str, suite: str
) -> None:
    os_release.write_text(text)
    assert guest_release(os_release=os_release).suite == suite


@pytest.mark.usefixtures("os_release")
def test_the_labs_machines_default_to_the_newest() -> None:
    assert lab_release().suite == "trixie"


def test_an_option_comes_before_the_variable_and_that_before_the_machine(
    os_release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os_release.write_text(DEBIAN.format(13))
    monkeypatch.setenv(VARIABLE, "bookworm")
    assert lab_release().suite == guest_release(os_release=os_release).suite == "bookworm"
    assert lab_release("trixie").suite == guest_release("trixie", os_release).suite == "trixie"
    monkeypatch.setenv(VARIABLE, "sid")
    for choose in (lab_release, guest_release):
        with pytest.raises(UserError, match="unknown suite 'sid'"):
            choose()
