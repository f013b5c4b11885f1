"""The neighbour of a trial: a further guest on the same host, under a load of its own while the trial measures."""

from dataclasses import replace

import numpy as np

from workloads import tools
from workloads.runner import gates, open_loop
from workloads.runner.beside import Beside
from workloads.runner.driver import Driver, Phase
from workloads.runner.errors import AgentError
from workloads.runner.fleet import clock_ahead_s, joint
from workloads.runner.gates import Reason
from workloads.runner.joint import on_our_clock
from workloads.runner.load import Execution, Sending
from workloads.runner.results import Row
from workloads.runner.workload import ClosedWorkload, OpenWorkload
from workloads.tools import ToolError

# Far longer than a trial takes: it is ended with the trial.
MOST_S = 1800.0
# For its last requests to be answered, or given up.
_END_S = 60.0
_LABEL = "neighbour"


class Background:
    """The first client's second tool: begun before the trial's warm-up, ended after its measurement."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.dose = driver, driver.scenario.offer.place.dose
        self.sending: Sending | None = None
        self.tool = ""

    def begin(self) -> None:
        """Send at the dose's rate from now on; nothing for a dose of nothing, or where there is no such guest.

        Raises ToolError, HostLostError.
        """
        driver, workload, whole_rps = self.driver, self.driver.workload, 0.0
        if isinstance(workload, ClosedWorkload | OpenWorkload) and workload.capacity:
            whole_rps = open_loop.capacity_rps(driver, workload.capacity)  # before anything disturbs it
        if not isinstance(workload, Beside) or not workload.neighbour or not driver.machines.neighbour:
            return
        if not self.dose or not self.dose.value:
            return
        rate_rps = self.dose.value * whole_rps if self.dose.kind == "share" else self.dose.value
        self.tool = workload.neighbour.tool
        load = driver.opened(rate_rps, MOST_S, driver.machines.neighbour.host)
        ahead_s = clock_ahead_s(driver.client) if len(driver.fleet.lines) > 1 else 0.0
        driver.tell(f"{self.tool} sends {rate_rps:.0f} requests per second to the neighbour")
        self.sending = Sending(driver.client, tools.get(self.tool), load, 2 * MOST_S, ahead_s=ahead_s, label=_LABEL)

    def end(self, own: Phase) -> tuple[Row, list[Reason]]:
        """What the neighbour answered per second while the trial's own tool measured; what both cost the client.

        Raises ToolError when its tool had ended before, AgentError when its server had, HostLostError.
        """
        if self.sending is None or self.driver.machines.neighbour is None:
            return {"neighbour_rps": 0.0 if self.dose and self.driver.machines.neighbour else None}, []
        self.driver.machines.neighbour.call("server_check", name=self.driver.scenario.server)
        try:
            self.driver.client.call("interrupt", label=_LABEL)
        except AgentError as error:
            raise ToolError(f"{error}: the neighbour's {self.tool} ended before the trial") from error
        done = self.sending.wait(self.driver.machines.all, _END_S)
        done = replace(done, output=replace(done.output, ended=True))
        [part] = self.driver.read(self.tool, joint([done]), _LABEL)
        sent_us = on_our_clock(done, part.result).sent_us
        begin_us = own.done.started_at_s * 1e6
        during = 0 if sent_us is None else np.count_nonzero((sent_us - begin_us) // (own.done.wall_s * 1e6) == 0)
        return {"neighbour_rps": float(during) / own.done.wall_s}, self._saturated(own, done)

    def _saturated(self, own: Phase, done: Execution) -> list[Reason]:
        """Both tools share the first client: what they use together counts."""
        mine, per_s = own.parts[0].done, done.cpu_s / done.wall_s
        if not per_s:
            return []
        share = done.cpu_share * (1 + mine.cpu_s / mine.wall_s / per_s)
        return gates.client_saturated(share, f"{own.tool}, with {self.tool} for the neighbour,")
