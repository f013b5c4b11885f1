"""A persistent line to the agent on one machine: requests out, answers in, a time limit on each."""

import itertools
import json
import queue
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from vmtoll import agent
from vmtoll.model.errors import AgentError, HostLostError
from vmtoll.model.inventory import SILENT_S, Host

# ssh's exit status when it could not log in, or was cut off; hardly any remote command ends with it.
_SSH_FAILED = 255
# The longest message of ssh is that a host key has changed.
_NOISE_LINES = 40

# Reads as many bytes as its first line says, makes a module of each source in them, and runs the last one's `main`.
_BOOTSTRAP = """\
import json, sys, types
b = sys.stdin.buffer
for name, text in json.loads(b.read(int(b.readline()))):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
module.main()
"""


@cache
def agent_modules() -> dict[str, str]:
    """The agent's modules: full name → source. Each stands after those that it imports; `main` is the last."""
    folder = Path(agent.__file__).parent
    sources = {path.stem: path.read_text("utf-8") for path in folder.glob("[!_]*.py")}
    imports = {name: set(re.findall(rf"^from {agent.__name__}\.(\w+) import", s, re.M)) for name, s in sources.items()}
    ordered = TopologicalSorter(imports | {"main": set(sources) - {"main"}}).static_order()
    return {f"{agent.__name__}.{name}": sources[name] for name in ordered}


def _program() -> bytes:
    """The agent's modules, as (name, source)."""
    return json.dumps(list(agent_modules().items())).encode()


