"""Size, send and parse a trial's loads, and read the machines' usage before and after each."""

import math
import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from vmtoll import loadgen
from vmtoll.loadgen import ClosedLoad, OpenLoad, ToolLoad, ToolResult
from vmtoll.loadgen.base import without_impossible_figures
from vmtoll.machines.connection import AgentLine
from vmtoll.machines.session import Session, TrialReporter
from vmtoll.model.capacity import CapacityEstimate
from vmtoll.model.errors import ToolError
from vmtoll.model.event import Phase
from vmtoll.model.finding import Role
from vmtoll.model.inventory import Host
from vmtoll.model.trial import Offered, TrialSpec
from vmtoll.model.workload import ClosedWorkload, OpenWorkload, SharedHostWorkload, Workload
from vmtoll.sites import lockstep_list, url_list
from vmtoll.trial import usage
from vmtoll.trial.arrivals import poisson_ns, seed_of
from vmtoll.trial.execution import JointExecution, bound_s, on_client
from vmtoll.trial.exits import ExitTracer
from vmtoll.trial.fleet import Fleet
from vmtoll.trial.merging import ClientPart, merge, on_our_clock, start_spread_s
from vmtoll.trial.observation import TrialObserver
from vmtoll.trial.operation import OperationDriver, Spell
from vmtoll.trial.server_times import ServerTimes, growth
from vmtoll.trial.usage import Usage

# Requests and bytes of one page to learn a rate: enough to outweigh a tool's start, and not too many for a slow link.
_FIRST_REQUESTS = 500
_FIRST_BYTES = 4_000_000


@dataclass(frozen=True)
class ToolRun:
    """One tool's measured load: the planned load, its result, and the readings right before and after."""

    role: Role
    tool: str
    load: ToolLoad
    # `execution`, `result`: all parts together
    execution: JointExecution
    parts: Sequence[ClientPart]  # each client's part
    result: ToolResult
    before: Usage
    after: Usage
    # times that the server recorded during the load, None if it does not record them
    server_times: ServerTimes | None = None
    spell: Spell | None = None  # when the arm's operation was

    @property
    def planned(self) -> int:
        """Number of planned requests."""
        return self.result.planned or self.load.requests

    @property
    def results(self) -> list[ToolResult]:
        """Result of each client."""
        return [part.result for part in self.parts]

    @property
    def start_spread_s(self) -> float | None:
        """Seconds between the first and the last client's start; None with one client."""
        return start_spread_s(self.parts)


def parse_results(tool: str, joint: JointExecution) -> list[ToolResult]:
    """Result of each client's tool. Raises ToolError that names the client."""
    results = []
    for execution in joint.parts:
        with on_client(execution.client, f"{execution.client}: " if len(joint.parts) > 1 else ""):
            results.append(without_impossible_figures(loadgen.get(tool).parse(execution.load, execution.output)))
    return results


