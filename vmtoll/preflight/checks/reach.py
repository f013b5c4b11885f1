"""Every machine answers, as root, and has Python; each obstacle has its own message."""

import dataclasses
import subprocess
from collections.abc import Iterator, Sequence

from vmtoll.machines.connection import AgentLine, diagnose_ssh
from vmtoll.model.inventory import Host
from vmtoll.preflight.lab import Lab
from vmtoll.preflight.result import CheckResult, fail, ok

ORDER = 20
_SSH_FAILED = 255
_LIMIT_S = 180.0
_OLDEST = (3, 9)


def check(lab: Lab) -> Iterator[CheckResult]:
    """Try SSH, sudo and Python, then start the agent that all other checks use."""
    yield from lab.on_each(lab.hosts, lambda host: _connect(lab, host))


def _connect(lab: Lab, host: Host) -> Iterator[CheckResult]:
    without_sudo = dataclasses.replace(host, variables={**host.variables, "ansible_become": False})
    ssh_argv, become_argv, python = without_sudo.argv()[:-1], host.argv()[:-1], host.argv()[-1]
    if not host.is_local and (done := _run([*ssh_argv, "true"])).returncode:
        problem, advice = diagnose_ssh(host, done.stderr)
        provision_hint = "if it has not been made yet, `vmtoll provision` does it; else " if host.is_made else ""
        yield fail(host.name, problem, _sentence(provision_hint + advice))
        return
    if become_argv != ssh_argv and (done := _run([*become_argv, "true"])).returncode:
        yield fail(
            host.name, f"sudo does not work without a password: {_last_line(done)}", "Allow it: NOPASSWD in sudoers."
        )
        return
    program = "import os,sys;print(os.geteuid(),*sys.version_info[:2])"
    done = _run([*become_argv, python, "-c", program if host.is_local else f"'{program}'"])
    if done.returncode:
        advice = "Install python3, or correct ansible_python_interpreter."
        yield fail(host.name, f"{python} does not run: {_last_line(done)}", advice)
        return
    user, *version = (int(word) for word in done.stdout.split())
    release = ".".join(map(str, version))
    if tuple(version) < _OLDEST:
        advice = "Install Python 3.9 or newer and name it in ansible_python_interpreter."
        yield fail(host.name, f"{python} is Python {release}", advice)
        return
    if user != 0:
        user_name = host.ansible.user or "the user"
        yield fail(host.name, f"{user_name} is not root there", "Set ansible_become: true, or ansible_user: root.")
        return
    line = AgentLine(host)
    line.open(_LIMIT_S)
    lab.lines[host.name] = line
    yield ok(host.name, f"root by {'local connection' if host.is_local else 'SSH'}, Python {release}")


def _run(argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, _SSH_FAILED, "", f"no answer within {_LIMIT_S:g} s")
    except OSError as error:
        return subprocess.CompletedProcess(argv, 127, "", str(error))


def _last_line(done: "subprocess.CompletedProcess[str]") -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."
