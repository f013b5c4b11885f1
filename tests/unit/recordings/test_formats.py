"""What tools wrote: which values are read, against the tool's own sums, and which files are refused."""

import json
import math
import re
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from vmtoll.model.errors import UserError
from vmtoll.paths import PROJECT
from vmtoll.recordings.formats import FORMATS, read_run
from vmtoll.recordings.rows import Better, Value

FILES = Path(__file__).parent / "files"
HIGHER, LOWER = Better.HIGHER, Better.LOWER
COUNT, PARSE = "org.example.Parse.count:length=", "example.org/parse.BenchmarkParse-2"

# k6 could not be had: these are the two forms of its documentation.
K6 = {
    "root_group": {"name": "", "groups": {}, "checks": {}},
    "metrics": {
        "http_req_duration": {"avg": 4.5, "min": 1, "med": 4.0, "max": 21, "p(90)": 6.0, "p(95)": 7.5},
        "http_req_failed": {"passes": 20, "fails": 180, "value": 0.1},
        "http_reqs": {"count": 200, "rate": 40.5},
    },
}
K6_SUMMARY = {
    "root_group": {"name": "", "groups": [], "checks": []},
    "options": {"summaryTrendStats": ["avg", "med", "p(99)"]},
    "state": {"isStdErrTTY": False, "testRunDurationMs": 4938},
    "metrics": {
        "http_req_duration": {"type": "trend", "contains": "time", "values": {"avg": 4.5, "med": 4.0, "p(99)": 9.5}},
        "http_req_failed": {"type": "rate", "contains": "default", "values": {"rate": 0.1, "passes": 20, "fails": 180}},
        "http_reqs": {"type": "counter", "contains": "default", "values": {"count": 200, "rate": 40.5}},
    },
}


def values_of(name: str, benchmark: str, metric: str) -> list[float]:
    """The replicates in their order, which is checked."""
    values = [value for value in read_run(FILES / name) if (value.benchmark, value.metric) == (benchmark, metric)]
    assert [value.replicate for value in values] == list(range(1, len(values) + 1)) != []
    return [value.value for value in values]


def wrote(name: str) -> Any:
    text = (FILES / name).read_text()
    return json.loads(text[text.index("[" if text.startswith("[") else "{") :])


