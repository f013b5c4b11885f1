"""A trial's server on its machines: started, compared with the reference, its bodies checked, stopped."""

import random
import time
from typing import Any

from workloads.runner import gates, machine_gates
from workloads.runner.driver import Driver
from workloads.runner.errors import AgentError
from workloads.runner.gates import Reason
from workloads.runner.schedule import Planned
from workloads.runner.transport import AgentLine
from workloads.runner.workload import MailWorkload

BODIES = 4
SERVER_LIMIT_S = 60.0
# After so long without an answer the server is looked at: it may have ended.
ANSWER_LIMIT_S = 1.0


class Serving:
    """`start`, then `bodies` before and after the load, then `stop`; on the neighbour there are no bodies to check."""

    def __init__(self, driver: Driver, planned: Planned) -> None:
        self.driver, self.bench, self.planned = driver, driver.bench, planned
        self.server, self.lines = driver.scenario.server, driver.machines.serving
        self.checked = 0
        self.wrong: list[str] = []

    def start(self) -> tuple[int, list[Reason]]:
        """How many cores the server has on the first machine, and where a machine is not as it must be.

        Raises AgentError, HostLostError.
        """
        args = {"name": self.server, "limit_s": SERVER_LIMIT_S, "cores": self.driver.workload.cores}
        asked = [(line, line.ask("server_start", **args)) for line in self.lines]
        seen = [(line, answer.wait(SERVER_LIMIT_S + 30)) for line, answer in asked]
        return int(seen[0][1]["cores"]), [reason for line, there in seen for reason in self._unequal(line, there)]

    def _unequal(self, line: AgentLine, seen: dict[str, Any]) -> list[Reason]:
        bench, name = self.bench, line.host.name
        return [
            *gates.fingerprint(bench.reference(self.server), seen, self.server),
            *machine_gates.sysctls(
                bench.reference_sysctls(), seen["sysctls"], name, self.driver.experiment.declared_differences
            ),
            *gates.content(bench.manifest["digest"], bench.facts[name].get("content_digest")),
        ]

    def bodies(self, when: str) -> None:
        """Compare digests as the client gets them: of every file the first time, then of a few, drawn anew each time.

        Raises AgentError, HostLostError.
        """
        if isinstance(self.driver.workload, MailWorkload):
            return  # no pages; what came of each message is looked up in the mailboxes
        for line in self.driver.machines.suts:
            files, subject = self.bench.manifest["files"], (line.host.name, self.server)
            if subject in self.bench.seen_whole:
                rng = random.Random(f"{self.bench.order_seed}:{self.planned.key}:{when}")
                files = rng.sample(files, k=BODIES)
            self.bench.seen_whole.add(subject)
            site = self.bench.resolved.site.name
            found = self._answers(line, [{"path": f"{site}/{f['path']}", "sha256": f["sha256"]} for f in files])
            self.checked += found["checked"]
            self.wrong += found["wrong"]

    def _answers(self, sut: AgentLine, wanted: list[dict[str, str]]) -> dict[str, Any]:
        """Ask until the server answers. Raises AgentError when it does not in time, at once when it has ended."""
        client, deadline = self.driver.client, time.monotonic() + SERVER_LIMIT_S
        where = {"host": sut.host.seen_from(client.host), "port": sut.host.port}
        while True:
            asked = client.ask("http_check", **where, files=wanted, limit_s=ANSWER_LIMIT_S)
            try:
                answer: dict[str, Any] = asked.wait(SERVER_LIMIT_S + 60, [sut])
                return answer
            except AgentError:
                sut.call("server_check", name=self.server)
                if time.monotonic() > deadline:
                    raise

    def stop(self) -> None:
        """Stop it everywhere. Raises AgentError, HostLostError."""
        for answer in [line.ask("server_stop", name=self.server, limit_s=SERVER_LIMIT_S) for line in self.lines]:
            answer.wait(SERVER_LIMIT_S + 30)
