"""The mail stack as it was published in 2009, in real conversations from the client to metal."""

import imaplib
import json
import poplib
import smtplib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.mail_stack import SERVER, TLS, ManageSieve, Stack, stack_on
from tests.lab.the_lab import Ssh

pytestmark = pytest.mark.lab

MAILBOXES = "/var/lib/vmtoll-mail"
SETTINGS = f"/etc/vmtoll/servers/{SERVER}"


@pytest.fixture(scope="module")
def metal(lab: Path) -> Iterator[Stack]:
    with stack_on("metal") as stack:
        yield stack


def test_no_listener_takes_a_password_without_tls(metal: Stack) -> None:
    for port in (25, 587):
        with metal.smtp(port) as session:
            session.ehlo()
            assert not session.has_extn("auth"), f"port {port}"
            session.user, session.password = "user0@vmail.test", metal.password
            code, _ = session.docmd("AUTH PLAIN", session.auth_plain())
            assert code in {502, 503, 530}, f"port {port}"
    reader = imaplib.IMAP4("127.0.0.1", metal.ports[143], timeout=60)
    assert "LOGINDISABLED" in reader.capabilities and "AUTH=PLAIN" not in reader.capabilities
    with pytest.raises(imaplib.IMAP4.error, match="PRIVACYREQUIRED"):
        reader.login("user0@vmail.test", metal.password)
    reader.logout()
    popper = poplib.POP3("127.0.0.1", metal.ports[110], timeout=60)
    with pytest.raises(poplib.error_proto, match=r"(Plain|Clear)text authentication disallowed"):
        popper.user("user0@vmail.test")
    popper.quit()
    siever = ManageSieve(metal.ports[4190])
    assert '"SASL" ""' in siever.greeting
    assert siever.login("user0@vmail.test", metal.password).startswith("NO")


def test_inside_tls_the_right_password_is_taken_and_no_other(metal: Stack) -> None:
    for password in (metal.password, "a guess"):
        with smtplib.SMTP_SSL("127.0.0.1", metal.ports[465], context=TLS, timeout=60) as session:
            session.ehlo()
            session.user, session.password = "user0@vmail.test", password
            try:
                code, _ = session.auth("PLAIN", session.auth_plain)
            except smtplib.SMTPAuthenticationError as error:
                code = error.smtp_code
        assert code == (235 if password == metal.password else 535)
    with metal.smtp(587) as session:
        session.starttls(context=TLS)
        session.ehlo()
        assert session.docmd("MAIL", "FROM:<user0@vmail.test>")[0] == 250
        assert session.docmd("RCPT", "TO:<user1@vmail.test>")[0] == 554, "who submits must say who he is"


def test_mail_lies_in_a_maildir_and_is_read_by_imap_and_pop3(metal: Stack, ssh: Ssh) -> None:
    metal.submit("a body", "user1@vmail.test", "by submission")
    assert metal.settle() == 0
    found = ssh(
        "metal", f"grep -l 'Subject: by submission' {MAILBOXES}/user1/Maildir/new/* && stat -c %U {MAILBOXES}/*"
    )
    assert len([line for line in found.splitlines() if line.startswith(MAILBOXES)]) == 1
    assert set(found.splitlines()[1:]) == {"mail"}
    assert "by submission" in metal.subjects("user1@vmail.test")
    with metal.pop3("user1@vmail.test") as session:
        lines = session.retr(len(session.list()[1]))[1]
    assert b"Subject: by submission" in lines and lines[-1] == b"a body"


def test_a_folder_is_filled_only_where_its_owner_has_made_it(metal: Stack) -> None:
    metal.submit("text", "user2+ubuntu@vmail.test", "before")
    assert metal.settle() == 0
    assert "ubuntu" not in metal.folders("user2@vmail.test")
    assert metal.subjects("user2@vmail.test") == ["before"]
    with metal.imap("user2@vmail.test") as session:
        assert session.create("ubuntu")[0] == "OK"
    metal.submit("text", "user2+ubuntu@vmail.test", "after")
    assert metal.settle() == 0
    assert metal.subjects("user2@vmail.test") == ["before"]
    assert metal.subjects("user2@vmail.test", "ubuntu") == ["after"]