def refusal(file: Path) -> str:
    with pytest.raises(UserError) as error:
        read_run(file)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "number", "some"),
    [
        ("hyperfine.json", 8, [Value("time", 0.000877949, LOWER, "true", "s", 1, 0, 1)]),
        ("hyperfine-one.json", 3, [Value("time", 0.0008758150000000001, LOWER, "", "s", 3, 0, 1)]),
        ("google-benchmark.json", 14, [
            Value("real_time", 130.49796514072042, LOWER, "BM_Parse/8", "ns", 1, 0, 1),
            Value("items_per_second", 36157377.648501724, HIGHER, "BM_Parse/8", "", 2, 0, 1),
            Value("depth", 3.0, None, "BM_Parse/8", "", 2, 0, 1),
            Value("cpu_time", 0.0030823256101289664, LOWER, "BM_Open/0", "us", 2, 0, 1),
        ]),
        ("google-benchmark-error.json", 4, [Value("cpu_time", math.nan, LOWER, "BM_Open/1", "ns", 1, 1, 1)]),
        ("pytest-benchmark.json", 15, [
            Value("time", 5.599499854724854e-06, LOWER, "test_parse.py::test_dumps[10]", "s", 3),
        ]),
        ("go.txt", 36, [
            Value("ns/op", 8.506, LOWER, PARSE), Value("MB/s", 484.97, HIGHER, PARSE, "", 2),
            Value("fields/op", 7.0, None, PARSE, "", 3), Value("B/op", 0.0, LOWER, PARSE, "", 3),
            Value("allocs/op", 1.0, LOWER, "example.org/parse.BenchmarkCopy/4096-2", "", 3),
        ]),
        ("criterion", 20, [
            Value("time", 85.54450378282154, LOWER, "copy/vec/64", "ns"),
            Value("time", 71.42637793615316, LOWER, "parse", "ns", 10),
        ]),
        ("criterion/parse/new/sample.json", 10, [Value("time", 11.862480495930502, LOWER, "parse", "ns")]),
        ("criterion-panic", 10, [Value("time", 11.3703293967973, LOWER, "parse", "ns")]),
        ("cargo-criterion.json", 20, [Value("time", 364179 / 69472, LOWER, "parse", "ns")]),
        ("jmh.json", 8, [
            Value("thrpt", 0.9316607324539941, HIGHER, COUNT + "8", "ops/us"),
            Value("thrpt", 0.07450171471801854, HIGHER, COUNT + "64", "ops/us", 4),
        ]),
        ("jmh-sample.json", 8, [Value("sample p0.99", 2.132, LOWER, COUNT + "8", "us/op", 2)]),
        ("jmh-gc.json", 17, [
            Value("avgt", 0.24115545185765683, LOWER, COUNT + "8", "us/op"),
            Value("ss gc.alloc.rate.norm", 5760.0, None, COUNT + "8", "B/op"),
        ]),
        ("oha.json", 6, [
            Value("requests/s", 42.88988490337119, HIGHER, requests=60),
            Value("latency p99", 0.062226041, LOWER, "", "s", requests=60),
        ]),
        ("oha-deadline.json", 6, [Value("latency p90", 0.0559827, LOWER, "", "s", requests=41)]),
        ("oha-404.json", 6, [Value("latency mean", 0.0371515241, LOWER, "", "s", failed=10, requests=10)]),
        ("oha-closed.json", 6, [Value("latency p50", math.nan, LOWER, "", "s", failed=10, requests=10)]),
        ("fio.json", 8, [
            Value("read iops", 2636.363636, HIGHER, "mixed", "1/s"),
            Value("read bw", 43194181.0, HIGHER, "mixed", "B/s"),
            Value("write clat mean", 9557.8, LOWER, "mixed", "ns"),
            Value("write clat p99", 16512.0, LOWER, "mixed", "ns"),
        ]),
        ("iperf3.json", 2, [
            Value("bits_per_second", 1669948747.6473143, HIGHER, "", "bit/s"), Value("retransmits", 1.0, LOWER),
        ]),
        ("iperf3-udp.json", 2, [Value("jitter_ms", 0.026358365685416347, LOWER, "", "ms", requests=77)]),
        ("iperf3-bidir.json", 4, [Value("retransmits_bidir_reverse", 2.0, LOWER)]),
        ("wrk.txt", 6, [
            Value("requests/s", 42.63, HIGHER, requests=86),
            Value("latency p99", 60.34 * 1e-3, LOWER, "", "s", requests=86),
        ]),
        ("wrk-404.txt", 2, [Value("requests/s", 42.48, HIGHER, failed=44, requests=44)]),
        ("wrk-closed.txt", 6, [
            Value("requests/s", 0.0, HIGHER, failed=6724, requests=6724),
            Value("latency p99", math.nan, LOWER, "", "s", failed=6724, requests=6724),
        ]),
    ],
)  # fmt: skip
def test_a_run_becomes_values(name: str, number: int, some: list[Value]) -> None:
    values = [repr(value) for value in read_run(FILES / name)]  # a NaN equals no other, its text does
    assert len(values) == number
    for value in some:
        assert values.count(repr(value)) == 1


