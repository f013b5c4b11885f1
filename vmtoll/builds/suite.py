"""Choose the Debian release of an image: the requested one, else a default for its purpose."""

import os
from pathlib import Path

from vmtoll.model.release import RELEASES, Release, release_of_suite, release_of_system

VARIABLE = "VMTOLL_SUITE"
OS_RELEASE = Path("/etc/os-release")


def lab_release(suite: str | None = None) -> Release:
    """The release of the embedded lab's machines: this suite's, else the variable VMTOLL_SUITE's, else the newest.

    Raises UserError for an unknown suite.
    """
    requested = suite or os.environ.get(VARIABLE)
    return release_of_suite(requested) if requested else RELEASES[0]


def guest_release(suite: str | None = None, os_release: Path = OS_RELEASE) -> Release:
    """The release of an inventory's guests: this suite's, else VMTOLL_SUITE's, else this machine's, else the newest.

    Metal and guest get the packages of their own releases; only machines of the same release are comparable. Raises
    UserError for an unknown suite.
    """
    if suite or os.environ.get(VARIABLE):
        return lab_release(suite)
    return release_of_this_machine(os_release) or RELEASES[0]


def release_of_this_machine(os_release: Path = OS_RELEASE) -> Release | None:
    """This machine's release; None when vmtoll does not know it."""
    fields = [line.partition("=") for line in os_release.read_text().splitlines()]
    system = {key: value.strip("\"'") for key, _, value in fields}
    return release_of_system(system.get("ID", ""), system.get("VERSION_ID", ""))
