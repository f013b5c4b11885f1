"""What a run in the lab recorded, and which of its findings the lab's surroundings explain."""

from collections.abc import Sequence
from pathlib import Path

from tests.support.measured import plan, run
from vmtoll.lab import embedded
from vmtoll.model.event import Event, Listener
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.load import Load
from vmtoll.model.trial import Accelerator, Measurement, TrialRecord, from_json
from vmtoll.shell import say
from vmtoll.spec.catalog import Registry

Records = list[TrialRecord]

# Every record that the current test has measured; tests/lab/conftest.py compares them with its mark `injects`.
MEASURED: Records = []

# The hypervisor below this machine, or one of its other users, took CPU time from the lab.
TAKEN = frozenset({Code.STEAL, Code.HOST_BACKGROUND_CPU, Code.CLIENT_STARVED})
# What too few cores do to a load of seconds: the lab's client, metal and guest share those of one machine. A segment is
# sent again when its acknowledgement is some ms late; while a core is away, the pace changes within the load, and fewer
# requests are in flight than there are users.
CROWDED = frozenset({Code.RETRANSMITS, Code.WARMUP_DRIFT, Code.LITTLES_LAW})
# Findings of the same trial that stolen CPU time explains: late answers, sends or wake-ups.
FOLLOWS = frozenset({Code.STALLED, Code.MEAN_OVER_P99, Code.RATE_NOT_REACHED, Code.CLIENT_LATE, Code.START_SPREAD})
# The threads of an emulated guest's own kernel are slow as well.
EMULATED = frozenset({Code.BACKGROUND_CPU})

# What limits a load in the lab by its kind, not by accident: siege uses more CPU than a fast server, h2load and ab come
# near their one core, and an open loop at a share of a fast server may fill it.
BY_CLIENT = frozenset({Code.CLIENT_SATURATED})
BY_OPEN_CLIENT = BY_CLIENT | {Code.RATE_NOT_REACHED, Code.CLIENT_LATE}
# A fault that is injected by a shell on the machine under test takes some of its CPU.
BY_INJECTION = frozenset({Code.BACKGROUND_CPU})


def ignore(_: Event) -> None:
    """Hear nothing."""


def measure(
    experiment: Path, inventory: Path, results: Path, listener: Listener = ignore, registry: Registry | None = None
) -> tuple[Path, Records]:
    """Run an experiment in the lab, which gets its load tools; its folder and every attempt's record."""
    embedded.equip(plan(experiment, registry or Registry()).resolved.workloads.values(), say)
    folder = run(experiment, inventory, results, listener=listener, registry=registry)
    return folder, records_of(folder)


def records_of(folder: Path) -> Records:
    """Every attempt's record, in the order in which they were stored."""
    records = [from_json(line) for line in (folder / "trials.jsonl").read_bytes().splitlines()]
    MEASURED.extend(records)
    return records


def undisturbed(record: TrialRecord) -> frozenset[Code]:
    """The record's codes without those that the lab's surroundings explain.

    TAKEN and CROWDED always; FOLLOWS where one of TAKEN fired; EMULATED on a guest without KVM.
    """
    explained = TAKEN | CROWDED | (FOLLOWS if record.codes & TAKEN else frozenset())
    return record.codes - explained - (EMULATED if record.accelerator is Accelerator.TCG else frozenset())


def findings(record: TrialRecord, code: Code, role: Role | None = None) -> Sequence[Finding]:
    """Those with this code; with `role`: those that limit this measurement."""
    return [one for one in record.findings if one.code is code and role in (None, one.role)]


def finding(record: TrialRecord, code: Code, role: Role | None = None) -> Finding:
    """The first of them; fails the test without one."""
    found = findings(record, code, role)
    assert found, f"no {code}: {record.findings}"
    return found[0]


def primary(record: TrialRecord) -> Measurement:
    """The primary measurement; fails the test without one."""
    assert record.primary, record.findings
    return record.primary


def number(value: float | None) -> float:
    """A figure that must have been measured."""
    assert value is not None
    return value


def load_of(record: TrialRecord) -> Load:
    return record.scenario.load
