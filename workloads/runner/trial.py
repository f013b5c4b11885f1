"""One trial, from starting the server to the row."""

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workloads.runner import closed_loop, gates, latency, machine_gates, mail, open_loop, ramp, telemetry
from workloads.runner.bench import Bench
from workloads.runner.driver import Driver, Phase
from workloads.runner.errors import AgentError, HostLostError
from workloads.runner.gates import Reason
from workloads.runner.measured import Measured, utc
from workloads.runner.results import Row
from workloads.runner.schedule import Planned
from workloads.runner.usage import mbit
from workloads.runner.workload import ClosedWorkload, MailWorkload, RampWorkload
from workloads.tools import ToolError

BODIES = 4
SERVER_LIMIT_S = 60.0
# After so long without an answer the server is looked at: it may have ended.
ANSWER_LIMIT_S = 1.0
PING_LIMIT_S = 15.0


@dataclass
class Trial:
    """One attempt at a planned trial. `attempt` gives its row; nothing but a bug makes it raise."""

    bench: Bench
    planned: Planned
    number: int
    say: Callable[[str], None]
    reasons: list[Reason] = field(default_factory=list)
    row: Row = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scenario = self.planned.scenario
        self.name = self.planned.name(self.number)
        self.driver = Driver(self.bench, self.scenario, self.name, self.say)
        self.workload, self.experiment = self.driver.workload, self.driver.experiment
        self.host, self.sut, self.watch = self.driver.host, self.driver.sut, self.driver.watch

    def attempt(self) -> Row:
        """Measure; whatever goes wrong becomes a reason of the row."""
        self.bench.store.clear_trial(self.name)
        self.row = self._scenario_columns() | {"started_at": utc(time.time())}
        begin = time.monotonic()
        try:
            self._measure()
        except HostLostError as error:
            self._fail("host-lost", str(error))
        except ToolError as error:
            self._fail(self._or_lost("tool-failed"), str(error))
        except AgentError as error:
            self._fail(self._or_lost("server-failed"), str(error))
        finally:
            self._leave()
        self.row["fixed_cost_s"] = time.monotonic() - begin - self.driver.loaded_s
        self.row["verdict"] = gates.verdict(self.reasons)
        self.row["reasons"] = gates.join(self.reasons)
        return self.row

    def _scenario_columns(self) -> Row:
        scenario = self.scenario
        return {
            "run_id": self.bench.run_id,
            "block": self.planned.block,
            "order": self.planned.order,
            "attempt": self.number,
            "environment": scenario.environment,
            "accelerator": self.bench.accelerators[scenario.base_environment],
            "server": scenario.server,
            "workload": scenario.workload,
            "tool": self.workload.tool,
            "client": self.workload.client,
            "clients": len(self.driver.fleet.lines),
            "offered_load": str(scenario.offer),
            "twin": self.workload.twin,
        }

    def _or_lost(self, code: str) -> str:
        """`host-lost` when a machine no longer answers: then that is why the tool or the server failed."""
        for line in self.watch.lines:
            try:
                line.call("ping", PING_LIMIT_S)
            except HostLostError:
                return "host-lost"
        return code

    def _fail(self, code: str, detail: str) -> None:
        """Keep the scenario, drop the metrics, name the reason."""
        self.row = self._scenario_columns() | {"started_at": self.row["started_at"]}
        self.reasons = [Reason(code, detail)]

    def _measure(self) -> None:
        bench, scenario = self.bench, self.scenario
        self.driver.tell("starting")
        seen = self.sut.call(
            "server_start", SERVER_LIMIT_S + 30,
            name=scenario.server, limit_s=SERVER_LIMIT_S, cores=self.workload.cores,
        )  # fmt: skip
        self.row["server_cores"] = seen["cores"]
        self.reasons += gates.fingerprint(bench.reference(scenario.server), seen, scenario.server)
        self.reasons += machine_gates.sysctls(
            bench.reference_sysctls(), seen["sysctls"], self.host.name, self.experiment.declared_differences
        )
        self.reasons += gates.content(bench.manifest["digest"], bench.facts[self.host.name].get("content_digest"))
        wrong = self._bodies("before")
        self.watch.start()
        self._send()
        wrong += self._bodies("after")
        self.row["bodies_wrong"] = len(wrong)
        self.reasons += gates.wrong_bodies(wrong)
        self._keep_samples()
        self.sut.call("server_stop", SERVER_LIMIT_S + 30, name=scenario.server, limit_s=SERVER_LIMIT_S)

    def _leave(self) -> None:
        """After a failure: nothing of this trial may run on into the next."""
        if not self.reasons or self.reasons[0].code not in {"host-lost", "tool-failed", "server-failed"}:
            return
        for line, op, args in (
            *((line, "kill", {}) for line in self.driver.fleet.lines),
            *((line, "sample_stop", {}) for line in self.watch.lines),
            (self.sut, "server_stop", {"name": self.scenario.server, "limit_s": SERVER_LIMIT_S}),
        ):
            if not line.lost_because:
                try:
                    line.call(op, SERVER_LIMIT_S + 30, **args)
                except (AgentError, HostLostError) as error:
                    self.reasons.append(Reason(self.reasons[0].code, f"while tidying up: {error}"))

    def _bodies(self, when: str) -> list[str]:
        """Digests as the client gets them: of every file the first time, then of a few, drawn anew each time."""
        if isinstance(self.workload, MailWorkload):
            return []  # no pages; what came of each message is looked up in the mailboxes
        files, subject = self.bench.manifest["files"], (self.host.name, self.scenario.server)
        if subject in self.bench.seen_whole:
            rng = random.Random(f"{self.bench.order_seed}:{self.planned.key}:{when}")
            files = rng.sample(files, k=BODIES)
        self.bench.seen_whole.add(subject)
        wanted = [{"path": f"{self.bench.resolved.site.name}/{f['path']}", "sha256": f["sha256"]} for f in files]
        checked = self._answers(wanted)
        self.row["bodies_checked"] = self.row.get("bodies_checked", 0) + checked["checked"]
        return list(checked["wrong"])

    def _answers(self, wanted: list[dict[str, str]]) -> dict[str, Any]:
        """Ask until the server answers. Raises AgentError when it does not in time, at once when it has ended."""
        client, deadline = self.driver.client, time.monotonic() + SERVER_LIMIT_S
        where = {"host": self.host.seen_from(client.host), "port": self.host.port}
        while True:
            asked = client.ask("http_check", **where, files=wanted, limit_s=ANSWER_LIMIT_S)
            try:
                answer: dict[str, Any] = asked.wait(SERVER_LIMIT_S + 60, [self.sut])
                return answer
            except AgentError:
                self.sut.call("server_check", name=self.scenario.server)
                if time.monotonic() > deadline:
                    raise

    def _send(self) -> None:
        """The load, as its kind wants it; its columns, its reasons and its histograms."""
        if isinstance(self.workload, ClosedWorkload):
            measured = closed_loop.measure(self.driver, self.workload)
        elif isinstance(self.workload, MailWorkload):
            measured = mail.measure(self.driver, self.workload)
        elif isinstance(self.workload, RampWorkload):
            measured = ramp.measure(self.driver, self.workload)
        else:
            measured = open_loop.measure(self.driver, self.workload)
        self.row |= measured.columns()
        self.reasons += measured.reasons
        self._link(measured.phases[0])
        self._keep_latencies(measured)
        self._keep_telemetry(measured)

    def _link(self, own: Phase) -> None:
        if used_pct := self._lines_used_pct(own):
            self.row["link_used_pct"] = max(used_pct.values())
            self.reasons += [r for machine, pct in used_pct.items() for r in gates.link_bound(pct, machine)]
        self.row["steal_pct"] = own.after.steal_pct(own.before)
        self.reasons += gates.steal(self.row["steal_pct"])

    def _lines_used_pct(self, own: Phase) -> dict[str, float]:
        """Of each client's line rate, and of the server's own, which several clients together may fill."""
        rate_mbit, sut_mbit = self.bench.inventory.link_mbit, self.host.get("vmtoll_link_mbit")
        if not rate_mbit or self.workload.client == "localhost":
            return {}
        old, new = own.before, own.after
        used_pct = {
            part.client: mbit(old.clients[part.client], new.clients[part.client], part.done.wall_s) / rate_mbit * 100
            for part in own.parts
        }
        if len(own.parts) > 1 and sut_mbit:
            used_pct[self.host.name] = mbit(old.sut, new.sut, own.done.wall_s) / float(sut_mbit) * 100
        return used_pct

    def _keep_latencies(self, measured: Measured) -> None:
        logged = [one.latencies_us for one in measured.logged if one.latencies_us is not None]
        sent = [one.sent_us for one in measured.logged if one.sent_us is not None]
        if logged:
            lines = [latency.histogram(latencies_us) + b"\n" for latencies_us in logged]
            self.bench.store.keep(f"histograms/{self.name}.hdr", b"".join(lines))
        if logged and sent:
            by_second = latency.by_second(np.concatenate(sent), np.concatenate(logged))
            self.bench.store.keep(f"histograms/{self.name}.csv", by_second)

    def _keep_telemetry(self, measured: Measured) -> None:
        """What the KVM host saw of the guest, during the tool and its twin; the tool's also as columns."""
        seen = [telemetry.seen(phase.before, phase.after, phase.result.transactions) for phase in measured.phases]
        if seen[0]:
            self.row |= telemetry.columns(seen[0])
            document = dict(zip(("tool", "twin"), seen, strict=False))
            self.bench.store.keep(f"telemetry/{self.name}.json", json.dumps(document, indent=1).encode() + b"\n")

    def _keep_samples(self) -> None:
        sources = {name: facts["clock_source"] for name, facts in self.bench.facts.items()}
        table, columns, reasons = self.watch.stop(sources)
        self.row |= columns
        self.reasons += reasons
        self.bench.store.keep(f"samples/{self.name}.csv", table)
