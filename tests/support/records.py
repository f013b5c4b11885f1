"""The records of a run, and the findings that they may have."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.trial import METAL, Accelerator, Arm, ClientPlace, Measurement, Offered, Scenario, TrialRecord
from vmtoll.runs.store import Store

# Findings that other tenants of the test's machine may cause in any trial. It has few cores, runs on a hypervisor, and
# counts retransmits of all users of its loopback together.
BUSY = frozenset({
    Code.BACKGROUND_CPU, Code.CLIENT_LATE, Code.CLIENT_SATURATED, Code.CLIENT_STARVED, Code.FREQUENCY_SPREAD,
    Code.HOST_BACKGROUND_CPU, Code.LITTLES_LAW, Code.MEAN_OVER_P99, Code.RATE_NOT_REACHED, Code.RETRANSMITS,
    Code.STALLED, Code.START_SPREAD, Code.STEAL, Code.WARMUP_DRIFT,
})  # fmt: skip

BASELINE = Arm(METAL)
TWO_USERS = Load(LoadKind.CLOSED, 2)


def records_of(run_dir: Path) -> list[TrialRecord]:
    """Every attempt, as a resumed run reads it."""
    store = Store(run_dir)
    try:
        return list(store.records())
    finally:
        store.close()


def primary(record: TrialRecord) -> Measurement:
    """The primary measurement of a trial that has one."""
    assert record.primary is not None, record.findings
    return record.primary


def crosscheck(record: TrialRecord) -> Measurement:
    """The cross-check's measurement of a trial that has one."""
    assert record.crosscheck is not None, record.findings
    return record.crosscheck


def assert_sound(records: Iterable[TrialRecord]) -> None:
    """Fail if a record has findings that a busy machine does not explain."""
    for record in records:
        assert record.codes <= BUSY, record.findings


def make_record(
    block: int = 1,
    order: int = 1,
    attempt: int = 1,
    *,
    arm: Arm = BASELINE,
    load: Load = TWO_USERS,
    findings: tuple[Finding, ...] = (),
    measured: Mapping[str, float] | None = None,
) -> TrialRecord:
    """A record that was never measured; `measured`: the figures of its primary measurement, None without one."""
    bare = Measurement(role=Role.PRIMARY, tool="siege")
    measurements = () if measured is None else (bare.with_columns(measured),)
    return TrialRecord(
        run_id="run",
        block=block,
        order=order,
        attempt=attempt,
        arm=arm,
        accelerator=Accelerator.NONE,
        scenario=Scenario("lighttz", "tiny", load),
        client=ClientPlace.REMOTE,
        clients=1,
        guests=1,
        started_at="2026-11-22T12:00:00.000+00:00",
        offered=Offered(users=int(load.value)) if load.kind is LoadKind.CLOSED else Offered(),
        measurements=measurements,
        findings=findings,
    )
