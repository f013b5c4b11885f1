"""libvirt's domains on this machine: paused and resumed. One that is so already is left so."""

from __future__ import annotations

import contextlib
import subprocess


class Domains:
    """Domains that this agent has paused."""

    def __init__(self) -> None:
        self.paused: set[tuple[str, str]] = set()

    def pause(self, domain: str, uri: str) -> None:
        """Stop a domain's CPUs. Raises RuntimeError when libvirt does not."""
        virsh(uri, "suspend", domain)
        self.paused.add((domain, uri))

    def resume(self, domain: str, uri: str) -> None:
        """Let it go on. Raises RuntimeError when libvirt does not."""
        virsh(uri, "resume", domain)
        self.paused.discard((domain, uri))

    def resume_left(self, domain: str, uri: str) -> None:
        """Let a domain go on that is paused. Raises RuntimeError when libvirt does not."""
        if virsh(uri, "domstate", domain) == "paused":
            virsh(uri, "resume", domain)

    def close(self) -> None:
        for domain, uri in list(self.paused):
            with contextlib.suppress(RuntimeError):
                self.resume(domain, uri)


def virsh(uri: str, verb: str, domain: str) -> str:
    """Return virsh's output. Raises RuntimeError with its message when it fails or does not answer.

    To resume a domain that runs is no failure: another process may have done so since it was seen paused.
    """
    argv = ["env", "LC_ALL=C", "virsh", "-c", uri, verb, domain]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"virsh {verb} {domain}: {error}") from error
    if done.returncode and "already running" not in done.stderr:
        raise RuntimeError(f"virsh {verb} {domain}: {' '.join((done.stderr or done.stdout).split())[:300]}")
    return done.stdout.strip()
