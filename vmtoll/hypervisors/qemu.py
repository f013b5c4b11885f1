"""The adapter for guests that plain QEMU runs: the process and its QMP socket."""

from collections.abc import Iterable
from typing import Any

from qemu.qmp import ExecuteError

from vmtoll.agent.protocol import GuestAddress, Process
from vmtoll.hypervisors import qmp
from vmtoll.hypervisors.base import Guest, Line, output_on
from vmtoll.hypervisors.command_line import CommandLine, config_files, parse_command_line, valueless
from vmtoll.hypervisors.guest_config import GuestConfig
from vmtoll.hypervisors.qemu_config import guest_of_line
from vmtoll.hypervisors.record import definition_xml
from vmtoll.model.errors import AgentError

# Queries for a guest's state; older versions of QEMU lack some.
QUERIES = ("query-kvm", "query-status", "query-cpus-fast", "query-block", "query-version", "query-target",
           "query-memdev", "query-memory-size-summary")  # fmt: skip
_UNATTACHED = "/machine/unattached"


def read_line(host: Line, process: Process) -> CommandLine:
    """The command line of a process, with the files that it names, parsed by the list of options of its own program."""
    argv, folder = process["argv"], f"/proc/{process['pid']}"
    listed = output_on(host, [f"{folder}/exe", "-help"])["stdout"]
    files = dict[str, str]()
    for path in config_files(argv):
        done = output_on(host, ["cat", f"{folder}/root{path}" if path.startswith("/") else f"{folder}/cwd/{path}"])
        files |= {path: done["stdout"]} if not done["exit_status"] else {}
    return parse_command_line(argv, valueless(listed), files)


def ask_monitor(host: Line, line: CommandLine, flags: Iterable[str] = ()) -> tuple[dict[str, Any], str]:
    """Answers of QEMU's monitor by query; and why there are none, else empty. `flags`: CPU features to ask for, by
    QEMU's names. Further keys: `networks` (the text of `info network`), `unattached` (types of the machine's own
    devices), `types` (of disks, by path), `cpu-type` and `cpu-flags` (of the first virtual CPU).
    """
    if not line.qmp_sockets:
        return {}, "its command line names no QMP socket"
    try:
        return _answers(host, line.qmp_sockets[0], list(flags)), ""
    except AgentError as error:
        return {}, str(error)


def _answers(host: Line, path: str, flags: list[str]) -> dict[str, Any]:
    info = ("human-monitor-command", {"command-line": "info network"})
    answers = qmp.ask_accepted(host.host, path, *QUERIES, info, ("qom-list", {"path": _UNATTACHED}))
    answers["networks"] = answers.pop("human-monitor-command", None)
    if (listed := answers.pop("qom-list", None)) is not None:
        answers["unattached"] = {child["type"].removeprefix("child<").removesuffix(">") for child in listed}
    cpu = next((cpu["qom-path"] for cpu in answers.get("query-cpus-fast") or ()), None)
    disks = [entry["qdev"] for entry in answers.get("query-block") or () if entry.get("qdev", "").startswith("/")]
    questions = [("qom-get", {"path": disk, "property": "type"}) for disk in disks]
    questions += [("qom-get", {"path": cpu, "property": name}) for name in ("type", *flags)] if cpu else []
    found = (
        [None if isinstance(a, ExecuteError) else a for a in qmp.ask(host.host, path, *questions)] if questions else []
    )
    answers["types"] = dict(zip(disks, found, strict=False))
    of_cpu = found[len(disks) :]
    if of_cpu and of_cpu[0]:
        answers["cpu-type"] = of_cpu[0]
        answers["cpu-flags"] = {name: value for name, value in zip(flags, of_cpu[1:], strict=True) if value is not None}
    return answers


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

    def config(self) -> GuestConfig:
        """What it is, by its monitor, its process and its command line."""
        process = self.process()
        return guest_of_line(read_line(self.host, process), self.name, process, _answers(self.host, self.socket, []))

    def definition(self) -> str:
        return definition_xml(self.config())

    def _execute(self, command: str) -> Any:
        return qmp.ask_one(self.host.host, self.socket, command)
