"""A load dealt out to several clients and added up again: nothing is lost, doubled or moved."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice

import numpy as np
import pytest
from numpy.typing import NDArray

from vmtoll.loadgen import ClosedLoad, OpenLoad, Output, ToolLoad, ToolResult
from vmtoll.model.finding import Code, Role
from vmtoll.trial import latency
from vmtoll.trial.dealing import deal
from vmtoll.trial.execution import Execution, combine
from vmtoll.trial.loads import ToolRun
from vmtoll.trial.measurement import base_measurement, tool_findings
from vmtoll.trial.merging import ClientPart, merge, on_our_clock, start_spread_s
from vmtoll.trial.usage import Usage

URLS = [f"http://metal/{n}" for n in range(40)]


def asked(load: ToolLoad) -> Counter[str]:
    """URL → how often one client that walks its list, all users or one of them, asks for it."""
    assert isinstance(load, ClosedLoad | OpenLoad)
    return Counter(islice(cycle(load.urls), load.requests))


@pytest.mark.parametrize("clients", [1, 2, 3, 7])
@pytest.mark.parametrize("requests", [100, 1000])
def test_an_open_loop_is_dealt_like_cards(clients: int, requests: int) -> None:
    whole = OpenLoad(URLS, 500.0, requests, keep_alive=True)
    parts = deal(whole, clients, lockstep=False)
    assert sum((asked(part) for part in parts), Counter()) == asked(whole)
    assert sum(part.rate_rps for part in parts if isinstance(part, OpenLoad)) == pytest.approx(500.0)
    assert max(p.requests for p in parts) - min(p.requests for p in parts) <= 1


def walked(load: ToolLoad) -> Counter[str]:
    """What siege's users ask for: user i begins at line i * lines / users."""
    assert isinstance(load, ClosedLoad)
    lines, each = len(load.urls), load.requests // load.users
    return Counter(
        load.urls[(user * lines // load.users + step) % lines] for user in range(load.users) for step in range(each)
    )


@pytest.mark.parametrize(("users", "clients"), [(4, 2), (10, 3), (8, 7), (20, 3), (7, 3)])
def test_users_keep_their_places_in_the_list(users: int, clients: int) -> None:
    """Exactly where the list divides by the users; else a line more or less at the seams."""
    whole = ClosedLoad(URLS, users, 3 * 40 // users * users, keep_alive=True)
    parts = deal(whole, clients, lockstep=False)
    assert sum(part.requests for part in parts) == whole.requests
    assert sum(part.users for part in parts if isinstance(part, ClosedLoad)) == users
    missed = asked(whole) - sum((walked(part) for part in parts), Counter())
    assert missed.total() <= (0 if 40 % users == 0 else users)


def test_users_in_lockstep_all_walk_the_whole_list() -> None:
    parts = deal(ClosedLoad(URLS, 5, 400, keep_alive=True), 2, lockstep=True)
    assert [(part.users, part.requests, list(part.urls)) for part in parts if isinstance(part, ClosedLoad)] == [
        (2, 160, URLS), (3, 240, URLS),
    ]  # fmt: skip


def test_fewer_users_than_clients_are_no_load() -> None:
    with pytest.raises(ValueError, match="cannot be spread over 3 clients"):
        deal(ClosedLoad(URLS, 2, 400, keep_alive=True), 3, lockstep=True)


def done(client: str, started_at_s: float, wall_s: float, ahead_s: float = 0.0, requests: int = 3) -> Execution:
    load = OpenLoad(URLS, 10.0, requests, keep_alive=True)
    return Execution(client, load, Output("", "", 0), wall_s, 0.5 * wall_s, 0.5, started_at_s, {}, ahead_s)


def times(*values: int) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def seen(sent_us: Sequence[int], latencies_us: Sequence[int], elapsed_s: float, failed: int = 0) -> ToolResult:
    """Of a tool that logs all requests and counts everything."""
    successful = len(latencies_us)
    return ToolResult(
        transactions=successful + failed, successful=successful, failed=failed, elapsed_s=elapsed_s,
        transferred_mb=0.5, availability_pct=100 * successful / (successful + failed),
        concurrency=sum(latencies_us) / 1e6 / elapsed_s,
        latencies_us=times(*latencies_us), sent_us=times(*sent_us), lateness_us=times(*range(successful)),
        columns={"connect_max_ms": float(successful), "connect_mean_ms": float(failed), "service_time_p99_us": 1.0},
    )  # fmt: skip


NOW_US = 1_700_000_000_000_000


def test_clocks_and_logs_come_to_one_axis() -> None:
    """The first logs since the epoch on a clock that is right, the second since its start on one five seconds ahead."""
    executions = [done("c1", 1_700_000_000.0, 2.0), done("c2", 1_700_000_005.25, 2.5, ahead_s=5.0)]
    results = [seen([NOW_US + 100_000, NOW_US + 900_000], [1000, 2000], 1.5), seen([3000, 500_000], [50, 60], 2.0)]
    parts = [ClientPart(e, on_our_clock(e, r)) for e, r in zip(executions, results, strict=True)]
    assert [part.begin_s for part in parts] == pytest.approx([1_700_000_000.1, 1_700_000_000.253])
    assert start_spread_s(parts) == pytest.approx(0.153)
    assert start_spread_s(parts[:1]) is None
    whole = merge(parts)
    assert whole.elapsed_s == pytest.approx(2.153), "from c1's first request to c2's last response"
    together = combine(executions)
    assert together.wall_s == pytest.approx(2.75)
    assert (together.cpu_s, together.started_at_s) == (2.25, 1_700_000_000.0)
    assert whole.sent_us is not None and whole.latencies_us is not None
    assert latency.by_second(whole.sent_us, whole.latencies_us).decode().split() == [
        "second,latency_us,count", "0,40,1", "0,50,1", "0,1000,1", "0,1995,1",
    ]  # fmt: skip


def test_counts_are_added_and_percentiles_are_of_all_latencies() -> None:
    rng = np.random.default_rng(5)
    logs = [rng.integers(100, 10**6, 1000) for _ in range(3)]
    parts = [
        ClientPart(done(f"c{n}", 1_700_000_000.0, 1.0, requests=1000 + n),
             seen(range(NOW_US, NOW_US + 1000), log.tolist(), 1.0, failed=n))
        for n, log in enumerate(logs)
    ]  # fmt: skip
    whole = merge(parts)
    assert (whole.transactions, whole.successful, whole.failed) == (3003, 3000, 3)
    assert whole.availability_pct == pytest.approx(100 * 3000 / 3003)
    assert whole.transferred_mb == 1.5
    assert whole.latencies_us is not None and whole.lateness_us is not None
    assert latency.times(whole.latencies_us) == latency.times(np.concatenate(logs))
    assert len(whole.lateness_us) == 3000
    assert whole.concurrency == pytest.approx(sum(int(log.sum()) for log in logs) / 1e6 / whole.elapsed_s)
    assert whole.columns == {"connect_max_ms": 1000.0, "connect_mean_ms": pytest.approx(1.0, rel=0.01)}


@pytest.mark.parametrize(("users", "codes"), [(1, []), (2, [Code.CLIENT_SATURATED])])
def test_a_single_user_is_no_limit_of_its_client(users: int, codes: list[Code]) -> None:
    """Nothing waits for its client but the client itself, however busy that is."""
    load = ClosedLoad(URLS, users, 10, keep_alive=True)
    execution = replace(done("c1", 100.0, 1.0), load=load, cpu_s=0.99, cpu_share=0.99)
    result, unread = ToolResult(10, 10, 0, 1.0), Usage({}, {}, None)
    part, whole = ClientPart(execution, result), combine([execution])
    run = ToolRun(Role.PRIMARY, "h2load", load, whole, [part], result, unread, unread)
    assert [finding.code for finding in tool_findings(run)] == codes
    assert base_measurement(run, 1.0).client_cpu_s == 0.99


def test_a_value_missing_from_one_client_is_missing_in_the_sum() -> None:
    silent = ToolResult(10, 10, 0, 1.0, response_time_mean_ms=None)
    telling = ToolResult(10, 10, 0, 2.0, response_time_mean_ms=4.0, transferred_mb=1.0, longest_ms=9.0)
    parts = [ClientPart(done("x", 100.0, 2.0), one) for one in (silent, telling)]
    whole = merge(parts)
    assert whole.response_time_mean_ms is whole.transferred_mb is whole.longest_ms is None
    assert whole.latencies_us is None
    assert whole.elapsed_s == 2.0
    assert merge(parts[1:]) is telling, "one client's result is left as it is"
