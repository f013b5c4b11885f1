"""A change of a machine as a separate environment, and the facts in which that machine may differ for it."""

import re
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from vmtoll.model.document import Document
from vmtoll.model.inventory import HostTuning
from vmtoll.model.runtime import Isolation
from vmtoll.model.trial import METAL

# What `differs_in` calls the parts of a server's fingerprint.
SERVER_PARTS: Mapping[str, str] = {
    "binary": "servers: *: binary_sha256",
    "config": "servers: *: config_sha256",
    "version": "servers: *: version",
}
# Setting of a host → the facts of that host that it changes.
_OF_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "governor": ("governor",),
    "smt": ("smt", "cpus_allowed", "mitigations"),
    "tuned_profile": ("governor", "sysctls"),
}
_SYSCTL = re.compile(r"[\w-]+(\.[\w-]+)+")


def is_sysctl(name: str) -> bool:
    """Return whether this is the name of a kernel parameter, as `net.core.somaxconn`."""
    return bool(_SYSCTL.fullmatch(name))


class Change(Document):
    """A change of a machine as a separate environment: shell commands that make and undo it, or settings that vmtoll
    sets, reads back and restores.
    """

    of: str = Field(default=METAL, description="environment whose machine is changed")
    apply: str = Field(default="", description="command that puts the change in place, before each of its trials")
    differs_in: list[str] | None = Field(
        default=None,
        description="what `apply` changes: `binary`, `config` or `version` of servers, a kernel parameter, or a fact "
        "as in `declared_differences`; any other difference is a finding; unset: it may change anything, and the "
        "report lists what it did",
    )
    settings: HostTuning | None = Field(
        default=None,
        description="instead, or with it: settings as in `vmtoll_tuning`, of the machine, or of a guest's KVM host",
    )
    sysctls: dict[str, str] = Field(
        default_factory=dict, description="also: kernel parameters of the machine, or inside the guest"
    )
    isolation: Isolation | None = Field(
        default=None, description="instead, or with it: parts of a container's isolation, of a container runtime"
    )
    revert: str = Field(
        default="",
        description="command that undoes it, before trials without it, at the end and after a kill; changes with the "
        "same command replace each other without it; empty: nothing is undone",
    )
    on: Literal["machine", "host"] = Field(
        default="machine", description="where they run: the machine, or the KVM host of a guest"
    )
    boots: bool = Field(default=False, description="the machine boots after them; a guest gets a new QEMU process")
    limit_s: float = Field(default=600.0, gt=0, description="time limit of a command, wall clock")

    @field_validator("sysctls", mode="before")
    @classmethod
    def _texts(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        for key, value in given.items():
            if not is_sysctl(str(key)):
                raise ValueError(
                    f"{key!r} is not a kernel parameter; give its full name, for example net.core.somaxconn"
                )
            if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
                raise ValueError(f"{key}: {value!r} is not a value of a kernel parameter; give a number or a text")
        return {str(key): str(value) for key, value in given.items()}

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not (self.apply or self.values or self.sysctls or self.isolation):
            raise ValueError("give apply, settings, sysctls or isolation: nothing would change")
        for key in ("revert", "differs_in"):
            if getattr(self, key) and not self.apply:
                raise ValueError(f"{key}: there is no apply; vmtoll knows, and restores, its own settings and sysctls")
        if self.boots and self.sysctls:
            raise ValueError("boots: kernel parameters do not outlast a boot; leave one of the two out")
        return self

    @property
    def values(self) -> dict[str, str | int]:
        """The settings that it sets."""
        return self.settings.model_dump(exclude_none=True) if self.settings else {}

    @property
    def explains(self) -> list[str] | None:
        """The facts in which the changed machine may differ from itself, as in `declared_differences`; None for a
        command that may change anything.
        """
        if self.apply and self.differs_in is None:
            return None
        by_command = [
            SERVER_PARTS.get(name, f"sysctls: {name}" if is_sysctl(name) else name) for name in self.differs_in or ()
        ]
        by_settings = [fact for setting in self.values for fact in _OF_SETTINGS.get(setting, ())]
        return list(dict.fromkeys([*by_command, *by_settings, *(f"sysctls: {name}" for name in self.sysctls)]))
