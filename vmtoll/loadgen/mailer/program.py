"""Runs on the client: users who submit or read mail, one session after the other, over STARTTLS with a password.

`python3 program.py load.json` writes `requests.log`, a line for each session: start and duration in µs, and 1 if it
succeeded, else 0. With `rate_rps` both count from when the session was due. Uses only the standard library of Python
3.9, because it is sent to the client as text.
"""

from __future__ import annotations

import hashlib
import imaplib
import json
import poplib
import smtplib
import ssl
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

# No client in the lab verifies certificates: each machine makes its own.
_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_TLS.check_hostname = False
_TLS.verify_mode = ssl.CERT_NONE
_MAILBOXES = 10


class MailLoad(TypedDict):
    """The content of load.json: a vmtoll.loadgen.MailLoad."""

    host: str
    port: int
    protocol: str
    domain: str
    requests: int
    users: int
    message_bytes: int
    tag: str
    password: str
    body_sha256: str
    timeout_s: float
    rate_rps: float | None


def _user(load: MailLoad, number: int) -> str:
    return f"user{number % _MAILBOXES}@{load['domain']}"


def submission(load: MailLoad, number: int) -> None:
    """Submit one message to another user's mailbox."""
    to, sender = _user(load, number + 1), _user(load, number)
    lines = "x" * 76 + "\r\n"
    body = (lines * (load["message_bytes"] // len(lines) + 1))[: load["message_bytes"]]
    head = f"From: <{sender}>\r\nTo: <{to}>\r\nSubject: {number}\r\nMessage-Id: <{number}@{load['tag']}>\r\n"
    with smtplib.SMTP(load["host"], load["port"], local_hostname=load["tag"], timeout=load["timeout_s"]) as session:
        session.starttls(context=_TLS)
        session.login(sender, load["password"])
        session.sendmail(sender, [to], f"{head}\r\n{body}")


def imap(load: MailLoad, number: int) -> None:
    """Fetch one message from the user's inbox."""
    session = imaplib.IMAP4(load["host"], load["port"], timeout=load["timeout_s"])
    try:
        session.starttls(_TLS)
        session.login(_user(load, number), load["password"])
        _, (message_count, *_) = session.select("INBOX", readonly=True)
        message_number = number // _MAILBOXES % int(message_count or 0) + 1
        _, (answer, *_) = session.fetch(str(message_number), "(BODY.PEEK[TEXT])")
        _check_body(load, bytes(answer[1]) if isinstance(answer, tuple) else b"")
    finally:
        session.logout()


def pop3(load: MailLoad, number: int) -> None:
    """Fetch one message from the user's inbox and leave it there."""
    session = poplib.POP3(load["host"], load["port"], timeout=load["timeout_s"])
    try:
        session.stls(_TLS)
        session.user(_user(load, number))
        session.pass_(load["password"])
        message_count, _ = session.stat()
        _, lines, _ = session.retr(number // _MAILBOXES % message_count + 1)
        _check_body(load, b"\n".join(lines[lines.index(b"") + 1 :]) + b"\n")
    finally:
        session.quit()


def _check_body(load: MailLoad, body: bytes) -> None:
    """Raise ValueError if the body is not the page put into the mailbox; a newline may have been added at its end."""
    text = body.replace(b"\r\n", b"\n")
    if load["body_sha256"] not in {hashlib.sha256(t).hexdigest() for t in (text, text.rstrip(b"\n"))}:
        raise ValueError(f"a body of {len(text)} bytes is not the one that was put there")


def main(load: MailLoad) -> None:
    protocols: dict[str, Callable[[MailLoad, int], None]] = {"submission": submission, "imap": imap, "pop3": pop3}
    session, numbers, numbers_lock = protocols[load["protocol"]], iter(range(load["requests"])), threading.Lock()
    log: list[str] = []
    errors: list[str] = []

    def run_user() -> None:
        while True:
            with numbers_lock:
                number = next(numbers, None)
            if number is None:
                return
            if interval_s:
                time.sleep(max(0.0, first_s + number * interval_s - time.monotonic()))
            sent_at_s, begin_s, succeeded = time.time(), time.monotonic(), 1
            late_s = max(0.0, begin_s - first_s - number * interval_s) if interval_s else 0.0
            sent_at_s, begin_s = sent_at_s - late_s, begin_s - late_s
            try:
                session(load, number)
            except (OSError, ValueError, smtplib.SMTPException, imaplib.IMAP4.error, poplib.error_proto) as error:
                errors.append(f"{type(error).__name__}: {error}")
                succeeded = 0
            log.append(f"{sent_at_s * 1e6:.0f} {(time.monotonic() - begin_s) * 1e6:.0f} {succeeded}\n")

    rate_rps, first_s = load.get("rate_rps"), time.monotonic()
    interval_s = 1 / rate_rps if rate_rps else 0.0
    users = [threading.Thread(target=run_user) for _ in range(load["users"])]
    for user in users:
        user.start()
    for user in users:
        user.join()
    Path("requests.log").write_text("".join(log), encoding="utf-8")
    print(f"{len(log)} sessions, {len(errors)} failed")
    for error in dict.fromkeys(errors[:100]):
        print(error, file=sys.stderr)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
