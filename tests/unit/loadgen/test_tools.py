"""Adapters against output that the tools really printed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.recordings import parse, recorded
from vmtoll import loadgen
from vmtoll.loadgen import ClosedLoad, OpenLoad, Output
from vmtoll.loadgen.base import integers
from vmtoll.loadgen.h2load import in_flight
from vmtoll.model.errors import ToolError


@pytest.mark.parametrize("name", ["siege-good", "siege-close"])
def test_siege_all_well(name: str) -> None:
    seen = parse(name)
    assert (seen.transactions, seen.successful, seen.failed) == (600, 600, 0)
    assert seen.availability_pct == 100
    assert seen.transferred_mb == pytest.approx(7.59 * 2**20 / 1e6)
    assert 0.05 <= seen.elapsed_s <= 0.2
    assert seen.concurrency and 5 < seen.concurrency < 10
    assert (seen.longest_ms, seen.shortest_ms) == (10, 0)
    assert seen.latencies_us is None


def test_siege_exits_0_when_all_is_refused_but_counts_it() -> None:
    assert recorded("siege-refused")[1].exit_status == 0
    seen = parse("siege-refused")
    assert (seen.transactions, seen.successful, seen.failed) == (0, 0, 60)


def test_siege_calls_404_available_but_not_successful() -> None:
    seen = parse("siege-some404")
    assert seen.availability_pct == 100
    assert (seen.transactions, seen.successful, seen.failed) == (60, 50, 10)
    seen = parse("siege-all404")
    assert (seen.transactions, seen.successful, seen.failed) == (60, 0, 60)


def test_siege_whose_server_died() -> None:
    seen = parse("siege-server-died")
    assert (seen.transactions, seen.failed) == (3354, 8646)


@pytest.mark.parametrize("name", ["siege-killed", "h2load-killed", "vegeta-killed", "oha-killed"])
def test_a_killed_tool_is_an_error(name: str) -> None:
    with pytest.raises(ToolError, match=r"did not end .*was killed; (its last line: '|it printed nothing)"):
        parse(name)


def test_a_tool_killed_by_another_is_an_error() -> None:
    load, output = recorded("siege-good")
    with pytest.raises(ToolError, match="killed by signal 9"):
        loadgen.get("siege").parse(load, Output(output.stdout, output.stderr, -9))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("name", ["siege-good", "h2load-good"])
def test_a_summary_cut_short_is_an_error(name: str, share: float) -> None:
    load, output = recorded(name)
    text = output.stderr if name.startswith("siege") else output.stdout
    end = text.find("Shortest") if name.startswith("siege") else text.find("traffic:")
    cut = text[: int(end * share)]
    broken = Output(cut, cut, 0, output.files)
    with pytest.raises(ToolError, match=r"(siege|h2load): its summary"):
        loadgen.get(name.split("-", maxsplit=1)[0]).parse(load, broken)


def test_siege_that_made_fewer_requests_than_planned_is_an_error() -> None:
    load, output = recorded("siege-good")
    with pytest.raises(ToolError, match="made 600 of 1200 requests"):
        loadgen.get("siege").parse(ClosedLoad(load.urls, load.users, 1200, keep_alive=True), output)


def test_siege_gets_its_settings_in_a_configuration_file() -> None:
    command = loadgen.get("siege").command(ClosedLoad(["http://h/a"], 10, 595, keep_alive=True))
    rc = dict(line.split(" = ") for line in command.files["siegerc"].splitlines())
    assert "-t" not in command.argv
    assert list(command.argv[command.argv.index("-r") :][:2]) == ["-r", "60"], "rounded up to whole repetitions"
    wanted = {"parser": "false", "benchmark": "true", "cookies": "false", "cache": "false", "connection": "keep-alive"}
    assert wanted.items() <= rc.items()
    assert {"json_output": "false", "csv": "false", "logging": "false", "limit": "11", "failures": "601"}.items() <= (
        rc.items()
    )
    close = loadgen.get("siege").command(ClosedLoad(["http://h/a"], 300, 595, keep_alive=False))
    assert "connection = close" in close.files["siegerc"]
    assert "limit = 301" in close.files["siegerc"]
    assert close.env == {"HOME": "."}


def test_h2load_all_well() -> None:
    seen = parse("h2load-good")
    assert (seen.transactions, seen.successful, seen.failed) == (600, 600, 0)
    assert seen.elapsed_s == pytest.approx(0.07351)
    assert seen.transferred_mb == pytest.approx(7.80789)
    assert seen.latencies_us is not None
    assert seen.latencies_us.sum() / 600 == pytest.approx(661.9, abs=0.1)
    assert seen.concurrency and 1 < seen.concurrency <= 10


def test_h2load_counts_404_as_failed() -> None:
    seen = parse("h2load-some404")
    assert (seen.transactions, seen.successful, seen.failed) == (60, 50, 10)


@pytest.mark.parametrize(
    ("name", "said"), [("h2load-refused", "finished 0 of 60"), ("h2load-server-died", "finished 10395 of 120000")]
)
def test_h2load_without_its_server_is_an_error(name: str, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        parse(name)


def test_h2load_log_must_agree_with_the_summary() -> None:
    load, output = recorded("h2load-good")
    log = output.files["requests.log"]
    for broken, said in [
        (b"", "holds 0 requests"),
        (log[:-3], "ends in the middle of a line"),
        (b"".join(log.splitlines(keepends=True)[:-1]), "holds 599 requests"),
        (log + b"x y z\n", "not lines of 3 numbers"),
        (log + b"1 2\n", "not lines of 3 numbers"),
    ]:
        with pytest.raises(ToolError, match=said):
            loadgen.get("h2load").parse(load, Output(output.stdout, "", 0, {"requests.log": broken}))


def test_requests_in_flight_follow_from_the_log() -> None:
    log = integers(b"1000 200 500\n1000 200 500\n1500 200 500\n", 3, "h2load")
    assert in_flight(log) == pytest.approx(1.5)
    assert in_flight(log[:0]) is None


def test_vegeta_all_well() -> None:
    seen = parse("vegeta-good")
    assert (seen.transactions, seen.successful, seen.failed) == (200, 200, 0)
    assert seen.elapsed_s == pytest.approx(0.2, abs=0.02)
    assert seen.latencies_us is not None and seen.lateness_us is not None and seen.sent_us is not None
    assert len(seen.latencies_us) == len(seen.lateness_us) == 200
    assert set(np.diff(seen.sent_us)) == {1000}, "one every millisecond, as intended"
    assert seen.lateness_us.min() == 0
    assert (seen.latencies_us >= seen.lateness_us).all(), "lateness is part of the response time"


def test_vegeta_that_is_late_counts_it_as_response_time() -> None:
    """Five requests, one a millisecond; the third and all after it are sent 10 ms late and take 0.5 ms each."""
    load = OpenLoad(["http://h/"], 1000, 5, keep_alive=True)
    sent_ns = [10**18 + n * 10**6 + (10**7 if n >= 2 else 0) for n in range(5)]
    lines = [f"{sent} {200 if n else 404} 500000 {n}\n" for n, sent in enumerate(sent_ns)]
    log = "".join(reversed(lines)).encode() + b"1000000000099000000 0 100 5\n"
    seen = loadgen.get("vegeta").parse(load, Output("", "", 0, {"requests.log": log}))
    assert (seen.transactions, seen.successful, seen.failed) == (5, 4, 1)
    assert seen.latencies_us is not None and seen.lateness_us is not None
    assert seen.latencies_us.tolist() == [500, 10500, 10500, 10500], "of the requests that succeeded"
    assert seen.sent_us is not None and seen.due_us is not None
    assert np.diff(seen.due_us).tolist() == [1000] * 4
    assert seen.sent_us.tolist() == seen.due_us[1:].tolist(), "the first one failed"
    assert seen.lateness_us.tolist() == [0, 0, 10000, 10000, 10000]
    assert seen.elapsed_s == pytest.approx(0.0145)


def test_vegeta_leaves_out_what_it_never_sent() -> None:
    """Four requests; the last target went to the worker with place 4, so place 3 and 5 found none."""
    load = OpenLoad(["http://h/"], 1000, 4, keep_alive=True)
    lines = [(n, 10**18 + n * 10**6, 0 if n in {3, 5} else 200) for n in range(6)]
    log = "".join(f"{sent} {code} 500000 {n}\n" for n, sent, code in lines).encode()
    seen = loadgen.get("vegeta").parse(load, Output("", "", 0, {"requests.log": log}))
    assert (seen.transactions, seen.successful, seen.failed) == (4, 4, 0)
    assert seen.lateness_us is not None
    assert seen.lateness_us.tolist() == [0, 0, 0, 1000]


def test_vegeta_counts_404_and_no_answer_as_failed() -> None:
    seen = parse("vegeta-some404")
    assert (seen.transactions, seen.successful, seen.failed) == (60, 40, 20)
    seen = parse("vegeta-refused")
    assert (seen.transactions, seen.successful, seen.failed) == (0, 0, 60)
    seen = parse("vegeta-server-died")
    assert (seen.transactions, seen.successful, seen.failed) == (131, 131, 69)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda log: log[:-3], "ends in the middle of a line"),
        (lambda log: b"", "holds 0 of 200 requests"),
        (lambda log: b"".join(log.splitlines(keepends=True)[5:]), "of 200 requests"),
        (lambda log: log.replace(b" 7\n", b" 8\n"), "of 200 requests"),
        (lambda log: log + b"1 2 x 4\n", "not lines of 4 numbers"),
    ],
)
def test_a_log_of_vegeta_holds_each_request_once(change: Any, said: str) -> None:
    load, output = recorded("vegeta-good")
    with pytest.raises(ToolError, match=said):
        loadgen.get("vegeta").parse(load, Output("", "", 0, {"requests.log": change(output.files["requests.log"])}))


def test_oha_all_well() -> None:
    for name in ("oha-good", "oha-closed"):
        seen = parse(name)
        assert (seen.transactions, seen.successful, seen.failed) == (200, 200, 0)
        assert seen.latencies_us is not None and len(seen.latencies_us) == 200
        assert seen.transferred_mb and 0.5 < seen.transferred_mb < 0.7
    assert seen.concurrency and 3 < seen.concurrency <= 5


def test_oha_that_fell_behind_its_rate_is_known_by_its_log() -> None:
    """By the actual starts; the times count from its own queueing, and tell nothing of it."""
    load, output = recorded("oha-good")
    kept = parse("oha-good").behind_us
    assert kept is not None and abs(kept) < 3000
    heading, *lines = output.files["requests.csv"].decode().splitlines()
    slower = [f"{2 * float(start)},{rest}" for start, _, rest in (line.partition(",") for line in lines)]
    log = "\n".join([heading, *slower, ""]).encode()
    behind = loadgen.get("oha").parse(load, replace(output, files={"requests.csv": log})).behind_us
    assert behind == pytest.approx(1e6 * load.requests / load.rate_rps, rel=0.05), "twice the planned time"
    assert parse("oha-closed").behind_us is parse("oha-refused").behind_us is None


def test_oha_reports_times_to_connect_and_to_the_first_byte() -> None:
    _, output = recorded("oha-closed")
    rows = [[float(cell) for cell in line.split(b",")] for line in output.files["requests.csv"].splitlines()[1:]]
    connects = [(dialup - dns) * 1e3 for _, dns, dialup, *_ in rows if dialup]
    firsts = [(first - dialup) * 1e3 for _, _, dialup, first, *_ in rows]
    seen = parse("oha-closed").columns
    assert 0 < seen["connect_min_ms"] <= seen["connect_mean_ms"] <= seen["connect_max_ms"]
    assert seen["connect_mean_ms"] == pytest.approx(sum(connects) / len(connects))
    assert seen["first_response_max_ms"] == pytest.approx(max(firsts))
    assert seen["first_response_min_ms"] == pytest.approx(min(firsts))
    assert parse("oha-good").columns == {}, "an open loop counts from the intended send"


def test_oha_counts_404_and_no_answer_as_failed() -> None:
    seen = parse("oha-some404")
    assert (seen.transactions, seen.successful, seen.failed) == (60, 41, 19)
    assert seen.latencies_us is not None and len(seen.latencies_us) == 41
    assert (parse("oha-refused").transactions, parse("oha-refused").failed) == (0, 60)
    assert (parse("oha-server-died").successful, parse("oha-server-died").failed) == (141, 59)


def test_a_log_of_oha_is_whole() -> None:
    load, output = recorded("oha-good")
    log = output.files["requests.csv"]
    for broken, said in [
        (b"", "without its log"),
        (log[:-3], "ends in the middle of a line"),
        (log + b"1,2,3\n", "not lines of seven numbers"),
        (log + log.splitlines(keepends=True)[-1], "holds 201 requests, 200 were planned"),
    ]:
        with pytest.raises(ToolError, match=said):
            loadgen.get("oha").parse(load, Output("", "", 0, {"requests.csv": broken}))


def test_open_loops_get_their_rate() -> None:
    load = OpenLoad(["http://h/a", "http://h/b"], 1500, 7, keep_alive=False)
    attack = loadgen.get("vegeta").command(load).argv[-1]
    assert "-rate=1/666667ns" in attack and "-keepalive=false" in attack
    assert "connections" not in attack
    argv = list(loadgen.get("oha").command(load).argv)
    assert argv[argv.index("-q") + 1] == "1500" and "--latency-correction" in argv and "--disable-keepalive" in argv
    assert "-q" not in loadgen.get("oha").command(ClosedLoad(["http://h/a"], 3, 7, keep_alive=True)).argv


def test_tools_are_found_by_listing_the_folder() -> None:
    assert loadgen.names() == ["ab", "h2load", "httperf", "mailer", "oha", "siege", "smtp_source", "vegeta"]
    with pytest.raises(ToolError, match=", ".join(loadgen.names())):
        loadgen.get("wrk")


def test_a_plain_load_is_sent_as_ever() -> None:
    closed, rate = ClosedLoad(["http://h/a"], 3, 9, keep_alive=True), OpenLoad(["http://h/a"], 10, 5, keep_alive=True)
    h2load, oha = loadgen.get("h2load").command(closed).argv, loadgen.get("oha").command(closed).argv
    assert "--h1" in h2load and "-m" not in h2load
    assert not {"--insecure", "--http2", "-p"} & {*oha}
    attack = loadgen.get("vegeta").command(rate).argv[-1]
    assert "-http2=false" in attack and "-insecure" not in attack


def test_tools_get_the_options_for_tls_and_http2() -> None:
    closed = ClosedLoad(["https://h/a"], 3, 9, keep_alive=True, http="2", streams=7)
    h2load, oha = list(loadgen.get("h2load").command(closed).argv), list(loadgen.get("oha").command(closed).argv)
    assert "--h1" not in h2load and h2load[h2load.index("-m") + 1] == "7"
    assert "--insecure" in oha and "--http2" in oha
    assert (oha[oha.index("-c") + 1], oha[oha.index("-p") + 1]) == ("3", "7")
    assert closed.in_flight == 21
    rate = OpenLoad(["https://h/a"], 10, 5, keep_alive=True, http="2")
    oha = list(loadgen.get("oha").command(rate).argv)
    assert (oha[oha.index("-c") + 1], oha[oha.index("-p") + 1]) == ("1", "64"), "one connection, as vegeta has"
    assert "-http2=true -insecure -session-tickets=false" in loadgen.get("vegeta").command(rate).argv[-1]
    resumed = OpenLoad(["https://h/a"], 10, 5, keep_alive=False, resumption=True)
    assert "-http2=false -insecure -session-tickets=true" in loadgen.get("vegeta").command(resumed).argv[-1]


def test_h2load_that_fell_back_to_http_1_1_is_an_error() -> None:
    load, output = recorded("h2load-good")
    said = Output("Application protocol: http/1.1\n" + output.stdout, output.stderr, 0, output.files)
    assert loadgen.get("h2load").parse(load, said).successful == loadgen.get("h2load").parse(load, output).successful
    with pytest.raises(ToolError, match=r"^h2load: spoke http/1.1 .*, not h2$"):
        loadgen.get("h2load").parse(replace(load, http="2"), said)
