"""One trial, from starting the server to the row."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from workloads import tools
from workloads.runner import gates, latency, samples
from workloads.runner.bench import Bench
from workloads.runner.errors import AgentError, HostLostError
from workloads.runner.gates import Reason
from workloads.runner.load import Execution, bound_s, execute, passes
from workloads.runner.results import Row
from workloads.runner.schedule import Planned
from workloads.runner.transport import AgentLine
from workloads.runner.usage import Usage, cpu_columns, read_usage
from workloads.sites import lockstep_list, url_list
from workloads.tools import Load, ToolError, ToolResult
from workloads.tools.base import require

BODIES = 4
SERVER_LIMIT_S = 60.0
PING_LIMIT_S = 15.0
# The server is warm already; this only learns how fast the twin is, where no earlier trial has.
TWIN_WARMUP_S = 0.3
Say = Callable[[str], None]


def _utc(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds")


@dataclass
class Trial:
    """One attempt at a planned trial. `attempt` gives its row; nothing but a bug makes it raise."""

    bench: Bench
    planned: Planned
    number: int
    say: Say
    reasons: list[Reason] = field(default_factory=list)
    row: Row = field(default_factory=dict)
    loaded_s: float = 0.0

    def __post_init__(self) -> None:
        scenario = self.planned.scenario
        self.scenario = scenario
        self.workload = self.bench.resolved.workloads[scenario.workload]
        self.experiment = self.bench.resolved.experiment
        self.host = self.bench.sut(scenario)
        self.sut = self.bench.line(self.host)
        kvm_host = self.bench.inventory.kvm_host(self.host)
        self.kvm_host: AgentLine | None = self.bench.line(kvm_host) if kvm_host else None
        self.name = self.planned.name(self.number)
        self.base_url = f"http://{self.host.address}:{self.host.port}/{self.bench.resolved.site.name}"
        self.sampled = [line for line in (self.bench.client, self.sut, self.kvm_host) if line]

    def attempt(self) -> Row:
        """Measure; whatever goes wrong becomes a reason of the row."""
        self.bench.store.clear_trial(self.name)
        self.row = self._scenario_columns() | {"started_at": _utc(time.time())}
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
        self.row["fixed_cost_s"] = time.monotonic() - begin - self.loaded_s
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
            "offered_load": f"closed:{self.workload.users}",
            "users": self.workload.users,
            "twin": self.workload.twin,
        }

    def _or_lost(self, code: str) -> str:
        """`host-lost` when a machine no longer answers: then that is why the tool or the server failed."""
        for line in self.sampled:
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
        self.say(f"{scenario.server} on {scenario.environment}: starting")
        seen = self.sut.call("server_start", SERVER_LIMIT_S + 30, name=scenario.server, limit_s=SERVER_LIMIT_S)
        self.reasons += gates.fingerprint(bench.reference(scenario.server), seen, scenario.server)
        self.reasons += gates.content(bench.manifest["digest"], bench.facts[self.host.name].get("content_digest"))
        wrong = self._bodies("before")
        pending = [line.ask("sample_start") for line in self.sampled]
        for answer in pending:
            answer.wait(30)
        self._tool_and_twin()
        wrong += self._bodies("after")
        self.row |= {"bodies_checked": 2 * BODIES, "bodies_wrong": len(wrong)}
        self.reasons += gates.wrong_bodies(wrong)
        self._keep_samples()
        self.sut.call("server_stop", SERVER_LIMIT_S + 30, name=scenario.server, limit_s=SERVER_LIMIT_S)

    def _leave(self) -> None:
        """After a failure: nothing of this trial may run on into the next."""
        if not self.reasons or self.reasons[0].code not in {"host-lost", "tool-failed", "server-failed"}:
            return
        for line, op, args in (
            (self.bench.client, "kill", {}),
            *((line, "sample_stop", {}) for line in self.sampled),
            (self.sut, "server_stop", {"name": self.scenario.server, "limit_s": SERVER_LIMIT_S}),
        ):
            if not line.lost_because:
                try:
                    line.call(op, SERVER_LIMIT_S + 30, **args)
                except (AgentError, HostLostError) as error:
                    self.reasons.append(Reason(self.reasons[0].code, f"while tidying up: {error}"))

    def _bodies(self, when: str) -> list[str]:
        """Digests of a few files, drawn anew each time, as the client gets them."""
        rng = random.Random(f"{self.bench.order_seed}:{self.planned.key}:{when}")
        files = rng.sample(self.bench.manifest["files"], k=BODIES)
        wanted = [{"path": f"{self.bench.resolved.site.name}/{f['path']}", "sha256": f["sha256"]} for f in files]
        checked = self.bench.client.ask(
            "http_check", host=self.host.address, port=self.host.port, files=wanted, limit_s=SERVER_LIMIT_S
        ).wait(SERVER_LIMIT_S + 60, [self.sut])
        return list(checked["wrong"])

    def _load(self, tool: str, requests: int) -> Load:
        seed, users = self.bench.resolved.site.seed, self.workload.users
        if tools.get(tool).LOCKSTEP:
            urls = lockstep_list(self.bench.manifest, self.base_url, seed, users)
        else:
            urls = url_list(self.bench.manifest, self.base_url, seed)
        return Load(urls, users, requests, self.workload.keep_alive)

    def _one_pass(self, tool: str) -> int:
        load = self._load(tool, 1)
        return len(load.urls) * (self.workload.users if tools.get(tool).LOCKSTEP else 1)

    def _run(self, tool: str, requests: int, rate: float | None) -> Execution:
        limit = bound_s(requests / rate if rate else None)
        watch = [line for line in (self.sut, self.kvm_host) if line]
        done = execute(self.bench.client, tools.get(tool), self._load(tool, requests), limit, watch)
        self.loaded_s += done.wall_s
        return done

    def _warm(self, tool: str, duration_s: float) -> float:
        """Send load for about `duration_s` in all; the rate seen, in requests per second.

        Where no rate is known yet, one pass of the list is sent first to learn it.
        """
        key = (self.scenario.base_environment, self.scenario.server, self.scenario.workload, tool)
        rate = self.bench.rates.get(key)
        one, spent_s = self._one_pass(tool), 0.0
        while rate is None or spent_s < duration_s * 0.6:
            requests = passes(one, rate, duration_s - spent_s) if rate else one
            done = self._run(tool, requests, rate)
            require(done.output, f"{tool}, warming up,")
            spent_s += done.wall_s
            rate = requests / done.wall_s
        self.bench.rates[key] = rate
        return rate

    def _measured(self, tool: str, duration_s: float, rate: float) -> tuple[Execution, ToolResult, int]:
        requests = passes(self._one_pass(tool), rate, duration_s)
        done = self._run(tool, requests, rate)
        folder = f"raw/{self.name}"
        for kind, text in (("stdout", done.output.stdout), ("stderr", done.output.stderr)):
            self.bench.store.keep(f"{folder}/{tool}.{kind}", text.encode())
        for name, data in done.packed.items():
            self.bench.store.keep(f"{folder}/{tool}.{name}.gz", data)
        result = tools.get(tool).parse(self._load(tool, requests), done.output)
        if result.transactions and done.wall_s > 0:
            key = (self.scenario.base_environment, self.scenario.server, self.scenario.workload, tool)
            self.bench.rates[key] = result.transactions / done.wall_s
        return done, result, requests

    def _usage(self) -> Usage:
        domain = str(self.host.get("vmtoll_domain", "")) or None
        return read_usage(self.bench.client, self.sut, self.scenario.server, self.kvm_host, domain)

    def _tool_and_twin(self) -> None:
        tool, twin = self.workload.tool, self.workload.twin
        self.say(f"{self.scenario.server} on {self.scenario.environment}: {tool}")
        rate = self._warm(tool, self.experiment.warmup_s)
        before = self._usage()
        done, result, requests = self._measured(tool, self.experiment.duration_s, rate)
        after = self._usage()
        readings = [before, after]
        self._tool_columns(done, result, requests)
        self.row |= cpu_columns(before, after, result.transactions)
        self._link(before, after, done.wall_s)
        self.row["steal_pct"] = after.steal_pct(before)
        self.reasons += gates.steal(self.row["steal_pct"])
        latencies = result.latencies_us
        if twin:
            self.say(f"{self.scenario.server} on {self.scenario.environment}: {twin}")
            known = (self.scenario.base_environment, self.scenario.server, self.scenario.workload, twin)
            twin_rate = self.bench.rates.get(known) or self._warm(twin, TWIN_WARMUP_S)
            twin_before = self._usage()
            done, result, requests = self._measured(twin, self.experiment.twin_s, twin_rate)
            twin_after = self._usage()
            readings += [twin_before, twin_after]
            self._twin_columns(done, result, requests)
            columns = cpu_columns(twin_before, twin_after, result.transactions)
            self.row["twin_server_cpu_us_per_request"] = columns["server_cpu_us_per_request"]
            self.row["twin_host_cpu_us_per_request"] = columns.get("host_cpu_us_per_request")
            latencies = result.latencies_us
        self.row["memory_pss_kib"] = max(r.pss_kib for r in readings)
        self.row["processes"] = max(r.processes for r in readings)
        if latencies is not None:
            self.row |= latency.summary(latencies)
            self.bench.store.keep(f"histograms/{self.name}.hdr", latency.histogram(latencies) + b"\n")

    def _tool_columns(self, done: Execution, result: ToolResult, requests: int) -> None:
        tool = self.workload.tool
        self.row |= {
            "requests": requests,
            "started_at": _utc(done.started_at_s),
            "duration_s": done.wall_s,
            "transactions": result.transactions,
            "availability_pct": result.availability_pct,
            "transferred_mb": result.transferred_mb,
            "throughput_rps": result.transactions / done.wall_s,
            "throughput_mb_per_s": result.transferred_mb / done.wall_s,
            "response_time_mean_ms": result.response_time_mean_ms,
            "concurrency": result.concurrency,
            "successful": result.successful,
            "failed": result.failed,
            "longest_ms": result.longest_ms,
            "shortest_ms": result.shortest_ms,
            "client_cpu_s": done.cpu_s,
            "client_cpu_share": done.cpu_share,
        }
        self.reasons += gates.failed_requests(requests, result.transactions, result.successful, result.failed, tool)
        self.reasons += gates.client_saturated(done.cpu_share, tool)
        self.reasons += gates.littles_law(
            result.concurrency, self.workload.users, result.elapsed_s, tools.get(tool).TICK_S, tool
        )

    def _twin_columns(self, done: Execution, result: ToolResult, requests: int) -> None:
        twin = str(self.workload.twin)
        self.row |= {
            "twin_requests": requests,
            "twin_duration_s": done.wall_s,
            "twin_throughput_rps": result.transactions / done.wall_s,
            "twin_failed": result.failed,
            "twin_client_cpu_share": done.cpu_share,
        }
        self.reasons += gates.failed_requests(requests, result.transactions, result.successful, result.failed, twin)
        self.reasons += gates.client_saturated(done.cpu_share, twin, twin=True)

    def _link(self, before: Usage, after: Usage, wall_s: float) -> None:
        rate_mbit = self.bench.inventory.link_mbit
        if rate_mbit:
            self.row["link_used_pct"] = after.client_mbit(before, wall_s) / rate_mbit * 100
            self.reasons += gates.link_bound(self.row["link_used_pct"])

    def _keep_samples(self) -> None:
        pending = [(line, line.ask("sample_stop")) for line in self.sampled]
        series = [(line.host.name, str(line.host.role), answer.wait(30)) for line, answer in pending]
        self.bench.store.keep(f"samples/{self.name}.csv", samples.to_csv(series))
