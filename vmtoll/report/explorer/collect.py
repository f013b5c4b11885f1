"""Every run of a results folder, as the explorer shows it: codes and numbers, with the texts to display."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from vmtoll.analysis.availability import availability
from vmtoll.analysis.equality import DECISIVE, machine_facts, scenario_facts
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.finding import Role, Validity
from vmtoll.model.load import LoadKind
from vmtoll.model.metric import METRICS, THROUGHPUT, Metric
from vmtoll.model.trial import Arm, MachineKind, Scenario, TrialRecord
from vmtoll.model.verdict import Comparison, Kind, Verdict, VerdictReason
from vmtoll.report import words
from vmtoll.report.explorer.machines import environment_of, platform
from vmtoll.runs.folder import runs_in

Entry = dict[str, Any]  # an object of the page's JSON


CONTRIBUTED = "contributed"  # results/contributed holds others' bundles


def collect(results: Path, contributed: Mapping[str, Run] | None = None) -> list[Entry]:
    """One entry per run, the newest first. A run that cannot be loaded has an `error` and no rows.

    `contributed`: name on the site → the run of a checked bundle from others.
    """
    folders = [folder for folder in runs_in(results) if folder.parent.name != CONTRIBUTED]
    entries = [(folder.name, _entry(results, folder)) for folder in folders]
    entries += [(run.manifest.run_id, _contributed_entry(name, run)) for name, run in (contributed or {}).items()]
    return [entry for _, entry in sorted(entries, key=lambda item: (item[0], item[1]["id"]), reverse=True)]


def _contributed_entry(name: str, run: Run) -> Entry:
    entry: Entry = {"id": name, "report": None, "error": None, "contributed": True}
    return entry | {"disclosure": f"runs/{name}/disclosure.html"} | _described_run(run, analyse(run))


def _entry(results: Path, folder: Path) -> Entry:
    name = folder.relative_to(results).as_posix()
    pages = {
        page: f"runs/{name}/{page}.html" if (folder / f"{page}.html").is_file() else None
        for page in ("report", "disclosure")
    }
    entry: Entry = {"id": name, **pages, "error": None, "rows": []}
    try:
        run = load_run(folder)
    except ValueError as error:
        return entry | {"error": str(error).replace(f"{folder}/", "")}
    return entry | _described_run(run, analyse(run))


def _described_run(run: Run, analysis: RunAnalysis) -> Entry:
    manifest, sides = run.manifest, words.sides_of(analysis.comparisons)
    return {
        "started_at": manifest.started_at,
        "question": manifest.experiment.question,
        "smoke": manifest.experiment.purpose == "smoke",
        "lab": manifest.lab,
        "link": manifest.link,
        "baseline": str(run.baseline),
        "accelerators": {str(arm): run.accelerator(arm).value for arm in run.arms},
        "sentence": words.sentence(analysis),
        "emulated": analysis.emulated,
        "hardware": {str(arm): run.hardware(arm).value for arm in run.arms},
        "kvm_hardware": [kind.value for kind in analysis.kvm_hardware if kind in words.KVM_HARDWARE],
        "complete": analysis.complete,
        "blocks": analysis.blocks,
        "counts": {validity.value: analysis.counts.get(validity, 0) for validity in Validity}
        | {"attempts": analysis.attempts, "planned": analysis.planned},
        "environment": environment_of(run),
        "rows": [
            _row(run, analysis, sides, scenario, arm, trials)
            for scenario in run.scenarios
            for arm in run.arms
            if (trials := run.trials_of(scenario, arm))
        ],
    }


def _row(
    run: Run, analysis: RunAnalysis, sides: words.Naming, scenario: Scenario, arm: Arm, trials: Sequence[TrialRecord]
) -> Entry:
    """One scenario on one arm: medians over the trials that are not invalid, and the verdicts."""
    comparison = analysis.comparison(scenario, arm)
    # The page shows the baseline next to the first other arm, so its figure is by the tool of that comparison.
    comparison_with_tool = comparison or next(
        (c for other in run.compared_arms if (c := analysis.comparison(scenario, other))), None
    )
    figures = {
        name: _figure(trials, metric, comparison_with_tool.verdicts[name] if comparison_with_tool else None)
        for name, metric in METRICS.items()
        if run.kind(arm) is not MachineKind.METAL or not metric.guest_field or _is_alike(trials)
    }
    facts = machine_facts(run, scenario.server, arm)
    return {
        # Two runs have the same id for the same scenario on the same arm.
        "id": "/".join(map(str, (scenario.server, scenario.workload, *scenario.load.sort_key, arm))),
        "server": scenario.server,
        "workload": scenario.workload,
        "tool": run.tool(scenario),
        "environment": str(arm),
        "kind": run.kind(arm).value,
        "accelerator": run.accelerator(arm).value,
        "hardware": run.hardware(arm).value,
        **platform(run, arm),
        "load": _load(scenario, trials),
        "trials": {v.value: sum(trial.validity is v for trial in trials) for v in Validity},
        "figures": {name: figure for name, figure in figures.items() if figure},
        "verdicts": _verdicts(comparison, sides(comparison)) if comparison else {},
        "premises": scenario_facts(run, scenario, arm) | {k: v for k, v in facts.items() if k in DECISIVE},
        "others": {name: value for name, value in facts.items() if name not in DECISIVE},
    }


def _is_alike(trials: Sequence[TrialRecord]) -> bool:
    """Return whether a host's CPU is the same account on every arm: metal has its own then."""
    return any(trial.primary and trial.primary.machine_cpu for trial in trials)


