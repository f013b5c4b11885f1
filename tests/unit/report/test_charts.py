"""Each figure shows what the synthetic run was made of."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support.records import BASELINE
from tests.support.synthetic_run import (
    CONTROL,
    DEADLINE_MS,
    SECONDS,
    SWEEP,
    Row,
    Truth,
    closed_load,
    failed_trial,
    make_run,
    rate_load,
    share_load,
    with_findings,
)
from vmtoll.analysis.histograms import merged_histogram
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.finding import Code, Finding, Role, Validity
from vmtoll.model.trial import Arm, Scenario
from vmtoll.report.charts import draw_all, heat
from vmtoll.report.charts.goodput import link_ceiling_rps
from vmtoll.report.charts.percentiles import values_at
from vmtoll.report.html import write_report
from vmtoll.report.panels import panel_groups, single_loads
from vmtoll.report.plot import Chart, arm_style, usable_trials
from vmtoll.report.tables import availability, finding_counts
from vmtoll.report.words import duration
from vmtoll.trial.latency import by_second

pytestmark = pytest.mark.slow

LOADS = (closed_load(), share_load(0.3), share_load(0.7), share_load(1.1))
GUEST = Arm("kvm-default")
SERVERS = {"lighttz": 0.9, "nginx": 0.5}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    truth = Truth(SERVERS, loads=LOADS, histograms=True, link="100mbit")
    return load_run(make_run(tmp_path_factory.mktemp("sweep"), truth))


@pytest.fixture(scope="module")
def drawn(run: Run) -> dict[str, Chart]:
    return dict(draw_all(run, analyse(run)))


def test_closed_and_open_loops_are_separate_and_labelled(drawn: dict[str, Chart]) -> None:
    for name in ("percentiles", "ecdf", "heat", "slopes"):
        loops = [
            re.search(r"\((closed loop, 10 users|open loop, (30|110)% of capacity)\)$", chart.title)
            for key, chart in drawn.items()
            if key.rpartition("-")[0] == name
        ]
        assert [loop[1] for loop in loops if loop] == [
            "closed loop, 10 users", "open loop, 30% of capacity", "open loop, 110% of capacity",
        ]  # fmt: skip
    for chart in drawn.values():
        assert len(chart.alt) > 20
        assert chart.caption.endswith(".")


def test_a_sweep_is_one_group_and_its_ends_are_shown(run: Run) -> None:
    assert [(group.is_open, group.loads) for group in panel_groups(run)] == [(False, LOADS[:1]), (True, LOADS[1:])]
    assert [group.loads[0] for group in single_loads(run)] == [LOADS[0], LOADS[1], LOADS[3]]


def test_percentiles_are_those_of_all_requests_merged(run: Run, drawn: dict[str, Chart]) -> None:
    trials = usable_trials(run, Scenario("nginx", SWEEP, share_load(0.3)), GUEST)
    histogram = merged_histogram(run.path, trials)
    assert histogram is not None
    assert histogram.get_total_count() == 2000 * len(trials)
    quoted = re.search(r"nginx on kvm-default: p50 (.*?), p99 (.*?), p99.9", drawn["percentiles-2"].alt)
    assert quoted
    for words, percentile in zip(quoted.groups(), (50, 99), strict=True):
        assert words == duration(histogram.get_value_at_percentile(percentile))


def test_a_share_is_a_value_that_was_seen() -> None:
    values, counts = np.array([10.0, 20.0, 400.0]), np.array([5.0, 9.0, 10.0])
    assert values_at(values, counts, np.array([0, 0.5, 0.51, 0.9, 0.91, 1])).tolist() == [10, 10, 20, 20, 400, 400]


def test_goodput_falls_where_the_deadline_is_missed(run: Run, drawn: dict[str, Chart]) -> None:
    chart = drawn["goodput-1"]
    assert f"within {DEADLINE_MS:g} ms" in chart.caption
    assert "before the knee" not in chart.caption
    assert "1,371 bodies per second" in chart.caption  # 100 Mbit/s of bodies of 9,120 bytes
    assert link_ceiling_rps(run, run.frame) == pytest.approx(100e6 / 8 / 9120)
    best = re.search(r"lighttz on metal: at most ([\d,]+) good answers per second, of ([\d,]+) offered", chart.alt)
    assert best
    good, offered = (float(number.replace(",", "")) for number in best.groups())
    seventy = usable_trials(run, Scenario("lighttz", SWEEP, share_load(0.7)), BASELINE)
    assert offered == pytest.approx(seventy["offered_rps"].median(), abs=1)
    assert good == pytest.approx(offered, rel=0.01)
    assert "p99" in drawn["knee-1"].title


def _behind(rates: tuple[float, ...], code: Code, late_us: float = 1e6) -> Callable[[Row], list[Row]]:
    """At these rates the goodput breaks down to a tenth, with a finding."""

    def change(row: Row) -> list[Row]:
        if row["load"].value not in rates:
            return [row]
        figures = {"goodput_rps": row["goodput_rps"] / 10}
        for percentile in ("p99", "p999"):
            figures |= {f"response_time_{percentile}_us": 1e6, f"lateness_{percentile}_us": late_us}
        return [with_findings(row, Finding(code, 0.8, 0.98, role=Role.PRIMARY)) | figures]

    return change


@pytest.mark.parametrize(
    ("change", "why", "kept"),
    [
        (None, "no rate above 1,200 was asked for", "1,200, the highest that counts"),
        (_behind((1200,), Code.RATE_NOT_REACHED), "the load tool fell behind at 1,200", "800, the highest that counts"),
        (_behind((1200,), Code.CLIENT_SATURATED), "the load tool fell behind at 1,200", "800, the highest that counts"),
        (_behind((1200,), Code.TIMED_OUT), "no trial above 800 was valid", "800, the highest that counts"),
        (_behind((1200,), Code.RATE_NOT_REACHED, late_us=1e5), None, "800"),
        (_behind((400,), Code.RATE_NOT_REACHED), None, "none of the rates"),
        (_behind((400, 800, 1200), Code.RATE_NOT_REACHED), "the load tool fell behind at 400", "none of the rates"),
    ],
)
def test_the_caption_explains_rates_that_end_before_the_knee(
    tmp_path: Path, change: Callable[[Row], list[Row]] | None, why: str | None, kept: str
) -> None:
    """A tool that is late because its server is overloaded does not end the sweep: its delay is below the server's."""
    loads = tuple(map(rate_load, (400, 800, 1200)))
    sweep = load_run(make_run(tmp_path, Truth(blocks=2, loads=loads, change=change)))
    chart = dict(draw_all(sweep, analyse(sweep)))["goodput-1"]
    assert ("before the knee" in chart.caption) == (why is not None)
    assert why is None or f"nginx on metal ({why})" in chart.caption, chart.caption
    on_metal, _, _ = chart.alt.partition("nginx on kvm-default")
    assert re.search(rf"keeps (up to|up with) {kept}(\.|;|$)", on_metal.strip()), chart.alt


