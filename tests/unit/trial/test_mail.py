"""Mail, without a mail server: mailboxes are filled and counted, lost messages noticed, workloads checked. The real
stack runs in tests/lab/test_mail_stack.py and test_mail_run.py."""

import base64
import getpass
import hashlib
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.machines import MAIL_SERVER, Rewrite
from vmtoll.agent import mail as inside
from vmtoll.agent.protocol import MailSpec
from vmtoll.model.errors import ExperimentError
from vmtoll.model.finding import FINDINGS, Code, Finding, Role, Validity
from vmtoll.model.trial import Counts
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load
from vmtoll.trial import gates

# As Postfix wrote it.
LOG = """\
Nov 21 15:40:40 mail postfix/cleanup[2943]: 4jWxHX2wH1z1TBsD: message-id=<0b84.0003.00c3@{tag}>
Nov 21 15:40:40 mail postfix/cleanup[2943]: 4jWxHX2nsDz1TBn1: message-id=<0b84.0005.00c3@another>
Nov 21 15:40:40 mail postfix/lmtp[2935]: 4jWxHX2wH1z1TBsD: to=<user5@vmail.test>, orig_to=<5load@vmail.test>, \
relay=mail.vmail.test[private/dovecot-lmtp], delay=0.11, delays=0.02/0.0007/0.042/0.052, dsn=2.0.0, \
status=sent (250 2.0.0 <user5@vmail.test> vPRWG3i7AWuOCwAAg+zDdQ Saved)
Nov 21 15:40:40 mail postfix/lmtp[2933]: 4jWxHX2nsDz1TBn1: to=<user2@vmail.test>, orig_to=<2load@vmail.test>, \
relay=mail.vmail.test[private/dovecot-lmtp], delay=0.14, delays=0.009/0.00026/0.0085/0.12, dsn=2.0.0, \
status=sent (250 2.0.0 <user2@vmail.test> GGsZGHi7AWt0CwAAg+zDdQ Saved)
"""


@pytest.fixture
def mail(tmp_path: Path) -> MailSpec:
    """A mail server's folders, and nothing that runs."""
    for folder in (*inside.QUEUES, "mailboxes"):
        (tmp_path / folder).mkdir()
    (tmp_path / "log").write_text(LOG.format(tag="measured"))
    return {
        "domain": "vmail.test",
        "users": 3,
        "greets": [],
        "owner": getpass.getuser(),
        "configuration": str(tmp_path / "configuration"),
        "accounts": str(tmp_path / "accounts"),
        "mailboxes": str(tmp_path / "mailboxes"),
        "queue": str(tmp_path),
        "log": str(tmp_path / "log"),
    }


def deliver(mail: MailSpec, name: str, message_id: str) -> Path:
    path = Path(mail["mailboxes"], "user1", "Maildir", "new", name)
    path.write_text(f"Received: by a server\nMessage-Id: {message_id}\n\nMessage-Id: <in the body@measured>\n")
    return path


def test_every_user_has_the_password_and_as_many_messages(mail: MailSpec) -> None:
    inside.prepare(mail, "a password", 2, "<p>a page</p>\n")
    lines = Path(mail["accounts"]).read_text().splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"user{n}@vmail.test" for n in range(3)]
    raw = base64.b64decode(lines[0].partition("{SSHA256}")[2].partition(":")[0])
    assert hashlib.sha256(b"a password" + raw[32:]).digest() == raw[:32]
    held = sorted(Path(mail["mailboxes"]).glob("*/Maildir/new/*"))
    assert len(held) == 6
    assert held[0].read_text().endswith("\n\n<p>a page</p>\n")
    assert Path(mail["log"]).read_text() == ""
    inside.prepare(mail, "another", 0, None)
    assert (
        not list(Path(mail["mailboxes"]).glob("*/Maildir/new/*"))
        and "another" not in Path(mail["accounts"]).read_text()
    )


def test_only_the_messages_of_the_load_are_counted_with_their_delays(mail: MailSpec) -> None:
    inside.prepare(mail, "", 1, "")
    Path(mail["log"]).write_text(LOG.format(tag="measured"))
    deliver(mail, "1", "<0b84.0003.00c3@measured>")
    deliver(mail, "2", "<0b84.0005.00c3@another>")
    seen = inside.count_delivered(mail, "measured")
    assert seen == {"found": 1, "distinct": 1, "delays_us": [110_000]}
    deliver(mail, "3", "<0b84.0003.00c3@measured>")
    assert inside.count_delivered(mail, "measured") == {**seen, "found": 2}


def test_a_delivery_missing_from_the_log_is_an_error(mail: MailSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "_LOG_LIMIT_S", 0.0)
    inside.prepare(mail, "", 0, None)
    deliver(mail, "1", "<1@measured>")
    with pytest.raises(RuntimeError, match="0 deliveries, 1 are in mailboxes"):
        inside.count_delivered(mail, "measured")


def test_messages_left_in_the_queue_are_counted(mail: MailSpec) -> None:
    assert inside.drain(mail, 1.0)["left"] == 0
    waiting = Path(mail["queue"], "deferred", "4", "4jWxHX2wH1z1TBsD")
    waiting.parent.mkdir()
    waiting.touch()
    assert inside.drain(mail, 0.05)["left"] == 1
    shutil.rmtree(waiting.parent)
    assert inside.drain(mail, 1.0)["left"] == 0


def test_lost_and_doubled_messages_void_a_trial() -> None:
    well = Counts(messages_accepted=9, messages_delivered=9, messages_lost=0, messages_doubled=0)
    assert gates.lost_mail(well) == []
    for fault in (replace(well, messages_lost=1), replace(well, messages_doubled=1)):
        assert gates.lost_mail(fault) == [Finding(Code.LOST_MAIL, 1, 0, Role.PRIMARY)]
    assert FINDINGS[Code.LOST_MAIL].severity is Validity.INVALID


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"protocol": "imap"}, "tool: smtp_source does not speak imap; allowed: mailer"),
        ({"tool": "siege"}, "tool: siege does not speak smtp; allowed: smtp_source"),
        (
            {"kind": "closed", "protocol": None, "keep_alive": False},
            "tool: smtp_source is for `kind: mail`; allowed: ab, ",
        ),
        ({"users": 11}, "users: 11: must be less than or equal to 10"),
        ({"crosscheck": "mailer"}, "crosscheck: a mail workload has none"),
        ({"page": "no-such-page.html"}, "page: unknown page 'no-such-page.html'"),
    ],
)
def test_a_mail_workload_that_cannot_be_is_refused(
    project: Registry, rewrite: Rewrite, keys: dict[str, Any], said: str
) -> None:
    workload = {"description": "mail", "kind": "mail", "protocol": "smtp", "site": "tiny", "tool": "smtp_source"}
    path = project.workload_file("mail")
    said_of_it = {**workload, "users": 5, "page": "000.html", **keys}
    path.write_text(yaml.safe_dump({key: value for key, value in said_of_it.items() if value is not None}))
    project.server_file("lighttz").write_text(MAIL_SERVER)
    with pytest.raises(ExperimentError, match=re.escape(f"{path}: {said}")):
        load(rewrite(workloads=["mail"]), project)


def test_a_web_tool_sends_no_pages_to_a_mail_server(project: Registry, rewrite: Rewrite) -> None:
    project.server_file("lighttz").write_text(MAIL_SERVER)
    with pytest.raises(ExperimentError, match=r"servers: lighttz .*mail, .*tiny .*pages"):
        load(rewrite(), project)