def _ratio(verdict: Verdict) -> Entry:
    """The ratio, compared ÷ baseline, with the interval that decided and the blocks; empty if nothing is judged."""
    estimate, blocks = verdict.estimate, verdict.blocks_range
    if estimate is None or verdict.kind is Kind.NOT_JUDGED:
        return {}
    ends = (estimate.value, estimate.low, estimate.high)
    span = (blocks.low, blocks.high) if verdict.by_every_block and blocks else None
    return {
        "ratio": _rounded(ends),
        "level": None if verdict.confidence is None else float(f"{1 - verdict.confidence:.5g}"),
        "every_block": _rounded(span) if span else None,
        "open": [verdict.open_low, verdict.open_high],
        "effects": [[each.block, *_rounded((each.low, each.mid, each.high))] for each in verdict.effects],
    }


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.5g}") for value in values]


def _load(scenario: Scenario, trials: Sequence[TrialRecord]) -> str:
    """The load as text; for a share of the capacity, also the median rate that it gave, in req/s."""
    offered = [rps for trial in trials if (rps := trial.offered.offered_rps) is not None]
    text = words.load_text(scenario.load)
    return f"{text}, {median(offered):,.0f} req/s" if scenario.load.kind is LoadKind.SHARE and offered else text


def _figure(trials: Sequence[TrialRecord], metric: Metric, verdict: Verdict | None) -> Entry | None:
    """The median of the measurement that the verdict used, else of the first that has figures.

    `failed` is the share of requests that failed, for metrics that failures affect (not CPU).
    """
    for role in [verdict.role] if verdict and verdict.role else list(Role):
        usable = [trial for trial in trials if trial.validity is not Validity.INVALID]
        values = [value for trial in usable if (value := metric.value(trial, role))]
        measured = next((m for trial in usable if (m := trial.measurement(role))), None)
        if values and measured:
            share = availability(trials, role) if metric.limits else None
            return {
                "median": float(f"{median(values):.6g}"),
                "source": measured.tool,
                "failed": float(f"{1 - share.share:.3g}") if share else None,
            }
    return None


def _verdicts(comparison: Comparison, sides: words.Sides) -> Entry:
    """The verdicts with blocks, with lost trials, or with a reason why there is no figure to compare."""
    return {
        name: {
            "kind": verdict.kind.value,
            "applies": verdict.applies,
            "text": words.verdict_text(verdict, sides),
            "estimate": words.estimate_text(verdict),
            "notes": words.notes_text(verdict, sides),
            **_ratio(verdict),
        }
        for name, verdict in comparison.verdicts.items()
        if verdict.blocks
        or verdict.baseline.lost + verdict.compared.lost
        or verdict.because is VerdictReason.NOT_MEASURED
        or (name == THROUGHPUT.name and not verdict.applies)
    }
