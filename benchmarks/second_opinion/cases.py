"""The cases of the second opinion: `python -m benchmarks.second_opinion.cases FOLDER`.

Writes FOLDER/cases/NAME.json, the input of docs/statistics.md ("Reading analysis.json"), and FOLDER/answers/NAME.json,
what the engine answers: one pair for each committed run, judged from its trials, and for each simulated page. Every
call writes the same files.

A simulated page draws from its number: 1 to 200 comparisons of 1 to 40 blocks (one page has 210), 1 to 6 boots, normal,
heavy-tailed, bimodal or exact blocks with a correlation of 0, 0.5 or 0.8, differences of 0 to 1.5 in logs, findings,
missing blocks, blocks that one side lost, second replicates, controls, tuning steps, shares of looks, and comparisons
that repeat the one before them. Its ratios are rounded before the engine judges them, so that ties stay ties.
"""

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from vmtoll.analysis.judge import Evidence, Family, control_differences
from vmtoll.analysis.pairs import Bounds
from vmtoll.analysis.run import load_run
from vmtoll.analysis.tuning_steps import METRICS as STEP_METRICS
from vmtoll.analysis.verdict import analyse
from vmtoll.model.analysis import DIGITS, to_json
from vmtoll.model.metric import METRICS, Loop, Metric
from vmtoll.model.verdict import Judged, Kind
from vmtoll.paths import PROJECT
from vmtoll.statistics.series import Floats, Series, is_skewed

PAGES = 200
MANY_ROWS, MANY_BLOCKS, ONE_ROW = range(3)  # the pages that are fixed in one respect
EFFECT = ("block", "boot", "low", "mid", "high", "first_low", "first_high")
INPUT = ("margin", "noise_floor", "widened", "open_in_every_block")
RESULT = (
    "kind", "because", "by_every_block", "also_different", "estimate", "confidence", "blocks_range", "mean_low",
    "mean_high", "half_width", "standard_error", "blocks", "boots", "blocks_needed", "detectable", "correlation",
    "rho_weights",
)  # fmt: skip

Json = dict[str, Any]


