"""The comparison of two runs in English."""

from collections.abc import Iterator
from typing import Any

from vmtoll.model.agreement import Agreement, AgreementReason, MetricResult, RunComparison, ScenarioResult
from vmtoll.report.words import Sides, digits, labels_of, percent, plural, verdict_text


def lines(result: RunComparison) -> Iterator[str]:
    """Yield the lines of `vmtoll compare`: each scenario with its metrics, and the counts last."""
    labels = labels_of(dict.fromkeys(scenario.scenario for scenario in result.scenarios))
    for scenario in result.scenarios:
        label = f"{labels[scenario.scenario]} on {scenario.arm}"
        yield f"{label}: {scenario.status.text} ({scenario_reason(scenario)})"
        for fact in scenario.facts:
            yield f"    {fact.fact}: {_shortened(fact.published)} → {_shortened(fact.again)}"
        for name, metric in scenario.metrics.items():
            sides = _sides(scenario)
            texts = " → ".join(dict.fromkeys(verdict_text(v, sides) for v in (metric.published, metric.again)))
            yield f"    {name}: {metric.agreement.status.text}: {texts}{_ratios(metric, sides)}"
            if metric.agreement.status is not scenario.status or metric.agreement.why is AgreementReason.IMPRECISE:
                yield f"        {metric_reason(metric, sides)}"
        if scenario.other_differences and not scenario.facts:
            yield f"    other differences: {', '.join(fact.fact for fact in scenario.other_differences)}"
    if result.published.run_id == result.again.run_id:
        yield f"both are run {result.published.run_id}: agreement between copies of one run reproduces nothing"
    yield ", ".join(f"{count} {status.text}" for status, count in result.counts.items())


def scenario_reason(scenario: ScenarioResult) -> str:
    """Reason for a scenario's status."""
    if scenario.why is AgreementReason.FACTS_DIFFER:
        return "; ".join(f"{fact.fact} differs" for fact in scenario.facts)
    if scenario.why is AgreementReason.METRICS:
        return ", ".join(name for name, m in scenario.metrics.items() if m.agreement.status is scenario.status)
    first = next(iter(scenario.metrics.values()), None)
    return metric_reason(first, _sides(scenario)) if first else scenario.why.text


def _sides(scenario: ScenarioResult) -> Sides:
    return Sides(str(scenario.arm), str(scenario.baseline))


def metric_reason(result: MetricResult, sides: Sides) -> str:
    """Reason for a metric's status."""
    agreement = result.agreement
    match agreement.why:
        case AgreementReason.CLAIMS_NOTHING:
            return f"{agreement.why.text}: {verdict_text(result.published, sides)}"
        case AgreementReason.NO_RESULT:
            return f"{agreement.why.text}: {verdict_text(result.again, sides)}"
        case AgreementReason.SIZE_CHANGED:
            return (
                f"the ratio {_quotient(sides)} changed {_change(agreement)}, tolerance {percent(agreement.tolerance)}"
            )
        case AgreementReason.IMPRECISE:
            start = f"the ratio {_quotient(sides)} changed {_change(agreement)} {_interval(agreement)}"
            return f"{start}, tolerance {percent(agreement.tolerance)}; {_needed_text(agreement)}"
        case why:
            return why.text


def _change(agreement: Agreement) -> str:
    """`by +12.0%`, `to 2.1 times the earlier ratio`."""
    ratio = agreement.change.value if agreement.change else 1.0
    return f"by {_factor(ratio)}" if _is_small(ratio) else f"to {ratio:.2g} times the earlier ratio"


def _factor(ratio: float) -> str:
    return f"{ratio - 1:+.1%}" if _is_small(ratio) else f"{ratio:.2g}×"


def _is_small(ratio: float) -> bool:
    """Return whether a change reads better in percent."""
    return 0.5 < ratio < 2


def _interval(agreement: Agreement) -> str:
    ends = agreement.change and agreement.change.ends
    return f"({_factor(ends[0])} to {_factor(ends[1])})" if ends else ""


def _needed_text(agreement: Agreement) -> str:
    """The number of blocks that the second run still needs, in words; no number if the first run is too imprecise."""
    if agreement.blocks_needed is None:
        return "no number of blocks decides it, because the first run is too imprecise"
    return f"needs {plural(agreement.blocks_needed, 'more block')} (80% power)"


def _quotient(sides: Sides) -> str:
    return f"{sides.compared} ÷ {sides.baseline}"


def _ratios(metric: MetricResult, sides: Sides) -> str:
    first, second = metric.published.estimate, metric.again.estimate
    return f" ({_quotient(sides)} {digits(first.value)}× → {digits(second.value)}×)" if first and second else ""


def _shortened(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 48 else f"{text[:45]}…"
