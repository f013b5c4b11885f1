"""Guests for Ansible: what the controller knows of them (vmtoll/guests), as filters."""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from vmtoll.guests import needs, profiles
from vmtoll.guests.domain import Files, render
from vmtoll.guests.inventory import checked
from vmtoll.shell import UserError
from workloads.runner.errors import RunnerError

Said = Mapping[str, Any]


def kvm_guest_lacking(guests: list[Said], facts: Said, running: list[str]) -> list[str]:
    """What the guests of one KVM host need and it has not got, one sentence each."""
    try:
        return needs.lacking([checked(guest) for guest in guests], facts, running)
    except (UserError, RunnerError) as error:
        raise AnsibleFilterError(str(error)) from error


def kvm_guest_xml(guest: Said, files: Said) -> str:
    """The domain's XML of a guest whose files on the KVM host are these."""
    try:
        return render(profiles.load(guest["profile"]), checked(guest), Files(**files))
    except (UserError, RunnerError) as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """What Ansible asks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → filter."""
        return {"kvm_guest_lacking": kvm_guest_lacking, "kvm_guest_xml": kvm_guest_xml}
