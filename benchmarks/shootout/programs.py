"""Programs of others that judge two samples, installed by the clients of their registries into build/shootout.

Each takes pairs of samples, in seconds, and returns the strength and the sign that benchmarks.shootout.rules defines;
None where its client is not installed.
"""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vmtoll.paths import PROJECT

HERE = Path(__file__).parent
TOOLS = PROJECT / "build" / "shootout"
BENCHSTAT = "v0.0.0-20260908200009-22c9c6c9d4da"
CRITERION = "0.8.2"
CRITERION_RESAMPLES = 10_000
OTAVA = "0.8.0"
# Thresholds at which Otava looks for change points; a strength is that of the least which finds one.
OTAVA_LEVELS = (0.00001, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)

Pairs = Sequence[tuple[Sequence[float], Sequence[float]]]


def benchstat(pairs: Pairs) -> list[tuple[float, int]] | None:
    """The p of its U test, which it prints with three decimals."""
    program = TOOLS / "bin" / "benchstat"
    go = shutil.which("go", path=_path("/usr/local/go/bin"))
    if not program.exists():
        if not go:
            return None
        argv = [go, "install", f"golang.org/x/perf/cmd/benchstat@{BENCHSTAT}"]
        subprocess.run(argv, check=True, env=os.environ | {"GOBIN": str(program.parent)})
    with tempfile.TemporaryDirectory(prefix="vmtoll-shootout-") as folder:
        for side, name in enumerate("ab"):
            lines = [
                f"BenchmarkP{number} 1 {1e9 * value:.1f} ns/op"
                for number, pair in enumerate(pairs) for value in pair[side]
            ]  # fmt: skip
            Path(folder, name).write_text("\n".join(lines) + "\n")
        argv = [str(program), "-alpha", "1", "-format", "csv", "a", "b"]  # alpha 1: the sign of every row
        printed = subprocess.run(argv, check=True, cwd=folder, capture_output=True, text=True).stdout
    return read_benchstat(printed, len(pairs))


def read_benchstat(printed: str, count: int) -> list[tuple[float, int]]:
    """The answers in what `benchstat -alpha 1 -format csv` prints."""
    opinions: dict[int, tuple[float, int]] = {}
    for row in csv.reader(printed.splitlines()):
        if len(row) > 6 and (name := re.fullmatch(r"P(\d+)", row[0])) and (p := re.search(r"p=([0-9.]+)", row[6])):
            opinions[int(name[1])] = -float(p[1]), -1 if float(row[3]) < float(row[1]) else 1
    return [opinions[number] for number in range(count)]


def criterion(pairs: Pairs) -> list[tuple[float, int]] | None:
    """How far its interval of the change lies from zero, where its p is below 0.05."""
    cargo = shutil.which("cargo", path=_path(str(Path.home() / ".cargo" / "bin")))
    if not cargo:
        return None
    crate = shutil.copytree(HERE / "criterion", TOOLS / "criterion", dirs_exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="vmtoll-shootout-") as name:
        home = Path(name)
        for number, pair in enumerate(pairs):
            for side, values in zip(("base", "new"), pair, strict=True):
                _write_criterion(home / f"p{number}" / side, values)
        argv = [cargo, "bench", "--quiet", "--bench", "pages", "--", "--load-baseline", "new", "--baseline", "base"]
        argv += ["--noplot", "--nresamples", str(CRITERION_RESAMPLES)]
        env = os.environ | {
            "CRITERION_HOME": str(home), "PATH": f"{Path(cargo).parent}:{os.environ['PATH']}",
        }  # fmt: skip
        lines = "".join(f"p{number}\n" for number in range(len(pairs)))
        printed = subprocess.run(
            argv, check=True, cwd=crate, env=env, input=lines, capture_output=True, text=True
        ).stdout  # fmt: skip
        is_sure = [sign == "<" for sign in re.findall(r"\(p = [0-9.]+ ([<>]) 0\.05\)", printed)]
        intervals = [
            json.loads((home / f"p{number}" / "change" / "estimates.json").read_text())["mean"]["confidence_interval"]
            for number in range(len(pairs))
        ]  # fmt: skip
    opinions = []
    for sure, interval in zip(is_sure, intervals, strict=True):
        low, high = interval["lower_bound"], interval["upper_bound"]
        opinions.append((max(low, -high, 0.0) if sure else 0.0, 1 if low + high > 0 else -1))
    return opinions


def _write_criterion(folder: Path, values: Sequence[float]) -> None:
    """A saved sample; criterion computes everything else from it."""
    folder.mkdir(parents=True)
    sample = {"sampling_mode": "Flat", "iters": [1.0] * len(values), "times": [1e9 * value for value in values]}
    (folder / "sample.json").write_text(json.dumps(sample))
    interval = {"confidence_level": 0.95, "lower_bound": 0.0, "upper_bound": 0.0}
    estimate = {"confidence_interval": interval, "point_estimate": 0.0, "standard_error": 0.0}
    names = ("mean", "median", "median_abs_dev", "std_dev")  # criterion reads them, and shows them in plots alone
    (folder / "estimates.json").write_text(json.dumps(dict.fromkeys(names, estimate) | {"slope": None}))


# Runs in Otava's environment: lines of JSON, the values and the levels in, the least level with a change point out.
OTAVA_SCRIPT = """
import json, sys
from otava.series import AnalysisOptions, Metric, Series
for line in sys.stdin:
    a, b, levels = json.loads(line)
    least = [0.0, 1]
    for level in levels:
        options = AnalysisOptions()
        options.max_pvalue = level
        values = a + b
        series = Series("page", None, list(range(len(values))), {"time": Metric(-1)}, {"time": values}, {})
        points = [p for p in series.analyze(options).change_points["time"] if p.index >= len(a) - 3]
        if points:
            least = [level, 1 if points[0].forward_change_percent() > 0 else -1]
            break
    print(json.dumps(least), flush=True)
"""


def otava(pairs: Pairs) -> list[tuple[float, int]] | None:
    """The least level at which it finds a change point in the values of B, after those of A."""
    python = TOOLS / "otava" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", f"apache-otava=={OTAVA}"], check=True)
    lines = "".join(json.dumps([[*a], [*b], OTAVA_LEVELS]) + "\n" for a, b in pairs)
    argv = [str(python), "-c", OTAVA_SCRIPT]
    printed = subprocess.run(argv, check=True, input=lines, capture_output=True, text=True).stdout
    least_levels = [json.loads(line) for line in printed.splitlines()]
    # A hair above its level: a change point at max_pvalue 0.001 differs at p < 0.001.
    return [(-level * (1 - 1e-9) if level else -1.0, sign) for level, sign in least_levels]


def _path(folder: str) -> str:
    return f"{os.environ['PATH']}:{folder}"
