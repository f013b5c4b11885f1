"""The adapter for guests of other monitors, such as Cloud Hypervisor or Firecracker: it only reads."""

from typing import NoReturn

from vmtoll.agent.protocol import GuestAddress, Process
from vmtoll.agent.waits import kind_of
from vmtoll.hypervisors.base import Guest
from vmtoll.hypervisors.guest_config import GuestConfig, Known, Unknown
from vmtoll.hypervisors.record import definition_xml
from vmtoll.model.errors import AgentError


class ProcessGuest(Guest):
    """A process that runs a guest, by its systemd unit or by a file that holds its PID."""

    @property
    def address(self) -> GuestAddress:
        variables = self.guest.vars
        return {
            "kind": "process",
            "name": self.name,
            "unit": variables.unit or "",
            "pid_file": variables.pid_file or "",
        }

    def pause(self) -> None:
        self._refuse("pauses")

    def resume(self) -> None:
        self._refuse("resumes")

    def resume_left(self) -> None:
        """Do nothing: vmtoll never pauses such a guest."""

    def start_command(self) -> list[str]:
        self._refuse("starts")

    def shut_down(self) -> None:
        self._refuse("stops")

    def power_off(self) -> None:
        self._refuse("stops")

    def is_off(self) -> bool:
        return self.host.call("process", guest=self.address) is None

    @property
    def missing(self) -> str:
        return f"no process of {self.guest.vars.unit or self.guest.vars.pid_file}"

    def threads(self) -> list[int]:
        """Thread IDs of its virtual CPUs, by the threads' names."""
        return [thread["tid"] for thread in self.process()["threads"] if kind_of(thread["name"]) == "vcpu"]

    def definition(self) -> str:
        return definition_xml(guest_of_process(self.process(), self.name))

    def _refuse(self, verb: str) -> NoReturn:
        raise AgentError(
            f"{self.guest.name}: vmtoll {verb} no guest of other monitors; set vmtoll_revive or vmtoll_reboot to "
            "commands of your own"
        )


def guest_of_process(process: Process, name: str) -> GuestConfig:
    """What the host shows of another monitor's guest: what runs the code, and the number of virtual CPUs."""
    count = sum(kind_of(thread["name"]) == "vcpu" for thread in process["threads"])
    source = "the process"
    return GuestConfig(
        name, running=True, domain_type=Known("kvm", source) if process["kvm"] else Unknown("the monitor's own tools"),
        vcpus=Known(count or 1, source), quotas=Known((), source), weight=Known(0, source),
        memory_limits=Known({}, source),
    )  # fmt: skip
