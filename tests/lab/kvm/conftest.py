"""The lab of virtual machines, brought up once for all tests that leave it as it was."""

import pytest

from tests.lab.kvm.machines import restore, up
from tests.lab.the_lab import Ssh


@pytest.fixture(scope="module")
def machines() -> Ssh:
    """Bring the topology `machines` up, unless it is: the module before may have had a lab of other guests. Return a
    function that runs a command on one of its machines.
    """
    return up()


@pytest.fixture(autouse=True)
def _restored(request: pytest.FixtureRequest) -> None:
    """Restore all machines for each test that uses them, whatever the test before did."""
    if "machines" in request.fixturenames:
        restore()
