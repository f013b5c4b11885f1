"""Whether a machine is up: no longer booting, which would disturb a trial, and not on its way down."""

import contextlib

from workloads.runner.errors import AgentError, HostLostError
from workloads.runner.transport import AgentLine

BOOT_S = 120.0


def wait_until_booted(line: AgentLine) -> None:
    """Wait until systemd has ended the boot; where there is no systemd there is nothing to wait for.

    Raises HostLostError when the machine is lost, or about to be because it shuts down; its line is given up then.
    """
    with contextlib.suppress(AgentError):
        asked = ["systemctl", "is-system-running", "--wait"]
        said = line.call("exec", BOOT_S + 10, argv=asked, limit_s=BOOT_S)
        # Of a machine that goes down the bus goes first: in the midst of an answer (unknown), then for good.
        if said["stdout"].strip() in ("stopping", "unknown") or "Connection refused" in said["stderr"]:
            line.give_up("it is shutting down")
            raise HostLostError(f"{line.host.name}: it is shutting down")
