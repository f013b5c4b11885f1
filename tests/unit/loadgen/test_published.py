"""ab and httperf, the tools of the published experiments, against output that they really printed."""

import re
from dataclasses import replace

import pytest

from tests.support.recordings import parse, recorded
from vmtoll import loadgen
from vmtoll.loadgen import ClosedLoad, OpenLoad, Output
from vmtoll.loadgen.base import without_impossible_figures
from vmtoll.model.errors import ToolError


def test_ab_all_well() -> None:
    seen = parse("ab-good")
    assert (seen.transactions, seen.successful, seen.failed) == (600, 600, 0)
    assert seen.elapsed_s == pytest.approx(0.010)
    assert seen.transferred_mb == pytest.approx(2.5578)
    assert seen.response_time_mean_ms == pytest.approx(0.170)
    assert seen.longest_ms and seen.longest_ms > 0.1 > (seen.shortest_ms or 1), "µs, although ab prints whole ms"
    shares = [seen.columns[f"service_time_p{share}_us"] for share in (50, 90, 99)]
    assert shares == sorted(shares) and shares[0] < seen.longest_ms * 1000
    assert parse("ab-close").successful == 600


def test_ab_has_no_percentile_of_fewer_requests_than_it_needs() -> None:
    """Of 50 requests ab reads the 99th percentile from beyond the end of its list: less than its median."""
    seen = parse("ab-few")
    assert seen.columns["service_time_p99_us"] < seen.columns["service_time_p50_us"]
    kept = without_impossible_figures(seen)
    assert kept.columns == {name: seen.columns[name] for name in ("service_time_p50_us", "service_time_p90_us")}
    assert (kept.dropped, kept.transactions, kept.longest_ms) == (1, 50, seen.longest_ms)
    assert without_impossible_figures(parse("ab-good")) == parse("ab-good")


@pytest.mark.parametrize(
    ("requests", "percentiles"), [(1, []), (2, ["p50"]), (10, ["p50", "p90"]), (99, ["p50", "p90"]), (100, None)]
)
def test_the_fewest_requests_of_each_percentile(requests: int, percentiles: list[str] | None) -> None:
    seen = replace(parse("ab-good"), transactions=requests)
    expected = seen.columns if percentiles is None else {f"service_time_{name}_us" for name in percentiles}
    assert set(without_impossible_figures(seen).columns) == set(expected)


def test_percentiles_that_do_not_rise_are_dropped_all_and_counted() -> None:
    seen = parse("ab-good")
    fallen = {**seen.columns, "service_time_p90_us": seen.columns["service_time_p50_us"] / 2, "connection_rps": 7.0}
    kept = without_impossible_figures(replace(seen, columns=fallen))
    assert (kept.columns, kept.dropped) == ({"connection_rps": 7.0}, 3)


def test_what_is_no_number_is_missing_and_counted() -> None:
    """httperf and siege print averages of nothing as `-nan`, or as `inf`."""
    load, output = recorded("httperf-good")
    stdout = output.stdout.replace("stddev 0.0 (1 samples)", "stddev -nan (1 samples)")
    stdout = stdout.replace("Reply time [ms]: response 1.8", "Reply time [ms]: response nan")
    assert stdout.count("nan") == 2
    kept = without_impossible_figures(loadgen.get("httperf").parse(load, replace(output, stdout=stdout)))
    assert (kept.response_time_mean_ms, kept.dropped, kept.elapsed_s) == (None, 2, 5.5)
    assert set(kept.columns) == {"connection_rps", "request_rps", "reply_rps_min", "reply_rps_mean", "reply_rps_max"}
    load, output = recorded("siege-refused")
    stderr = re.sub(r"(Response time:\s+)[0-9.]+", r"\1inf", output.stderr)
    kept = without_impossible_figures(loadgen.get("siege").parse(load, replace(output, stderr=stderr)))
    assert (kept.response_time_mean_ms, kept.dropped) == (None, 1)


def test_ab_exits_0_on_404_and_names_each_twice_but_it_counts_once() -> None:
    assert recorded("ab-some404")[1].exit_status == 0
    seen = parse("ab-some404")
    assert (seen.transactions, seen.successful, seen.failed) == (60, 50, 10)


def test_an_answer_cut_short_is_failed_for_ab() -> None:
    seen = parse("ab-cut")
    assert (seen.transactions, seen.successful, seen.failed) == (60, 50, 10)


