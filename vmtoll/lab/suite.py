"""Which release of Debian the image is made of: the one that is asked for, else this machine's own."""

import os
from pathlib import Path

from vmtoll.model.release import RELEASES, Release, of_suite, of_system

VARIABLE = "VMTOLL_SUITE"
OS_RELEASE = Path("/etc/os-release")


def chosen(suite: str | None = None, os_release: Path = OS_RELEASE) -> Release:
    """The release of this suite or of the variable VMTOLL_SUITE; without them this machine's own, else the newest.

    Its own, because metal of the embedded lab is a container on this machine's kernel, and the guest boots the image's:
    of one release, both sides run one kernel. Raises UserError for an unknown suite.
    """
    if asked := suite or os.environ.get(VARIABLE):
        return of_suite(asked)
    fields = [line.partition("=") for line in os_release.read_text().splitlines()]
    system = {key: value.strip("\"'") for key, _, value in fields}
    return of_system(system.get("ID", ""), system.get("VERSION_ID", "")) or RELEASES[0]
