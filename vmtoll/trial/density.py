"""A number of guests under load at once, each with its own: what each got, and how the host bore it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vmtoll import loadgen
from vmtoll.loadgen import MailLoad, OpenLoad, ToolResult
from vmtoll.loadgen.base import without_impossible_figures
from vmtoll.machines.clock import clock_offset
from vmtoll.machines.connection import AgentLine
from vmtoll.model.density import DensityFigures, HostFigures, Tile, TileFigures
from vmtoll.model.errors import AgentError, HostLostError, ToolError
from vmtoll.model.event import Phase
from vmtoll.model.finding import Finding, Role
from vmtoll.model.trial import Offered
from vmtoll.model.workload import MailWorkload, RateWorkload, Workload
from vmtoll.trial import gates, mail, usage
from vmtoll.trial.arrivals import poisson_ns, seed_of
from vmtoll.trial.execution import Execution, Sending, bound_s, combine, on_client
from vmtoll.trial.loads import LoadDriver, ToolRun
from vmtoll.trial.measurement import TrialResults, tool_findings
from vmtoll.trial.merging import ClientPart, merge, on_our_clock
from vmtoll.trial.open_loop import measurement_of, rate_not_reached
from vmtoll.trial.usage import Usage

# Time from the order until all tools begin: for all, and for each, by when it must have its URL list.
_LEAD_S, _LEAD_EACH_S = 0.25, 0.05
_KIB = 1024 / 1e6


@dataclass(frozen=True)
class TileLoad:
    """A guest with a load, sent from one client."""

    driver: LoadDriver
    tile: Tile
    number: int  # of the guest, from 1
    sut: AgentLine
    client: AgentLine

    @property
    def workload(self) -> Workload:
        return self.driver.workload

    @property
    def deadline_ms(self) -> float:
        """Its limit."""
        if isinstance(self.workload, RateWorkload):
            return self.workload.deadline_ms
        return self.tile.deadline_ms or 0.0

    @property
    def rate_rps(self) -> float:
        return self.workload.loads[0].value if isinstance(self.workload, RateWorkload) else self.tile.rate_rps or 0.0

    @cached_property
    def mail_load(self) -> MailLoad:
        """Sessions for a mail server; its password exists for this trial only."""
        if not isinstance(self.workload, MailWorkload):
            raise ToolError(f"{self.workload.name} is not a mail workload")
        return replace(mail.first_load(self.driver, self.workload, self.sut.host), rate_rps=self.rate_rps)

    def load(self, duration_s: float, label: str) -> OpenLoad | MailLoad:
        """Its load for this time. Each guest gets its requests at different times."""
        if not isinstance(self.workload, RateWorkload):
            requests = max(1, round(self.rate_rps * duration_s))
            return replace(self.mail_load, requests=requests, tag=f"{self.driver.name}.{self.number}.{label}")
        load = self.driver.open_load(self.rate_rps, duration_s, self.sut.host)
        seed = self.driver.arrivals_seed
        if seed is None:
            return load
        return replace(load, due_ns=poisson_ns(load.requests, load.rate_rps, seed_of(seed, self.number)))


def measure(driver: LoadDriver, workload: RateWorkload) -> TrialResults:
    """Warm all guests up, then load them at once. The primary measurement is of all pages together, whatever their
    guest. Raises ToolError, AgentError, HostLostError.
    """
    experiment, tiles = driver.experiment, tile_loads(driver)
    for tile in tiles:
        if isinstance(tile.workload, MailWorkload):
            mail.prepare(tile.sut, str(tile.tile.server), tile.workload, tile.mail_load.password)
    driver.tell(Phase.PREPARING, tool=workload.tool, role=Role.PRIMARY)
    for execution in _send(driver, tiles, experiment.warmup_s, "warm-up"):
        loadgen.base.raise_if_killed(execution.output, "a tool (warm-up)")
    before = driver.watch.read()
    driver.tell(Phase.MEASURING, tool=workload.tool, role=Role.PRIMARY)
    executions = _send(driver, tiles, experiment.duration_s, "measured")
    after = driver.watch.read()
    parts = [_stored_part(driver, tile, execution) for tile, execution in zip(tiles, executions, strict=True)]
    pages = [part for tile, part in zip(tiles, parts, strict=True) if not tile.tile.is_mail]
    run = _page_run(workload, pages, before, after)
    driver.watch.record_load(Role.PRIMARY, workload.tool, before, after, pages)
    measurement = measurement_of(driver, run, workload.deadline_ms)
    offered = Offered(
        deadline_ms=workload.deadline_ms, arrivals=workload.arrivals, arrivals_seed=driver.arrivals_seed,
        offered_rps=sum(tile.rate_rps for tile in tiles if not tile.tile.is_mail),
    )  # fmt: skip
    figures = DensityFigures(
        guests=len(driver.machines.suts) + len(driver.machines.idle),
        tiles=tuple(figures_of(tile, part.result) for tile, part in zip(tiles, parts, strict=True)),
        host=host_figures(driver, before, after),
    )
    findings = [*gates.mean_over_p99(measurement), *tool_findings(run), *rate_not_reached(run)]
    findings += gates.client_late(measurement) + _busy_clients(executions, run)
    return TrialResults(offered, [run], (measurement,), findings, density=figures)


def tile_loads(driver: LoadDriver) -> list[TileLoad]:
    """The guests with a load; the clients take turns in sending."""
    density = driver.experiment.density
    tiles = density.of(driver.scenario.load.guests or 1) if density else []
    loaded = [(number, tile) for number, tile in enumerate(tiles, start=1) if not tile.idle]
    workloads, lines = driver.session.resolved.workloads, driver.fleet.lines
    drivers = {
        tile.name: LoadDriver(driver.session, driver.spec, driver.name, driver.tell, workloads[tile.name])
        for _, tile in loaded
    }
    return [
        TileLoad(drivers[tile.name], tile, number, sut, lines[turn % len(lines)])
        for turn, ((number, tile), sut) in enumerate(zip(loaded, driver.machines.suts, strict=True))
    ]


def figures_of(tile: TileLoad, result: ToolResult) -> TileFigures:
    """What one guest's clients got."""
    planned = result.planned or result.successful + result.failed
    return TileFigures(
        guest=tile.sut.host.name, kind=tile.tile.name, deadline_ms=tile.deadline_ms, requests=planned,
        successful=result.successful, p99_ms=p99_ms(result, planned),
    )  # fmt: skip


