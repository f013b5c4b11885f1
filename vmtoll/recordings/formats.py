"""What a benchmark tool wrote in one run, as values: eleven formats, recognised by their content."""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from vmtoll.files import cause_of
from vmtoll.model.errors import UserError
from vmtoll.recordings.rows import Better, Value

HIGHER, LOWER = Better.HIGHER, Better.LOWER
_ONE_BLOCK = "write each run to a file, and give each a block"


class _RefusedError(Exception):
    """The file is of this format and cannot be one block; the message says why and the way out."""


@dataclass(frozen=True)
class Format:
    """How to recognise and read what a tool writes: the parsed JSON, or the text of a file that is not JSON."""

    written: Callable[[Any], bool]
    values: Callable[[Any], Iterable[Value]]  # in the order of the repetitions; read_run numbers them


def read_run(file: Path) -> list[Value]:
    """The values of one run of a tool, its repetitions as replicates; for criterion, `file` may be its folder.

    Raises UserError for an unknown format, and for a run that was aborted, has only aggregates or holds several runs.
    """
    files, values = sorted(file.rglob("new/sample.json")) if file.is_dir() else [file], list[Value]()
    if not files:
        raise UserError(f"{file}: is a folder without new/sample.json of criterion; give a file")
    for source in files:
        try:
            values += _values(source)
        except OSError as error:
            raise UserError(f"{error.filename}: {cause_of(error)}") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{source}: {cause_of(error)}") from error
        except _RefusedError as error:
            raise UserError(f"{source}: {error}") from None
    return values


def _values(file: Path) -> list[Value]:
    content = _content(file.read_text(encoding="utf-8-sig"))
    if isinstance(content, dict) and "sampling_mode" in content:  # of criterion, whose name is in the file beside it
        content["id"] = json.loads(file.with_name("benchmark.json").read_text(encoding="utf-8"))["full_id"]
    tool = next((tool for tool, known in FORMATS.items() if known.written(content)), None)
    if tool is None:
        raise _RefusedError(f"is not what a known tool writes ({', '.join(FORMATS)}); write a judge file instead")
    values, seen = list[Value](), Counter[tuple[str, str]]()
    try:
        for value in FORMATS[tool].values(content):
            seen[value.benchmark, value.metric] += 1
            values.append(replace(value, replicate=seen[value.benchmark, value.metric]))
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise _RefusedError(f"looks like {tool}, but cannot be read ({type(error).__name__}: {error})") from error
    if not values:
        raise _RefusedError(f"has no measurement by {tool}; run the benchmark again and look at its output")
    return values


def _content(text: str) -> Any:
    if not text.strip():
        raise _RefusedError("is empty: the tool failed or was stopped before it wrote a result; run it again")
    messages, brace, rest = text.partition("{")
    if '"fio version"' in rest[:200]:  # fio writes its messages to the same place
        if "terminating on signal" in messages:
            raise _RefusedError("fio was stopped by a signal; run it to its end")
        text = brace + rest
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        if text.startswith('{"reason":'):  # cargo-criterion: JSON lines
            return [json.loads(line) for line in text.splitlines()]
        content = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise _RefusedError(f"holds the JSON of several runs; {_ONE_BLOCK}") from None
        raise _RefusedError(f"its JSON breaks off or is damaged ({error}); run the tool to its end") from None
    if content in ([], {}):
        raise _RefusedError("has no result: every benchmark failed; look at the tool's output")
    return content


def _entry(content: Any, key: str | None = None) -> Any:
    """The first object of a list, which lies at `key` if one is given; an empty object if there is none."""
    entries = content if key is None else content.get(key) if isinstance(content, dict) else None
    return entries[0] if isinstance(entries, list) and entries and isinstance(entries[0], dict) else {}


def _has(*keys: str) -> Callable[[Any], bool]:
    return lambda content: isinstance(content, dict) and all(key in content for key in keys)


def _matches(pattern: str) -> Callable[[Any], bool]:
    return lambda content: isinstance(content, str) and re.search(pattern, content, re.MULTILINE) is not None