def committed_runs() -> list[Path]:
    """The folders of the runs that git keeps."""
    names = subprocess.run(
        ["git", "ls-files", "results/*/*/run.json"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout
    return [(PROJECT / name).parent for name in names.splitlines()]


# ---- input and answer of an analysis


def _picked(row: Mapping[str, Any], names: Sequence[str]) -> Json:
    return {name: row[name] for name in names if row.get(name) is not None}


def _input(row: Json) -> Json:
    if row.get("kind") == Kind.NOT_JUDGED:
        return {"kind": str(Kind.NOT_JUDGED)}
    effects = [_picked(effect, EFFECT) for effect in row["effects"]]
    return _picked(row, INPUT) | {"tests": {"share": row["tests"]["share"]}, "effects": effects}


def _result(row: Json) -> Json:
    if row.get("kind") == Kind.NOT_JUDGED:
        return {"kind": str(Kind.NOT_JUDGED)}
    tests = {name: value for name, value in row["tests"].items() if name != "share" and value is not None}
    return _picked(row, RESULT) | {"tests": tests}


def case_and_answer(analysis: Json) -> tuple[Json, Json]:
    """Split the content of analysis.json into what the engine reads and what it answers."""
    case: Json = {"run_id": analysis["run_id"]}
    answer: Json = {"run_id": analysis["run_id"]}
    for content, part in ((case, _input), (answer, _result)):
        content["comparisons"] = [
            _picked(row, ("scenario", "arm")) | {"verdicts": {name: part(v) for name, v in row["verdicts"].items()}}
            for row in analysis["comparisons"]
        ]
        if steps := analysis.get("tuning_steps"):
            content["tuning_steps"] = {"scenarios": [
                {"scenario": row["scenario"], "metrics": {
                    name: {"steps": [_picked(s, ("step", "before", "after")) | part(s) for s in metric["steps"]]}
                    for name, metric in row["metrics"].items()
                }}
                for row in steps["scenarios"]
            ]}  # fmt: skip
    case["controls"] = [
        _picked(row, ("scenario", "arm", "metric"))
        | {"effects": [_picked(effect, ("block", "low", "mid", "high")) for effect in row["effects"]]}
        for row in analysis["controls"]
    ]
    answer["controls"] = control_answers(case["controls"])
    case["claims"] = [
        _picked(row, ("says", "sides", "alpha"))
        | {"effects": [_picked(effect, ("block", "boot", "low", "mid", "high")) for effect in row["effects"]]}
        for row in analysis.get("claims", [])
    ]
    answer["claims"] = [_picked(row, ("says", "ratio", "level", "rho_weights")) for row in analysis.get("claims", [])]
    return case, answer


# ---- the engine on a case


def _bounds(effects: Sequence[Json], sign: int, names: tuple[str, str, str]) -> Bounds:
    series = [
        Series(tuple(e["block"] for e in rows), tuple(sign * math.log(e[name]) for e in rows))
        for name in (names if sign > 0 else names[::-1])
        for rows in [[effect for effect in effects if name in effect]]
    ]
    return Bounds(*series)


def _evidence(metric: Metric, row: Json) -> Evidence:
    effects, sign = row["effects"], 1 if metric.higher_is_better else -1
    has_first = any("first_low" in effect or "first_high" in effect for effect in effects)
    return Evidence(
        metric,
        _bounds(effects, sign, ("low", "mid", "high")),
        {effect["block"]: effect.get("boot", 1) for effect in effects},
        first_replicates=_bounds(effects, sign, ("first_low", "mid", "first_high")) if has_first else None,
        noise=math.log1p(row["noise_floor"]) if "noise_floor" in row else None,
        control_difference=math.log1p(row.get("widened", 0.0)),
        share=row["tests"]["share"] if "tests" in row else 1.0,
        limited=row.get("open_in_every_block", False),
    )


def families(analysis: Json) -> Iterator[tuple[list[tuple[Metric, Json]], float | None]]:
    """The families of a case or an answer, each with its margin: the members in their order."""
    rows = [
        (METRICS[name], row["verdicts"][name])
        for row in analysis["comparisons"] for name in METRICS if name in row["verdicts"]
    ]  # fmt: skip
    members = [(metric, row) for metric, row in rows if row.get("kind") != Kind.NOT_JUDGED]
    yield members, members[0][1].get("margin") if members else None
    steps = [
        (metric, step)
        for metric in STEP_METRICS
        for scenario in analysis.get("tuning_steps", {}).get("scenarios", [])
        for step in scenario["metrics"].get(metric.name, {}).get("steps", [])
    ]
    yield [(metric, step) for metric, step in steps if step.get("kind") != Kind.NOT_JUDGED], None


_JUDGED = TypeAdapter(Judged)


def judge_case(case: Json) -> list[Json]:
    """What the engine answers from the input alone, for all members of both families in their order."""
    answers = []
    for members, margin in families(case):
        family = Family([_evidence(metric, row) for metric, row in members], margin)
        answers += [_result(json.loads(_JUDGED.dump_json(judged, exclude_none=True))) for judged in family.judge()]
    return answers


def control_answers(controls: Sequence[Json]) -> list[Json]:
    """What the controls say for each metric and kind of loop."""
    evidence = [_evidence(METRICS[row["metric"]], row) for row in controls]
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for row, each, difference in zip(controls, evidence, control_differences(evidence), strict=True):
        loop = Loop.CLOSED if row["scenario"]["load"]["kind"] == "closed" else Loop.OPEN
        noise, widest = found.get((row["metric"], loop), (0.0, 0.0))
        noise = max(noise, *map(abs, each.bounds.mid.values))
        found[row["metric"], loop] = noise, max(widest, difference)
    return [
        {"metric": name, "loop": str(loop), "noise_floor": math.expm1(noise), "widened": math.expm1(difference)}
        for (name, loop), (noise, difference) in found.items()
    ]


# ---- simulated pages


def _rounded(log: float, sign: int) -> float:
    return float(f"{math.exp(sign * log):.{DIGITS}g}")


class Page:
    """A simulated page. `case` is its input."""

    def __init__(self, number: int) -> None:
        self.rng = np.random.default_rng([52, number])
        self.number = number
        draw = self.rng.choice
        self.rows = {MANY_ROWS: 200, ONE_ROW: 1}.get(number) or int(draw([1, 1, 2, 3, 5, 12, 20]))
        self.blocks = 210 if number == MANY_BLOCKS else int(draw([1, 2, 3, 4, 5, 6, 6, 8, 10, 10, 16, 24, 40]))
        boots = int(draw([1, 1, 1, 2, 3, 4, 5, 6]))
        self.boots = min(boots, self.blocks)
        self.phi = float(draw([0.0, 0.0, 0.5, 0.8]))
        self.sd = float(draw([0.0, 0.001, 0.005, 0.02, 0.02, 0.2]))
        self.noise = str(draw(["normal", "normal", "heavy", "bimodal"]))
        self.margin = float(draw([0.02, 0.02, 0.05, 0.2]))
        self.has_looks = bool(self.rng.random() < 0.25)
        self.missing = float(draw([0.0, 0.0, 0.1, 0.3]))  # share of blocks without a mid
        self.findings = float(draw([0.0, 0.0, 0.01, 0.05]))  # how far they widen a block, in logs
        self.has_replicates = bool(self.rng.random() < 0.5)
        self.control_rows = self._controls() if self.rng.random() < 0.6 else []
        self.said = {(row["metric"], row["loop"]): row for row in control_answers(self.control_rows)}
        self.case: Json = {
            "run_id": f"page-{number:03}", "comparisons": self._comparisons(), "controls": self.control_rows,
            "claims": [],
        }  # fmt: skip
        if self.rng.random() < 0.2:
            self.case["tuning_steps"] = self._tuning_steps()

    def _logs(self, shift: float) -> Floats:
        rng, n = self.rng, self.blocks
        logs = rng.standard_t(3, n) / math.sqrt(3) if self.noise == "heavy" else rng.normal(size=n)
        for block in range(1, n):
            logs[block] = self.phi * logs[block - 1] + math.sqrt(1 - self.phi**2) * logs[block]
        if self.noise == "bimodal" and self.sd:
            logs = logs - 15 * (rng.random(n) < 0.15)
        return np.asarray(shift + self.sd * logs)

    def _boot(self, block: int) -> int:
        return (block - 1) * self.boots // self.blocks + 1

    def _effects(self, metric: Metric, widened: float = 0.0) -> list[Json]:
        rng, sign = self.rng, 1 if metric.higher_is_better else -1
        shift = float(rng.choice([0.0, 0.0, 0.0, 0.004, 0.05, 0.3, 1.5])) * (-1 if rng.random() < 0.5 else 1)
        mids = self._logs(shift)
        down, up = (rng.exponential(self.findings, self.blocks) * (rng.random(self.blocks) < 0.5) for _ in range(2))
        fate = rng.random(self.blocks)
        rows: dict[int, dict[str, float]] = {}
        for index, mid in enumerate(mids):
            if fate[index] >= self.missing:
                rows[index + 1] = {"low": mid - down[index], "mid": mid, "high": mid + up[index]}
            elif fate[index] < 0.4 * self.missing:  # the compared side lost all its trials
                rows[index + 1] = {"low": mids.min() - math.log(2)}
            elif fate[index] < 0.8 * self.missing:  # the baseline did
                rows[index + 1] = {"high": mids.max() + math.log(2)}
        known = [(block, row["mid"]) for block, row in rows.items() if "mid" in row]
        if not known:
            rows[1] = {"low": mids[0] - down[0], "mid": mids[0], "high": mids[0] + up[0]}
        series = Series(tuple(b for b, _ in known), tuple(v for _, v in known))
        if self.has_replicates and is_skewed(series):
            extra = rng.normal(0, 2 * self.sd, len(known))
            for (block, mid), move in zip(known, extra, strict=True):
                rows[block] |= {"first_low": mid + move, "first_high": mid + move}
        for row in rows.values():
            for name in row.keys() & {"low", "first_low"}:
                row[name] -= widened
            for name in row.keys() & {"high", "first_high"}:
                row[name] += widened
        swapped = {"low": "high", "high": "low", "first_low": "first_high", "first_high": "first_low"}
        return [
            {"block": block, "boot": self._boot(block)}
            | {
                name if sign > 0 else swapped.get(name, name): _rounded(row[name], sign)
                for name in EFFECT if name in row
            }
            for block, row in sorted(rows.items())
        ]  # fmt: skip

    def _row(self, metric: Metric, loop: Loop, margin: float, previous: Json | None) -> Json:
        said = self.said.get((metric.name, loop), {})
        row = {"margin": margin, "widened": said.get("widened", 0.0)}
        row |= {"noise_floor": said["noise_floor"]} if said else {}
        row["open_in_every_block"] = bool(self.rng.random() < 0.05)
        row["tests"] = {"share": float(self.rng.choice([0.0, 0.12, 0.45, 0.88])) if self.has_looks else 1.0}
        if previous is not None and self.rng.random() < 0.2:
            return row | {"effects": previous["effects"], "tests": previous["tests"]}
        return row | {"effects": self._effects(metric, math.log1p(row["widened"]))}

    @staticmethod
    def _scenario(number: int, loop: Loop) -> Json:
        return {"server": f"server-{number}", "workload": "simulated", "load": {"kind": str(loop), "value": 1.0}}

    def _comparisons(self) -> list[Json]:
        rows: list[Json] = []
        last: dict[bool, Json] = {}  # by direction: a comparison that a later one may repeat
        left = self.rows
        while left:
            loop = Loop.OPEN if self.rng.random() < 0.3 else Loop.CLOSED
            verdicts: Json = {}
            for name, metric in METRICS.items():
                if left and loop in metric.loops and (self.rng.random() < 0.8 or not verdicts):
                    verdicts[name] = self._row(metric, loop, self.margin, last.get(metric.higher_is_better))
                    last[metric.higher_is_better] = verdicts[name]
                    left -= 1
                else:
                    verdicts[name] = {"kind": str(Kind.NOT_JUDGED)}
            rows.append({
                "scenario": self._scenario(len(rows) + 1, loop), "arm": {"environment": "guest", "replicate": 1},
                "verdicts": verdicts,
            })  # fmt: skip
        return rows

    def _tuning_steps(self) -> Json:
        scenarios = []
        for number in range(1, int(self.rng.integers(1, 4)) + 1):
            loop = Loop.OPEN if self.rng.random() < 0.3 else Loop.CLOSED
            metrics = {
                metric.name: {"steps": [self._row(metric, loop, 0.0, None) for _ in range(3)]}
                for metric in STEP_METRICS if loop in metric.loops
            }  # fmt: skip
            scenarios.append({"scenario": self._scenario(number, loop), "metrics": metrics})
        return {"scenarios": scenarios}

    def _controls(self) -> list[Json]:
        rows = []
        for number in range(1, int(self.rng.integers(1, 3)) + 1):
            loop = Loop.OPEN if self.rng.random() < 0.3 else Loop.CLOSED
            for metric in METRICS.values():
                if loop in metric.loops:
                    size = max(1, self.blocks)
                    mids = self.rng.normal(0.01 if self.rng.random() < 0.2 else 0.0, max(self.sd, 1e-4) / 2, size)
                    width = self.rng.exponential(1e-4, size)
                    effects = [
                        {"block": index + 1} | {
                            name: _rounded(mid + side * width[index], 1)
                            for name, side in (("low", -1), ("mid", 0), ("high", 1))
                        }
                        for index, mid in enumerate(mids)
                    ]  # fmt: skip
                    rows.append({
                        "scenario": self._scenario(number, loop), "arm": {"environment": "metal", "replicate": 2},
                        "metric": metric.name, "effects": effects,
                    })  # fmt: skip
        return rows

    def answer(self) -> Json:
        """What the engine answers."""
        answer: Json = json.loads(json.dumps(self.case))
        judged = iter(judge_case(self.case))
        for members, _ in families(answer):
            for _, row in members:
                row.clear()
                row.update(next(judged))
        return answer | {"controls": control_answers(self.control_rows)}


# ---- all of them


def cases() -> Iterator[tuple[str, Json, Json]]:
    """Each name, input and answer."""
    for folder in committed_runs():
        analysis = json.loads(to_json(analyse(load_run(folder))))
        yield (folder.parent.name, *case_and_answer(analysis))
    for number in range(PAGES):
        page = Page(number)
        yield page.case["run_id"], page.case, page.answer()


def main() -> None:
    """Write both folders."""
    folder = Path(sys.argv[1])
    for name, case, answer in cases():
        for kind, content in (("cases", case), ("answers", answer)):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            (folder / kind / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
