"""A column for each figure: of the trial's own tool without a prefix, of the cross-check with it."""

from dataclasses import replace

from tests.support.records import make_record
from vmtoll.model.columns import COLUMNS, flat
from vmtoll.model.finding import Role
from vmtoll.model.trial import Conditions, Measurement, Resources, from_json

CONDITIONS = Conditions(background_cpu_pct=0.4, clock_step_ms=1.0)


def test_each_column_is_there_once_and_each_row_is_in_their_order() -> None:
    assert len(COLUMNS) == len(set(COLUMNS))
    assert list(flat(make_record())) == COLUMNS


def test_conditions_of_a_cross_check_have_columns_of_their_own() -> None:
    record = replace(
        make_record(measured={"background_cpu_pct": 0.4, "cpus": 2, "retransmitted_segments": 3}), conditions=CONDITIONS
    )
    crosscheck = Measurement(role=Role.CROSSCHECK, tool="oha", background_cpu_pct=5.0, steal_pct=0.2, cpus=2)
    row = flat(replace(record, measurements=(*record.measurements, crosscheck)))
    assert (row["background_cpu_pct"], row["cpus"], row["retransmitted_segments"]) == (0.4, 2, 3)
    assert (row["crosscheck_background_cpu_pct"], row["crosscheck_steal_pct"], row["crosscheck_cpus"]) == (5.0, 0.2, 2)
    assert row["steal_pct"] is None


def test_an_older_record_fills_the_columns_that_it_had() -> None:
    """Before its measurements had conditions, the trial alone had them."""
    line = (
        '{"run_id":"r","block":1,"order":1,"attempt":1,"arm":{"environment":"metal"},"accelerator":"none",'
        '"scenario":{"server":"nginx","workload":"w","load":{"kind":"closed","value":10}},"client":"remote",'
        '"clients":1,"guests":1,"started_at":"2026-01-01T00:00:00Z","measurements":[{"role":"primary","tool":"siege",'
        '"transactions":9}],"resources":{"steal_pct":0.3},"conditions":{"background_cpu_pct":0.4,"clock_step_ms":1.0}}'
    )
    record = from_json(line)
    assert (record.conditions, record.resources) == (CONDITIONS, Resources(steal_pct=0.3))
    row = flat(record)
    assert (row["steal_pct"], row["background_cpu_pct"], row["clock_step_ms"]) == (0.3, 0.4, 1.0)
    assert row["cpus"] is row["crosscheck_background_cpu_pct"] is None