def _refuse_twins(names: Iterable[str], way_out: str) -> None:
    """Raise if two results have one name: they are no repetitions of each other."""
    if twins := [name for name, count in Counter(names).items() if count > 1]:
        raise _RefusedError(f"has several results named {twins[0]!r}; {way_out}")


def _of_load(
    rate: float, latencies: Mapping[str, float | None], unit: str, failed: int, requests: int
) -> Iterator[Value]:
    """The values of a load generator. A latency that it could not measure is NaN."""
    yield Value("requests/s", float(rate), HIGHER, failed=failed, requests=requests)
    for name, latency in latencies.items():
        number = math.nan if latency is None else float(latency)
        yield Value(f"latency {name}", number, LOWER, unit=unit, failed=failed, requests=requests)


def _hyperfine(content: Any) -> Iterator[Value]:
    results = content["results"]
    _refuse_twins((result["command"] for result in results), "name each command with --command-name")
    for result in results:
        # The commands of two sides are seldom the same text, so a single one needs no name.
        name = str(result["command"]) if len(results) > 1 else ""
        codes = result.get("exit_codes") or [0] * len(result["times"])
        for seconds, code in zip(result["times"], codes, strict=True):
            yield Value("time", float(seconds), LOWER, name, "s", failed=int(code != 0), requests=1)


_GOOGLE_RATES = ("items_per_second", "bytes_per_second")
_GOOGLE_NUMBERS = (
    "family_index", "per_family_instance_index", "repetitions", "repetition_index", "threads", "iterations",
    "real_time", "cpu_time", "error_occurred", *_GOOGLE_RATES,
)  # fmt: skip


def _google_benchmark(content: Any) -> Iterator[Value]:
    if content["benchmarks"] and all(row["run_type"] == "aggregate" for row in content["benchmarks"]):
        raise _RefusedError("has only aggregates; run it without --benchmark_report_aggregates_only")
    for row in content["benchmarks"]:
        if row["run_type"] != "iteration" or row.get("skipped"):
            continue
        name, failed = row["run_name"], bool(row.get("error_occurred"))
        for metric in ("real_time", "cpu_time"):
            number = math.nan if failed else float(row[metric])
            yield Value(metric, number, LOWER, name, row["time_unit"], failed=int(failed), requests=1)
        for metric in _GOOGLE_RATES:
            if metric in row:
                yield Value(metric, float(row[metric]), HIGHER, name, requests=1)
        for metric, number in row.items():  # the counters of the benchmark
            if isinstance(number, int | float) and metric not in _GOOGLE_NUMBERS:
                yield Value(metric, float(number), None, name, requests=1)


def _pytest_benchmark(content: Any) -> Iterator[Value]:
    _refuse_twins((benchmark["fullname"] for benchmark in content["benchmarks"]), "run each test once")
    for benchmark in content["benchmarks"]:
        if "data" not in benchmark["stats"]:
            raise _RefusedError("has only aggregates; write it with --benchmark-json or --benchmark-save-data")
        for seconds in benchmark["stats"]["data"]:
            yield Value("time", float(seconds), LOWER, benchmark["fullname"], "s")


_GO_BETTER = {"ns/op": LOWER, "B/op": LOWER, "allocs/op": LOWER, "MB/s": HIGHER}


def _go(content: str) -> Iterator[Value]:
    better, package, packages = dict(_GO_BETTER), "", set[str]()
    for number, line in enumerate(content.splitlines(), start=1):
        if line.startswith("pkg: "):
            package = line.removeprefix("pkg: ").strip()
            if package in packages:
                raise _RefusedError(f"line {number}: {package} runs again; {_ONE_BLOCK}")
            packages.add(package)
        elif failure := re.match(r"\s*--- FAIL: (\S+)|(panic: .*)|FAIL\s+(\S+)", line):
            raise _RefusedError(f"line {number}: {next(filter(None, failure.groups()))} failed; repair or skip it")
        elif meaning := re.match(r"Unit (\S+) .*\bbetter=(higher|lower)\b", line):
            better[meaning[1]] = Better(meaning[2])
        elif result := re.match(r"(Benchmark\S*)\s+\d+\s+(\S.*)", line):
            fields = result[2].split()
            name = f"{package}.{result[1]}" if package else result[1]
            for given, unit in zip(fields[::2], fields[1::2], strict=True):
                yield Value(unit, float(given), better.get(unit), name)
        elif re.match(r"\s*\d+\s+\S+ \S+/op\b", line):
            raise _RefusedError(f"line {number}: a result without its name: the benchmark prints to standard output")