def test_replicates_have_the_mean_that_the_tool_wrote() -> None:
    for result in wrote("hyperfine.json")["results"]:
        assert fmean(values_of("hyperfine.json", result["command"], "time")) == pytest.approx(result["mean"])
    means = [row for row in wrote("google-benchmark.json")["benchmarks"] if row.get("aggregate_name") == "mean"]
    assert [row["run_name"] for row in means] == ["BM_Parse/8", "BM_Open/0"]
    for row, metric in ((row, metric) for row in means for metric in ("real_time", "cpu_time")):
        assert fmean(values_of("google-benchmark.json", row["run_name"], metric)) == pytest.approx(row[metric])
    for benchmark in wrote("pytest-benchmark.json")["benchmarks"]:
        mean = fmean(values_of("pytest-benchmark.json", benchmark["fullname"], "time"))
        assert mean == pytest.approx(benchmark["stats"]["mean"])
    for name in ("parse", "copy/vec/64"):
        estimates = wrote(f"criterion/{name}/new/estimates.json")
        assert fmean(values_of("criterion", name, "time")) == pytest.approx(estimates["mean"]["point_estimate"])
    messages = [json.loads(line) for line in (FILES / "cargo-criterion.json").read_text().splitlines()]
    for message in messages[::2]:
        mean = fmean(values_of("cargo-criterion.json", message["id"], "time"))
        assert mean == pytest.approx(message["mean"]["estimate"])
    for length, result in zip(("8", "64"), wrote("jmh.json"), strict=True):
        assert fmean(values_of("jmh.json", COUNT + length, "thrpt")) == pytest.approx(result["primaryMetric"]["score"])
    # JMH's mean of mode `sample` is over all samples, so it lies between the means of the two iterations.
    low, high = sorted(values_of("jmh-sample.json", COUNT + "8", "sample"))
    assert low < wrote("jmh-sample.json")[0]["primaryMetric"]["score"] < high


def test_a_failed_command_counts_against_its_side() -> None:
    values = read_run(FILES / "hyperfine-failed.json")
    assert [(value.benchmark, value.failed, value.requests) for value in values] == [("false", 1, 1)] * 3 + [
        ("true", 0, 1)
    ] * 3


@pytest.mark.parametrize("summary", [K6, K6_SUMMARY])
def test_k6_by_its_documentation(summary: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "summary").write_text(json.dumps(summary))
    values = {value.metric: value for value in read_run(tmp_path / "summary")}
    assert values["requests/s"] == Value("requests/s", 40.5, HIGHER, failed=20, requests=200)
    assert values["latency p50"] == Value("latency p50", 4.0, LOWER, "", "ms", failed=20, requests=200)
    tails = {name: value.value for name, value in values.items() if name in ("latency p95", "latency p99")}
    assert tails == ({"latency p95": 7.5} if summary is K6 else {"latency p99": 9.5})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hyperfine-stopped.json", "is empty: the tool failed or was stopped"),
        ("hyperfine-twins.json", "has several results named 'true'; name each command with --command-name"),
        ("google-benchmark-aggregates.json", "has only aggregates; run it without --benchmark_report_aggregates_only"),
        ("google-benchmark-killed.json", "its JSON breaks off or is damaged (Expecting value: line 39"),
        ("pytest-benchmark-means.json", "has only aggregates; write it with --benchmark-json"),
        ("go-failed.txt", "line 11: BenchmarkOpen failed"),
        ("go-panic.txt", "line 20: example.org/parse failed"),
        ("go-two-runs.txt", "line 10: example.org/parse runs again; write each run to a file"),
        ("go-prints.txt", "line 7: a result without its name: the benchmark prints"),
        ("criterion/parse/new/estimates.json", "is not what a known tool writes (hyperfine, Google Benchmark, "),
        ("jmh-failed.json", "has no result: every benchmark failed"),
        ("jmh-killed.json", "is empty: the tool failed or was stopped"),
        ("oha-two-runs.json", "holds the JSON of several runs; write each run to a file"),
        ("fio-numjobs.json", "has several results named 'seq'; run fio with --group_reporting"),
        ("fio-failed.json", "job 'full' failed: No space left on device"),
        ("fio-stopped.json", "fio was stopped by a signal; run it to its end"),
        ("iperf3-stopped.json", "iperf3 stopped: interrupt - the client has terminated"),
        ("iperf3-refused.json", "iperf3 stopped: unable to connect to server: Connection refused"),
        ("wrk-refused.txt", "is empty: the tool failed or was stopped"),
        ("wrk-stopped.txt", "wrk was stopped after 2.11s of 20s; run it to its end"),
        ("wrk-two-runs.txt", "holds several runs of wrk; write each run to a file"),
    ],
)
def test_what_tools_wrote_is_refused(name: str, said: str) -> None:
    assert refusal(FILES / name).startswith(f"{FILES / name}: {said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("block,side,metric,value\n1,a,t,1\n", "is not what a known tool writes"),
        ("17", "is not what a known tool writes"),
        (
            '{"results": [{"command": "true", "times": "quick"}]}',
            "looks like hyperfine, but cannot be read (ValueError",
        ),
        ('{"context": {}, "benchmarks": [{"name": "a"}]}', "looks like Google Benchmark, but cannot be read (KeyError"),
        ('{"context": {}, "benchmarks": []}', "has no measurement by Google Benchmark"),
        ('{"metrics": {"iterations": {}}, "root_group": {}}', "has no http_reqs: the script made no HTTP request"),
        ("PASS\nok  \texample.org/parse\t0.024s\n", "has no measurement by Go"),
        ("Running 2s test @ http://127.0.0.1/\n", "wrk was stopped before it wrote a result"),
    ],
)
def test_other_texts_are_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    assert refusal(tmp_path / "file").startswith(f"{tmp_path / 'file'}: {said}")


