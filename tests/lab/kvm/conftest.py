"""The lab of virtual machines, brought up once for all tests that leave it as it was."""

import pytest

from tests.lab.kvm.machines import restore, up
from tests.lab.the_lab import Ssh


@pytest.fixture(scope="session")
def machines() -> Ssh:
    """The topology `machines`; what runs a command on a machine of it."""
    return up()


@pytest.fixture(autouse=True)
def _restored(request: pytest.FixtureRequest) -> None:
    """A test on the machines has all of them, whatever became of them in the one before."""
    if "machines" in request.fixturenames:
        restore()
