"""The analysis of a run, and its JSON."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from vmtoll.model.claim import ClaimResult
from vmtoll.model.finding import Code, Validity
from vmtoll.model.hardware import Hardware
from vmtoll.model.run import OneBoot
from vmtoll.model.trial import Arm, Scenario
from vmtoll.model.verdict import (
    Comparison,
    ControlEffects,
    OperationEffect,
    StartFigures,
    TuningResult,
)

# Significant digits of a number in analysis.json: enough to recompute each log ratio to 1e-11. Further digits differ
# from CPU to CPU.
DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class RunAnalysis:
    """The analysis of a run."""

    run_id: str
    comparisons: tuple[Comparison, ...]
    controls: tuple[ControlEffects, ...] = ()
    counts: Mapping[Validity, int]  # validity → trials
    attempts: int
    planned: int
    findings: Mapping[Code, int]  # code → trials that have it
    blocks: int
    boots: int = 1
    margin: float
    # the largest of any comparison's throughput, or of its tail in a run without throughput, a fraction
    noise_floor: float | None = None
    undeclared_differences: int
    tuning_steps: TuningResult | None = None
    # `operations`, `first_answers`: None without any
    operations: tuple[OperationEffect, ...] | None = None
    first_answers: tuple[StartFigures, ...] | None = None
    claims: tuple[ClaimResult, ...]
    searches: tuple[str, ...]  # workloads that search for a rate, which are not compared
    complete: bool
    emulated: bool  # a guest ran under software emulation
    kvm_hardware: tuple[Hardware, ...] = ()  # what the hosts of the guests under KVM run on
    unseen_hosts: tuple[str, ...] = ()  # guests whose KVM host the inventory does not name
    one_boot: OneBoot | None = None  # why the run has one boot, where that is recorded
    # what the embedded lab restarted between several boots, whose host it did not reboot
    restarted: tuple[str, ...] | None = None

    def comparison(self, scenario: Scenario, arm: Arm) -> Comparison | None:
        """The comparison of one scenario on one arm; None where there is none."""
        return next((c for c in self.comparisons if (c.scenario, c.arm) == (scenario, arm)), None)


_ANALYSIS = TypeAdapter(RunAnalysis)


def to_json(analysis: RunAnalysis) -> bytes:
    """analysis.json; figures are rounded to the digits that every CPU computes alike."""
    exact = _ANALYSIS.dump_json(analysis, exclude_none=True)
    content = json.loads(exact, parse_float=lambda text: float(f"{float(text):.{DIGITS}g}"))
    return json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n"


def from_json(content: bytes | str) -> RunAnalysis:
    """An analysis from its JSON. Raises pydantic.ValidationError."""
    return _ANALYSIS.validate_json(content)
