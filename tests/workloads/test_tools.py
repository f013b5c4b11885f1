"""Adapters against output that the tools really printed."""

import json
from pathlib import Path

import pytest

from workloads import tools
from workloads.tools import Load, Output, ToolError
from workloads.tools.h2load import in_flight, read_log

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> tuple[Load, Output]:
    folder = RECORDED / name
    meta = json.loads((folder / "meta.json").read_text())
    files = {p.name: p.read_bytes() for p in folder.glob("*.log")}
    output = Output(
        (folder / "stdout").read_text(), (folder / "stderr").read_text(), meta["exit_status"], files, meta["timed_out"]
    )
    return Load(["http://127.0.0.1/"], meta["users"], meta["requests"], meta["keep_alive"]), output


def parse(name: str) -> tools.ToolResult:
    return tools.get(name.split("-", maxsplit=1)[0]).parse(*recorded(name))


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


@pytest.mark.parametrize("name", ["siege-killed", "h2load-killed"])
def test_a_killed_tool_is_an_error(name: str) -> None:
    with pytest.raises(ToolError, match=r"did not end within its bound and was killed; its last line: '"):
        parse(name)


def test_a_tool_killed_by_another_is_an_error() -> None:
    load, output = recorded("siege-good")
    with pytest.raises(ToolError, match="killed by signal 9"):
        tools.get("siege").parse(load, Output(output.stdout, output.stderr, -9))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("name", ["siege-good", "h2load-good"])
def test_a_summary_cut_short_is_an_error(name: str, share: float) -> None:
    load, output = recorded(name)
    text = output.stderr if name.startswith("siege") else output.stdout
    end = text.find("Shortest") if name.startswith("siege") else text.find("traffic:")
    cut = text[: int(end * share)]
    broken = Output(cut, cut, 0, output.files)
    with pytest.raises(ToolError, match=r"(siege|h2load): its summary"):
        tools.get(name.split("-", maxsplit=1)[0]).parse(load, broken)


def test_siege_that_made_fewer_requests_than_planned_is_an_error() -> None:
    load, output = recorded("siege-good")
    with pytest.raises(ToolError, match="made 600 of 1200 requests"):
        tools.get("siege").parse(Load(load.urls, load.users, 1200, keep_alive=True), output)


def test_siege_is_told_everything_by_a_file_of_its_own() -> None:
    command = tools.get("siege").command(Load(["http://h/a"], 10, 595, keep_alive=True))
    rc = dict(line.split(" = ") for line in command.files["siegerc"].splitlines())
    assert "-t" not in command.argv
    assert list(command.argv[command.argv.index("-r") :][:2]) == ["-r", "60"], "rounded up to whole repetitions"
    wanted = {"parser": "false", "benchmark": "true", "cookies": "false", "cache": "false", "connection": "keep-alive"}
    assert wanted.items() <= rc.items()
    assert {"json_output": "false", "csv": "false", "logging": "false", "limit": "11", "failures": "601"}.items() <= (
        rc.items()
    )
    close = tools.get("siege").command(Load(["http://h/a"], 300, 595, keep_alive=False))
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
        (log + b"x y z\n", "not lines of three numbers"),
        (log + b"1 2\n", "not lines of three numbers"),
    ]:
        with pytest.raises(ToolError, match=said):
            tools.get("h2load").parse(load, Output(output.stdout, "", 0, {"requests.log": broken}))


def test_requests_in_flight_follow_from_the_log() -> None:
    log = read_log(b"1000 200 500\n1000 200 500\n1500 200 500\n")
    assert in_flight(log) == pytest.approx(1.5)
    assert in_flight(log[:0]) is None


def test_tools_are_found_by_listing_the_folder() -> None:
    assert tools.names() == ["h2load", "siege"]
    with pytest.raises(ToolError, match="there are: h2load, siege"):
        tools.get("wrk")
