"""A trial's tools at work: loads are sized, sent and read, and what the machines used meanwhile is noted."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from workloads import tools
from workloads.runner import cold, gates
from workloads.runner.bench import Bench
from workloads.runner.beside import ALONE, Beside
from workloads.runner.fleet import Fleet, Joint, senders
from workloads.runner.gates import Reason
from workloads.runner.inventory import Host
from workloads.runner.joint import Part, merged, on_our_clock, start_spread_s
from workloads.runner.load import bound_s, passes
from workloads.runner.machines import machines
from workloads.runner.schedule import Scenario
from workloads.runner.usage import Usage
from workloads.runner.watch import Watch
from workloads.sites import lockstep_list, url_list
from workloads.tools import AnyLoad, Load, OpenLoad, ToolError, ToolResult

# Of one page, to learn a rate: enough that a tool's own start does not decide it, and not too much for a slow link.
_FIRST_REQUESTS = 500
_FIRST_BYTES = 4_000_000


@dataclass(frozen=True)
class Phase:
    """One tool's measured load: what was planned, what came of it, and the readings right before and after.

    `parts` is what each client did of it; `done` and `result` are all of them together.
    """

    tool: str
    load: AnyLoad
    done: Joint
    parts: Sequence[Part]
    result: ToolResult
    before: Usage
    after: Usage

    @property
    def results(self) -> list[ToolResult]:
        """What each client saw."""
        return [part.result for part in self.parts]

    @property
    def start_spread_s(self) -> float | None:
        """How far apart the clients began; None where there is one."""
        return start_spread_s(self.parts)

    def reasons(self, *, twin: bool = False) -> list[Reason]:
        """Requests that failed, a tool that was its own bottleneck, and clients that did not begin together."""
        seen = self.result
        return [
            *gates.failed_requests(self.load.requests, seen.transactions, seen.successful, seen.failed, self.tool),
            *(r for p in self.parts for r in gates.client_saturated(p.done.cpu_share, p.who, twin=twin)),
            *gates.start_spread(self.start_spread_s, self.done.wall_s, self.tool),
        ]


class Driver:
    """The clients' hands in one trial. `loaded_s` adds up the wall clock of all tools that ran.

    `fleet` sends: the run's clients, or the machine under test itself. `client` is the first of it, `sut` the first
    machine under test.
    """

    def __init__(self, bench: Bench, scenario: Scenario, name: str, say: Callable[[str], None]) -> None:
        self.bench, self.scenario, self.name, self.say = bench, scenario, name, say
        self.workload = bench.resolved.workloads[scenario.workload]
        self.experiment = bench.resolved.experiment
        self.fleet = Fleet(senders(bench, scenario))
        self.machines = machines(
            bench.inventory, bench.lines, self.fleet.lines, bench.suts(scenario), bench.neighbour(scenario)
        )
        self.client, self.sut = self.fleet.first, self.machines.suts[0]
        self.watch = Watch(self.machines, scenario.server)
        self.loaded_s = 0.0

    @property
    def cold(self) -> bool:
        """Whether nothing that is asked for may be in a page cache."""
        return isinstance(self.workload, Beside) and self.workload.cold

    def alone(self) -> "Driver":
        """The same on the first machine by itself, beside nothing."""
        offer = replace(self.scenario.offer, place=ALONE)
        return Driver(self.bench, replace(self.scenario, offer=offer), self.name, self.say)

    def tell(self, message: str) -> None:
        self.say(f"{self.scenario.server} on {self.scenario.environment}: {message}")

    def closed(self, tool: str, users: int, rate_rps: float | None, duration_s: float) -> Load:
        """Whole passes of the URL list that take about `duration_s` at this rate; one pass when none is known.

        Rounded up to as many for each user: a tool sends no others.
        """
        manifest, seed = self.bench.manifest, self.bench.resolved.site.seed
        if self.workload.page:
            urls = self._spread([f"/{self.workload.page}"])
            one_pass = users if rate_rps else max(users, self._first_requests())
        elif tools.get(tool).LOCKSTEP:
            urls = self._spread(lockstep_list(manifest, "", seed, users))
            one_pass = len(urls) * users
        else:
            urls = self._spread(url_list(manifest, "", seed))
            one_pass = len(urls)
        requests = passes(one_pass, rate_rps, duration_s) if rate_rps else one_pass
        return Load(urls, users, math.ceil(requests / users) * users, self.workload.keep_alive)

    def opened(self, rate_rps: float, duration_s: float, to: Host | None = None) -> OpenLoad:
        """Requests for `duration_s` at this rate, with the site's mix also where they are fewer than its list.

        They go to the machines under test, or to another one.
        """
        manifest, seed = self.bench.manifest, self.bench.resolved.site.seed
        requests = max(len(self.fleet.lines), round(rate_rps * duration_s))
        paths = [f"/{self.workload.page}"] if self.workload.page else url_list(manifest, "", seed)
        if requests < len(paths):
            paths = lockstep_list(manifest, "", seed, round(len(paths) / requests))
        return OpenLoad(self._spread(paths, [to] if to else None), rate_rps, requests, self.workload.keep_alive)

    def once(self, users: int) -> list[str]:
        """Each file of the site once on each machine, in an order drawn from the site's seed; as many for each user."""
        paths = sorted(f"/{file['path']}" for file in self.bench.manifest["files"] if file["weight"])
        random.Random(self.bench.resolved.site.seed).shuffle(paths)
        return self._spread(paths[: len(paths) - len(paths) % users])

    def run(self, tool: str, load: AnyLoad, expected_s: float | None) -> Joint:
        """Send a load by all clients. Raises ToolError, HostLostError."""
        limit_s = bound_s(expected_s, load.users if isinstance(load, Load) else 0)
        done = self.fleet.send(tools.get(tool), load, limit_s, self.machines.all)
        self.loaded_s += done.wall_s
        return done

    def warm(self, tool: str, users: int, duration_s: float) -> float:
        """Closed loop for about `duration_s` in all; the rate seen, in requests per second.

        Where no rate is known yet, one pass of the list is sent first to learn it. Raises ToolError, HostLostError.
        """
        rate_rps, spent_s = self.bench.rates.get(self.key(tool)), 0.0
        while rate_rps is None or spent_s < duration_s * 0.6:
            load = self.closed(tool, users, rate_rps, duration_s - spent_s)
            done = self.run(tool, load, load.requests / rate_rps if rate_rps else None)
            done.require(f"{tool}, warming up,")
            spent_s += done.wall_s
            # Failures are quick: a server that is being lost would leave a rate that no later load could keep up.
            served = sum(tools.get(tool).parse(one.load, one.output).successful for one in done.parts)
            if not served:
                raise ToolError(f"{tool}, warming up, got no answer that was good")
            rate_rps = served / done.wall_s
        self.bench.rates[self.key(tool)] = rate_rps
        return rate_rps

    def known_rate_rps(self, tool: str) -> float | None:
        """What the tool got of this server in an earlier closed loop."""
        return self.bench.rates.get(self.key(tool))

    def measured(self, tool: str, load: AnyLoad, expected_s: float | None) -> Phase:
        """Send a load that counts, under observation, and to cold caches where the workload wants them.

        Raises ToolError, HostLostError, AgentError.
        """
        if self.cold:
            cold.drop(self.machines.kernels)
        before = self.watch.read()
        self.tell(f"{tool} measures")
        done = self.run(tool, load, expected_s)
        after = self.watch.read()
        parts = self.read(tool, done, tool)
        result = merged(parts)
        if isinstance(load, Load) and result.successful and done.wall_s > 0:
            self.bench.rates[self.key(tool)] = result.successful / done.wall_s
        self.watch.loaded(tool, before, after, parts)
        return Phase(tool, load, done, parts, result, before, after)

    def read(self, tool: str, done: Joint, name: str) -> list[Part]:
        """Keep what the clients' tools printed, as `name`, each in a folder of its own where they are several, and
        read it. Raises ToolError.
        """
        several, parts = len(done.parts) > 1, []
        for one in done.parts:
            file_name = f"raw/{self.name}/{one.client}/{name}" if several else f"raw/{self.name}/{name}"
            for kind, text in (("stdout", one.output.stdout), ("stderr", one.output.stderr)):
                self.bench.store.keep(f"{file_name}.{kind}", text.encode())
            for file, data in one.packed.items():
                self.bench.store.keep(f"{file_name}.{file}.gz", data)
        for one in done.parts:
            try:
                result = tools.get(tool).parse(one.load, one.output)
            except ToolError as error:
                raise ToolError(f"{one.client}: {error}") if several else error from None
            who = f"{tool} on {one.client}" if several else tool
            parts.append(Part(who, one, on_our_clock(one, result) if several else result))
        return parts

    def key(self, tool: str) -> tuple[str, str, str, str]:
        """Under which the bench keeps the rate of a tool in this scenario."""
        workload = " ".join([self.scenario.workload, *self.scenario.offer.place.words])
        return (self.scenario.base_environment, self.scenario.server, workload, tool)

    def _first_requests(self) -> int:
        sizes = {file["path"]: file["size_bytes"] for file in self.bench.manifest["files"]}
        return min(_FIRST_REQUESTS, _FIRST_BYTES // sizes[str(self.workload.page)] + 1)

    def _spread(self, paths: Sequence[str], to: Sequence[Host] | None = None) -> list[str]:
        """URLs of these paths, the whole list once for each machine; within it the machines take turns."""
        hosts = to or [line.host for line in self.machines.suts]
        site = self.bench.resolved.site.name
        bases = [f"http://{host.seen_from(self.client.host)}:{host.port}/{site}" for host in hosts]
        return [
            bases[(place + turn) % len(bases)] + path for turn in range(len(bases)) for place, path in enumerate(paths)
        ]
