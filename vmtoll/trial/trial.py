"""One trial, from the start of the server to the record."""

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np

from vmtoll.machines.changes import alter
from vmtoll.machines.connection import AgentLine
from vmtoll.machines.differences import note_change
from vmtoll.machines.recovery import wait_until_booted
from vmtoll.machines.session import Session, TrialReporter
from vmtoll.model.errors import (
    AgentError,
    CapacityError,
    HostLostError,
    ServiceFailingError,
    ToolError,
    ToolTimeoutError,
)
from vmtoll.model.event import Phase
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.trial import Resources, TrialRecord, TrialSpec
from vmtoll.model.workload import ClosedWorkload, MailWorkload, RampWorkload, RateWorkload, Workload
from vmtoll.trial import closed_loop, density, gates, latency, mail, open_loop, usage
from vmtoll.trial.capacity import smallest_capacity, targets
from vmtoll.trial.conditions import LoadObservations
from vmtoll.trial.loads import LoadDriver, ToolRun
from vmtoll.trial.measurement import TrialResults, utc
from vmtoll.trial.neighbour import NeighbourLoadGenerator
from vmtoll.trial.operation import EXPECTED
from vmtoll.trial.server import TrialServer
from vmtoll.trial.service import ServiceDriver, TrialService
from vmtoll.trial.usage import mbit

_CODES = {
    ToolTimeoutError: Code.TIMED_OUT, CapacityError: Code.CAPACITY_UNKNOWN, ServiceFailingError: Code.SERVER_FAILED,
}  # fmt: skip
PING_LIMIT_S = 15.0
STOP_LIMIT_S = 90.0


def _code_of(error: ToolError) -> Code:
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), Code.TOOL_FAILED)


def lost_machine(error: HostLostError, host: AgentLine | None) -> str | None:
    """The name of the machine that was lost: the one that the error names, or its host if that is lost as well."""
    if host:
        try:
            host.call("ping", PING_LIMIT_S)
        except HostLostError as host_error:
            return host_error.machine
    return error.machine


def _served(
    session: Session, spec: TrialSpec, name: str, tell: TrialReporter, workload: Workload | None
) -> tuple[LoadDriver, TrialServer | TrialService]:
    """What sends the loads of a trial, and what serves them: a server of vmtoll's, or a service."""
    if session.resolved.requests:
        service_driver = ServiceDriver(session, spec, name, tell, workload)
        return service_driver, TrialService(service_driver)
    driver = LoadDriver(session, spec, name, tell, workload)
    return driver, TrialServer(driver)


