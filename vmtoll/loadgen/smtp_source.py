"""smtp-source, Postfix's own load generator: concurrent sessions, each message over its own connection.

Like a foreign mail server, it speaks plain SMTP without a password, to each mailbox in turn (`-N`). It stops at the
first unexpected reply, counts accepted messages (`-c`) and logs no times. Its Message-Ids end in the name that it is
given (`-M`), which distinguishes the messages of one load from all others.
"""

import re

from vmtoll.loadgen.base import Adapter, Command, MailLoad, Output, ToolResult, last_words, raise_if_killed
from vmtoll.model.errors import ToolError

# The last digit of the number before or after it picks a mailbox (server-builds/postfix-dovecot/aliases.j2).
_TO = "load"


def command(load: MailLoad) -> Command:
    """smtp-source, one process that multiplexes its sessions."""
    argv = ["smtp-source", "-4", "-c", "-N", "-s", str(load.users), "-m", str(load.requests)]
    argv += ["-l", str(load.message_bytes), "-M", load.tag, "-f", f"user0@{load.domain}", "-t", f"{_TO}@{load.domain}"]
    return Command(argv=[*argv, f"inet:{load.host}:{load.port}"], files={})


def parse(load: MailLoad, output: Output) -> ToolResult:
    """Read the counter of accepted messages; the planned rest counts as failed.

    Raises ToolError if smtp-source failed before the first message was accepted, was killed, or ended well with another
    count than planned.
    """
    raise_if_killed(output, "smtp-source")
    counts = [int(number) for number in re.findall(r"\d+", output.stdout)]
    accepted = counts[-1] if counts else 0
    if output.exit_status and not accepted:
        raise ToolError(f"smtp-source: ended with {output.exit_status}; {last_words(output)}")
    if not output.exit_status and accepted != load.requests:
        raise ToolError(f"smtp-source: exit code 0, but it counted {accepted} of {load.requests} messages")
    return ToolResult(
        transactions=accepted,
        successful=accepted,
        failed=load.requests - accepted,
        elapsed_s=0.0,
        transferred_mb=accepted * load.message_bytes / 1e6,
        availability_pct=100 * accepted / load.requests,
    )


TOOL = Adapter(
    command=command,
    parse=parse,
    package="postfix",
    masked_units=("postfix.service", "postfix@-.service"),
    mail_protocols=("smtp",),
    refused_for_tails="it sends mail",
    one_page=True,
    tick_s=1.0,
    lockstep=True,
)
