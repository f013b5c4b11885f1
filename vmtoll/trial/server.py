"""Start a trial's server on its machines, compare it with the reference, check its bodies, stop it."""

import random
import time
from collections.abc import Iterable
from typing import Any

from vmtoll.agent.protocol import BodyCheck, File, Handshake, KernelTls, StartedServer
from vmtoll.machines.connection import AgentLine
from vmtoll.model.errors import AgentError
from vmtoll.model.facts import HostFacts, covers
from vmtoll.model.finding import Finding
from vmtoll.model.transport import Transport
from vmtoll.model.workload import MailWorkload
from vmtoll.trial import gates
from vmtoll.trial.loads import LoadDriver

BODIES = 4
SERVER_LIMIT_S = 60.0
# Seconds without an answer after which the runner checks whether the server has ended.
ANSWER_LIMIT_S = 1.0


class TrialServer:
    """`start` and `handshake`, then `check_bodies` before and after the load, then `stop`.

    `check_bodies` skips the neighbour.
    """

    is_ours = True

    def __init__(self, driver: LoadDriver) -> None:
        self.driver, self.session = driver, driver.session
        self.server, self.lines = driver.scenario.server, driver.machines.serving
        self.bodies_checked = 0
        self.wrong_bodies: list[str] = []

    def start(self) -> tuple[int | None, list[Finding]]:
        """Start the server; return its cores on the first machine, and findings on machines unlike the reference.

        Raises AgentError, HostLostError.
        """
        change = self.driver.experiment.changes.get(self.driver.spec.arm.environment)
        args: dict[str, Any] = {"limit_s": SERVER_LIMIT_S, "cores": self.driver.workload.cores}
        if change and change.isolation:
            args["isolation"] = change.isolation.chosen
        answers = [(line, line.ask("server_start", name=self._on(line), **args)) for line in self.lines]
        started_by_line = [(line, answer.wait(SERVER_LIMIT_S + 30)) for line, answer in answers]
        for line, started in started_by_line:
            if not started.get("answers", True):  # its host cannot see: a sandbox with its own TCP
                host, client = line.host, self.driver.client
                address = {"host": host.seen_from(client.host), "port": self.driver.transport.port(host.port)}
                self._ask_client("reaches", [line], **address, limit_s=SERVER_LIMIT_S)
        return int(started_by_line[0][1]["cores"]), [
            f for line, started in started_by_line for f in self._unlike_reference(line, started)
        ]

    def _on(self, line: AgentLine) -> str:
        """The server of a machine."""
        return self.driver.machines.server_on(line, self.server)

    def _unlike_reference(self, line: AgentLine, started: StartedServer) -> list[Finding]:
        """Findings on what no declared difference explains, and none of the arm's change. What either explains is
        compared with what it was when the run saw it first.
        """
        session, machine, declared = self.session, line.host.name, self.driver.experiment.declared_differences
        server, environment = self._on(line), self.driver.spec.arm.environment
        of_content = gates.content(session.content["digest"], session.facts[machine].content_digest, machine)
        change = self.driver.experiment.changes.get(environment)
        if change and change.explains is None:
            return of_content  # the server, or the kernel's parameters, may be what the change is about
        explained = change.explains or [] if change else []
        own = session.facts_in(environment)[machine]
        fingerprint, sysctls = own.server(server).model_dump(), dict(session.reference.sysctls)
        by_design = {
            key: value
            for key, value in fingerprint.items()
            if any(covers(item, f"servers: {server}: {key}") for item in (*declared, *explained))
        }
        sysctls |= {
            name: value
            for name, value in own.sysctls.items()
            if any(covers(item, f"sysctls: {name}") for item in explained)
        }
        for name, value in change.sysctls.items() if change else ():
            if name in sysctls:
                sysctls[name] = " ".join(value.split())
        return [
            *gates.fingerprint(session.reference.server(server).model_dump() | by_design, started, server, machine),
            *(gates.sysctls(sysctls, started["sysctls"], machine, declared) if started["sysctls"] else []),
            *of_content,
        ]

    def handshake(self) -> list[Finding]:
        """Make a TLS handshake from the first client with each machine's server; store its parameters in the machine's
        facts and return findings on wrong ones; none without TLS.

        Raises AgentError, HostLostError.
        """
        transport = self.driver.transport
        if not transport.tls:
            return []
        facts_before = {name: facts.recorded for name, facts in self.session.facts.items()}
        findings = [finding for line in self.lines for finding in self._handshake_with(line, transport)]
        if {name: facts.recorded for name, facts in self.session.facts.items()} != facts_before:
            self.session.store.write_hosts(self.session.facts)
        return findings

    def _handshake_with(self, line: AgentLine, transport: Transport) -> list[Finding]:
        client, host = self.driver.client, line.host
        before: KernelTls = line.call("tls_kernel", name=self.server)
        handshake: Handshake = self._ask_client(
            "tls_handshake", [line], host=host.seen_from(client.host), port=transport.port(host.port),
            alpn=transport.alpn, limit_s=SERVER_LIMIT_S,
        )  # fmt: skip
        after: KernelTls = line.call("tls_kernel", name=self.server)
        parameters = {**handshake, "kernel": before["sessions"] != after["sessions"]}
        certificate = certificate_of(self.server, [self.session.reference, *self.session.facts.values()])
        server = self.session.facts[host.name].servers[self.server]
        server.tls = {**server.tls, transport.name: parameters}
        return gates.tls(
            transport, kernel=before["declared"], certificate=certificate, observed=parameters, server=self.server,
            machine=host.name,
        )  # fmt: skip

    def _ask_client(self, op: str, lines: list[AgentLine], **args: Any) -> Any:
        """Ask the first client about the server of a line. Raises AgentError, HostLostError."""
        try:
            return self.driver.client.ask(op, **args).wait(SERVER_LIMIT_S + 30, lines)
        except AgentError as error:
            raise AgentError(str(error), lines[0].host.name) from error  # blame the server: the client only reported it

    def check_bodies(self, when: str) -> None:
        """Compare the digests of bodies that the client gets: every file the first time, then a few random ones.

        Raises AgentError, HostLostError.
        """
        if isinstance(self.driver.workload, MailWorkload):
            return  # no pages; `mail` counts the messages in the mailboxes
        for line in (line for line in self.driver.machines.suts if line.host.name not in self.driver.machines.servers):
            files, subject = self.session.content["files"], (line.host.name, self.server)
            if subject in self.session.fully_checked:
                rng = random.Random(f"{self.session.order_seed}:{self.driver.spec.key}:{when}")
                files = rng.sample(files, k=min(BODIES, len(files)))
            self.session.fully_checked.add(subject)
            site = self.session.site.name
            check = self._check_files(line, [{"path": f"{site}/{f['path']}", "sha256": f["sha256"]} for f in files])
            self.bodies_checked += check["checked"]
            self.wrong_bodies += check["wrong"]

    def _check_files(self, sut: AgentLine, files: list[File]) -> BodyCheck:
        """Ask until the server answers. Raises AgentError if it does not in time, at once if the server has ended."""
        client, deadline = self.driver.client, time.monotonic() + SERVER_LIMIT_S
        transport = self.driver.transport
        port = transport.port(sut.host.port)
        address = {"host": sut.host.seen_from(client.host), "port": port, "tls": transport.tls}
        while True:
            pending = client.ask("http_check", **address, files=files, limit_s=ANSWER_LIMIT_S)
            try:
                answer: BodyCheck = pending.wait(SERVER_LIMIT_S + 60, [sut])
                return answer
            except AgentError as error:
                sut.call("server_check", name=self.server)
                if time.monotonic() > deadline:
                    raise AgentError(str(error), sut.host.name) from error  # see _handshake_with

    def stop(self) -> None:
        """Stop the server on every machine. Raises AgentError, HostLostError."""
        args = {"limit_s": SERVER_LIMIT_S}
        for answer in [line.ask("server_stop", name=self._on(line), **args) for line in self.lines]:
            answer.wait(SERVER_LIMIT_S + 30)


def certificate_of(server: str, machines: Iterable[HostFacts]) -> str | None:
    """SHA-256 of a server's certificate, from the first of these machines that recorded one; None if none has."""
    for facts in machines:
        for handshake in facts.server(server).tls.values():
            return str(handshake["certificate_sha256"])
    return None