class Pending:
    """An answer that has not come yet."""

    def __init__(self, line: "AgentLine", op: str) -> None:
        self.op = op
        self._line = line
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def deliver(self, reply: dict[str, Any]) -> None:
        self._answers.put(reply)

    def wait(self, timeout_s: float, watch: Sequence["AgentLine"] = ()) -> Any:
        """Wait for the answer; return its result.

        Raises AgentError when the agent reports a failure, HostLostError when this machine or one of `watch` is lost
        meanwhile, or when the answer does not come in time (the line is then given up: a machine that does not answer
        counts as lost).
        """
        deadline = time.monotonic() + timeout_s
        while True:
            for line in (self._line, *watch):
                if line.lost_because:
                    raise line.lost_error()
            try:
                reply = self._answers.get(timeout=max(0.0, min(0.1, deadline - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= deadline:
                    self._line.give_up(f"no answer to {self.op} within {timeout_s:g} s")
                continue
            if "lost" in reply:
                continue
            if "error" in reply:
                name = self._line.host.name
                raise AgentError(f"{name}: {self.op}: {reply['error']}", name)
            return reply.get("result")


class AgentLine:
    """One agent on one machine. `open` starts it, `call` asks it, `close` ends it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.lost_because = "not connected"
        self._process: subprocess.Popen[bytes] | None = None
        self._pending: dict[int, Pending] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._noise: list[str] = []

    def open(self, timeout_s: float = 60.0) -> None:
        """Start the agent and wait until it answers. Raises HostLostError, with advice if ssh could not log in."""
        self.close()
        argv = self.host.argv()
        words = ["-ISu", "-c", _BOOTSTRAP]  # isolated: a module that is not sent is not found, here either
        argv += words if self.host.is_local else [shlex.quote(w) for w in words]
        pipe = subprocess.PIPE
        program = _program()  # takes a while, in which ^C must find no ssh without an owner
        limit = threading.Timer(timeout_s, self.give_up, [f"no login within {timeout_s:g} s"])
        limit.daemon = True
        try:
            # ^C must reach only this process. If this process is killed, the kernel ends an ssh that `suspend` stopped,
            # because its process group is then orphaned; in its own session, ssh would keep its machine locked.
            process = subprocess.Popen(
                argv,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                start_new_session=self.host.is_local,
                process_group=None if self.host.is_local else 0,
            )
        except OSError as error:
            self.lost_because = f"{argv[0]} cannot be started: {error.strerror}"
            raise self.lost_error() from error
        self._process, self._pending, self._noise, self.lost_because = process, {}, [], ""
        threading.Thread(target=self._read_answers, args=(process,), daemon=True).start()
        threading.Thread(target=self._read_stderr, args=(process,), daemon=True).start()
        try:
            limit.start()
            self._write(b"%d\n" % len(program) + program)  # blocks until ssh has logged in and reads
            limit.cancel()
            self.call("hello", timeout_s, root=self.host.root, sandbox=self.host.sandbox)
        except HostLostError:
            if self.host.is_local or process.poll() != _SSH_FAILED:
                raise
            self.lost_because = ": ".join(diagnose_ssh(self.host.carrier or self.host, "\n".join(self._noise)))
            raise self.lost_error() from None
        except KeyboardInterrupt:
            self.give_up("interrupted")  # nothing there needs to clean up yet
            raise
        finally:
            limit.cancel()

    def ask(self, op: str, **args: Any) -> Pending:
        """Send a request; wait for its answer later. Raises HostLostError when the line is down."""
        if self.lost_because:
            raise self.lost_error()
        pending = Pending(self, op)
        number = next(self._ids)
        with self._lock:
            self._pending[number] = pending
        self._write(json.dumps({"id": number, "op": op, "args": args}).encode() + b"\n")
        return pending

    def call(self, op: str, timeout_s: float = 30.0, **args: Any) -> Any:
        """Ask and wait; see Pending.wait."""
        return self.ask(op, **args).wait(timeout_s)

    def lost_error(self) -> HostLostError:
        """The error of a line that is down."""
        return HostLostError(f"{self.host.name}: {self.lost_because}", self.host.name)

    def give_up(self, reason: str) -> None:
        """Mark the machine as lost and end the process that reaches it."""
        self.lost_because = self.lost_because or reason
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def suspend(self) -> None:
        """Stop the ssh to a machine that will be paused, so that ssh does not take the silence for a loss."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the ssh that `suspend` stopped, once the machine runs again."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and not self.host.is_local and self._process.poll() is None:
            self._process.send_signal(number)

    def close(self, grace_s: float = 25.0) -> None:
        """End the agent: close its input, so that it cleans up; kill it after `grace_s`."""
        process, self._process = self._process, None
        self.lost_because = self.lost_because or "closed"
        if process is None:
            return
        try:
            if process.stdin:
                process.stdin.close()
            process.wait(grace_s)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()

    def _write(self, data: bytes) -> None:
        process = self._process
        try:
            if process is None or process.stdin is None:
                raise OSError("closed")
            with self._lock:
                process.stdin.write(data)
                process.stdin.flush()
        except OSError as error:
            self.give_up(self._with_last_words(f"the line broke: {error}"))

    def _read_answers(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is None:
            return
        with process.stdout as stdout:
            for line in stdout:
                try:
                    reply = json.loads(line)
                except ValueError:
                    self._noise.append(line.decode("utf-8", "replace").strip())
                    continue
                with self._lock:
                    pending = self._pending.pop(reply["id"], None)
                if pending:
                    pending.deliver(reply)
        status = process.wait()
        if process is self._process:
            self.lost_because = self.lost_because or self._with_last_words(self._end_reason(status))
        with self._lock:
            waiting, self._pending = list(self._pending.values()), {}
        for pending in waiting:
            pending.deliver({"lost": True})

    def _end_reason(self, status: int) -> str:
        if status == _SSH_FAILED and not self.host.is_local:
            return f"the SSH connection was cut, or {self.host.ssh_host} was silent for {SILENT_S} s"
        return "the agent ended"

    def _read_stderr(self, process: subprocess.Popen[bytes]) -> None:
        if process.stderr is None:
            return
        with process.stderr as stderr:
            for line in stderr:
                self._noise = [*self._noise[1 - _NOISE_LINES :], line.decode("utf-8", "replace").strip()]

    def _with_last_words(self, reason: str) -> str:
        time.sleep(0.05)  # its last lines arrive on another pipe
        lines = [w for w in self._noise if w and not w.startswith("Warning: Permanently added")]
        return f"{reason} ({lines[-1]})" if lines else reason


# A pattern of ssh's message (its exit status is always 255), the problem, what to do.
_SSH_PROBLEMS = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key is not the one that is known for {address}",
        "if it was reinstalled, remove the old one with `ssh-keygen -R {address}`; if not, another machine answers",
    ),
    (
        "Host key verification failed",
        "the host key of {address} is not known here",
        "log in once by hand, `ssh {login}`, and compare the fingerprint",
    ),
    (
        "Permission denied",
        "it refuses the key of {user} ({key})",
        "put the public key into ~/.ssh/authorized_keys there, or correct ansible_user or ansible_ssh_private_key_file",
    ),
    (
        "Could not resolve hostname",
        "a name does not resolve ({last})",
        "correct ansible_host in the inventory, or the names in ssh's configuration",
    ),
    ("Connection refused", "nothing listens on port {port} of {address}", "start sshd there, or correct ansible_port"),
    (
        "Too many authentication failures",
        "ssh offered more keys than {address} tries",
        "name the right one in ansible_ssh_private_key_file, and set IdentitiesOnly for it in ssh's configuration",
    ),
    (
        "kex_exchange_identification|Connection (?:closed|reset)|banner exchange",
        "{address} ended the connection before the login ({last})",
        "see the log of its sshd: MaxStartups, AllowUsers, a jump host, or a ban such as fail2ban's",
    ),
    (
        "timed out|No route to host|is unreachable|no answer within|no login within|proxy dialer did not pass",
        "nothing answers at {address}, port {port} ({last})",
        "see that it is switched on, that ansible_host is its address and that no firewall is between",
    ),
)
_OTHER = ("ssh failed: {last}", "try it by hand: `ssh {login}`")


def diagnose_ssh(host: Host, printed: str) -> tuple[str, str]:
    """(problem, what to do), from ssh's stderr; neither ends in a period."""
    address, user = host.ssh_host, host.ansible.user
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    fields = {
        "address": address,
        "port": host.ansible.port or 22,
        "user": user or "this user",
        "login": f"{user}@{address}" if user else address,
        "key": host.ansible.ssh_private_key_file or "the one that ssh chooses",
        "last": lines[-1] if lines else "no word from ssh",
    }
    diagnoses = (
        (problem, advice) for message, problem, advice in _SSH_PROBLEMS if re.search(message, printed, re.IGNORECASE)
    )
    problem, advice = next(diagnoses, _OTHER)
    return problem.format(**fields), advice.format(**fields)