class LoadDriver:
    """Builds and sends the loads of one trial. `loaded_s`: total wall clock of its tools.

    `workload`: the trial's, or another one in its place. `fleet`: the senders, either the run's clients or the machine
    under test itself. `client`: the first sender; `sut`: the first machine under test. `capacity`: the capacity that
    shares are fractions of, None without shares. `tracer`: counts the exits of the measured load, if set.
    """

    def __init__(
        self, session: Session, spec: TrialSpec, name: str, tell: TrialReporter, workload: Workload | None = None
    ) -> None:
        self.session, self.spec, self.name, self.tell = session, spec, name, tell
        self.arm, self.scenario = spec.arm, spec.scenario
        self.workload = workload or session.resolved.workloads[self.scenario.workload]
        self.experiment = session.resolved.experiment
        self.fleet = Fleet(session.senders(spec))
        self.machines = session.machines(self.arm, self.scenario.load, self.fleet.lines)
        self.client, self.transport = self.fleet.first, self.workload.transport
        shortest_s = self.experiment.duration_s
        if self.workload.crosscheck:
            shortest_s = min(shortest_s, self.experiment.crosscheck_s)
        shortest_s = 0.0 if self.is_cold else shortest_s
        self.watch = TrialObserver(self.machines, self.scenario.server, self.remote, shortest_s)
        self.loaded_s = 0.0
        self.capacity: CapacityEstimate | None = None
        self.tracer: ExitTracer | None = None
        one_client = self.client if len(self.fleet.lines) == 1 else None
        self.operation = (
            OperationDriver(session, self.arm.environment, self.machines, one_client)
            if workload is None and self.arm.environment in self.experiment.during
            else None
        )

    @property
    def sut(self) -> AgentLine:
        """The first machine under test; a service that is not seen has none."""
        return self.machines.suts[0]

    @property
    def remote(self) -> tuple[str, int]:
        """Address and port of the load, as the first client sees them."""
        return self.sut.host.seen_from(self.client.host), self.transport.port(self.sut.host.port)

    @property
    def users(self) -> int:
        """Number of a closed loop's users."""
        return int(self.scenario.load.value)

    @property
    def is_cold(self) -> bool:
        """Return whether no requested file may be in a page cache."""
        return isinstance(self.workload, SharedHostWorkload) and self.workload.cold

    def rate_rps(self, offered: Offered) -> float:
        """The rate of an open loop. Raises ToolError if there is none."""
        if not offered.offered_rps:
            raise ToolError(f"{self.workload.tool}: there is no rate to send at")
        return offered.offered_rps

    def closed_load(self, tool: str, users: int, rate_rps: float | None, duration_s: float) -> ClosedLoad:
        """Whole passes of the URL list that take about `duration_s` at this rate; one pass if no rate is known.

        Rounded up to the same number of requests for each user, because tools send nothing else.
        """
        site_files, seed = self.session.content, self.session.site.seed
        if self.workload.page:
            urls = self._spread([f"/{self.workload.page}"])
            one_pass = users if rate_rps else max(users, self._first_requests())
        elif loadgen.get(tool).lockstep:
            urls = self._spread(lockstep_list(site_files, "", seed, users))
            one_pass = len(urls) * users
        else:
            urls = self._spread(url_list(site_files, "", seed))
            one_pass = len(urls)
        requests = _whole_passes(one_pass, rate_rps, duration_s) if rate_rps else one_pass
        workload = self.workload
        return ClosedLoad(
            urls, users, math.ceil(requests / users) * users, workload.keep_alive, http=self.transport.http,
            streams=workload.streams if isinstance(workload, ClosedWorkload) else 1,
            resumption=self.transport.resumption, body_bytes=workload.body_bytes,
        )  # fmt: skip

    def open_load(self, rate_rps: float, duration_s: float, to: Host | None = None) -> OpenLoad:
        """Requests for `duration_s` at this rate, in the site's mix even if they are fewer than its URL list.

        They go to the machines under test, or to the machine `to`.
        """
        site_files, seed = self.session.content, self.session.site.seed
        requests = max(len(self.fleet.lines), round(rate_rps * duration_s))
        paths = [f"/{self.workload.page}"] if self.workload.page else url_list(site_files, "", seed)
        if requests < len(paths):
            paths = lockstep_list(site_files, "", seed, round(len(paths) / requests))
        urls, workload, transport = self._spread(paths, [to] if to else None), self.workload, self.transport
        load = OpenLoad(
            urls, rate_rps, requests, workload.keep_alive, http=transport.http, resumption=transport.resumption,
            body_bytes=workload.body_bytes,
        )  # fmt: skip
        return load if to else self.with_arrivals(load)

    @property
    def arrivals_seed(self) -> int | None:
        """Seed of the schedule of random arrivals, the same for all arms of a block; None for even intervals."""
        if not isinstance(self.workload, OpenWorkload) or self.workload.arrivals == "constant":
            return None
        return seed_of(self.session.order_seed, self.spec.block, self.scenario.sort_key)

    def with_arrivals(self, load: OpenLoad) -> OpenLoad:
        """The load with the arrivals that its workload asks for."""
        seed = self.arrivals_seed
        return load if seed is None else replace(load, due_ns=poisson_ns(load.requests, load.rate_rps, seed))

    def each_file_once(self, users: int) -> list[str]:
        """URLs of each file once per machine, in an order drawn from the site's seed; the same number for each user."""
        paths = sorted(f"/{file['path']}" for file in self.session.content["files"] if file["weight"])
        random.Random(self.session.site.seed).shuffle(paths)
        return self._spread(paths[: len(paths) - len(paths) % users])

    def run(self, tool: str, load: ToolLoad, expected_s: float | None) -> JointExecution:
        """Send a load from all clients. Raises ToolError, HostLostError."""
        limit_s = bound_s(expected_s, load.users if isinstance(load, ClosedLoad) else 0)
        joint = self.fleet.send(loadgen.get(tool), load, limit_s, self.machines.all)
        self.loaded_s += joint.wall_s
        return joint

    def warm(self, tool: str, users: int, duration_s: float) -> float:
        """Run a closed loop for about `duration_s` in all; return its rate in requests per second.

        If no rate is known yet, first send one pass of the list to learn it. Raises ToolError, HostLostError.
        """
        rate_rps, spent_s = self.known_rate_rps(tool), 0.0
        while rate_rps is None or spent_s < duration_s * 0.6:
            load = self.closed_load(tool, users, rate_rps, duration_s - spent_s)
            joint = self.run(tool, load, load.requests / rate_rps if rate_rps else None)
            joint.raise_if_killed(f"{tool} (warm-up)")
            spent_s += joint.wall_s
            # Failures are quick: counting them, a failing server would leave a rate that no later load could reach.
            served = sum(result.successful for result in parse_results(tool, joint))
            if not served:
                raise ToolError(f"{tool}: every warm-up request failed")
            rate_rps = served / joint.wall_s
        self.keep_rate(tool, rate_rps)
        return rate_rps

    def known_rate_rps(self, tool: str) -> float | None:
        """Rate of this tool in an earlier closed loop of the same load on this server, in requests per second."""
        return self.session.rates.of(self.arm, self.scenario, tool)

    def keep_rate(self, tool: str, rate_rps: float) -> None:
        self.session.rates.remember(self.arm, self.scenario, tool, rate_rps)

    def measure(self, role: Role, tool: str, load: ToolLoad, expected_s: float | None) -> ToolRun:
        """Send a measured load under observation, with cold caches if the workload asks for them.

        Raises ToolError, HostLostError, AgentError.
        """
        if self.is_cold:
            usage.drop_page_caches(self.machines.kernels)
        times_before = self.watch.server_times()
        before = self.watch.read()
        self.tell(Phase.MEASURING, tool=tool, role=role)
        operation = self.operation if role is Role.PRIMARY else None
        pending = operation.begin() if operation else None
        with self.traced():
            joint = self.run(tool, load, expected_s)
        spell = operation.end(pending) if operation and pending else None
        if operation:
            operation.refuse_unreachable(self.client, self.transport)
        after = self.watch.read(has_guests=not (operation and operation.is_elsewhere))
        if operation and operation.has_new_process:  # its counters began again
            before, after = before.without_domains, after.without_domains
        server_times = growth(times_before, self.watch.server_times())
        parts = self.store_and_parse(tool, joint, tool)
        result = merge(parts)
        if isinstance(load, ClosedLoad) and result.successful and joint.wall_s > 0:
            self.keep_rate(tool, result.successful / joint.wall_s)
        self.watch.record_load(role, tool, before, after, parts)
        return ToolRun(role, tool, load, joint, parts, result, before, after, server_times, spell)

    def traced(self) -> AbstractContextManager[None]:
        """What a measured load is sent in: where its exits are counted, if they are."""
        return self.tracer.load() if self.tracer else nullcontext()

    def store_and_parse(self, tool: str, joint: JointExecution, name: str) -> list[ClientPart]:
        """Store the output of the clients' tools as `name`, with several clients in a folder for each; then parse it.
        Raises ToolError.
        """
        has_several, parts = len(joint.parts) > 1, []
        for execution in joint.parts:
            file_name = f"raw/{self.name}/{execution.client}/{name}" if has_several else f"raw/{self.name}/{name}"
            for kind, text in (("stdout", execution.output.stdout), ("stderr", execution.output.stderr)):
                self.session.store.write_file(f"{file_name}.{kind}", text.encode())
            for file, data in execution.packed.items():
                self.session.store.write_file(f"{file_name}.{file}.gz", data)
        for execution, result in zip(joint.parts, parse_results(tool, joint), strict=True):
            parts.append(ClientPart(execution, on_our_clock(execution, result) if has_several else result))
        return parts

    def _first_requests(self) -> int:
        sizes = {file["path"]: file["size_bytes"] for file in self.session.content["files"]}
        larger = max(sizes[str(self.workload.page)], self.workload.body_bytes or 0)
        return min(_FIRST_REQUESTS, _FIRST_BYTES // larger + 1)

    def _spread(self, paths: Sequence[str], to: Sequence[Host] | None = None) -> list[str]:
        """URLs of these paths: each path once per machine, with the machines taking turns along the list."""
        hosts = to or [line.host for line in self.machines.suts]
        site = self.session.site.name
        scheme, port = self.transport.scheme, self.transport.port
        bases = [f"{scheme}://{host.seen_from(self.client.host)}:{port(host.port)}/{site}" for host in hosts]
        return [
            bases[(position + turn) % len(bases)] + path
            for turn in range(len(bases))
            for position, path in enumerate(paths)
        ]


def _whole_passes(lines: int, rate_rps: float, duration_s: float) -> int:
    """Requests that take about `duration_s` at this rate: whole passes of the list, at least one."""
    return max(1, round(rate_rps * duration_s / lines)) * lines
