"""Turn pairs into the evidence that a family judges, and add to its judgements what the trials say."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from vmtoll.analysis.judge import Evidence, control_differences
from vmtoll.analysis.pairs import Bounds, Pairs, is_measured, pair_arms, role_of
from vmtoll.analysis.run import Run
from vmtoll.analysis.sides import Side, mean_figure
from vmtoll.model.finding import Code, Role
from vmtoll.model.metric import METRICS, Loop, Metric, loop_of
from vmtoll.model.trial import Arm, Scenario
from vmtoll.model.verdict import (
    DIFFERENT,
    BlockEffect,
    Cause,
    ControlEffects,
    Doubt,
    Judged,
    SideCounts,
    VerdictReason,
)
from vmtoll.statistics.series import Floats, Series, fit


@dataclass(frozen=True)
class Control:
    """The A/A controls of a family for one figure."""

    noise: float  # the largest log ratio of two A/A trials in any block
    control_difference: float  # the largest difference of a control from itself for sure, in logs
    effects: tuple[ControlEffects, ...] = ()  # one entry per control


def controls_of(run: Run, roles: Mapping[Scenario, Role]) -> dict[tuple[str, Loop], Control]:
    """(metric, kind of loop) → the run's A/A controls for it, over all servers."""
    rows: list[tuple[tuple[str, Loop], Evidence, ControlEffects]] = []
    for arm in run.controls:
        baseline = Arm(arm.environment)
        for scenario in run.compared_scenarios:
            loop = loop_of(scenario.load)
            trials = run.trials_of(scenario, baseline) + run.trials_of(scenario, arm)
            for metric in METRICS.values():
                if loop in metric.loops and run.trials_of(scenario, arm):
                    role = role_of(metric, roles.get(scenario, Role.PRIMARY), trials)
                    pairs = pair_arms(run, scenario, baseline, arm, metric, role)
                    bounds = pairs.bounds
                    if bounds.mid.n:
                        effects = ControlEffects(
                            scenario=scenario, tool=run.tool(scenario), arm=arm, accelerator=run.accelerator(arm),
                            hardware=run.hardware(arm), metric=metric, role=role,
                            measured_by=run.tool_of(scenario, role), effects=effects_of(pairs, bounds),
                        )  # fmt: skip
                        rows.append(((metric.name, loop), Evidence(metric, bounds), effects))
    differences = control_differences([evidence for _, evidence, _ in rows])
    controls: dict[tuple[str, Loop], Control] = {}
    for (key, evidence, effects), difference in zip(rows, differences, strict=True):
        noise, previous = max(map(abs, evidence.bounds.mid.values)), controls.get(key, Control(0.0, 0.0))
        controls[key] = Control(
            max(noise, previous.noise), max(difference, previous.control_difference), (*previous.effects, effects)
        )
    return controls


def evidence_of(run: Run, pairs: Pairs, metric: Metric, control: Control | None) -> Evidence:
    """The evidence on a pair of arms, for the family to judge."""
    bounds = pairs.bounds
    control_difference = control.control_difference if control else 0.0
    return Evidence(
        metric,
        bounds.widened(control_difference),
        pairs.boots,
        first_replicates=pairs.first_replicates and pairs.first_replicates.widened(control_difference),
        noise=control.noise if control else None,
        control_difference=control_difference,
        share=run.share_of(bounds.mid.blocks),
        limited=bool(bounds.mid.n) and pairs.open_blocks >= pairs.blocks_of_pairs,
        capped=pairs.capped,
        excluded=_why_excluded(pairs),
    )


def _why_excluded(pairs: Pairs) -> VerdictReason | None:
    if not is_measured(pairs.sides):
        return VerdictReason.NOT_MEASURED
    if pairs.n:
        return None
    incomparable = any(not outcome.is_comparable for side in pairs.sides for outcome in side.outcomes)
    return VerdictReason.NOT_COMPARABLE if incomparable else VerdictReason.NO_FIGURE


