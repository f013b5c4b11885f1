"""The Debian releases that vmtoll supports, in its image and in provisioning."""

from dataclasses import dataclass
from typing import Literal, get_args

from vmtoll.model.errors import UserError

Suite = Literal["trixie", "bookworm"]


@dataclass(frozen=True)
class Release:
    """`suite`: Debian's name in archives and in Ansible's facts; `version`: VERSION_ID of /etc/os-release."""

    suite: Suite
    version: str

    @property
    def name(self) -> str:
        return f"Debian {self.version}"


# The newest first.
RELEASES = (Release("trixie", "13"), Release("bookworm", "12"))
SUITES: tuple[Suite, ...] = get_args(Suite)
NAMES = " or ".join(release.name for release in RELEASES)


def release_of_suite(suite: str) -> Release:
    """The release of this suite. Raises UserError naming the known suites."""
    for release in RELEASES:
        if release.suite == suite:
            return release
    raise UserError(f"suite: unknown suite {suite!r}; choose {' or '.join(SUITES)}")


def release_of_system(distribution: str, version: str) -> Release | None:
    """The release with this ID and VERSION_ID of /etc/os-release; None for any other system."""
    return next((r for r in RELEASES if (distribution, version) == ("debian", r.version)), None)


def release_of_name(name: str) -> Release | None:
    """The release with this name, such as `Debian 13` in facts; None for any other system."""
    return next((release for release in RELEASES if release.name == name), None)