def test_no_curve_without_a_sweep(tmp_path: Path) -> None:
    single = load_run(make_run(tmp_path, Truth(loads=(rate_load(2000),), blocks=2)))
    names = {name.rpartition("-")[0] for name, _ in draw_all(single, analyse(single))}
    assert names.isdisjoint({"goodput", "knee", "heat", "percentiles", "ecdf", "throughput"})
    assert "slopes" in names


def test_a_stall_is_seen_in_its_second(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=2, histograms=True, loads=(rate_load(2000),), aa=False))
    single = load_run(path)
    trials = single.trials_of(single.scenarios[0], BASELINE)
    counted = heat.by_second(single, trials)
    layout = heat.layout_of(counted)
    assert (layout.blocks, layout.seconds, layout.width) == ((1, 2), 1, SECONDS)
    before = heat.cells_of(counted, layout)
    assert before.groupby("column")["share"].sum().to_list() == pytest.approx([1.0] * 2 * SECONDS)
    (name,) = [trial.name for trial in trials if trial.block == 2]
    sent = np.arange(SECONDS * 1000, dtype=np.int64) * 1000
    latencies = np.where((sent >= 1_000_000) & (sent < 1_400_000), 1_400_000 - sent, 300)
    (path / "histograms" / f"{name}.csv").write_bytes(by_second(sent, latencies))
    slowest = heat.cells_of(heat.by_second(single, trials), layout).groupby("column")["latency_us"].max()
    assert slowest.idxmax() == SECONDS + 1
    assert slowest.max() == 398_107  # the bin that holds 400 ms
    (path / "histograms" / f"{name}.csv").write_text("second,latency_us,count\n0,many,1\n")
    with pytest.raises(ValueError, match=rf"{name}\.csv: .*second,latency_us,count"):
        heat.by_second(single, trials)
    (path / "histograms" / f"{name}.csv").unlink()
    assert heat.by_second(single, trials).empty


def test_many_seconds_share_a_column() -> None:
    counted = pd.DataFrame({"block": [1, 3], "second": [0, 59], "latency_us": [100, 200], "count": [1, 1]})
    layout = heat.layout_of(counted)
    assert (layout.blocks, layout.seconds, layout.width) == ((1, 3), 3, 20)
    assert heat.cells_of(counted, layout)["column"].to_list() == [0, 39]


def test_findings_are_counted_by_arm_and_failures_by_side(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        if row["arm"] == GUEST and row["block"] <= 2:
            return [failed_trial(row, Code.TOOL_FAILED, "killed")]
        return [row | {"failed": 200, "successful": 19800}] if row["arm"] == BASELINE else [row]

    broken = load_run(make_run(tmp_path, Truth(blocks=8, change=change)))
    ((code, kind, counts),) = finding_counts(broken, analyse(broken))
    assert (code, kind.severity) == (Code.TOOL_FAILED, Validity.INVALID)
    assert counts == {BASELINE: 0, CONTROL: 0, GUEST: 2}
    rows = {(row.arm, row.tool): row for row in availability(broken)}
    metal, guest = rows[BASELINE, "siege"], rows[GUEST, "siege"]
    assert (metal.share.requests, metal.failed) == (160_000, 1600)
    assert (guest.share.requests, guest.failed) == (120_000, 0)
    assert metal.share.low < 0.99 < metal.share.high
    text = write_report(broken, analyse(broken)).read_text(encoding="utf-8")
    assert "1,600 failed requests of 880,000" in text


def test_a_control_of_a_guest_looks_like_it_but_hollow(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, Truth(blocks=2, aa=False, guest_control="kvm-default")))
    own, again = arm_style(run, GUEST), arm_style(run, Arm("kvm-default", 2))
    assert (own.colour, own.marker) == (again.colour, again.marker)
    assert (own.filled, again.filled) == (True, False)
    assert own.label != again.label
    assert dict(draw_all(run, analyse(run)))


def test_the_sections_of_the_report_are_in_order(run: Run) -> None:
    text = write_report(run, analyse(run)).read_text(encoding="utf-8")
    places = [text.index(mark) for mark in ("<svg", *(f'id="{name}"' for name in ("rests", "verdicts", "trials")))]
    assert places == sorted(places)
    assert "vegeta, open loop" in text
    assert "h2load, closed loop: no tail" in text
    assert " against throughput show all " in text
    assert (run.path / "report.html").stat().st_size < 1_500_000