def p99_ms(result: ToolResult, planned: int) -> float | None:
    """The time within which 99% of the planned requests were answered with success, in ms; None if fewer were."""
    rank = -(-99 * planned // 100)
    if result.latencies_us is None or not planned or len(result.latencies_us) < rank:
        return None
    return float(np.sort(result.latencies_us)[rank - 1]) / 1e3


def host_figures(driver: LoadDriver, before: Usage, after: Usage) -> HostFigures:
    """The host between two readings; nothing of a host that is not known."""
    machines, facts = driver.machines, driver.session.facts
    if machines.host is None or before.host is None or after.host is None:
        return HostFigures()
    sizes = [facts[line.host.name].cpus_allowed for line in (*machines.suts, *machines.idle)]
    vcpus = sum(size for size in sizes if size) if all(sizes) else None
    old, new = before.host["machine"], after.host["machine"]
    grown = {key: new[key] - old[key] for key in ("time_s", "user_s", "system_s", "idle_s", "steal_s")}
    cpu_s = sum(grown[key] for key in ("user_s", "system_s", "idle_s", "steal_s"))
    busy_s = grown["user_s"] + grown["system_s"]
    figures = usage.telemetry(before, after, 1)
    wait_s = figures.waits_s.get("vcpu") if figures and figures.waits_s else None
    memory, domains = after.host.get("memory", {}), after.host["domains"].values()
    return HostFigures(
        vcpus=vcpus,
        cpus=facts[machines.host.host.name].cpus_allowed,
        cpu_pct=100 * busy_s / cpu_s if cpu_s > 0 else None,
        ready_pct=100 * wait_s / vcpus / grown["time_s"] if wait_s is not None and vcpus else None,
        guests_mb=sum(domain["rss_kib"] for domain in domains) * _KIB,
        available_mb=memory["available_kib"] * _KIB if memory else None,
        total_mb=memory["total_kib"] * _KIB if memory else None,
        ksm=bool(memory["ksm"]) if "ksm" in memory else None,
        merged_mb=memory["merged_kib"] * _KIB if "merged_kib" in memory else None,
    )


def _send(driver: LoadDriver, tiles: Sequence[TileLoad], duration_s: float, label: str) -> list[Execution]:
    """Send all loads, which begin at one instant. Raises ToolError, HostLostError after it has ended all of them."""
    loads = [tile.load(duration_s, label) for tile in tiles]
    watched = [*driver.fleet.lines, *driver.machines.all]
    begin_s = time.monotonic()
    try:
        ahead_s = {line.host.name: clock_offset(line).ahead_s for line in driver.fleet.lines}
        start_at_s = time.time() + _LEAD_S + _LEAD_EACH_S * len(tiles)
        sendings = [
            Sending(
                tile.client, loadgen.get(tile.workload.tool), load, bound_s(duration_s), start_at_s,
                ahead_s[tile.client.host.name], f"tile-{tile.number}",
            )
            for tile, load in zip(tiles, loads, strict=True)
        ]  # fmt: skip
        return [sending.wait(watched) for sending in sendings]
    except (ToolError, AgentError, HostLostError):
        driver.fleet.end()
        raise
    finally:
        driver.loaded_s += time.monotonic() - begin_s


def _stored_part(driver: LoadDriver, tile: TileLoad, execution: Execution) -> ClientPart:
    """Store the output of one guest's tool, and parse it. Raises ToolError."""
    name = f"raw/{driver.name}/tile-{tile.number}/{tile.workload.tool}"
    for kind, text in (("stdout", execution.output.stdout), ("stderr", execution.output.stderr)):
        driver.session.store.write_file(f"{name}.{kind}", text.encode())
    for file, data in execution.packed.items():
        driver.session.store.write_file(f"{name}.{file}.gz", data)
    with on_client(execution.client, f"{tile.sut.host.name}: "):
        parsed = loadgen.get(tile.workload.tool).parse(execution.load, execution.output)
    return ClientPart(execution, on_our_clock(execution, without_impossible_figures(parsed)))


def _page_run(workload: RateWorkload, parts: Sequence[ClientPart], before: Usage, after: Usage) -> ToolRun:
    """The loads of all guests with pages, as one."""
    loads = [part.execution.load for part in parts if isinstance(part.execution.load, OpenLoad)]
    total = replace(
        loads[0], urls=[url for load in loads for url in load.urls], due_ns=None,
        rate_rps=sum(load.rate_rps for load in loads), requests=sum(load.requests for load in loads),
    )  # fmt: skip
    joint = combine([part.execution for part in parts])
    return ToolRun(Role.PRIMARY, workload.tool, total, joint, parts, merge(parts), before, after)


def _busy_clients(executions: Sequence[Execution], run: ToolRun) -> list[Finding]:
    """Findings on clients whose tools, all of them together, used most of their CPU."""
    shares: dict[str, float] = {}
    for execution in executions:
        shares[execution.client] = shares.get(execution.client, 0.0) + execution.cpu_share
    if len(executions) == 1:
        return []  # its tool is judged by itself
    return [
        finding
        for name, share in shares.items()
        for finding in gates.client_saturated(share, run.role, run.tool, name)
    ]  # fmt: skip
