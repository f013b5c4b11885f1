"""The mail stack on one machine of the lab, and clients of it that sit on the lab's client."""

import base64
import contextlib
import imaplib
import poplib
import secrets
import smtplib
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.lab.the_lab import LAB
from vmtoll.machines.connection import AgentLine
from vmtoll.spec.machines import load_inventory

SERVER = "postfix-dovecot"
PORTS = (25, 110, 143, 465, 587, 4190)
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TLS.check_hostname = False  # each machine has made a certificate of its own
TLS.verify_mode = ssl.CERT_NONE


@dataclass
class Stack:
    """`ports`: of the server → here; behind these, it is the lab's client that connects."""

    line: AgentLine
    ports: dict[int, int]
    password: str = field(default_factory=lambda: secrets.token_urlsafe(18))

    def smtp(self, port: int = 25) -> smtplib.SMTP:
        return smtplib.SMTP("127.0.0.1", self.ports[port], local_hostname="client.vmail.test", timeout=60)

    def submit(self, text: str, to: str, subject: str = "a subject") -> None:
        """Send one message as user0, with a password inside TLS."""
        with self.smtp(587) as session:
            session.starttls(context=TLS)
            session.login("user0@vmail.test", self.password)
            session.sendmail("user0@vmail.test", [to], f"To: <{to}>\r\nSubject: {subject}\r\n\r\n{text}\r\n")

    @contextmanager
    def imap(self, user: str) -> Iterator[imaplib.IMAP4]:
        """A session inside TLS, logged in."""
        session = imaplib.IMAP4("127.0.0.1", self.ports[143], timeout=60)
        session.starttls(TLS)
        session.login(user, self.password)
        yield session
        session.logout()

    @contextmanager
    def pop3(self, user: str) -> Iterator[poplib.POP3]:
        """A session inside TLS, logged in."""
        session = poplib.POP3("127.0.0.1", self.ports[110], timeout=60)
        session.stls(TLS)
        session.user(user)
        session.pass_(self.password)
        yield session
        session.quit()

    def subjects(self, user: str, folder: str = "INBOX") -> list[str]:
        """What is in a folder, oldest first."""
        with self.imap(user) as session:
            assert session.select(folder, readonly=True)[0] == "OK"
            _, (numbers, *_) = session.search(None, "ALL")
            found = [session.fetch(n.decode(), "(BODY.PEEK[HEADER.FIELDS (SUBJECT)])")[1][0] for n in numbers.split()]
        return [answer[1].decode().partition(": ")[2].strip() for answer in found if isinstance(answer, tuple)]

    def folders(self, user: str) -> list[str]:
        with self.imap(user) as session:
            return [line.decode().split()[-1].strip('"') for line in session.list()[1] if isinstance(line, bytes)]

    def settle(self) -> int:
        """Wait until the queue is empty; how many messages stay in it all the same."""
        left: int = self.line.call("mail_drain", 60, name=SERVER, limit_s=20.0)["left"]
        return left


class ManageSieve:
    """Just enough of RFC 5804 to store a script."""

    def __init__(self, port: int) -> None:
        self.wire = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.greeting = self.answer()

    def answer(self) -> list[str]:
        """Lines up to the one that says OK or NO."""
        lines: list[str] = []
        while not lines or not lines[-1].startswith(("OK", "NO", "BYE")):
            line = bytearray()
            while not line.endswith(b"\r\n"):
                line += self.wire.recv(1)
            lines.append(line.decode().strip())
        return lines

    def ask(self, command: str) -> list[str]:
        self.wire.sendall(command.encode() + b"\r\n")
        return self.answer()

    def starttls(self) -> list[str]:
        """Turn to TLS; the capabilities inside."""
        assert self.ask("STARTTLS")[-1].startswith("OK")
        self.wire = TLS.wrap_socket(self.wire)
        return self.answer()

    def login(self, user: str, password: str) -> str:
        told = base64.b64encode(f"\0{user}\0{password}".encode()).decode()
        return self.ask(f'AUTHENTICATE "PLAIN" "{told}"')[-1]

    def store(self, script: str) -> None:
        """Put the script there and make it the active one."""
        assert self.ask(f'PUTSCRIPT "rules" {{{len(script.encode())}+}}\r\n{script}')[-1].startswith("OK")
        assert self.ask('SETACTIVE "rules"')[-1].startswith("OK")


@contextmanager
def stack_on(environment: str) -> Iterator[Stack]:
    """Start the stack on the machine of an environment, with ten users and empty mailboxes; stop it afterwards."""
    inventory = load_inventory(LAB / "inventory.yml", [environment])
    host = inventory.suts[environment]
    line = AgentLine(host)
    line.open()
    try:
        line.call("server_start", 90, name=SERVER)
        with _forwarded(host.address) as ports:
            stack = Stack(line, ports)
            line.call("mail_prepare", 60, name=SERVER, password=stack.password)
            yield stack
    finally:
        with contextlib.suppress(Exception):
            line.call("server_stop", 90, name=SERVER)
        line.close()


@contextmanager
def _forwarded(address: str) -> Iterator[dict[int, int]]:
    """Ports here that lead, from the lab's client, to the stack's."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in PORTS]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        ports = {port: int(each.getsockname()[1]) for port, each in zip(PORTS, sockets, strict=True)}
    forwards = [word for port, here in ports.items() for word in ("-L", f"127.0.0.1:{here}:{address}:{port}")]
    options = ["-o", "ControlMaster=no", "-o", "ControlPath=none", "-o", "ExitOnForwardFailure=yes"]
    argv = ["ssh", "-F", str(LAB / "ssh_config"), *options, *forwards, "client", "echo ready; exec cat"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as ssh:
        assert ssh.stdout and ssh.stdout.readline() == b"ready\n"
        yield ports
        ssh.terminate()