class Trial:
    """One attempt at a planned trial. `attempt` returns its record, in which failures of machines, servers and tools
    are findings.
    """

    def __init__(
        self, session: Session, reporter: TrialReporter, workload: Workload | None = None, name: str = ""
    ) -> None:
        """`workload`: replaces the planned one; `name`: replaces the trial's name in file names."""
        self.session, self.spec, self.number, self.tell = session, reporter.spec, reporter.attempt, reporter
        self.name = name or self.spec.name(self.number)
        self.driver, self.server = _served(session, self.spec, self.name, reporter, workload)
        self.workload, self.watch = self.driver.workload, self.driver.watch
        self.share_targets = [] if workload else targets(self.spec, session.resolved)
        self.neighbour = NeighbourLoadGenerator(self.driver)

    def attempt(self) -> TrialRecord:
        """Measure and return the record; a failure of a machine, server or tool becomes a finding in it."""
        self.session.store.clear_trial(self.name)
        begin = time.monotonic()
        planned = TrialRecord(
            run_id=self.session.run_id,
            block=self.spec.block,
            boot=self.spec.boot,
            order=self.spec.order,
            attempt=self.number,
            arm=self.spec.arm,
            accelerator=self.session.accelerators[self.spec.arm.environment],
            hardware=self.session.hardware[self.spec.arm.environment],
            release=self.session.releases[self.spec.arm.environment],
            scenario=self.spec.scenario,
            client=self.workload.client_place,
            clients=len(self.driver.fleet.lines),
            guests=len(self.driver.machines.suts) or 1,  # a service that is not seen is one
            started_at=utc(time.time()),
        )
        try:
            record = self._measure(planned)
        except HostLostError as error:
            record = self._failed_record(planned, self._host_lost(error))
        except ToolError as error:
            finding = Finding(_code_of(error), machine=error.machine, detail=str(error))
            record = self._failed_record(planned, self._or_server_failed(self._or_host_lost(finding)))
        except AgentError as error:
            finding = Finding(Code.SERVER_FAILED, machine=error.machine, detail=str(error))
            record = self._failed_record(planned, self._or_host_lost(finding))
        loaded_s = self.driver.loaded_s
        return replace(record, fixed_cost_s=time.monotonic() - begin - loaded_s, loaded_s=loaded_s)

    def _host_lost(self, error: HostLostError, suffix: str = "") -> Finding:
        machine = lost_machine(error, self.driver.machines.host)
        return Finding(Code.HOST_LOST, machine=machine, detail=f"{error}{suffix}")

    def _or_host_lost(self, finding: Finding) -> Finding:
        """HOST_LOST if a machine is lost or shutting down, because that explains the failure; else `finding`."""
        for line in self.driver.machines.all:
            try:
                line.call("ping", PING_LIMIT_S)
                wait_until_booted(line)
            except HostLostError as error:
                return self._host_lost(error, f"; {finding.detail}")
        return finding

    def _or_server_failed(self, finding: Finding) -> Finding:
        """SERVER_FAILED if a server has ended, because that explains the tool's failure; else `finding`."""
        for line in self.driver.machines.serving if finding.code is Code.TOOL_FAILED and self.server.is_ours else ():
            try:
                line.call("server_check", PING_LIMIT_S, name=self._server_on(line))
            except AgentError as error:
                return Finding(Code.SERVER_FAILED, machine=error.machine, detail=f"{error}; {finding.detail}")
            except HostLostError as error:
                return self._host_lost(error, f"; {finding.detail}")
        return finding

    def _server_on(self, line: AgentLine) -> str:
        return self.driver.machines.server_on(line, self.spec.scenario.server)

    def _failed_record(self, planned: TrialRecord, finding: Finding) -> TrialRecord:
        """The planned record with the failure alone; earlier measurements of the trial are dropped."""
        return replace(planned, findings=(finding, *self._clean_up(finding.code)))

    def _clean_up(self, code: Code) -> list[Finding]:
        """End everything that this failed trial left running, so that it does not disturb the next; return findings on
        what could not be ended.
        """
        findings, serving = [], self.driver.machines.serving if self.server.is_ours else []
        if self.driver.operation:
            try:
                self.driver.operation.clean_up()
            except (AgentError, HostLostError) as error:
                findings.append(Finding(code, process="cleanup", detail=str(error)))
        for line, op, args in (
            *((line, "kill", {}) for line in self.driver.fleet.lines),
            *((line, "sample_stop", {}) for line in self.driver.machines.all),
            *((line, "server_stop", {"name": self._server_on(line)}) for line in serving),
        ):
            if not line.lost_because:
                try:
                    line.call(op, STOP_LIMIT_S, **args)
                except (AgentError, HostLostError) as error:
                    findings.append(Finding(code, machine=line.host.name, process="cleanup", detail=str(error)))
        return findings

    def _measure(self, planned: TrialRecord) -> TrialRecord:
        """Measure; an operation is ended and undone before a failure is looked into."""
        try:
            return self._measured(planned)
        except BaseException as error:
            if operation := self.driver.operation:
                operation.release()
                if isinstance(error, Exception):
                    with contextlib.suppress(AgentError, HostLostError):
                        operation.clean_up()
            raise

    def _measured(self, planned: TrialRecord) -> TrialRecord:
        cold = self.driver.is_cold
        if share_targets := self.share_targets:
            self.driver.capacity = smallest_capacity(share_targets, self.session.store.capacities.records)
        if self.session.resolved.experiment.variants:
            self.tell(Phase.ALTERING)
            alter(self.session, self.spec.arm.environment, self.tell.listener)
            note_change(self.session, self.spec.arm.environment)
        if self.driver.operation:
            self.driver.operation.prepare()
        self.tell(Phase.STARTING)
        server_cores, start_findings = self.server.start()
        start_findings += self.server.handshake()
        if not cold:  # a check would fill the server's own caches
            self.server.check_bodies("before")
        self.watch.start()
        self.neighbour.begin()
        results = self._send()
        if self.driver.operation:
            self.driver.operation.undo()
        run = results.runs[0]
        used_pct, resources = self._link_use_pct(run), results.resources()
        neighbour_rps, neighbour_findings = self.neighbour.end(run)
        self.server.check_bodies("after")
        observations, watch_findings = self._stop_watch()
        findings = [
            *start_findings,
            *results.findings,
            *(finding for machine, pct in used_pct.items() for finding in gates.link_bound(pct, machine)),
            *self._steal_findings(resources),
            *(self._cold_findings(resources, results) if cold else []),
            *neighbour_findings,
            *gates.wrong_bodies(self.server.wrong_bodies),
            *watch_findings,
        ]
        self._keep_latencies(results)
        self._keep_telemetry(results)
        self.server.stop()
        return replace(
            planned,
            started_at=utc(run.execution.started_at_s),
            findings=tuple(finding for finding in findings if not self._is_expected(finding)),
            operation=results.operation,
            density=results.density,
            offered=results.offered,
            measurements=tuple(
                observations[load.role].add_to(load) for load in results.with_histogram(f"histograms/{self.name}.hdr")
            ),
            resources=replace(
                resources,
                server_cores=server_cores,
                link_used_pct=max(used_pct.values(), default=None),
                neighbour_rps=neighbour_rps,
            ),
            conditions=replace(observations[Role.PRIMARY].conditions, guests_paused=self.session.guests_paused),
            counts=replace(
                results.counts,
                bodies_checked=self.server.bodies_checked or None,
                bodies_wrong=len(self.server.wrong_bodies),
            ),
        )

    def _is_expected(self, finding: Finding) -> bool:
        """Whether a finding is what the arm's operation does."""
        return self.driver.operation is not None and finding.code in EXPECTED

    def _send(self) -> TrialResults:
        """Send the loads and return their results, by the kind of workload."""
        if self.driver.experiment.density and isinstance(self.workload, RateWorkload):
            return density.measure(self.driver, self.workload)
        if isinstance(self.workload, ClosedWorkload):
            return closed_loop.measure(self.driver, self.workload)
        if isinstance(self.workload, MailWorkload):
            return mail.measure(self.driver, self.workload)
        if isinstance(self.workload, RampWorkload):
            return open_loop.measure_ramp(self.driver, self.workload)
        return open_loop.measure(self.driver, self.workload)

    def _steal_findings(self, resources: Resources) -> list[Finding]:
        """Findings on stolen CPU time; none with several guests, whose effect on each other is the measurement."""
        serving = self.driver.machines.serving
        return gates.steal(resources.steal_pct, serving[0].host.name) if len(serving) == 1 else []

    def _cold_findings(self, resources: Resources, results: TrialResults) -> list[Finding]:
        """Findings on machines under test, or a KVM host, that read less than they served: some came from a cache."""
        served_mb, host = results.measurements[0].transferred_mb, self.driver.machines.host
        return [
            *gates.not_cold(resources.read_mb, served_mb, self.watch.names.all_suts),
            *(gates.not_cold(resources.host_read_mb, served_mb, host.host.name) if host else []),
        ]

    def _link_use_pct(self, run: ToolRun) -> Mapping[str, float]:
        """Machine → use of its line rate in percent: for each client, and with several clients for the servers."""
        rate_mbit, suts = self.session.inventory.link_mbit, self.driver.machines.suts
        sut_mbit = suts[0].host.vars.link_mbit if suts else None
        if not rate_mbit or self.workload.client == "localhost":
            return {}
        old, new = run.before, run.after
        used_pct = {
            part.client: mbit(old.clients[part.client], new.clients[part.client], part.execution.wall_s)
            / rate_mbit
            * 100
            for part in run.parts
        }
        if len(run.parts) > 1 and sut_mbit:
            for name, reading in old.suts.items():
                used_pct[name] = mbit(reading, new.suts[name], run.execution.wall_s) / sut_mbit * 100
        return used_pct

    def _stop_watch(self) -> tuple[dict[Role, LoadObservations], list[Finding]]:
        """Stop and store the samples; return the observations of each load, and the findings."""
        facts_by_machine = self.session.facts_in(self.spec.arm.environment)
        sources = {name: facts.clock_source or "" for name, facts in facts_by_machine.items()}
        table, observations, findings = self.watch.stop(sources)
        self.session.store.write_file(f"samples/{self.name}.csv", table)
        # A cold workload is slow at the start on purpose.
        expected_code = Code.WARMUP_DRIFT if self.driver.is_cold else None
        return observations, [finding for finding in findings if finding.code is not expected_code]

    def _keep_latencies(self, results: TrialResults) -> None:
        """Store a histogram for each client of the logged load, and one by second for all clients together."""
        if results.logged_role is None:
            return
        tool_results = results.results(results.logged_role)
        logged = [result.latencies_us for result in tool_results if result.latencies_us is not None]
        sent = [result.sent_us for result in tool_results if result.sent_us is not None]
        lines = [latency.histogram(latencies_us) + b"\n" for latencies_us in logged]
        self.session.store.write_file(f"histograms/{self.name}.hdr", b"".join(lines))
        if sent:
            by_second = latency.by_second(np.concatenate(sent), np.concatenate(logged))
            self.session.store.write_file(f"histograms/{self.name}.csv", by_second)

    def _keep_telemetry(self, results: TrialResults) -> None:
        """Store the KVM host's figures on the guests during each tool's load."""
        telemetry_by_role = {
            run.role.value: usage.telemetry(run.before, run.after, run.result.transactions) for run in results.runs
        }
        document = {role: asdict(figures) for role, figures in telemetry_by_role.items() if figures}
        if document:
            self.session.store.write_file(
                f"telemetry/{self.name}.json", json.dumps(document, indent=1).encode() + b"\n"
            )