def _criterion(content: Any) -> Iterator[Value]:
    """sample.json of the library, or the messages of cargo-criterion."""
    if isinstance(content, dict):
        results = [(content["id"], content["iters"], content["times"], "ns")]
    else:
        keys = ("id", "iteration_count", "measured_values", "unit")
        results = [tuple(line[key] for key in keys) for line in content if line["reason"] == "benchmark-complete"]
        _refuse_twins((name for name, *_ in results), _ONE_BLOCK)
    for name, iterations, times, unit in results:
        for n, time in zip(iterations, times, strict=True):
            yield Value("time", float(time) / float(n), LOWER, name, unit)


def _jmh(content: Any) -> Iterator[Value]:
    for result in content:
        parameters = (result.get("params") or {}).items()
        name = ":".join([result["benchmark"], *(f"{key}={value}" for key, value in parameters)])
        mode, score = result["mode"], result["primaryMetric"]
        if "rawData" in score:
            numbers = list(chain(*score["rawData"]))  # of forks, of iterations
        else:  # mode `sample`: for each iteration, times and how often each was seen
            histograms = chain(*score["rawDataHistogram"])
            numbers = [sum(time * n for time, n in each) / sum(n for _, n in each) for each in histograms]
        for number in numbers:
            yield Value(mode, float(number), HIGHER if mode == "thrpt" else LOWER, name, score["scoreUnit"])
        for metric, score in result["secondaryMetrics"].items():
            better = LOWER if metric in ("p0.50", "p0.95", "p0.99") else None
            if better or not re.fullmatch(r"p[01]\.\d+", metric):
                for number in chain(*score["rawData"]):
                    yield Value(f"{mode} {metric}", float(number), better, name, score["scoreUnit"])


def _k6(content: Any) -> Iterator[Value]:
    def statistics(metric: str) -> Any:
        found = content["metrics"].get(metric, {})
        return found.get("values", found)  # handleSummary has `values`, --summary-export has not

    requests, failures, duration = (statistics(f"http_req{kind}") for kind in ("s", "_failed", "_duration"))
    if "count" not in requests:
        raise _RefusedError("has no http_reqs: the script made no HTTP request")
    # Not `passes` and `fails`: a "pass" of http_req_failed is a request that failed.
    failed = round(failures.get("rate", failures.get("value", 0)) * requests["count"])
    names = {"avg": "mean", "med": "p50", "p(90)": "p90", "p(95)": "p95", "p(99)": "p99"}
    latencies = {name: duration[key] for key, name in names.items() if key in duration}
    return _of_load(requests["rate"], latencies, "ms", failed, requests["count"])


def _oha(content: Any) -> Iterator[Value]:
    # With -z, oha counts the requests under way at the end as errors. They have not failed.
    errors = {error: n for error, n in content["errorDistribution"].items() if error != "aborted due to deadline"}
    statuses = content["statusCodeDistribution"]
    requests = sum(errors.values()) + sum(statuses.values())
    failed = requests - sum(n for status, n in statuses.items() if int(status) < 400)
    latencies = {"mean": content["summary"]["average"]}
    latencies |= {name: content["latencyPercentiles"][name] for name in ("p50", "p90", "p95", "p99")}
    return _of_load(content["summary"]["requestsPerSec"], latencies, "s", failed, requests)


def _fio(content: Any) -> Iterator[Value]:
    jobs = content["jobs"]
    _refuse_twins((job["jobname"] for job in jobs), "run fio with --group_reporting")
    for job in jobs:
        name = job["jobname"]
        if job["error"]:
            raise _RefusedError(f"job {name!r} failed: {os.strerror(job['error'])}")
        for kind in ("read", "write", "trim"):
            if not job.get(kind, {}).get("total_ios"):
                continue
            yield Value(f"{kind} iops", float(job[kind]["iops"]), HIGHER, name, "1/s")
            yield Value(f"{kind} bw", float(job[kind]["bw_bytes"]), HIGHER, name, "B/s")
            latency = job[kind].get("clat_ns", {})
            if latency.get("N"):
                yield Value(f"{kind} clat mean", float(latency["mean"]), LOWER, name, "ns")
            if "99.000000" in latency.get("percentile", {}):
                yield Value(f"{kind} clat p99", float(latency["percentile"]["99.000000"]), LOWER, name, "ns")