def test_other_files_and_folders_are_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path}: is a folder without new/sample.json of criterion; give a file"
    assert refusal(tmp_path / "none") == f"{tmp_path / 'none'}: No such file or directory"
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert refusal(tmp_path / "binary").startswith(f"{tmp_path / 'binary'}: 'utf-8' codec can't decode")
    shutil.copy(FILES / "criterion/parse/new/sample.json", tmp_path)
    assert refusal(tmp_path / "sample.json") == f"{tmp_path / 'benchmark.json'}: No such file or directory"
    messages = (FILES / "cargo-criterion.json").read_text()
    (tmp_path / "twice").write_text(messages * 2)
    assert "has several results named 'parse'; write each run to a file" in refusal(tmp_path / "twice")
    (tmp_path / "half").write_text(messages[: len(messages) // 2])
    assert "its JSON breaks off or is damaged" in refusal(tmp_path / "half")


def test_the_content_decides_not_the_name(tmp_path: Path) -> None:
    shutil.copy(FILES / "go.txt", tmp_path / "hyperfine.json")
    assert read_run(tmp_path / "hyperfine.json") == read_run(FILES / "go.txt")


def test_a_unit_of_go_says_itself_what_is_better(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("Unit hits/op better=higher\nBenchmarkA 10 5 ns/op 3 hits/op 2 misses/op\n")
    assert [value.better for value in read_run(tmp_path / "run")] == [LOWER, HIGHER, None]


def test_the_page_names_each_tool_with_its_metrics(tmp_path: Path) -> None:
    """docs/judge-files.md has the tools of FORMATS, and for each the metrics of its files that have a better side."""
    lines = (PROJECT / "docs/judge-files.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")][2:]
    assert [row[0] for row in rows] == list(FORMATS)
    (tmp_path / "k6-a").write_text(json.dumps(K6))
    (tmp_path / "k6-b").write_text(json.dumps(K6_SUMMARY))
    recorded = dict[str, set[tuple[str, str]]]()
    for file in (*FILES.iterdir(), *tmp_path.iterdir()):
        tool = next((tool for tool in FORMATS if file.name.startswith(tool.lower().replace(" ", "-"))), "criterion")
        try:
            values = read_run(file)
        except UserError:
            continue
        metrics = {(re.sub("^(write|trim) ", "read ", value.metric), value.better) for value in values}
        recorded.setdefault(tool, set()).update(
            (metric.removesuffix("_bidir_reverse"), str(better)) for metric, better in metrics if better
        )
    for tool, _, _, metrics_cell, _ in rows:
        assert set(re.findall(r"`([^`]+)` (higher|lower)", metrics_cell)) == recorded[tool], tool


def test_each_recording_has_its_command_and_version() -> None:
    readme = (FILES / "README.md").read_text()
    page = (PROJECT / "docs/judge-files.md").read_text()
    listed = dict(re.findall(r"^\| (\S+) \| ([^|]+) \|", readme, re.MULTILINE)[1:])
    assert sorted(listed) == sorted({file.name for file in FILES.iterdir()} - {"README.md"})
    for recorded in listed.values():
        tool, _, version = recorded.strip().rpartition(" ")
        assert re.search(rf"^\| {tool} \| {version} |^\| criterion .*{version}", page, re.MULTILINE), recorded
