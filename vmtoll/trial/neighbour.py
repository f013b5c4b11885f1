"""The neighbour of a trial: another guest on the same host, under its own load while the trial measures."""

from dataclasses import replace

import numpy as np

from vmtoll import loadgen
from vmtoll.machines.clock import clock_offset
from vmtoll.model.errors import AgentError, ToolError
from vmtoll.model.event import Phase
from vmtoll.model.finding import Finding
from vmtoll.model.load import LoadKind
from vmtoll.model.workload import SharedHostWorkload
from vmtoll.trial import gates
from vmtoll.trial.execution import Execution, Sending, combine
from vmtoll.trial.loads import LoadDriver, ToolRun
from vmtoll.trial.merging import on_our_clock

# The planned duration, far longer than a trial takes: the trial's end stops the tool.
MOST_S = 1800.0
# Time for the last requests to be answered, or given up.
_END_S = 60.0
_LABEL = "neighbour"


class NeighbourLoadGenerator:
    """A second tool on the first client: starts before the trial's warm-up, ends after its measurement."""

    def __init__(self, driver: LoadDriver) -> None:
        self.driver, self.load = driver, driver.scenario.load.neighbour
        self.sending: Sending | None = None
        self.tool = ""

    def begin(self) -> None:
        """Start sending at the neighbour's rate; do nothing at a rate of 0, or without a neighbour.

        Raises ToolError, HostLostError.
        """
        driver, workload = self.driver, self.driver.workload
        if not isinstance(workload, SharedHostWorkload) or not workload.neighbour or not driver.machines.neighbour:
            return
        if not self.load or not self.load.value:
            return
        rate_rps = self.load.value
        if self.load.kind is LoadKind.SHARE and driver.capacity:
            rate_rps *= driver.capacity.mean_rps
        self.tool = workload.neighbour.tool
        load = driver.open_load(rate_rps, MOST_S, driver.machines.neighbour.host)
        ahead_s = clock_offset(driver.client).ahead_s if len(driver.fleet.lines) > 1 else 0.0
        driver.tell(Phase.NEIGHBOUR, tool=self.tool, rate_rps=rate_rps)
        self.sending = Sending(driver.client, loadgen.get(self.tool), load, 2 * MOST_S, ahead_s=ahead_s, label=_LABEL)

    def end(self, tool_run: ToolRun) -> tuple[float | None, list[Finding]]:
        """Stop the neighbour's tool; return its rate during the trial's measurement, in requests per second, and
        findings on the CPU that both tools used on the client. The rate is 0 without a load, None without a neighbour.

        Raises ToolError if the neighbour's tool had already ended, AgentError if its server had, HostLostError.
        """
        if self.sending is None or self.driver.machines.neighbour is None:
            return 0.0 if self.load and self.driver.machines.neighbour else None, []
        self.driver.machines.neighbour.call("server_check", name=self.driver.scenario.server)
        try:
            self.driver.client.call("interrupt", label=_LABEL)
        except AgentError as error:
            complaint = f"{error}: the neighbour's {self.tool} ended before the trial"
            raise ToolError(complaint, error.machine) from error
        execution = self.sending.wait(self.driver.machines.all, _END_S)
        execution = replace(execution, output=replace(execution.output, interrupted=True))
        [part] = self.driver.store_and_parse(self.tool, combine([execution]), _LABEL)
        sent_us = on_our_clock(execution, part.result).sent_us
        begin_us = tool_run.execution.started_at_s * 1e6
        requests_during = (
            0 if sent_us is None else np.count_nonzero((sent_us - begin_us) // (tool_run.execution.wall_s * 1e6) == 0)
        )
        return float(requests_during) / tool_run.execution.wall_s, self._saturation_findings(tool_run, execution)

    def _saturation_findings(self, tool_run: ToolRun, execution: Execution) -> list[Finding]:
        """Findings on the first client, which both tools share: their CPU counts together."""
        trial_execution, neighbour_cpus = tool_run.parts[0].execution, execution.cpu_s / execution.wall_s
        if not neighbour_cpus:
            return []
        share = execution.cpu_share * (1 + trial_execution.cpu_s / trial_execution.wall_s / neighbour_cpus)
        return gates.client_saturated(share, tool_run.role, tool_run.tool, self.driver.client.host.name, self.tool)
