"""Fill, empty and inspect a mail server on its own machine: accounts, queue and mailboxes.

`mail` is the value of that key in the server's description (docs/reference/machines.md).
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from vmtoll.agent.protocol import DeliveryCounts, MailSpec
from vmtoll.agent.servers import wait_until

QUEUES = ("maildrop", "incoming", "active", "deferred")
_HEAD_BYTES = 4096
# A separate process writes the log, and may lag behind the deliveries.
_LOG_LIMIT_S = 5.0
_GREETING_LIMIT_S = 60.0


def prepare(mail: MailSpec, password: str, messages: int, body: str | None) -> None:
    """Give every user this password and a mailbox with this number of messages; empty queue and log.

    Raises RuntimeError when a port of `greets` sends no greeting.
    """
    for port in mail["greets"]:
        wait_until(partial(_greets, port), _GREETING_LIMIT_S, f"port {port} is open, but nobody greets")
    _empty(mail)
    salt = os.urandom(8)
    digest = base64.b64encode(hashlib.sha256(password.encode() + salt).digest() + salt).decode()
    users = [f"user{n}" for n in range(mail["users"])]
    accounts = Path(mail["accounts"])
    accounts.write_text("".join(f"{user}@{mail['domain']}:{{SSHA256}}{digest}::::::\n" for user in users))
    for user in users:
        new = Path(mail["mailboxes"], user, "Maildir", "new")
        for folder in (new, new.with_name("cur"), new.with_name("tmp")):
            folder.mkdir(parents=True)
        for number in range(messages):
            (new / f"{number}.vmtoll").write_text(_message(f"{user}@{mail['domain']}", number, body or ""))
        for path in (new.parents[1], *new.parents[1].rglob("*")):
            shutil.chown(path, mail["owner"], mail["owner"])


def _greets(port: int) -> bool:
    """Return whether the server greets. The process it starts for the first client may take seconds and fail once."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_GREETING_LIMIT_S) as caller:
            return caller.recv(1) != b""
    except OSError:
        return False


def _message(to: str, number: int, body: str) -> str:
    head = f"From: <{to}>\nTo: <{to}>\nSubject: {number}\nMessage-Id: <{number}.{to}>\nMIME-Version: 1.0\n"
    return f"{head}Content-Type: text/html; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n{body}"


def _empty(mail: MailSpec) -> None:
    if queue_length(mail):
        subprocess.run(
            ["postsuper", "-c", mail["configuration"], "-d", "ALL"], capture_output=True, timeout=60, check=True
        )
    for user in Path(mail["mailboxes"]).iterdir():
        shutil.rmtree(user)
    log = Path(mail["log"])
    if log.exists():
        os.truncate(log, 0)


def queue_length(mail: MailSpec) -> int:
    """Number of messages that the server has accepted and not yet delivered or bounced."""
    return sum(len(files) for queue in QUEUES for _, _, files in os.walk(Path(mail["queue"], queue)))


def drain(mail: MailSpec, limit_s: float) -> dict[str, float]:
    """Wait until the queue is empty, at most `limit_s`; return the seconds waited and the messages left."""
    begin_s = time.monotonic()
    while (left := queue_length(mail)) and time.monotonic() - begin_s < limit_s:
        time.sleep(0.01)
    return {"waited_s": time.monotonic() - begin_s, "left": left}


def count_delivered(mail: MailSpec, tag: str) -> DeliveryCounts:
    """Count the messages whose Message-Id ends in `@<tag>`: `found`, all files; `distinct`, the different messages.

    `delays_us`: for each delivery, from the log, the time from the first accepted recipient to the mailbox. The server
    writes two significant digits of it. Raises RuntimeError when the log still lacks deliveries after 5 s.
    """
    ids = [i for path in _files(mail) if (i := _message_id(path)).endswith(f"@{tag}>")]
    deadline = time.monotonic() + _LOG_LIMIT_S
    while len(delays := _delays_us(mail, tag)) < len(set(ids)):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{mail['log']}: tells of {len(delays)} deliveries, {len(set(ids))} are in mailboxes")
        time.sleep(0.05)
    return {"found": len(ids), "distinct": len(set(ids)), "delays_us": delays}


def _files(mail: MailSpec) -> Iterator[Path]:
    for folder in ("new", "cur"):
        yield from Path(mail["mailboxes"]).glob(f"*/Maildir/**/{folder}/*")


def _message_id(path: Path) -> str:
    with path.open("rb") as handle:
        head = handle.read(_HEAD_BYTES).decode("utf-8", "replace")
    match = re.search(r"^message-id:\s*(<[^>\s]*>)", head.partition("\n\n")[0], re.IGNORECASE | re.MULTILINE)
    return match[1] if match else ""


def _delays_us(mail: MailSpec, tag: str) -> list[int]:
    queue_ids, delays = set(), []
    for line in Path(mail["log"]).read_text(encoding="utf-8", errors="replace").splitlines():
        queued_line = re.search(r"/cleanup\[\d+\]: (\w+): message-id=<[^>]*@([^>@]+)>", line)
        if queued_line and queued_line[2] == tag:
            queue_ids.add(queued_line[1])
        sent_line = re.search(r"/lmtp\[\d+\]: (\w+): .*\bdelay=([0-9.]+),.* status=sent ", line)
        if sent_line and sent_line[1] in queue_ids:
            delays.append(round(float(sent_line[2]) * 1e6))
    return delays