@pytest.mark.parametrize(
    ("name", "said"),
    [("ab-refused", "ended with 111.*Connection refused"), ("ab-server-died", "ended with 104.*Connection reset")],
)
def test_ab_without_its_server_is_an_error(name: str, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        parse(name)


@pytest.mark.parametrize("name", ["ab-killed", "httperf-killed"])
def test_killed_is_an_error(name: str) -> None:
    with pytest.raises(ToolError, match=r"not end .*killed"):
        parse(name)


@pytest.mark.parametrize("line", ["Time taken", "Complete", "Failed", "Total transferred", "Time per request"])
def test_ab_whose_summary_lacks_a_line_is_an_error(line: str) -> None:
    load, output = recorded("ab-good")
    cut = output.stdout[: output.stdout.index(line)]
    with pytest.raises(ToolError, match=f"summary has no '{line}"):
        loadgen.get("ab").parse(load, replace(output, stdout=cut))


def test_ab_whose_percentiles_are_not_whole_is_an_error() -> None:
    load, output = recorded("ab-good")
    whole = output.files["percentiles.csv"]
    for broken in (b"", whole[:-20], whole.replace(b"50,", b"50;"), whole + b"101,1\n"):
        with pytest.raises(ToolError, match="hold the percentiles"):
            loadgen.get("ab").parse(load, Output(output.stdout, "", 0, {"percentiles.csv": broken}))


def test_ab_that_made_fewer_requests_than_planned_is_an_error() -> None:
    load, output = recorded("ab-good")
    with pytest.raises(ToolError, match="made 600 of 700"):
        loadgen.get("ab").parse(replace(load, requests=700), output)


def test_ab_gets_users_page_and_keep_alive() -> None:
    argv = list(loadgen.get("ab").command(ClosedLoad(["http://h:8080/a.html"], 25, 10, keep_alive=True)).argv)
    assert argv[argv.index("-n") + 1] == argv[argv.index("-c") + 1] == "25", "never fewer requests than users"
    assert argv[-1] == "http://h:8080/a.html" and "-k" in argv and "-r" not in argv
    assert "-k" not in loadgen.get("ab").command(ClosedLoad(["http://h/"], 1, 200, keep_alive=False)).argv


def test_httperf_all_well_with_autobenchs_columns() -> None:
    seen = parse("httperf-good")
    assert (seen.transactions, seen.successful, seen.failed, seen.late, seen.unsent) == (1100, 1100, 0, 0, 0)
    assert seen.elapsed_s == 5.5
    assert seen.response_time_mean_ms == 1.8
    assert seen.transferred_mb == pytest.approx(1100 * 2390 / 1e6)
    rates = {"connection_rps": 200.0, "request_rps": 200.0}
    sampled = {"reply_rps_min": 200.0, "reply_rps_mean": 200.0, "reply_rps_max": 200.0, "reply_rps_stddev": 0.0}
    assert dict(seen.columns) == rates | sampled
    assert seen.latencies_us is None


def test_httperf_with_several_requests_a_connection() -> None:
    seen = parse("httperf-keepalive")
    assert (seen.transactions, seen.successful, seen.failed, seen.late) == (400, 400, 0, 0)
    assert dict(seen.columns) == {"connection_rps": 100.1, "request_rps": 1000.6}, "too short for a reply rate"


def test_httperf_counts_404_and_no_answer_as_failed() -> None:
    for name, answered, good, bad in [("some404", 60, 50, 10), ("refused", 0, 0, 60), ("server-died", 397, 397, 603)]:
        seen = parse(f"httperf-{name}")
        assert (seen.transactions, seen.successful, seen.failed, seen.late) == (answered, good, bad, 0), name


def test_requests_past_httperfs_deadline_are_late_and_not_failed() -> None:
    seen = parse("httperf-late")
    assert (seen.transactions, seen.successful, seen.failed, seen.late) == (113, 95, 18, 87)


def test_httperf_reports_requests_it_could_not_send() -> None:
    seen = parse("httperf-unsent")
    assert (seen.transactions, seen.failed, seen.late, seen.unsent) == (0, 0, 1021, 979)


def test_httperf_that_opened_fewer_connections_than_planned_is_an_error() -> None:
    load, output = recorded("httperf-good")
    with pytest.raises(ToolError, match="opened 1100 of 1200 connections"):
        loadgen.get("httperf").parse(replace(load, requests=1200), output)


@pytest.mark.parametrize("line", ["Total", "Connection rate", "Reply rate", "Reply status", "Errors"])
def test_httperf_whose_summary_lacks_a_line_is_an_error(line: str) -> None:
    load, output = recorded("httperf-good")
    cut = output.stdout[: output.stdout.index(line)]
    with pytest.raises(ToolError, match="summary has no"):
        loadgen.get("httperf").parse(load, replace(output, stdout=cut))


def test_httperf_gets_connections_deadline_and_list() -> None:
    load = OpenLoad(["http://h:8080/a", "http://h:8080/b"], 1000, 500, keep_alive=True, timeout_s=0.005)
    command = loadgen.get("httperf").command(load)
    argv = list(command.argv)
    told = {name: argv[argv.index(name) + 1] for name in ("--server", "--port", "--rate", "--num-conns", "--timeout")}
    wanted = {"--server": "h", "--port": "8080", "--rate": "100", "--num-conns": "50", "--timeout": "0.005"}
    assert told == wanted
    assert "--hog" not in argv
    assert command.files["urls"] == "/a\0/b\0"
