"""A run as analysis needs it: its trials by scenario and arm, its latencies, the facts of its machines."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vmtoll.analysis.histograms import Floats
from vmtoll.analysis.sets import Disturbance
from vmtoll.analysis.thinning import latencies
from vmtoll.model.columns import COLUMNS, flat
from vmtoll.model.facts import HostFacts
from vmtoll.model.finding import Role
from vmtoll.model.hardware import Hardware, hardware_below_guests, hardware_of
from vmtoll.model.service import ServicePage
from vmtoll.model.table import columns_of
from vmtoll.model.trial import Accelerator, Arm, ClientPlace, MachineKind, Scenario, TrialRecord, last_attempts
from vmtoll.runs import folder

_KINDS = {column.name: column.kind for column in columns_of(TrialRecord)}


@dataclass(frozen=True)
class Run(folder.StoredRun):
    """A stored run, with what analysis derives from it and keeps."""

    @cached_property
    def trials(self) -> tuple[TrialRecord, ...]:
        """The last attempt at each trial."""
        return tuple(last_attempts(self.records))

    @cached_property
    def pages(self) -> list[ServicePage]:
        """What a service answered to each URL when the run began; empty for vmtoll's own servers, and in bundles."""
        return folder.read_pages(self.path)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The trials as a table: COLUMNS, and the objects `arm`, `scenario` and `record`."""
        return frame_of(self.trials)

    @property
    def baseline(self) -> Arm:
        """The arm that every other one is compared with."""
        return self.manifest.experiment.baseline_arm

    @cached_property
    def arms(self) -> list[Arm]:
        """The baseline, then the others by name, each followed by its control."""
        first = self.baseline.environment
        arms = {trial.arm for trial in self.trials}
        return sorted(arms, key=lambda arm: (arm.environment != first, arm.environment, arm.replicate))

    @property
    def compared_arms(self) -> list[Arm]:
        """Every arm that is compared with the baseline, controls left out."""
        return [arm for arm in self.arms if arm != self.baseline and not arm.is_control]

    @property
    def guests(self) -> list[Arm]:
        """Every environment that is a guest, including the baseline if it is one; controls left out."""
        return [arm for arm in self.arms if self.kind(arm) is MachineKind.GUEST and not arm.is_control]

    @property
    def metal(self) -> list[Arm]:
        """Every environment that is metal or a change of it, including the baseline if it is one; controls left out."""
        return [arm for arm in self.arms if self.kind(arm) is MachineKind.METAL and not arm.is_control]

    def is_container_as_metal(self, arm: Arm) -> bool:
        """Return whether an environment stands for metal in the embedded lab, where it is a container."""
        return self.manifest.lab == "embedded" and self.kind(arm) is MachineKind.METAL

    def kind(self, arm: Arm) -> MachineKind:
        """What an arm's machine is: of a change or an operation, the machine that it is made to."""
        return self.manifest.experiment.kind_of(arm.environment)

    def machine(self, environment: str) -> HostFacts:
        """The facts of an environment's machine, for a change or an operation of the one that it is made to; without
        facts where none was recorded.
        """
        if environment not in self._machines:
            machine_of = self.manifest.experiment.machine_of
            named = (facts for facts in self.hosts.values() if facts.environment)
            machine = machine_of(environment)
            of_machine = (facts for facts in named if machine_of(facts.environment or "") == machine)
            self._machines[environment] = next(of_machine, None) or HostFacts()
        return self._machines[environment]

    @cached_property
    def _machines(self) -> dict[str, HostFacts]:
        return {}

    @property
    def controls(self) -> list[Arm]:
        """The A/A controls: an environment measured a second time in each block."""
        return [arm for arm in self.arms if arm.is_control]

    @cached_property
    def scenarios(self) -> list[Scenario]:
        """Scenarios by server, closed loops first, then from light to heavy load."""
        return sorted({trial.scenario for trial in self.trials}, key=lambda scenario: scenario.sort_key)

    @cached_property
    def compared_scenarios(self) -> list[Scenario]:
        """The scenarios whose sides are compared block by block: not searches, which choose each side's rates."""
        return [scenario for scenario in self.scenarios if scenario.workload not in self.manifest.searches]

    @cached_property
    def _groups(self) -> Mapping[tuple[Scenario, Arm], list[TrialRecord]]:
        groups: dict[tuple[Scenario, Arm], list[TrialRecord]] = {}
        for trial in self.trials:
            groups.setdefault((trial.scenario, trial.arm), []).append(trial)
        return groups

    @cached_property
    def earlier_attempts(self) -> Mapping[tuple[int, int], list[TrialRecord]]:
        """Key of a trial → the attempts at it before the last one."""
        attempts: dict[tuple[int, int], list[TrialRecord]] = {}
        for record in self.records:
            attempts.setdefault(record.key, []).append(record)
        return {key: ordered[:-1] for key, ordered in attempts.items() if len(ordered) > 1}

    def is_foreign(self, machine: str | None, arm: Arm) -> bool:
        """Return whether a machine is known and does not belong to this arm alone: a client, the machine of another
        environment, or a host that carries more than one guest (in the embedded lab any host).
        """
        facts = self.hosts.get(machine or "")
        machine_of = self.manifest.experiment.machine_of
        if facts is None or machine_of(facts.environment or "") == machine_of(arm.environment):
            return False
        guests = {machine_of(o.environment) for o in self.arms if self.accelerator(o) is not Accelerator.NONE}
        is_alone = facts.is_kvm_host and self.manifest.lab != "embedded" and guests == {machine_of(arm.environment)}
        return not is_alone

    @cached_property
    def disturbances(self) -> dict[tuple[str, Role], Disturbance | None]:
        """Cache: (trial name, role) → the disturbance of that measurement."""
        return {}

    @cached_property
    def derived(self) -> dict[Hashable, Any]:
        """Cache: key → what a package above derives from the run, once."""
        return {}

    @cached_property
    def _latencies(self) -> dict[tuple[str, Role], tuple[Floats, Floats] | None]:
        return {}

    def latencies(self, trial: TrialRecord, role: Role) -> tuple[Floats, Floats] | None:
        """(latencies in µs, ascending; how many requests took at most that long) of one measurement; None without a
        histogram. Read once. Raises LoadError.
        """
        key = (trial.name, role)
        if key not in self._latencies:
            latency_counts = latencies(self.path, trial, role)
            self._latencies[key] = None if latency_counts is None else (latency_counts[0], np.cumsum(latency_counts[1]))
        return self._latencies[key]

    def share_of(self, blocks: Collection[int]) -> float:
        """Share of the 5% that a comparison of these blocks may spend, a fraction.

        All of it where the number of blocks was fixed; else the share of the first look after the last of these blocks,
        and 0 before that look.
        """
        if self.manifest.experiment.until is None:
            return 1.0
        shares = (look.share for look in self.manifest.looks if look.blocks >= max(blocks, default=0))
        return next(shares, 0.0)

    def trials_of(self, scenario: Scenario, arm: Arm) -> list[TrialRecord]:
        """The last attempts at the trials of one scenario on one arm, by block."""
        return list(self._groups.get((scenario, arm), ()))

    def tool(self, scenario: Scenario) -> str:
        """The load tool of a scenario."""
        return self.manifest.workloads[scenario.workload].tool

    def crosscheck(self, scenario: Scenario) -> str | None:
        """The tool of a scenario's cross-check; None without one."""
        return self.manifest.workloads[scenario.workload].crosscheck

    def tool_of(self, scenario: Scenario, role: Role) -> str | None:
        """The tool of a measurement."""
        return self.tool(scenario) if role is Role.PRIMARY else self.crosscheck(scenario)

    @property
    def local_workloads(self) -> list[str]:
        """The workloads whose client was on the machine under test itself."""
        return sorted({trial.scenario.workload for trial in self.trials if trial.client is ClientPlace.LOCALHOST})

    def accelerator(self, arm: Arm) -> Accelerator:
        """Accelerator that ran the code of an arm's machine."""
        return self.manifest.accelerators.get(arm.environment, Accelerator.UNKNOWN)

    def hardware(self, arm: Arm) -> Hardware:
        """Platform of the host that carries an arm's machine; for an older run, from the facts of its hosts."""
        environment = arm.environment
        if environment in self.manifest.hardware:
            return self.manifest.hardware[environment]
        if self.accelerator(arm) is not Accelerator.NONE:
            return hardware_below_guests(self.hosts.values())
        return hardware_of(self.machine(environment))

    @cached_property
    def kvm_hardware(self) -> tuple[Hardware, ...]:
        """Platforms of the hosts of the guests under KVM, each once; empty without such a guest."""
        kinds = {self.hardware(arm) for arm in self.guests if self.accelerator(arm) is Accelerator.KVM}
        return tuple(kind for kind in Hardware if kind in kinds)

    @cached_property
    def emulated(self) -> bool:
        """Return whether any environment ran under software emulation, by the manifest or by any record."""
        return self.manifest.emulated or any(record.accelerator is Accelerator.TCG for record in self.records)