def _iperf3(content: Any) -> Iterator[Value]:
    if "error" in content:
        raise _RefusedError(f"iperf3 stopped: {content['error']}")
    for suffix in ("", "_bidir_reverse"):
        if f"sum_received{suffix}" not in content["end"]:
            continue
        sent, received = (content["end"][f"sum_{end}{suffix}"] for end in ("sent", "received"))
        rate, lost, packets = received["bits_per_second"], received.get("lost_packets", 0), received.get("packets")
        yield Value(f"bits_per_second{suffix}", float(rate), HIGHER, "", "bit/s", failed=lost, requests=packets)
        if "retransmits" in sent:  # TCP
            yield Value(f"retransmits{suffix}", float(sent["retransmits"]), LOWER)
        if "jitter_ms" in received:  # UDP
            jitter = float(received["jitter_ms"])
            yield Value(f"jitter_ms{suffix}", jitter, LOWER, "", "ms", failed=lost, requests=packets)


_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def _seconds(text: str) -> float:
    unit = text.lstrip("0123456789.")
    return float(text.removesuffix(unit)) * _SECONDS[unit]


def _wrk(content: str) -> Iterator[Value]:
    def found(pattern: str) -> tuple[str, ...]:
        match = re.search(pattern, content, re.MULTILINE)
        return match.groups() if match else ()

    if len(re.findall(r"^Running .* test @ ", content, re.MULTILINE)) > 1:
        raise _RefusedError(f"holds several runs of wrk; {_ONE_BLOCK}")
    (planned,) = found(r"^Running (\S+) test @ ")
    if not (totals := found(r"^\s*(\d+) requests in ([^,]+),")):
        raise _RefusedError("wrk was stopped before it wrote a result; run it to its end")
    if _seconds(totals[1]) < 0.9 * _seconds(planned):
        raise _RefusedError(f"wrk was stopped after {totals[1]} of {planned}; run it to its end")
    errors = sum(map(int, found(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)")))
    failed = errors + sum(map(int, found(r"Non-2xx or 3xx responses: (\d+)")))
    times = [("mean", *found(r"^\s*Latency\s+([\d.]+[a-z]+)"))]
    times += [(f"p{n}", time) for n, time in re.findall(r"^\s+(\d+)%\s+(\S+)$", content, re.MULTILINE)]
    # Without a request, wrk writes 0.
    latencies = {name: _seconds(time) if int(totals[0]) else None for name, time in times}
    (rate,) = found(r"^Requests/sec:\s+(\S+)")
    return _of_load(float(rate), latencies, "s", failed, int(totals[0]) + errors)


FORMATS: Mapping[str, Format] = {
    "hyperfine": Format(lambda content: "command" in _entry(content, "results"), _hyperfine),
    "Google Benchmark": Format(_has("context", "benchmarks"), _google_benchmark),
    "pytest-benchmark": Format(_has("machine_info", "benchmarks"), _pytest_benchmark),
    "Go": Format(_matches(r"^(goos: |pkg: |Benchmark\S*\s+\d+\s|(ok|FAIL)\s+\S+\s+\d)"), _go),
    "criterion": Format(lambda content: _has("sampling_mode")(content) or "reason" in _entry(content), _criterion),
    "JMH": Format(lambda content: "jmhVersion" in _entry(content), _jmh),
    "k6": Format(_has("root_group", "metrics"), _k6),
    "oha": Format(_has("summary", "latencyPercentiles", "statusCodeDistribution"), _oha),
    "fio": Format(_has("fio version", "jobs"), _fio),
    "iperf3": Format(_has("start", "intervals", "end"), _iperf3),
    "wrk": Format(_matches(r"^Running .* test @ "), _wrk),
}
