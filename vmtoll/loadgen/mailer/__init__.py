"""mailer: users who submit mail over TLS with a password, or read it over IMAP or POP3.

vmtoll's own tool, built on Python's smtplib, imaplib and poplib, because no packaged one does this: smtp-source has
neither TLS nor passwords, swaks sends one message, postal and rabid run for minutes, not for a number of messages.
"""

import json
from dataclasses import asdict
from pathlib import Path

from vmtoll.loadgen.base import Adapter, Command, MailLoad, Output, ToolResult, integers, last_words, raise_if_killed
from vmtoll.model.errors import ToolError

_LOG = "requests.log"
_PROGRAM = Path(__file__).with_name("program.py")


def command(load: MailLoad) -> Command:
    """The program, with the load as JSON; its users are threads, which share one core."""
    files = {"program.py": _PROGRAM.read_text(encoding="utf-8"), "load.json": json.dumps(asdict(load))}
    return Command(argv=["python3", "program.py", "load.json"], files=files, outputs=[_LOG])


def parse(load: MailLoad, output: Output) -> ToolResult:
    """Read the log of all sessions. Raises ToolError if it does not hold the planned number."""
    raise_if_killed(output, "mailer")
    log = integers(output.files.get(_LOG, b""), 3, "mailer")
    if output.exit_status or len(log) != load.requests:
        raise ToolError(f"mailer: made {len(log)} of {load.requests} sessions; {last_words(output)}")
    successful = int(log[:, 2].sum())
    answered = log[:, 2] == 1 if load.rate_rps else slice(None)
    elapsed_us = int((log[:, 0] + log[:, 1]).max() - log[:, 0].min())
    return ToolResult(
        transactions=successful,
        successful=successful,
        failed=len(log) - successful,
        elapsed_s=elapsed_us / 1e6,
        transferred_mb=successful * load.message_bytes / 1e6,
        availability_pct=100 * successful / len(log),
        latencies_us=log[answered, 1],
        sent_us=log[answered, 0],
    )


TOOL = Adapter(
    command=command,
    parse=parse,
    package="python3",
    mail_protocols=("submission", "imap", "pop3"),
    refused_for_tails="it sends and reads mail",
    one_page=True,
    tick_s=1e-6,
    lockstep=True,
)