def with_trials(pairs: Pairs, evidence: Evidence, judged: Judged, *, with_plain_levels: bool = False) -> Judged:
    """A judgement with what its trials add. `with_plain_levels`: a side's level is the plain geometric mean, which it
    has in every comparison; by default one level over the other is the estimate.
    """
    rho_weights = np.array(judged.rho_weights) if judged.rho_weights and not with_plain_levels else None
    return replace(
        judged,
        doubts=_doubts(pairs, evidence, judged),
        baseline=_counts_with_level(pairs, 0, rho_weights),
        compared=_counts_with_level(pairs, 1, rho_weights),
        effects=effects_of(pairs, evidence.bounds, evidence.first_replicates),
    )


def _counts_with_level(pairs: Pairs, index: int, rho_weights: Floats | None) -> SideCounts:
    """The counts of a side, with its mean over the blocks of both: the estimate is one level over the other."""
    side, blocks = pairs.sides[index], pairs.bounds.mid.blocks
    figures = [side.figures[block] for block in blocks]
    level = mean_figure(figures) if figures else None
    if figures and rho_weights is not None and min(figures) > 0:
        logs = fit([Series(blocks, tuple(map(math.log, figures)))])
        level = math.exp(float(logs.mean[0] @ rho_weights))
    return replace(side.counts, level=level)


def effects_of(pairs: Pairs, bounds: Bounds, first_replicates: Bounds | None = None) -> tuple[BlockEffect, ...]:
    """The blocks of a comparison as ratios; `first_replicates`: the bounds of first replicates, None without any."""
    sign = pairs.measure.sign
    low, high = (bounds.low, bounds.high)[::sign]
    first_low, first_high = (first_replicates.low, first_replicates.high)[::sign] if first_replicates else (None, None)
    trials = Counter(
        outcome.trial.block for side in pairs.sides for outcome in side.outcomes if outcome.figure or outcome.lost
    )
    series = {"low": low, "mid": bounds.mid, "high": high, "first_low": first_low, "first_high": first_high}
    return block_effects(series, lambda log: math.exp(sign * log), pairs.boots, trials)


def block_effects(
    series: Mapping[str, Series | None], to: Callable[[float], float], boots: Mapping[int, int],
    trials: Mapping[int, int],
) -> tuple[BlockEffect, ...]:  # fmt: skip
    """The blocks of these series, by their names in BlockEffect; `to`: turns a value into what the block shows."""
    values = {
        name: {block: to(value) for block, value in zip(each.blocks, each.values, strict=True)}
        for name, each in series.items() if each
    }  # fmt: skip
    return tuple(
        BlockEffect(
            block, boots[block], trials=trials[block], **{name: each.get(block) for name, each in values.items()}
        )
        for block in sorted(set[int]().union(*values.values()))
    )


def _doubts(pairs: Pairs, evidence: Evidence, judged: Judged) -> tuple[Doubt, ...]:
    """Causes that widen the end that counts against the verdict (within the margin either end), the largest first."""
    downs, ups = pairs.widths()
    advantage = pairs.measure.sign * math.log(judged.estimate.value) if judged.estimate else 0.0
    widths = downs if advantage > 0 else ups
    if judged.kind not in DIFFERENT and abs(advantage) < math.log1p(judged.margin):
        widths = {cause: max(downs.get(cause, 0.0), ups.get(cause, 0.0)) for cause in (*downs, *ups)}
    if evidence.control_difference:
        widths[Cause.CONTROL] = evidence.control_difference
    doubts = []
    for cause, width in widths.items():
        counts = [_trials_with(side, cause) for side in pairs.sides]
        values = [
            f.value for side in pairs.sides for t in side.used for f in t.findings
            if f.code == cause and f.value is not None
        ]  # fmt: skip
        doubts.append(Doubt(cause, counts[0], counts[1], math.exp(width), max(values, default=None)))
    return tuple(sorted(doubts, key=lambda doubt: (-doubt.size, doubt.cause)))


def _trials_with(side: Side, cause: Code | Cause) -> int:
    """Number of a side's trials with this cause of doubt."""
    if cause is Cause.LOST:
        return side.counts.lost
    if cause is Cause.SECOND_ATTEMPTS:
        return side.counts.second_attempts
    return sum(cause in outcome.figure.widths for outcome in side.outcomes if outcome.figure)
