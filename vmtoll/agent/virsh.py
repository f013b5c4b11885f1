"""Ask libvirt, or another program that runs guests, on this machine."""

from __future__ import annotations

import os
import subprocess

_LIMIT_S = 20.0


class CommandError(RuntimeError):
    """A command that failed: `reason` is what it said last."""

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(f"{label}: {reason}")
        self.reason = reason


def run(argv: list[str], label: str = "", harmless_error: str = "") -> str:
    """Return a command's output. Raises CommandError when it fails, except for `harmless_error`, or does not answer.

    `label`: the command's name in that message.
    """
    label = label or " ".join(argv)
    try:
        done = subprocess.run(
            argv, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(label, f"no answer within {error.timeout:g} s") from error
    except OSError as error:
        raise CommandError(label, f"{argv[0]}: {error.strerror}") from error
    if done.returncode and not (harmless_error and harmless_error in done.stderr):
        raise CommandError(label, _reason(done.stderr.strip() or done.stdout.strip()))
    return done.stdout.strip("\n")


def _reason(printed: str) -> str:
    """What a program gives as the reason: virsh says first what failed, and last why."""
    lines = [line for line in printed.splitlines() if "fails to validate" not in line] or [printed]
    return " ".join("\n".join(lines).rpartition("error: ")[2].rpartition("error : ")[2].split())[:300]


def called(domain: str) -> list[str]:
    """The words by which virsh takes a domain's name, which may look like an option."""
    return ["--domain", domain] if domain.startswith("-") else [domain]


def virsh(uri: str, verb: str, *words: str, harmless_error: str = "") -> str:
    """Return virsh's output. Raises CommandError; see run."""
    label = " ".join(["virsh", verb, *(word for word in words if not word.startswith("--"))])
    return run(["virsh", "-c", uri, verb, *words], label, harmless_error)


def virsh_or_nothing(uri: str, verb: str, *words: str) -> str:
    """Return virsh's output; empty if it fails: a missing tool only means a missing fact."""
    try:
        return virsh(uri, verb, *words)
    except CommandError:
        return ""


def names(uri: str, *words: str) -> list[str]:
    """The names that `virsh list` prints, which may have blanks. Raises CommandError."""
    return [line for line in virsh(uri, "list", "--name", *words).splitlines() if line]
