"""The adapter for guests that plain QEMU runs: the process and its QMP socket."""

from typing import Any

from vmtoll.agent.protocol import GuestAddress
from vmtoll.hypervisors import qmp
from vmtoll.hypervisors.base import Guest
from vmtoll.hypervisors.command_line import parse_command_line
from vmtoll.hypervisors.definition import Definition, live_of, of_command_line
from vmtoll.model.errors import AgentError

# Queries for a guest's state; older versions of QEMU lack some.
QUERIES = ("query-kvm", "query-status", "query-cpus-fast", "query-block", "query-version")


class QemuGuest(Guest):
    """A QEMU process with a QMP socket."""

    @property
    def socket(self) -> str:
        """Path of the QMP socket on the host."""
        return str(self.guest.vars.qmp_socket)

    @property
    def address(self) -> GuestAddress:
        return {"kind": "qemu", "name": self.name, "socket": self.socket, "unit": self.guest.vars.unit or ""}

    def pause(self) -> None:
        """Stop its virtual CPUs. The agent records it first, and resumes the guest if the runner is gone."""
        self.host.call("note_paused", guest=self.address)
        try:
            self._execute("stop")
        except AgentError:
            self.host.call("forget_paused", guest=self.address)
            raise

    def resume(self) -> None:
        self._execute("cont")
        self.host.call("forget_paused", guest=self.address)

    def start_command(self) -> list[str]:
        if unit := self.guest.vars.unit:
            return ["systemctl", "start", unit]
        raise AgentError(
            f"{self.guest.name}: no variable says what starts it; set vmtoll_unit, or vmtoll_revive to the commands"
        )

    def power_off(self) -> None:
        self._execute("quit")

    def is_off(self) -> bool:
        return self.host.call("process", guest=self.address) is None

    def shut_down(self) -> None:
        self._execute("system_powerdown")

    @property
    def missing(self) -> str:
        return f"no QEMU process listens on {self.socket}"

    def version(self) -> str:
        """`QEMU 7.2.22`."""
        numbers = self._execute("query-version")["qemu"]
        return f"QEMU {numbers['major']}.{numbers['minor']}.{numbers['micro']}"

    def threads(self) -> list[int]:
        """Thread IDs of its virtual CPUs, in the order of their numbers."""
        return [cpu["thread-id"] for cpu in self._execute("query-cpus-fast")]

    def answers(self) -> dict[str, Any]:
        """Answers of QEMU's monitor, by query."""
        return qmp.ask_accepted(self.host.host, self.socket, *QUERIES)

    def definition(self) -> Definition:
        """Its definition, from the command line and the state of the running process."""
        process, answers = self.process(), self.answers()
        return of_command_line(
            parse_command_line(process["argv"]), self.name, live_of(process, process["online"], answers)
        )

    def _execute(self, command: str) -> Any:
        return qmp.ask_one(self.host.host, self.socket, command)
