"""Pause and resume libvirt's domains on this machine. It is no error if a domain is paused or runs already."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

# A file for each paused domain, with libvirt's URI: it remains when the agent is killed.
PAUSED = "run/vmtoll-paused"


class Domains:
    """Domains that this agent has paused. `root`: the folder that contains run."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.record = root / PAUSED
        self.paused: set[tuple[str, str]] = set()

    def pause(self, domain: str, uri: str) -> None:
        """Stop a domain's CPUs. Raises RuntimeError when libvirt does not."""
        self.record.mkdir(parents=True, exist_ok=True)
        (self.record / domain).write_text(uri, encoding="utf-8")
        try:
            virsh(uri, "suspend", domain)
        except RuntimeError:
            (self.record / domain).unlink()
            raise
        self.paused.add((domain, uri))

    def resume(self, domain: str, uri: str) -> None:
        """Resume a domain. Raises RuntimeError when libvirt does not."""
        virsh(uri, "resume", domain)
        self.paused.discard((domain, uri))
        with contextlib.suppress(FileNotFoundError):
            (self.record / domain).unlink()

    def resume_left(self, domain: str, uri: str) -> None:
        """Resume a domain if it is paused. Raises RuntimeError when libvirt does not."""
        if virsh(uri, "domstate", domain) == "paused":
            self.resume(domain, uri)

    def close(self) -> None:
        for domain, uri in list(self.paused):
            with contextlib.suppress(RuntimeError):
                self.resume(domain, uri)


def virsh(uri: str, verb: str, domain: str) -> str:
    """Return virsh's output. Raises RuntimeError with its message when it fails or does not answer.

    Resuming a running domain is no failure: another process may have resumed it since it was seen paused.
    """
    argv = ["env", "LC_ALL=C", "virsh", "-c", uri, verb, domain]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"virsh {verb} {domain}: {error}") from error
    if done.returncode and "already running" not in done.stderr:
        raise RuntimeError(f"virsh {verb} {domain}: {' '.join((done.stderr or done.stdout).split())[:300]}")
    return done.stdout.strip()
