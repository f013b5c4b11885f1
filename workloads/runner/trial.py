"""One trial, from starting the server to the row."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from workloads.runner import closed_loop, cold, gates, latency, mail, open_loop, ramp, telemetry
from workloads.runner.background import Background
from workloads.runner.bench import Bench
from workloads.runner.booted import wait_until_booted
from workloads.runner.driver import Driver, Phase
from workloads.runner.errors import AgentError, HostLostError
from workloads.runner.gates import Reason
from workloads.runner.measured import Measured, utc
from workloads.runner.results import Row
from workloads.runner.schedule import Planned
from workloads.runner.serving import Serving
from workloads.runner.usage import mbit
from workloads.runner.workload import ClosedWorkload, MailWorkload, RampWorkload
from workloads.tools import ToolError

PING_LIMIT_S = 15.0
STOP_LIMIT_S = 90.0


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
        self.watch, self.serving = self.driver.watch, Serving(self.driver, self.planned)
        self.background = Background(self.driver)

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
            self._fail(*self._or_lost("tool-failed", str(error)))
        except AgentError as error:
            self._fail(*self._or_lost("server-failed", str(error)))
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
            "guests": len(self.driver.machines.suts),
            "twin": self.workload.twin,
        }

    def _or_lost(self, code: str, detail: str) -> tuple[str, str]:
        """`host-lost` when a machine is gone or about to go: then that is why the tool or the server failed."""
        for line in self.driver.machines.all:
            try:
                line.call("ping", PING_LIMIT_S)
                wait_until_booted(line)
            except HostLostError as error:
                return "host-lost", f"{error}; {detail}"
        return code, detail

    def _fail(self, code: str, detail: str) -> None:
        """Keep the scenario, drop the metrics, name the reason."""
        self.row = self._scenario_columns() | {"started_at": self.row["started_at"]}
        self.reasons = [Reason(code, detail)]

    def _measure(self) -> None:
        self.driver.tell("starting")
        self.row["server_cores"], unequal = self.serving.start()
        self.reasons += unequal
        if not self.driver.cold:  # what is looked at would be in the server's own caches
            self.serving.bodies("before")
        self.watch.start()
        self.background.begin()
        measured = self._send()
        row, reasons = self.background.end(measured.phases[0])
        self.row |= row
        self.reasons += reasons
        self.serving.bodies("after")
        self.row |= {"bodies_checked": self.serving.checked or None, "bodies_wrong": len(self.serving.wrong)}
        self.reasons += gates.wrong_bodies(self.serving.wrong)
        self._keep_samples()
        self.serving.stop()

    def _leave(self) -> None:
        """After a failure: nothing of this trial may run on into the next."""
        if not self.reasons or self.reasons[0].code not in {"host-lost", "tool-failed", "server-failed"}:
            return
        for line, op, args in (
            *((line, "kill", {}) for line in self.driver.fleet.lines),
            *((line, "sample_stop", {}) for line in self.driver.machines.all),
            *((line, "server_stop", {"name": self.scenario.server}) for line in self.driver.machines.serving),
        ):
            if not line.lost_because:
                try:
                    line.call(op, STOP_LIMIT_S, **args)
                except (AgentError, HostLostError) as error:
                    self.reasons.append(Reason(self.reasons[0].code, f"while tidying up: {error}"))

    def _send(self) -> Measured:
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
        if self.driver.cold:
            self.reasons += cold.reasons(self.row)
        return measured

    def _link(self, own: Phase) -> None:
        if used_pct := self._lines_used_pct(own):
            self.row["link_used_pct"] = max(used_pct.values())
            self.reasons += [r for machine, pct in used_pct.items() for r in gates.link_bound(pct, machine)]
        self.row["steal_pct"] = own.after.steal_pct(own.before)
        if len(self.driver.machines.serving) == 1:  # what guests take from each other is what is asked for
            self.reasons += gates.steal(self.row["steal_pct"])

    def _lines_used_pct(self, own: Phase) -> dict[str, float]:
        """Of each client's line rate, and of the server's own, which several clients together may fill."""
        rate_mbit, sut_mbit = self.bench.inventory.link_mbit, self.driver.sut.host.get("vmtoll_link_mbit")
        if not rate_mbit or self.workload.client == "localhost":
            return {}
        old, new = own.before, own.after
        used_pct = {
            part.client: mbit(old.clients[part.client], new.clients[part.client], part.done.wall_s) / rate_mbit * 100
            for part in own.parts
        }
        if len(own.parts) > 1 and sut_mbit:
            for name, reading in old.suts.items():
                used_pct[name] = mbit(reading, new.suts[name], own.done.wall_s) / float(sut_mbit) * 100
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
        # A cold start is what is asked for.
        self.reasons += [reason for reason in reasons if not (self.driver.cold and reason.code == "warmup-drift")]
        self.bench.store.keep(f"samples/{self.name}.csv", table)
