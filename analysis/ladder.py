"""What each step of a ladder of guests gives back, with its interval; beside it what the host saw.

`cumulative` steps compare each rung with the one below it, `single` steps compare a guest that differs from the base
in one thing with that base. Metal is the level to reach.
"""

from __future__ import annotations

from typing import Any

from analysis.compare import choose_source, scenario_loop
from analysis.family import Adjusted, holm
from analysis.host_view import host_view
from analysis.judge import more_words, percent
from analysis.load import BASELINE, SCENARIO, Run, scenario_labels
from analysis.metrics import CPU, HOST_CPU, TAIL, THROUGHPUT, Metric
from analysis.sides import usable
from analysis.stats import ALPHA, MIN_BLOCKS, Interval, blocks_needed, noise_floor
from analysis.steps import Measured, Step, level, measure, relative, steps_of

METRICS = (THROUGHPUT, TAIL, HOST_CPU, CPU)
GIVES_BACK, COSTS, OPEN_QUESTION, INVALID = "gives back", "costs", "not distinguishable", "invalid because"
UNITS = {"1/s": "req/s", "µs": "µs"}

Scenario = tuple[str, ...]


def ladder(run: Run) -> dict[str, Any] | None:
    """JSON-serialisable; None for an experiment without a ladder.

    Keys: `base`, `rungs` (those measured, in the experiment's order), `skipped` ([{`environment`, `why`}]) and
    `scenarios`: each with `label`, its four names, `host` (see host_view) and `metrics`, name → `label`, `unit`,
    `source`, `levels` (environment → mean over its blocks) and `steps`. A step has `kind` (cumulative, single),
    `before`, `after`, `over`, `start` and `end` (over the blocks of both), `gain` with `gain_low` and `gain_high`
    (in `unit`, above zero when the later guest is the better), `ratio` (end ÷ start), `blocks`, `noise_floor` (in
    `unit`), `p_value`, `p_holm`, `family`, `verdict` and `text`.
    """
    experiment = run.meta["experiment"]
    declared = experiment.get("ladder") if isinstance(experiment, dict) else None
    if not declared:
        return None
    wanted = list(dict.fromkeys(filter(None, [*declared["cumulative"], declared["base"], *declared["single"]])))
    rungs = [rung for rung in wanted if rung in run.guests]
    reasons = {one["environment"]: one["why"] for one in run.meta.get("skipped") or [] if "environment" in one}
    absent = [rung for rung in wanted if rung not in rungs]
    labels, steps = scenario_labels(run), steps_of(declared, rungs)
    judged = {metric.name: _family(run, metric, rungs, steps) for metric in METRICS}
    return {
        "base": declared["base"],
        "rungs": rungs,
        "skipped": [{"environment": rung, "why": reasons.get(rung, "not measured")} for rung in absent],
        "scenarios": [
            {
                "label": labels[scenario],
                **dict(zip(SCENARIO, scenario, strict=True)),
                "metrics": {name: entries[scenario] for name, entries in judged.items() if scenario in entries},
                "host": host_view(run, scenario, rungs),
            }
            for scenario in run.compared
        ],
    }


def _family(run: Run, metric: Metric, rungs: list[str], steps: list[Step]) -> dict[Scenario, dict[str, Any]]:
    """One metric in every scenario under whose load it says something: all its steps are a family."""
    scenarios = [scenario for scenario in run.compared if scenario_loop(scenario) in metric.loops]
    sources = {scenario: _source(run, scenario, rungs, metric) for scenario in scenarios}
    measured = [measure(run, s, metric, sources[s], step) for s in scenarios for step in steps]
    tests = holm([_p_value(one) for one in measured])
    told = [_told(one, test, len(measured)) for one, test in zip(measured, tests, strict=True)]
    return {
        scenario: {
            "label": metric.label,
            "unit": UNITS[metric.unit],
            "source": sources[scenario],
            "levels": _levels(run, scenario, metric, sources[scenario], rungs),
            "steps": told[place * len(steps) : (place + 1) * len(steps)],
        }
        for place, scenario in enumerate(scenarios)
    }


def _source(run: Run, scenario: Scenario, rungs: list[str], metric: Metric) -> str:
    """One for the whole ladder, so that its steps connect: the twin where the tool was limited on some rung."""
    chosen = {choose_source(run, scenario, rung) for rung in rungs}
    source = "twin" if "twin" in chosen else "tool"
    return source if source in metric.columns else next(iter(metric.columns))


def _levels(run: Run, scenario: Scenario, metric: Metric, source: str, rungs: list[str]) -> dict[str, float]:
    cell, found = run.cells[scenario], dict[str, float]()
    for environment in (BASELINE, *rungs):
        value = level(usable(cell, environment, metric.column(source, guest=environment != BASELINE)), metric)
        if value is not None:
            found[environment] = value
    return found


def _p_value(one: Measured) -> float | None:
    """Of no difference; None where no test may decide."""
    return one.effect.p_difference if one.effect and one.effect.n >= MIN_BLOCKS and not one.refused else None


def _told(one: Measured, test: Adjusted | None, family: int) -> dict[str, Any]:
    effect, floor = one.effect, noise_floor(one.same)
    gain = one.gain(effect.mean) if effect else None
    interval = _gains(one, effect.t) if effect else None
    verdict, text = _verdict(one, test, floor)
    return {
        "kind": one.step.kind, "before": one.step.before, "after": one.step.after, "over": list(one.step.over),
        "start": one.start, "end": one.end, "gain": gain,
        "gain_low": interval.low if interval else None, "gain_high": interval.high if interval else None,
        "ratio": one.end / one.start if one.end and one.start else None,
        "blocks": effect.n if effect else 0, "noise_floor": None if floor is None else one.gain(floor),
        "p_value": effect.p_difference if effect else None, "p_holm": test.holm if test else None,
        "family": family, "verdict": verdict, "text": text,
    }  # fmt: skip


def _gains(one: Measured, interval: Interval | None) -> Interval | None:
    return Interval(one.gain(interval.low), one.gain(interval.high)) if interval else None


def _verdict(one: Measured, test: Adjusted | None, floor: float | None) -> tuple[str, str]:
    """The kind, and one line. A step counts when it survives Holm in its family and exceeds the noise floor."""
    effect = one.effect
    if one.refused or effect is None:
        return INVALID, f"{INVALID} {one.refused}"
    if test is None:
        return OPEN_QUESTION, f"{OPEN_QUESTION} ({more_words(MIN_BLOCKS - effect.n)})"
    if not test.holds or (floor is not None and abs(effect.mean) <= floor):
        more = blocks_needed(effect, 0.0, one.same, (ALPHA / test.step, ALPHA))
        return OPEN_QUESTION, f"{OPEN_QUESTION} ({more_words(more)})"
    kind, gain = GIVES_BACK if effect.mean > 0 else COSTS, abs(one.gain(effect.mean))
    share = f" ({percent(gain / one.start)})" if relative(one.metric) and one.start else ""
    return kind, f"{kind} {one.bound}{amount(gain)} {UNITS[one.metric.unit]}{share}"


def amount(value: float) -> str:
    """Three significant digits below a thousand, whole above."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
