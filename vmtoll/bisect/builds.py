"""Get the sources of a candidate and build it, once, on this machine."""

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from vmtoll.agent.protocol import Done
from vmtoll.bisect.store import slug
from vmtoll.machines.connection import AgentLine
from vmtoll.model.errors import AgentError, UserError, VmtollError
from vmtoll.model.inventory import Host
from vmtoll.shell import run

_DONE = ".vmtoll-built"
_HERE = Host("this machine", "client", {"ansible_connection": "local"})


class BuildError(VmtollError):
    """A candidate cannot be built: skip it."""


@dataclass(frozen=True)
class Builds:
    """The candidates' folders in `folder`."""

    folder: Path
    repository: Path | None  # whose commits they are
    command: str  # builds one of them
    limit_s: float

    def path(self, candidate: str) -> Path:
        """The folder of a candidate: its sources and its build."""
        return (self.folder / slug(candidate)).resolve()

    def log(self, candidate: str) -> Path:
        """What the build command printed."""
        return self.folder / f"{slug(candidate)}.log"

    def filled(self, command: str, candidate: str) -> str:
        """A command with `{candidate}` and `{folder}` replaced."""
        folder = shlex.quote(str(self.path(candidate)))
        return command.replace("{candidate}", shlex.quote(candidate)).replace("{folder}", folder)

    def ensure(self, candidate: str) -> None:
        """Build a candidate, unless it is built. Raises BuildError."""
        if self.repository is None and not self.command:
            return
        folder = self.path(candidate)
        if (folder / _DONE).exists():
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if self.repository is not None:
            self._check_out(self.repository, candidate, folder)
        if self.command:
            self._build(candidate, folder)
        (folder / _DONE).touch()

    def _check_out(self, repository: Path, commit: str, folder: Path) -> None:
        """Clone the repository, whose objects are shared, so that nothing changes in it."""
        try:
            run(["git", "clone", "-q", "--shared", "--no-checkout", repository.resolve(), folder])
            run(["git", "-C", folder, "checkout", "-q", "--detach", commit])
        except UserError as error:
            raise BuildError(f"cannot be checked out: {error}") from None

    def _build(self, candidate: str, folder: Path) -> None:
        """Run the command by an agent, which ends it if this process is killed."""
        line, command = AgentLine(_HERE), self.filled(self.command, candidate)
        argv = ["sh", "-c", f"cd {shlex.quote(str(folder))} && {{ {command}\n}}"]
        try:
            line.open()
            done: Done = line.call("exec", self.limit_s + 30, argv=argv, limit_s=self.limit_s)
        except AgentError as error:
            raise BuildError(f"does not build: {error}") from error
        finally:
            line.close()
        printed = f"$ {command}\n{done['stdout']}{done['stderr']}"
        self.log(candidate).write_text(printed, encoding="utf-8")
        if done["timed_out"]:
            raise BuildError(f"does not build within {self.limit_s:g} s; see {self.log(candidate)}")
        if done["exit_status"]:
            raise BuildError(f"does not build (exit code {done['exit_status']}); see {self.log(candidate)}")
