"""The lab of virtual machines, brought up once for all tests that leave it as it was."""

import pytest

from tests.lab.kvm.machines import up
from tests.lab.the_lab import Ssh


@pytest.fixture(scope="session")
def machines() -> Ssh:
    """The topology `machines`, provisioned; what runs a command on a machine of it."""
    return up(provisioned=True)