def test_a_full_mailbox_delays_mail_and_bounces_none(metal: Stack, ssh: Ssh) -> None:
    box, queue = f"{MAILBOXES}/user3/Maildir", f"postqueue -c {SETTINGS}"
    full = f"{box}/cur/1.full,S=60000000:2,S"  # a Maildir's quota uses the sizes in the names
    ssh("metal", f"touch {full}; chown mail:mail {full}")
    metal.submit("text", "user3@vmail.test", "one too many")
    deferred = f"{queue} -j | grep -q delay_reason"
    waiting = ssh("metal", f"for i in $(seq 100); do {deferred} && break; sleep 0.1; done; {queue} -j")
    (message,) = [json.loads(line) for line in waiting.splitlines()]
    assert message["queue_name"] == "deferred"
    assert "452 4.2.2" in message["recipients"][0]["delay_reason"]
    assert "Quota exceeded (mailbox for user is full)" in message["recipients"][0]["delay_reason"]
    assert not any("one too many" in subject for subject in metal.subjects("user0@vmail.test")), "no bounce"
    ssh("metal", f"rm {full} {box}/maildirsize; {queue} -f")
    assert metal.settle() == 0
    assert metal.subjects("user3@vmail.test") == ["one too many"]


@pytest.mark.parametrize(
    ("to", "code", "words"),
    [
        ("nobody@vmail.test", 550, "5.1.1 <nobody@vmail.test>: Recipient address rejected: User unknown"),
        ("somebody@elsewhere.test", 554, "5.7.1 <somebody@elsewhere.test>: Relay access denied"),
    ],
)
def test_rejected_mail_gets_a_reason(metal: Stack, to: str, code: int, words: str) -> None:
    with metal.smtp() as session:
        session.ehlo()
        session.mail("user0@vmail.test")
        refused, text = session.rcpt(to)
    assert refused == code
    assert words in text.decode() and "write to postmaster@vmail.test" in text.decode()


def test_rules_are_kept_on_the_server_by_managesieve(metal: Stack) -> None:
    siever = ManageSieve(metal.ports[4190])
    assert any('"SASL" "PLAIN' in line for line in siever.starttls())
    assert siever.login("user4@vmail.test", metal.password).startswith("OK")
    siever.store(
        'require ["fileinto", "reject"];\r\n'
        'if header :contains "subject" "list" { fileinto "lists"; }\r\n'
        'if header :contains "subject" "advert" { reject "No adverts, please."; }\r\n'
    )
    with metal.imap("user4@vmail.test") as session:
        session.create("lists")
    for subject in ("to the list", "an advert", "plain"):
        metal.submit("text", "user4@vmail.test", subject)
        assert metal.settle() == 0
    assert metal.subjects("user4@vmail.test", "lists") == ["to the list"]
    assert metal.subjects("user4@vmail.test") == ["plain"]
    assert "Your message was not accepted: an advert" in metal.subjects("user0@vmail.test")


def test_clients_with_known_faults_are_served(metal: Stack, ssh: Ssh) -> None:
    """Outlook hangs on a NUL, Outlook Express on a message without a line between head and body."""
    put = f"{MAILBOXES}/user5/Maildir/new"
    ssh(
        "metal",
        rf"printf 'Subject: nul\n\na\0b\n' >{put}/1.nul; printf 'Subject: no body\n' >{put}/2.head; "
        f"chown mail:mail {put}/*",
    )
    with metal.pop3("user5@vmail.test") as session:
        messages = {bytes(lines[0]): list(lines) for lines in (session.retr(n)[1] for n in (1, 2))}
    assert messages[b"Subject: nul"][-1] == b"a\x80b"
    assert messages[b"Subject: no body"] == [b"Subject: no body", b""]
    told = ssh("metal", f"doveconf -c {SETTINGS}/dovecot.conf -f protocol=imap imap_client_workarounds")
    assert told.split("= ")[1].split() == ["delay-newmail", "tb-extra-mailbox-sep", "tb-lsub-flags"]