def frame_of(trials: Sequence[TrialRecord]) -> pd.DataFrame:
    """Trials as a table: COLUMNS with numeric types, text empty where it is missing, and the objects `arm`,
    `scenario` and `record`.
    """
    rows = [flat(trial) for trial in trials]
    columns: dict[str, Any] = {}
    for name in COLUMNS:
        values: list[Any] = [row[name] for row in rows]
        match _KINDS[name]:
            case "integer":
                columns[name] = pd.array(values, dtype="Int64")
            case "number":
                columns[name] = np.array(values, dtype=float)
            case _:
                columns[name] = np.array(["" if value is None else value for value in values], dtype=object)
    frame = pd.DataFrame(columns)
    for name in ("arm", "scenario"):
        frame[name] = pd.Series([getattr(trial, name) for trial in trials], dtype=object)
    frame["record"] = pd.Series(list(trials), dtype=object)
    return frame


def load_run(run_dir: Path | str) -> Run:
    """Read a run's folder. Raises LoadError."""
    return Run(**vars(folder.read(Path(run_dir))))


def by_block(trials: Sequence[TrialRecord]) -> dict[int, list[TrialRecord]]:
    """Block → its trials."""
    ordered = sorted(trials, key=lambda trial: trial.key)
    return {block: list(members) for block, members in groupby(ordered, key=lambda trial: trial.block)}
